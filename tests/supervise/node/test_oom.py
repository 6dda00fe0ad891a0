"""What the kernel counts as killed for want of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mingle_hooks.run.processes import OomCounter as Counter
from mingle_hooks.run.processes import oom_files as files

if TYPE_CHECKING:
    from pathlib import Path

V1 = "9:name=systemd:/\n4:cpuset,memory:/slurm/uid_0/job_7/step_0\n0::/\n"
V2 = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"


@pytest.mark.parametrize(
    ("groups", "place", "before", "after"),
    [
        (V1, "memory/slurm/uid_0/job_7/step_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 3),
        (V1, "memory/memory.oom_control", "oom_kill 0\n", 1),
        (V2, "system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events", "oom 1\noom_kill 0\n", 1),
        (V2, "memory.events", "max 4\noom_kill 5\noom_group_kill 0\n", 7),
        (V2, "unified/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events", "oom_kill 5\n", 6),
    ],
)
def test_a_count_that_grows_tells_of_it(tmp_path: Path, groups: str, place: str, before: str, after: int) -> None:
    """In its own group, or where that is mounted in a container."""
    (tmp_path / "cgroup").write_text(groups)
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before)
    counter = Counter.here(str(tmp_path / "cgroup"), str(tmp_path))
    assert counter.path == str(file)
    assert not counter.has_grown()
    file.write_text(f"oom {after + 3}\noom_kill {after}\n")
    assert counter.has_grown()


def test_the_own_group_goes_before_the_one_above(tmp_path: Path) -> None:
    """Another job's memory is another's."""
    for place in ("memory/a", "memory"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "memory.oom_control").write_text("oom_kill 0\n")
    (tmp_path / "cgroup").write_text("4:memory:/a\n")
    counter = Counter.here(str(tmp_path / "cgroup"), str(tmp_path))
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill 1\n")
    assert not counter.has_grown()


def test_what_cannot_be_read_never_grows(tmp_path: Path) -> None:
    """A kernel without the count, and a system without control groups."""
    (tmp_path / "cgroup").write_text("4:memory:/a\nodd\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.oom_control").write_text("oom_kill_disable 0\noom_kill x\n")
    assert Counter.here(str(tmp_path / "cgroup"), str(tmp_path)) == Counter("", 0)
    assert not Counter.here(str(tmp_path / "none"), str(tmp_path)).has_grown()
    assert files("odd\n4:cpu:/a\n") == []
