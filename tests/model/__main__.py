"""Explore more of the model than the tests do: `python -m model`, in tests/; minutes, and some gigabytes.

python -m model --members 3 --candidates 2 --breaks 2 --lapses 1
"""

from __future__ import annotations

import argparse
import sys
import time

from model.explore import explore
from model.protocol import Budget
from model.sizes import LARGE, SMALL, start


def main() -> int:
    """Return 1 where a rule is broken."""
    parser = argparse.ArgumentParser(prog="model")
    parser.add_argument("--members", type=int, help="this one, and what may go wrong as the other options say")
    parser.add_argument("--candidates", type=int, default=1, help="who would lead; one leads by right")
    parser.add_argument("--most", type=int, default=3_000_000, help="states to look at")
    for name in Budget._fields:
        parser.add_argument(f"--{name}", type=int, default=0)
    options = parser.parse_args()
    runs = SMALL + LARGE
    if options.members is not None:
        budget = Budget(*(getattr(options, name) for name in Budget._fields))
        runs = [(options.members, options.candidates, budget)]
    return max(_run(size, candidates, budget, options.most) for size, candidates, budget in runs)


def _run(size: int, candidates: int, budget: Budget, most: int) -> int:
    began = time.monotonic()
    found = explore(start(size, candidates, budget), most)
    faults = ", ".join(f"{name} {count}" for name, count in budget._asdict().items() if count)
    seen = "all" if found.whole else "the first"
    print(f"{size} members, {candidates} would lead, {faults}: {seen} {found.states} states", end="")
    print(f" in {time.monotonic() - began:.0f} s, {found.worlds} with a world, {found.splits} documented splits")
    if found.wrong:
        print(f"{found.wrong}\n  " + "\n  ".join(found.backend))
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
