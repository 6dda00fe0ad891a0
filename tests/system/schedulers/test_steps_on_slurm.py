"""What the tasks of real Slurm steps are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster.slurm import SlurmCluster

from mingle_hooks.schedulers import slurm as adapter
from mingle_hooks.schedulers.facts import JobFacts


def read_all(folder: Path) -> list[JobFacts]:
    """Return the facts of the tasks that wrote their environments into a folder."""
    texts = [path.read_text() for path in folder.iterdir()]
    return [adapter.facts(dict(pair.split("=", 1) for pair in text.split("\0") if pair)) for text in texts]  # type: ignore[misc]


@pytest.mark.parametrize("options", ["-N4 -n6", "-N2 -n2 -r2", "-N3 -m cyclic -n5", "-N4 -m plane=2 -n6"])
def test_the_tasks_of_a_real_step_agree(slurm: SlurmCluster, tmp_path: Path, options: str) -> None:
    """On a real Slurm every task of a step has the same facts in common, and rank 0 is on the first host."""
    seen = tmp_path / "seen"
    seen.mkdir(mode=0o777)
    script = f"srun {options} sh -c 'cat /proc/self/environ >{seen}/$SLURM_PROCID'"
    assert slurm.wait(slurm.submit(script, "-N4", "-n8")) == "COMPLETED"
    tasks = read_all(seen)
    assert len({(task.job_id, task.step, task.nodes, task.hosts, task.tasks_per_node) for task in tasks}) == 1
    assert {task.node_rank for task in tasks} == set(range(tasks[0].nodes or 0))
    assert [task.node_rank for task in tasks if task.task_rank == 0] == [0]
    assert len(tasks[0].hosts) == tasks[0].nodes


def test_the_tasks_of_a_real_step_over_components_agree(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`srun --het-group=0,1` is one world, whose ranks follow the components and not the sorted host list."""
    seen = tmp_path / "seen"
    seen.mkdir(mode=0o777)
    script = (
        "#SBATCH -N1 -w node3\n#SBATCH hetjob\n#SBATCH -N2 -w node1,node2\n"
        f"srun --het-group=0,1 sh -c 'cat /proc/self/environ >{seen}/$SLURM_PROCID'"
    )
    assert slurm.wait(slurm.submit(script)) == "COMPLETED"
    tasks = read_all(seen)
    assert {(task.step, task.nodes, task.hosts) for task in tasks} == {("0@node1", 3, ("node3", "node1", "node2"))}
    assert sorted((task.node_rank, task.task_rank) for task in tasks) == [(0, 0), (1, 1), (2, 2)]
