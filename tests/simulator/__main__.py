"""`make chaos`: run schedules from a seed on, or one with its trace.

python -m simulator --schedules 100000 --from 0 --jobs 8
python -m simulator --seed 4711
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter

from simulator.rules import documented, violations
from simulator.schedules import Schedule

# A worker runs so many at a time, and looks for cycles among its objects only then.
BLOCK = 25
# How far it is, is told after so many.
TOLD_EVERY = 1000


def main() -> int:
    """Return 1 where a schedule broke a rule."""
    parser = argparse.ArgumentParser(prog="simulator")
    parser.add_argument("--seed", type=int, help="run this one, and print what happened")
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--schedules", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, by default one for each core")
    parser.add_argument("--most", type=int, default=10, help="stop after so many violations")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed)
    began, bad, told = time.monotonic(), 0, TOLD_EVERY
    ends: Counter[str] = Counter()
    end = options.first + options.schedules
    blocks = [range(first, min(first + BLOCK, end)) for first in range(options.first, end, BLOCK)]
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for its, broken in pool.imap_unordered(_block, blocks):
            ends.update(its)
            for line in broken:
                print(line, flush=True)
            bad += len(broken)
            if bad >= options.most:
                break
            if ends["formed"] + ends["not formed"] >= told:
                told += TOLD_EVERY
                print(_tally(ends, bad, time.monotonic() - began), flush=True)
    print(_tally(ends, bad, time.monotonic() - began))
    return int(bad > 0)


def _block(seeds: range) -> tuple[Counter[str], list[str]]:
    """Return how many schedules ended how, and a line for each that broke a rule."""
    gc.disable()
    ends: Counter[str] = Counter()
    broken = []
    for seed in seeds:
        schedule = Schedule(seed)
        schedule.run()
        ends["formed" if any(p.answer for p in schedule.processes) else "not formed"] += 1
        ends["documented"] += bool(documented(schedule))
        if found := violations(schedule):
            broken.append(f"seed {seed}: {'; '.join(found)}")
    gc.collect()
    return ends, broken


def _tally(ends: Counter[str], bad: int, took_s: float) -> str:
    done = ends["formed"] + ends["not formed"]
    text = f"{done} schedules in {took_s:.0f} s ({done / took_s:.0f}/s): {ends['formed']} formed a world, "
    text += f"{ends['not formed']} did not; {bad} broke a rule; "
    return text + f"in {ends['documented']} a member missed COMMIT in the documented way"


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
