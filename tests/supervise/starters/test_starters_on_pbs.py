"""Supervisors started by a real pbs_tmrsh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervise.starters.test_starters_on_slurm import OF_SHELL, batch, script, told

from mingle_hooks.supervise.starters.pbs import KEEPS

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.real_pbs import RealPbs

HEAD = "#!/bin/bash\n#PBS -l select=3:ncpus=2:mpiprocs=2 -l place=scatter\n"


def of_script(environ: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in environ.items() if not n.startswith(KEEPS) and n not in OF_SHELL}


def test_each_host_gets_one_with_the_scripts_environment(real_pbs: RealPbs, tmp_path: Path) -> None:
    """And its directory and umask, a stdin at its end, its own numbers of the job, and nothing secret shown."""
    job = real_pbs.submit(HEAD + script(tmp_path), cwd=str(tmp_path))
    assert real_pbs.wait(job) == 0, real_pbs.output(job)
    assert real_pbs.output(job) == "pbs node1 node2 node3\n"
    found, own = told(tmp_path), batch(tmp_path)
    assert [*found] == ["node1.0", "node2.0", "node3.0"]
    for rank, (name, its) in enumerate(found.items()):
        assert its["hostname"] == name.partition(".")[0]
        assert (its["cwd"], its["umask"]) == (f"{tmp_path}/a dir", 0o027)
        assert (its["shown"], its["stdin"]) == ([], "")
        assert of_script(its["environ"]) == of_script(own)
        assert its["environ"]["PBS_NODENUM"] == str(rank)
        assert (its["mode"], its["owner"]) == ("0o600" if rank else None, 61001)
    assert not [*tmp_path.rglob(".mingle.*")]


def test_each_slot_gets_one_with_scope_task(real_pbs: RealPbs, tmp_path: Path) -> None:
    """As many on each host as the node file names it."""
    job = real_pbs.submit(HEAD + script(tmp_path, "--per-task"), cwd=str(tmp_path))
    assert real_pbs.wait(job) == 0, real_pbs.output(job)
    assert [*told(tmp_path)] == [f"node{host}.{local}" for host in (1, 2, 3) for local in (0, 1)]
