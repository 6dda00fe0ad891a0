"""Hooks in hostile environments, without programs, on file systems at fault."""

from __future__ import annotations

import random

import pytest
from needs import only_with
from storm import storm

from mingle_hooks.hooks.files import Site

RUNS = 15  # of each scheduler's hooks, in every run of the tests


@only_with("root", "namespaces")
@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "torque"])
def test_no_hook_fails_or_writes_elsewhere_whatever_goes_wrong(scheduler: str) -> None:
    """Some runs of a seed that is another each time; storm() with it and a later one repeats a run that failed."""
    seed = random.randrange(1 << 31)  # noqa: S311 - no secret
    bad = [trial for trial in storm(scheduler, Site(), RUNS, seed) if trial.status or trial.said]
    assert bad == [], f"storm({scheduler!r}, Site(), {RUNS}, {seed})"
