"""Explore more of the model than the tests do: `python -m model`, in tests/; minutes, and some gigabytes."""

import sys
import time

from model.explore import explore
from model.protocol import Budget
from model.sizes import LARGE, SMALL, start

MOST_STATES = 3_000_000


def main() -> int:
    """Return 1 where a rule is broken."""
    return max(_run(*size) for size in SMALL + LARGE)


def _run(size: int, candidates: int, budget: Budget) -> int:
    began = time.monotonic()
    found = explore(start(size, candidates, budget), MOST_STATES)
    faults = ", ".join(f"{name} {count}" for name, count in budget._asdict().items() if count)
    seen = "all" if found.whole else "the first"
    print(f"{size} members, {candidates} would lead, {faults}: {seen} {found.states} states", end="")
    print(f" in {time.monotonic() - began:.0f} s, {found.worlds} with a world, {found.splits} documented splits")
    if found.wrong:
        print(f"{found.wrong}\n  " + "\n  ".join(found.steps))
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
