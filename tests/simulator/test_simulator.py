"""Five hundred schedules with everything that goes wrong, new ones every day, and the rules that hold after each.

A seed that breaks a rule is replayed, with all that happened, by `python -m simulator --seed SEED` in tests/.
"""

from datetime import datetime, timezone

import pytest

from simulator.defects import DEFECTS, defect
from simulator.rules import broken

# `make chaos` runs as many as one likes; the first ones run beside the model, in model/test_following.py.
FIRST, SCHEDULES, NEW, BLOCK = 300, 500, 250, 50
TODAY = datetime.now(timezone.utc).date().toordinal() * NEW  # the same in every process and when a test runs again
BLOCKS = [*range(FIRST, SCHEDULES, BLOCK), *(pytest.param(TODAY + n, id=f"today-{n}") for n in range(0, NEW, BLOCK))]


@pytest.mark.parametrize("first", BLOCKS)
def test_no_schedule_breaks_a_rule(first: int) -> None:
    """One world or none, each member with its place or with a reason in time, and nothing left open."""
    found = {seed: what for seed in range(first, first + BLOCK) if (what := broken(seed))}
    assert not found, f"python -m simulator --seed {next(iter(found))}: {found}"


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_put_in_on_purpose_is_found(name: str) -> None:
    """A rule that no defect breaks would prove nothing."""
    with defect(name):
        assert any(broken(seed) for seed in (DEFECTS[name][0], *range(SCHEDULES)))
