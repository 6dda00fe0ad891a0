"""Ranks by switch in jobs, and on machines of a cloud."""

import sys
from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from support.members import KEYED, REDUCE, agreed, evaluating, one_world, parsed

TREE = "SwitchName=leaf1 Nodes=node[1,3]\nSwitchName=leaf2 Nodes=node[2,4]\nSwitchName=spine Switches=leaf[1-2]\n"
# What a cloud's metadata service answers to this very request, and 403 to any other.
SERVICE = """\
import json, socket, sys
with socket.create_server(("169.254.169.254", 80)) as server:
    print("listening", flush=True)
    with server.accept()[0] as connection:
        asked = connection.recv(4096)
        body = json.dumps({"cluster": "c", "block": sys.argv[1], "subBlock": "s", "host": "h"})
        code = "200 OK" if b"Metadata-Flavor: Google" in asked else "403 Forbidden"
        connection.sendall(f"HTTP/1.0 {code}\\r\\n\\r\\n{body}".encode())
"""


def test_nodes_of_a_job_are_neighbours_in_rank_below_one_switch(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """One world on every node, with the same rank 0; both orders are printed, with the crossings that one saves."""
    four = hosts(4)
    four[0].write("/etc/slurm/topology.conf", TREE)
    with SlurmCluster(four, conf_lines=["TopologyPlugin=topology/tree"]) as slurm:
        asked = evaluating("--order", "topology", "--explain", then=f"hostname\n{REDUCE}")
        files = (f"--output={tmp_path}/out.%t", f"--error={tmp_path}/err.%t")
        assert slurm.srun("-N4", "-n4", *files, *asked, env=KEYED).returncode == 0
        texts = [(tmp_path / f"out.{task}").read_text() for task in range(4)]
        told = [(tmp_path / f"err.{task}").read_text() for task in range(4)]
        worlds = [parsed(text) for text in texts]
        assert [world["NODE_RANK"] for world in worlds] == ["0", "2", "1", "3"]
        ranked = agreed(worlds)
        assert {world["MASTER_ADDR"] for world in ranked} == {"10.77.0.1"}
        assert [world["MINGLE_RANK_OFFSET"] for world in ranked] == ["0", "1", "2", "3"]
        order = [line.removeprefix("node1: ") for line in told[0].splitlines() if " rank" in line]
        assert "ranks by switch: node1,node3,node2,node4" in order
        assert "ranks in the usual order: node1,node2,node3,node4" in order
        assert "neighbours in rank below different switches: 1, in the usual order 3" in order
        assert "ranks by switch" not in told[1]
        assert "--order topology; SLURM_NODEID says 1" in told[1]
        usual = slurm.srun("-N4", "-n4", "-l", *evaluating(then="echo $NODE_RANK"), env=KEYED)
        assert sorted(usual.stdout.split("\n")[:4]) == [f"{task}: {task}" for task in range(4)]
        listed = slurm.srun("-N4", "-n4", "mingle", "hosts", "--order", "topology", "--format", "horovod", env=KEYED)
        assert listed.stdout == "node1:1,node3:1,node2:1,node4:1\n" * 4
        slurm.settle()


def test_a_job_without_switches_keeps_its_ranks_and_one_node_reports_it(slurm: SlurmCluster) -> None:
    """Slurm without a topology plugin reports only the node's name."""
    done = slurm.srun("-N3", "-n3", "-l", *evaluating("--order", "topology", then="echo $NODE_RANK"), env=KEYED)
    assert sorted(done.stdout.splitlines()) == ["0: 0", "1: 1", "2: 2"]
    assert [line for line in done.stderr.splitlines() if "switches" in line] == [
        "0: mingle: the switches of node[1-3] are unknown: these nodes get neighbouring ranks, in the usual order"
    ]


def test_machines_of_a_cloud_ask_its_metadata_service(hosts: Callable[..., Hosts]) -> None:
    """At its link-local address, and without ranks of anybody's; a host without an answer is not waited for."""
    four = hosts(4)
    script = f"""\
ip link set lo up; ip addr add 169.254.169.254/32 dev lo
[ $1 = none ] || exec 3< <(exec {sys.executable} -c '{SERVICE}' $1)
[ $1 = none ] || read -r _ <&3
shift
"""

    def asks(number: int) -> list[str]:
        block = ("a", "b", "a", "none")[number - 1]
        options = ["--id", "a", "--nodes", "4", "--order", "gcp", "--master", "10.77.0.1"]
        return ["bash", "-c", f'{script}\n"$@"', "bash", block, *evaluating(*options, then=REDUCE)]

    results = four.run_all(lambda host: asks(host.number), env=KEYED)
    one_world(results)
    assert [parsed(done.stdout)["NODE_RANK"] for done in results] == ["0", "2", "1", "3"]
    told = "".join(done.stderr for done in results)
    assert told.count("switches") == 1
    assert "mingle: the switches of node4 are unknown: these nodes get neighbouring ranks, in the usual order\n" in told
