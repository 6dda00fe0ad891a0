"""Ranks by switch in jobs."""

from collections.abc import Callable
from pathlib import Path

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from support.members import KEYED, REDUCE, agreed, evaluating, parsed

TREE = "SwitchName=leaf1 Nodes=node[1,3]\nSwitchName=leaf2 Nodes=node[2,4]\nSwitchName=spine Switches=leaf[1-2]\n"


def test_nodes_of_a_job_are_neighbours_in_rank_below_one_switch(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """The world is one, with the same rank 0; both orders are printed, with the crossings that one of them saves."""
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
