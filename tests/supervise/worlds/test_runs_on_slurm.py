"""A run of a real job, from the job's nodes and from one that is no part of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.host import USERS

if TYPE_CHECKING:
    import subprocess

    from cluster.host import Host
    from cluster.slurm import SlurmCluster

BIN = Path(sys.executable).parent
FAILS = "[ $MINGLE_ATTEMPT = 1 ] || [ $RANK = 0 ] || exit 7"


def test_a_job_is_seen_and_ended_from_any_host_by_its_user_alone(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The key is the one that its first run made in the home that all hosts share."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, USERS["alice"], USERS["alice"])

    def mingle(host: Host, *words: str, user: str = "alice", **environ: str) -> subprocess.CompletedProcess[str]:
        return host.run([BIN / "mingle", *words], user=user, env={"HOME": str(home), **environ})

    def listed(host: Host) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(mingle(host, "ls", "--json").stdout or "[]")
        return found

    stay = f"sh -c '{FAILS}; touch {tmp_path}/begun.$RANK.$MINGLE_ATTEMPT; exec sleep 1000'"
    script = f"export HOME={home}; {BIN}/mingle run --restarts 1 {stay}; echo $? >{tmp_path}/status"
    job = slurm.submit(script, f"--output={tmp_path}/log", "-N2", "--nodelist=node1,node2", user="alice")
    slurm.until(lambda: all((tmp_path / f"begun.{rank}.1").exists() for rank in (0, 1)), "COMMAND begins")
    node1, _, _, login = slurm.hosts
    (row,) = listed(login)
    assert (row["id"], row["state"], row["here"], row["wanted"], row["attempt"], row["host"]) == (
        *(job, "running", 2, 2, 1),
        "node1",
    )
    assert listed(node1) == [row]
    shown = json.loads(mingle(login, "show", "--json", job).stdout)
    assert [(node["host"], node["state"], node["rank"]) for node in shown["nodes"]] == [
        ("node1", "running", 0),
        ("node2", "running", 1),
    ]
    assert (shown["failure"]["attempt"], shown["failure"]["cause"]["host"]) == (0, "node2")

    state = str(home / ".local" / "state")
    stolen = mingle(login, "kill", job, user="bob", HOME="/home/bob", XDG_STATE_HOME=state)
    assert (stolen.returncode, stolen.stdout) == (78, "")
    login.refuse(node1)
    assert [its["state"] for its in listed(login)] == ["unreachable"]
    assert mingle(login, "kill", job).returncode == 69
    login.clear_firewall()

    done = mingle(login, "kill", job)
    assert (done.returncode, done.stdout) == (0, f"run {job} has ended with status 143\n")
    slurm.wait(job)
    assert (tmp_path / "status").read_text() == "143\n"
    assert listed(login) == listed(node1) == []
