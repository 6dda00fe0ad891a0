"""`make chaos`: run schedules from a seed on, or one with its trace.

python -m simulator --schedules 100000 --from 0
python -m simulator --seed 4711
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from simulator.rules import violations
from simulator.schedules import Schedule


def main() -> int:
    """Return 1 where a schedule broke a rule."""
    parser = argparse.ArgumentParser(prog="simulator")
    parser.add_argument("--seed", type=int, help="run this one, and print what happened")
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--schedules", type=int, default=5000)
    parser.add_argument("--most", type=int, default=10, help="stop after so many violations")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed)
    began, bad = time.monotonic(), 0
    ends: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.schedules):
        schedule = Schedule(seed)
        schedule.run()
        ends["formed" if any(p.answer for p in schedule.processes) else "not formed"] += 1
        if broken := violations(schedule):
            bad += 1
            print(f"seed {seed}: {'; '.join(broken)}", flush=True)
            if bad >= options.most:
                break
    print(f"{sum(ends.values())} schedules in {time.monotonic() - began:.1f} s, {dict(ends)}, {bad} broke a rule")
    return int(bad > 0)


def _one(seed: int) -> int:
    schedule = Schedule(seed, trace=True)
    schedule.run()
    print(schedule.plan)
    print("\n".join(schedule.trace or []))
    for process in schedule.processes:
        print(f"{process.name}: {process.outcome()}")
    broken = violations(schedule)
    print("\n".join(broken) or "no rule was broken")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
