"""`mingle run` of a COMMAND that the kernel kills for want of memory, in a control group with little of it."""

import contextlib
import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.waiting import until
from needs import skip_for_want_of
from places import Places

LIMIT_BYTES = 128 << 20
# A program that takes more than that; of all in its group it is the one that the kernel kills.
EATS = "open('/proc/self/oom_score_adj', 'w').write('1000')\nb'x' * (1 << 30)\n"
# A bound on what hangs, not a measure.
PATIENCE_S = 20.0
# Where each version of control groups is, and its limits in the order of writing; not every kernel has the second.
VERSIONS = {
    Path("/sys/fs/cgroup/memory"): {
        "memory.limit_in_bytes": LIMIT_BYTES,
        "memory.memsw.limit_in_bytes": LIMIT_BYTES,
    },
    Path("/sys/fs/cgroup"): {"memory.max": LIMIT_BYTES, "memory.swap.max": 0},
}


@pytest.fixture
def group() -> Iterator[Path]:
    """Give a control group with little memory, in which the kernel kills who takes more; gone at the end."""
    for mount, limits in VERSIONS.items():
        place = mount / f"mingle-{uuid.uuid4().hex[:12]}"
        try:
            if _make(place, limits):
                yield place
                return
        finally:
            _remove(place)
    skip_for_want_of(["a control group with a limit of memory"])


def _make(place: Path, limits: dict[str, int]) -> bool:
    """Make it; tell whether it can have a limit."""
    first, second = limits
    with contextlib.suppress(OSError):
        place.mkdir()
        (place / first).write_text(str(limits[first]))
        if (place / second).exists():
            (place / second).write_text(str(limits[second]))
        return True
    return False


def _remove(place: Path) -> None:
    """Remove it, once the kernel is done with what ended there."""

    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            place.rmdir()
        return not place.exists()

    until(is_gone, f"{place} stays", PATIENCE_S)


def test_a_kill_for_want_of_memory_is_named(places: Places, group: Path) -> None:
    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    status, _, err = places.done(sys.executable, "-c", EATS, hosts="", preexec_fn=enter)
    assert status == 137
    assert re.search(r": killed by SIGKILL after \d+ s: out of memory$", err, re.MULTILINE), err
