"""`mingle run` of a COMMAND that the kernel kills for want of memory, in a control group with little of it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster.waiting import until
from needs import skip_for_want_of
from places import Places

LIMIT_BYTES = 128 << 20
# A program that takes more than that; of all in its group it is the one that the kernel kills.
EATS = "open('/proc/self/oom_score_adj', 'w').write('1000')\nb'x' * (1 << 30)\n"
# A bound on what hangs, not a measure.
PATIENCE_S = 20.0
# Goes in, says where it is, and eats.
_TRIES = """\
echo $$ >"$1/cgroup.procs" || exit 1
cat /proc/self/cgroup
exec "$2" -I -S -c "$3"
"""


class Version(NamedTuple):
    """A version of control groups: where they are, what stands in their files of limits, and who counts the killed."""

    mount: Path
    limits: dict[str, int]  # in the order of writing; without the first there are none
    counts: str


VERSIONS = (
    Version(
        Path("/sys/fs/cgroup/memory"),
        {"memory.limit_in_bytes": LIMIT_BYTES, "memory.memsw.limit_in_bytes": LIMIT_BYTES},
        "memory.oom_control",
    ),
    Version(Path("/sys/fs/cgroup"), {"memory.max": LIMIT_BYTES, "memory.swap.max": 0}, "memory.events"),
)


@pytest.fixture
def group() -> Iterator[Path]:
    """Give a control group with little memory, in which the kernel kills who takes more; gone at the end."""
    for version in VERSIONS:
        place = version.mount / f"mingle-{uuid.uuid4().hex[:12]}"
        try:
            if _make(version, place):
                yield place
                return
        finally:
            _remove(place)
    skip_for_want_of(["a control group with a limit of memory"])


def _make(version: Version, place: Path) -> bool:
    """Make it; tell whether the kernel kills in it, and says so where mingle looks: a process of ours tries it."""
    words = ["sh", "-c", _TRIES, "sh", str(place), sys.executable, EATS]
    try:
        place.mkdir()
        for number, (name, limit) in enumerate(version.limits.items()):
            if (place / name).exists():
                (place / name).write_text(str(limit))
            elif not number:
                return False
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        is_found = any(line.endswith(f":/{place.name}") for line in done.stdout.splitlines())
        is_counted = "oom_kill 1" in (place / version.counts).read_text().splitlines()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return done.returncode == -signal.SIGKILL and is_found and is_counted


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
