"""Agents that pbs_tmrsh of a real OpenPBS and of the stand-in starts."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.host import USERS
from cluster.real_pbs import RealPbs
from test_run_on_slurm import OF_SHELL, batch, script, told

from mingle_hooks.run import starters

KEEPS = next(row.keeps for row in starters.TABLE if row.name == "pbs")
MINGLE = Path(sys.executable).parent / "mingle"
HEAD = "#!/bin/bash\n#PBS -l select=3:ncpus=2:mpiprocs=2 -l place=scatter\n"


def of_script(environ: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in environ.items() if not n.startswith(KEEPS) and n not in OF_SHELL}


def test_each_host_gets_one_with_the_scripts_environment(real_pbs: RealPbs, tmp_path: Path) -> None:
    job = real_pbs.submit(HEAD + script(tmp_path), cwd=str(tmp_path))
    assert real_pbs.wait(job) == 0, real_pbs.output(job)
    assert real_pbs.output(job) == "pbs node1 node2 node3\n"
    found, own = told(tmp_path), batch(tmp_path)
    assert [*found] == ["node1.0", "node2.0", "node3.0"]
    for rank, (name, probe) in enumerate(found.items()):
        assert probe["hostname"] == name.partition(".")[0]
        assert (probe["shown"], probe["stdin"]) == ([], "")
        assert of_script(probe["environ"]) == of_script(own)
        assert probe["environ"]["PBS_NODENUM"] == str(rank)
        assert (probe["mode"], probe["owner"]) == ("0o600" if rank else None, USERS["alice"])
    assert not [*tmp_path.rglob(".mingle.*")]


def test_each_slot_gets_one_with_scope_task(real_pbs: RealPbs, tmp_path: Path) -> None:
    job = real_pbs.submit(HEAD + script(tmp_path, "--per-task"), cwd=str(tmp_path))
    assert real_pbs.wait(job) == 0, real_pbs.output(job)
    assert [*told(tmp_path)] == [f"node{host}.{local}" for host in (1, 2, 3) for local in (0, 1)]


RUN = """\
umask 0027
cd {place}/'a dir'
export LINES='two
lines' EMPTY= MINGLE_KEY={key}
env -0 >{place}/batch
{mingle} run --scope node bash -c 'umask >{place}/told/$NODE_RANK.umask; pwd >{place}/told/$NODE_RANK.pwd
    env -0 >{place}/told/$NODE_RANK'
"""


def test_a_command_has_the_scripts_environment_directory_and_umask(real_pbs: RealPbs, tmp_path: Path) -> None:
    script(tmp_path)
    run = RUN.format(place=tmp_path, key=secrets.token_hex(32), mingle=MINGLE)
    job = real_pbs.submit(HEAD + run, cwd=str(tmp_path))
    assert real_pbs.wait(job) == 0, real_pbs.output(job)
    own = of_script(batch(tmp_path))
    for rank in "012":
        out = tmp_path / "told"
        assert (out / f"{rank}.umask").read_text() == "0027\n"
        assert (out / f"{rank}.pwd").read_text() == f"{tmp_path}/a dir\n"
        environ = of_script(dict(pair.split("=", 1) for pair in (out / rank).read_text().split("\0") if pair))
        assert {name: environ.get(name) for name in own} == own
        assert environ["NODE_RANK"] == rank
        assert not {name for name in environ if name.startswith("MINGLE_RUN_")} - {"MINGLE_RUN_ID"}


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
