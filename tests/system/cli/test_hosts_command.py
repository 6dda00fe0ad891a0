"""`mingle hosts` where people use it: in jobs, in containers without a name service, and with hosts of one's own."""

import json
from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from support.members import KEYED

MPI = "node1 slots=2\nnode2 slots=1\nnode3 slots=1\n"


def test_a_job_of_slurm_has_its_hosts(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The script alone tells names and slots; a step, whose nodes ask each other, their addresses too."""
    script = f"""\
cd {tmp_path}
for format in mpi json etc; do mingle hosts --format $format >$format 2>$format.err
  echo $? >$format.status; done
mingle hosts --slots 8 --format nodefile >eights
export MINGLE_SLOTS=4
srun -N3 -n3 sh -c 'mingle hosts --format json >json.$SLURM_NODEID'
unset MINGLE_SLOTS
srun -N2 -n3 sh -c 'mingle hosts --scope task >mpi.$SLURM_PROCID'
"""
    job = slurm.submit(script, "-N3", "-n4", f"--output={tmp_path}/output", env=KEYED)
    slurm.wait(job)
    text = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert "mingle" not in text["output"]
    assert text["mpi"] == MPI
    rows = [(row["host"], row["address"], row["slots"]) for row in json.loads(text["json"])]
    assert rows == [("node1", None, 2), ("node2", None, 1), ("node3", None, 1)]
    assert (text["eights"].count("node"), text["etc"], text["etc.status"]) == (24, "", "64\n")
    assert "`srun mingle hosts`" in text["etc.err"]
    third = {"rank": 2, "host": "node3", "address": "10.77.0.3", "slots": 4}
    assert [json.loads(text[f"json.{node}"])[2] for node in range(3)] == [third] * 3
    assert [text[f"mpi.{task}"] for task in range(3)] == ["node1 slots=2\nnode2 slots=1\n"] * 3


def test_containers_without_names_get_and_lose_them(hosts: Callable[..., Hosts]) -> None:
    """/etc/hosts is a mount there, as in docker; the block comes, names resolve, and every octet is as before."""
    three = hosts(3)
    before = [host.run(["cat", "/etc/hosts"]).stdout for host in three]
    words = ["--id", "a b", "--nodes", "3"]
    put = three.run_all(
        [
            "sh",
            "-ec",
            'n=$(hostname | tail -c2); hostname c$n; mingle hosts "$@" --rank $((n-1)) --write-etc',
            "sh",
            *words,
        ],
        env=KEYED,
    )
    assert [(done.returncode, done.stdout) for done in put] == [(0, "")] * 3
    assert [host.run(["getent", "ahostsv4", "c3"]).stdout.split()[0] for host in three] == ["10.77.0.3"] * 3
    written = three[1].run(["cat", "/etc/hosts"]).stdout
    assert written.startswith(before[1])
    assert "10.77.0.1 c1\n10.77.0.2 c2\n10.77.0.3 c3\n" in written
    assert "a b" not in written
    taken = three.run_all(["mingle", "hosts", "--remove-etc", "--id", "a b"])
    assert [(done.returncode, done.stdout, done.stderr) for done in taken] == [(0, "", "")] * 3
    assert [host.run(["cat", "/etc/hosts"]).stdout for host in three] == before
    refused = three[0].run(["mingle", "hosts", "--hosts", "n1", "--write-etc"])
    assert (refused.returncode, refused.stdout) == (64, "")
