"""Slurm: recorded jobs, and variables that contradict each other."""

from collections.abc import Mapping

import pytest
from support.recorded import SLURM_VERSIONS, environ, names

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import slurm
from mingle_hooks.schedulers.facts import JobFacts

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


def facts_of(variables: Mapping[str, str]) -> JobFacts:
    """Return the facts of a job, which these variables are of."""
    found = slurm.facts(variables)
    assert found is not None
    return found


@pytest.mark.parametrize("version", SLURM_VERSIONS)
def test_every_recording_has_an_expectation(version: str) -> None:
    """No recorded task or batch script is left out of these tests."""
    tasks = {name.split(".", 1)[1].rpartition(".")[0] for name in names(version, "task")}
    assert tasks == set(STEPS)
    assert set(names(version, "batch", "requeue")) == set(SCRIPTS)


@pytest.mark.parametrize("version", SLURM_VERSIONS)
@pytest.mark.parametrize("job_step", STEPS)
def test_the_tasks_of_a_step_agree_and_each_knows_its_place(version: str, job_step: str) -> None:
    """All tasks of srun have the step's nodes in common, and their ranks are each there once."""
    step, hosts, per_node = STEPS[job_step]
    recordings = [environ(version, name) for name in names(version, "task") if f"task.{job_step}." in name]
    tasks = [facts_of(variables) for variables in recordings]
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
    script = facts_of(environ(version, name))
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


def test_a_script_on_one_node_is_its_only_member() -> None:
    """`--explain` can tell which variable gave which fact; without a job's id there are none."""
    script = facts_of({**SCRIPT, "SLURM_JOB_NODELIST": "node7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2"})
    assert (script.nodes, script.node_rank, script.is_batch, script.hosts) == (1, 0, False, ("node7",))
    sources = {name: facts_of(TASK).sources[name] for name in ("hosts", "nodes", "node_rank")}
    assert sources == {"hosts": "SLURM_STEP_NODELIST", "nodes": "SLURM_STEP_NUM_NODES", "node_rank": "SLURM_NODEID"}
    assert facts_of(SCRIPT).sources["hosts"] == "SLURM_JOB_NODELIST"
    assert slurm.facts({"SLURM_CONF": "/etc/slurm/slurm.conf", "SLURM_PROCID": "0"}) is None


@pytest.mark.parametrize("step", ["-5", "-6", "4294967291", "4294967290"])
def test_special_steps_are_no_steps(step: str) -> None:
    """The batch script and salloc's shell have step ids too, and are outside of their nodes."""
    shell = facts_of({**TASK, "SLURM_STEP_ID": step, "SLURM_STEP_NODELIST": "node1", "SLURM_NNODES": "1"})
    assert (shell.step, shell.nodes, shell.node_rank, shell.is_batch) == ("", 3, None, True)


def test_what_is_left_over_from_the_submitting_job_is_ignored() -> None:
    """Called in a task of another job, sbatch hands that step's variables on, with other hosts and ids."""
    old = {name: value for name, value in TASK.items() if name.startswith("SLURM_STEP")}
    script = facts_of({**old, "SLURM_STEP_NODELIST": "other[1-3]", **SCRIPT})
    assert (script.step, script.hosts, script.is_batch) == ("", NODES, True)
    components = {name: value for name, value in HET.items() if "HET" in name}
    assert facts_of({**components, **TASK}) == facts_of(TASK)


GROUPS = ("SLURM_JOB_NODELIST_HET_GROUP_0", "SLURM_JOB_NODELIST_HET_GROUP_1")


def test_the_ranks_of_a_step_over_components_follow_the_components() -> None:
    """The host list of such a step is sorted, but srun numbers the nodes component by component."""
    variables = {**HET, GROUPS[0]: "node3", GROUPS[1]: "node[1-2]", **step("node[1-3]", 3, 4, "1(x2),2")}
    first = facts_of({**variables, "SLURMD_NODENAME": "node3", "SLURM_NODEID": "0"})
    assert (first.hosts, first.tasks_per_node, first.local_count) == (("node3", "node1", "node2"), (2, 1, 1), 2)
    last = facts_of({**variables, "SLURMD_NODENAME": "node2", "SLURM_NODEID": "2", "SLURM_PROCID": "3"})
    assert (last.hosts, last.leader_hosts, last.step) == (first.hosts, ("node3",), first.step)


def test_components_that_share_a_host_are_members_each() -> None:
    """Where a host is in two components its order is not known, and rank 0 may be on any."""
    variables = {**HET, GROUPS[1]: "node[1-2]", **step("node1,node[1-2]", 3, 3, "1(x3)", "node[1-2]")}
    shared = facts_of({**variables, "SLURM_NODEID": "2", "SLURMD_NODENAME": "node2"})
    assert (shared.nodes, shared.node_rank, shared.hosts, shared.leader_hosts) == (3, 2, (), ("node1", "node2"))
    overlap = {**HET, GROUPS[0]: "node[1-2]", GROUPS[1]: "node[2-3]", **step("node[1-3]", 3, 3, "1(x3)")}
    assert facts_of(overlap).hosts == ()
    assert facts_of({**overlap, **step("node[2-3]", 2, 2, "1(x2)"), "SLURM_NODEID": "0"}).hosts == ("node2", "node3")


def test_steps_in_different_components_are_different_worlds() -> None:
    """Both have the first component's job id and the step id 0, and must not meet."""
    second = facts_of({**HET, **step("node[2-3]", 2, 2, "1(x2)"), "SLURMD_NODENAME": "node2", "SLURM_JOB_ID": "6"})
    assert (second.job_id, second.step) == ("5", "0@node2")
    assert facts_of(HET).step == "0@node1"


def test_with_one_task_on_each_node_an_arbitrary_distribution_ranks_nodes_as_tasks() -> None:
    """NODEID follows the sorted list, PROCID the file of hosts; JAX and MPI go by PROCID."""
    by_hand = {**TASK, "SLURM_DISTRIBUTION": "arbitrary", "SLURM_STEP_TASKS_PER_NODE": f"1(x{len(NODES)})"}
    tasks = {"SLURM_STEP_NUM_TASKS": str(len(NODES)), "SLURM_NODEID": "0", "SLURM_PROCID": "2", "SLURM_LOCALID": "0"}
    found = facts_of({**by_hand, **tasks})
    assert (found.node_rank, found.hosts, found.leader_hosts) == (2, (), NODES)
    assert found.sources["node_rank"] == "SLURM_PROCID"


def test_where_the_order_of_hosts_is_unknown_rank_0_may_be_on_any_of_64() -> None:
    """With `-m arbitrary`, or where this node's own name contradicts its number."""
    contradicted = facts_of({**TASK, "SLURMD_NODENAME": "node3"})
    found = (contradicted.hosts, contradicted.tasks_per_node, contradicted.leader_hosts, contradicted.nodes)
    assert found == ((), (), NODES, 3)
    by_hand = {**TASK, "SLURM_DISTRIBUTION": "arbitrary"}
    assert facts_of(by_hand).leader_hosts == NODES
    assert len(facts_of({**by_hand, **step("node[1-500]", 500, 500, "1(x500)")}).leader_hosts) == 64


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_STEP_GPUS": "0"}, 4),
        ({"SLURM_GPUS_ON_NODE": "0"}, 0),
        ({"SLURM_STEP_GPUS": "0,2-3", "SLURM_JOB_GPUS": "0-7"}, 3),
        ({"SLURM_JOB_GPUS": "0-7"}, 8),
    ],
)
def test_gpus_are_counted(variables: dict[str, str], gpus: int) -> None:
    """Slurm's own count comes before its lists, the step's before the job's."""
    assert facts_of({**TASK, **variables}).gpus == gpus


@pytest.mark.parametrize(
    "variables",
    [
        *({name: value} for name, value in (("SLURM_NODEID", "3"), ("SLURM_PROCID", "6"), ("SLURM_LOCALID", "2"))),
        *({"SLURM_STEP_NUM_NODES": "2"}, {"SLURM_STEP_NUM_TASKS": "5"}, {"SLURM_STEP_TASKS_PER_NODE": "2(x4)"}),
        *({"SLURM_STEP_NODELIST": "node[1-2]"}, {"SLURM_JOB_ID": "1" * 11}),
    ],
)
def test_contradictions_are_errors(variables: dict[str, str]) -> None:
    """A rank beyond its count, and counts that differ, are refused; there are as many hosts as nodes, or none."""
    with pytest.raises(FactsError):
        slurm.facts({**TASK, **variables})
    for hosts in (("n1",), ("n1", "n2", "n3")):
        with pytest.raises(FactsError, match="2 hosts"):
            JobFacts("slurm", nodes=2, hosts=hosts)
    assert JobFacts("slurm", nodes=2).hosts == ()
