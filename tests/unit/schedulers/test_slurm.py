"""Slurm: recorded jobs, and variables that contradict each other."""

import pytest
from support.recorded import SLURM_VERSIONS, environ, names

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import slurm

NODES = ("node1", "node2", "node3")
# JOB.STEP -> what all of its tasks are told: step, hosts, tasks on each node.
STEPS = {
    "1.0": ("0", NODES, (2, 2, 2)),
    "1.1": ("1", ("node2", "node3"), (1, 1)),
    "2.0": ("0", ("node1", "node2"), (2, 1)),
    "3.0": ("0", ("node1", "node2"), (2, 1)),
    "5.0": ("0@node1", ("node1",), (1,)),
}
# Recording -> job, restarts, hosts, tasks on each node.
SCRIPTS = {
    "batch.1": ("1", 0, NODES, (2, 2, 2)),
    "batch.2": ("2", 0, NODES[:2], (2, 1)),
    "batch.3": ("3", 0, NODES[:2], (2, 1)),
    "batch.5": ("5", 0, NODES, ()),
    "requeue.4.none": ("4", 0, NODES[:2], (1, 1)),
    "requeue.4.1": ("4", 1, NODES[:2], (1, 1)),
}


@pytest.mark.parametrize("version", SLURM_VERSIONS)
@pytest.mark.parametrize("job_step", STEPS)
def test_the_tasks_of_a_step_agree_and_each_knows_its_place(version: str, job_step: str) -> None:
    """All tasks of srun have the step's nodes in common, and their ranks are each there once."""
    step, hosts, per_node = STEPS[job_step]
    recordings = [environ(version, name) for name in names(version, "task") if f"task.{job_step}." in name]
    tasks = [slurm.facts(variables) for variables in recordings]
    for task, variables in zip(tasks, recordings, strict=True):
        shared = (task.job_id, task.step, task.restarts, task.nodes, task.hosts, task.tasks_per_node)
        assert shared == (job_step[0], step, 0, len(hosts), hosts, per_node)
        assert task.leader_hosts == hosts[:1]
        assert task.node_rank == hosts.index(variables["SLURMD_NODENAME"])
        assert (task.task_count, task.local_count) == (sum(per_node), per_node[task.node_rank])
        assert (task.cpus, task.gpus, task.is_batch) == (int(variables["SLURM_CPUS_ON_NODE"]), None, False)
    places = [(node, local) for node, count in enumerate(per_node) for local in range(count)]
    assert sorted((task.node_rank, task.local_rank) for task in tasks) == places
    assert sorted(task.task_rank for task in tasks if task.task_rank is not None) == list(range(len(tasks)))


@pytest.mark.parametrize("version", SLURM_VERSIONS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_batch_script_knows_its_job_and_has_no_place_in_it(version: str, name: str) -> None:
    """With several nodes the script is outside of them; a requeued job counts its restarts."""
    job_id, restarts, hosts, per_node = SCRIPTS[name]
    script = slurm.facts(environ(version, name))
    assert (script.job_id, script.step, script.restarts) == (job_id, "", restarts)
    assert (script.nodes, script.hosts, script.leader_hosts) == (len(hosts), hosts, hosts[:1])
    assert (script.tasks_per_node, script.local_count) == (per_node, per_node[0] if per_node else None)
    assert (script.is_batch, script.node_rank, script.task_rank, script.local_rank) == (True, None, None, None)


def step(hosts: str, nodes: int, tasks: int, per_node: str, job_hosts: str = "") -> dict[str, str]:
    """Return what a step over some hosts is told; they are those of the job, unless that has others."""
    counts = {"NODELIST": hosts, "NUM_NODES": str(nodes), "NUM_TASKS": str(tasks), "TASKS_PER_NODE": per_node}
    return {f"SLURM_STEP_{name}": value for name, value in counts.items()} | {"SLURM_JOB_NODELIST": job_hosts or hosts}


TASK = environ(SLURM_VERSIONS[0], "task.1.0.2")
SCRIPT = environ(SLURM_VERSIONS[0], "batch.1")
HET = environ(SLURM_VERSIONS[0], "task.5.0.0")
GROUPS = ("SLURM_JOB_NODELIST_HET_GROUP_0", "SLURM_JOB_NODELIST_HET_GROUP_1")
# The host list of a step over components is sorted, but srun numbers the nodes component by component.
OVER_TWO = {**HET, GROUPS[0]: "node3", GROUPS[1]: "node[1-2]", **step("node[1-3]", 3, 4, "1(x2),2")}
OVERLAP = {**HET, GROUPS[0]: "node[1-2]", GROUPS[1]: "node[2-3]", **step("node[1-3]", 3, 3, "1(x3)")}
BY_HAND = {**TASK, "SLURM_DISTRIBUTION": "arbitrary"}
ONE_EACH = {
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
}
# Called in a task of another job, sbatch hands on that step's variables, with other hosts.
LEFT = {name: value for name, value in TASK.items() if name.startswith("SLURM_STEP")}
ON_ONE = {"SLURM_JOB_NODELIST": "node7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2"}
SPECIAL = {"step": "", "nodes": 3, "node_rank": None, "is_batch": True}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({**SCRIPT, **ON_ONE}, {"nodes": 1, "node_rank": 0, "is_batch": False, "hosts": ("node7",)}),
        # The batch script and salloc's shell have step ids too, and are outside of their nodes.
        *(({**TASK, "SLURM_STEP_ID": special, "SLURM_STEP_NODELIST": "node1", "SLURM_NNODES": "1"}, SPECIAL)
          for special in ("-5", "-6", "4294967291", "4294967290")),
        ({**LEFT, "SLURM_STEP_NODELIST": "other[1-3]", **SCRIPT}, {"step": "", "hosts": NODES, "is_batch": True}),
        ({**{name: value for name, value in HET.items() if "HET" in name}, **TASK},
         {"job_id": "1", "step": "0", "hosts": NODES, "node_rank": 1}),
        ({**OVER_TWO, "SLURMD_NODENAME": "node3", "SLURM_NODEID": "0"},
         {"hosts": ("node3", "node1", "node2"), "tasks_per_node": (2, 1, 1), "local_count": 2, "step": "0@node1"}),
        ({**OVER_TWO, "SLURMD_NODENAME": "node2", "SLURM_NODEID": "2", "SLURM_PROCID": "3"},
         {"hosts": ("node3", "node1", "node2"), "leader_hosts": ("node3",), "step": "0@node1"}),
        # If a host is in two components, the order is not known, and rank 0 may be on any host.
        ({**HET, GROUPS[1]: "node[1-2]", **step("node1,node[1-2]", 3, 3, "1(x3)", "node[1-2]"),
          "SLURM_NODEID": "2", "SLURMD_NODENAME": "node2"},
         {"nodes": 3, "node_rank": 2, "hosts": (), "leader_hosts": ("node1", "node2")}),
        (OVERLAP, {"hosts": ()}),
        ({**OVERLAP, **step("node[2-3]", 2, 2, "1(x2)"), "SLURM_NODEID": "0"}, {"hosts": ("node2", "node3")}),
        # Two steps in different components have the first one's job id and the step id 0, and must not meet.
        ({**HET, **step("node[2-3]", 2, 2, "1(x2)"), "SLURMD_NODENAME": "node2", "SLURM_JOB_ID": "6"},
         {"job_id": "5", "step": "0@node2"}),
        # NODEID follows the sorted list, PROCID the file of hosts; JAX and MPI use PROCID.
        ({**BY_HAND, **ONE_EACH, "SLURM_PROCID": "2"}, {"node_rank": 2, "hosts": (), "leader_hosts": NODES}),
        (BY_HAND, {"node_rank": 1, "leader_hosts": NODES}),
        ({**BY_HAND, **step("node[1-500]", 500, 500, "1(x500)")},
         {"leader_hosts": tuple(f"node{number}" for number in range(1, 65))}),
        # This node's own name contradicts its number.
        ({**TASK, "SLURMD_NODENAME": "node3"}, {"hosts": (), "tasks_per_node": (), "leader_hosts": NODES, "nodes": 3}),
        # Slurm's own count of GPUs comes before its lists, the step's before the job's.
        ({**TASK, "SLURM_GPUS_ON_NODE": "4", "SLURM_STEP_GPUS": "0"}, {"gpus": 4}),
        ({**TASK, "SLURM_GPUS_ON_NODE": "0"}, {"gpus": 0}),
        ({**TASK, "SLURM_STEP_GPUS": "0,2-3", "SLURM_JOB_GPUS": "0-7"}, {"gpus": 3}),
        ({**TASK, "SLURM_JOB_GPUS": "0-7"}, {"gpus": 8}),
    ],
)  # fmt: skip
def test_what_variables_say(variables: dict[str, str], expected: dict[str, object]) -> None:
    found = slurm.facts(variables)
    assert {name: getattr(found, name) for name in expected} == expected


HOSTS = "SLURM_STEP_NODELIST"


@pytest.mark.parametrize(
    ("variables", "sources"),
    [
        (TASK, {"hosts": HOSTS, "nodes": "SLURM_STEP_NUM_NODES", "node_rank": "SLURM_NODEID"}),
        (SCRIPT, {"hosts": "SLURM_JOB_NODELIST"}),
        ({**TASK, HOSTS: "other[1-3]"}, {"hosts": "SLURM_JOB_NODELIST"}),
        ({**HET, HOSTS: "other[1-3]"}, {"hosts": "SLURM_JOB_NODELIST_HET_GROUP_*"}),
        ({**BY_HAND, **ONE_EACH, "SLURM_PROCID": "2"}, {"node_rank": "SLURM_PROCID"}),
    ],
)
def test_each_fact_has_the_variable_that_it_comes_from(variables: dict[str, str], sources: dict[str, str]) -> None:
    """`--explain` and errors name it."""
    found = slurm.facts(variables).sources
    assert {name: found[name] for name in sources} == sources


@pytest.mark.parametrize(
    "variables",
    [
        *({name: value} for name, value in (("SLURM_NODEID", "3"), ("SLURM_PROCID", "6"), ("SLURM_LOCALID", "2"))),
        *({"SLURM_STEP_NUM_NODES": "2"}, {"SLURM_STEP_NUM_TASKS": "5"}, {"SLURM_STEP_TASKS_PER_NODE": "2(x4)"}),
        *({"SLURM_STEP_NODELIST": "node[1-2]"}, {"SLURM_JOB_ID": "1" * 11}),
    ],
)
def test_contradictions_are_errors(variables: dict[str, str]) -> None:
    """A rank beyond its count, and counts that differ, are refused."""
    with pytest.raises(FactsError):
        slurm.facts({**TASK, **variables})
