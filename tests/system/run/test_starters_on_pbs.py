"""Agents that pbs_tmrsh of a real OpenPBS and of the stand-in starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.real_pbs import RealPbs
from told import MINGLE, script, told

from mingle_hooks.run import starters

KEEPS = next(row.keeps for row in starters.TABLE if row.name == "pbs")
HEAD = "#!/bin/bash\n#PBS -l select=3:ncpus=2:mpiprocs=2 -l place=scatter\n"


def test_each_host_gets_one_with_the_scripts_environment(any_pbs: Callable[..., Any], tmp_path: Path) -> None:
    pbs = any_pbs(3, slots=2)
    job = pbs.submit(HEAD + script(tmp_path), cwd=str(tmp_path))
    assert (pbs.wait(job), pbs.output(job)) == (0, "")
    found = told(tmp_path, KEEPS)
    assert [*found] == ["node1.0", "node2.0", "node3.0"]
    assert [its.environ["PBS_NODENUM"] for its in found.values()] == ["0", "1", "2"]


def test_each_slot_gets_one_with_scope_task(real_pbs: RealPbs, tmp_path: Path) -> None:
    """PBS's programs need not be on PATH: pbs.conf names their place."""
    body = f"PATH=/usr/bin:/bin\n! command -v pbs_tmrsh || exit 1\n{script(tmp_path, '--scope', 'task')}"
    job = real_pbs.submit(HEAD + body, cwd=str(tmp_path))
    assert (real_pbs.wait(job), real_pbs.output(job)) == (0, "")
    assert [*told(tmp_path, KEEPS)] == [f"node{host}.{local}" for host in (1, 2, 3) for local in (0, 1)]


AGAIN = """\
cd "$PBS_O_WORKDIR"
exec {mingle} run --restarts 1 --grace 1 sh -c '[ $MINGLE_ATTEMPT.$NODE_RANK != 0.1 ] || kill -9 $PPID
    [ $MINGLE_ATTEMPT = 1 ] || exec sleep 1000
    echo up; until [ -e go ]; do sleep 0.1; done'
"""


def test_a_run_that_is_killed_leaves_no_file_with_its_key(any_pbs: Callable[..., Any]) -> None:
    pbs = any_pbs(2)
    head = "#!/bin/bash\n#PBS -l select=2:ncpus=1 -l place=scatter\n"
    job = pbs.submit(head + AGAIN.format(mingle=MINGLE), cwd=str(pbs.place))
    for host in ("node1", "node2"):
        pbs.wait_for_text(job, f"{host}: up")
    left = [*pbs.place.glob(".mingle.*")]
    (pbs.place / "go").touch()
    assert pbs.wait(job) == 0, pbs.output(job)
    assert not left


SAVES = """\
cd "$PBS_O_WORKDIR"
trap : TERM
{mingle} run sh -c 'trap "echo saved >saved.$NODE_RANK; exit 0" TERM; while :; do sleep 0.1; done'
echo $? >status
"""


def test_the_jobs_time_limit_gives_75(real_pbs: RealPbs, tmp_path: Path) -> None:
    """Without --limit and --warn: qstat has the walltime, which no variable holds."""
    head = "#!/bin/bash\n#PBS -l select=2:ncpus=1 -l place=scatter -l walltime=10\n"
    job = real_pbs.submit(head + SAVES.format(mingle=MINGLE), cwd=str(tmp_path))
    real_pbs.wait(job)
    assert "mingle run: ending: its time limit has come" in real_pbs.output(job)
    assert (tmp_path / "status").read_text() == "75\n"
    assert sorted(path.name for path in tmp_path.glob("saved.*")) == ["saved.0", "saved.1"]
