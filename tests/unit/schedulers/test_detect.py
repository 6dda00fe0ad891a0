"""Which scheduler an environment is from, and what it says."""

import json
import re
import shlex
from itertools import product
from pathlib import Path

import pytest
from support.recorded import FOLDER, OPENPBS, SLURM_VERSIONS, assigned, environ

from mingle_hooks.errors import FactsError
from mingle_hooks.job import member_spec
from mingle_hooks.schedulers import detect as table
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import JobFacts

STEP = environ(SLURM_VERSIONS[0], "task.1.0.2")
BATCH = environ(SLURM_VERSIONS[0], "batch.1")
NODE_FILE = {"PBS_NODEFILE": str(FOLDER / OPENPBS / "nodefile.0.ctl")}


def quoted(variables: dict[str, str]) -> str:
    """Return a recorded environment as assignments."""
    return shlex.join(f"{name}={value}" for name, value in variables.items())


def mpirun(rank: int, size: int, local_rank: int, local_size: int) -> str:
    """Return what Open MPI's mpirun sets."""
    numbers = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_SIZE": local_size}
    names = " ".join(f"OMPI_COMM_WORLD_{name}={number}" for name, number in numbers.items())
    return f"{names} PMIX_NAMESPACE=prterun-node1-42@1"


# What a task of mpirun over all of a Slurm job is told.
WHOLE_JOB = (
    "scheduler=slurm+mpi job_id=1 step=prterun-node1-42@1 nodes=3 node_rank=1 hosts=node1,node2,node3 is_batch=False"
)
# Environments that documentation describes, and some of the facts that follow.
DESCRIBED = f"""
nothing: X=
-> scheduler=none job_id=None nodes=None is_batch=False
lsf: LSB_JOBID=77 LSB_JOBINDEX=0 LSB_MCPU_HOSTS='h1 4 h2 2 '
-> scheduler=lsf job_id=77 hosts=h1,h2 tasks_per_node=4,2 task_count=6
lsf array: LSB_JOBID=77 LSB_JOBINDEX=3 LSB_HOSTS='h1 h1 h2'
-> job_id=77[3] hosts=h1,h2 tasks_per_node=2,1
jsrun in lsf: LSB_JOBID=77 LSB_MCPU_HOSTS='h1 4 h2 4' JSM_NAMESPACE_RANK=5 JSM_NAMESPACE_SIZE=8 \
    JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=4
-> scheduler=lsf+mpi job_id=77 nodes=2 node_rank=1 hosts=h1,h2
sge without a parallel environment: JOB_ID=9 SGE_TASK_ID=undefined NSLOTS=1 NHOSTS=1
-> scheduler=sge job_id=9 nodes=1 node_rank=0
sge array: JOB_ID=9 SGE_TASK_ID=4
-> job_id=9.4
sge sister: JOB_ID=9 SGE_TASK_ID=undefined NHOSTS=3 PE_HOSTFILE=/nonexistent/pe_hostfile
-> nodes=3 hosts= node_rank=None
sge with nothing but its file: JOB_ID=9 SGE_TASK_ID=undefined
-> scheduler=sge nodes=1 node_rank=0 task_count=None
lsf's last element: LSB_JOBID=77 LSB_JOBINDEX=4294967295
-> job_id=77[4294967295] nodes=None hosts= tasks_per_node= task_count=None
a trial on one machine: MASTER_ADDR=127.0.0.1 RANK=0 WORLD_SIZE=1
-> scheduler=none
an exported address: MASTER_ADDR=node1 RANK=0 WORLD_SIZE=1
-> scheduler=given nodes=1 node_rank=0
two on one machine: MASTER_ADDR=localhost RANK=0 WORLD_SIZE=2
-> scheduler=given nodes=2 node_rank=0
a world of one in a pod: MASTER_ADDR=localhost RANK=0 WORLD_SIZE=1 KUBERNETES_SERVICE_HOST=x
-> scheduler=given nodes=1 node_rank=0
pals on nodes of different size: PALS_RANKID=2 PALS_NODEID=1 PALS_SIZE=5 PALS_LOCAL_SIZE=2
-> scheduler=pals nodes=None node_rank=1 task_rank=2 task_count=5 local_count=2 tasks_per_node=
one task of mpirun: OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1
-> nodes=1 node_rank=0 local_count=None tasks_per_node= shares_homes=False
flux with an uneven last node: FLUX_JOB_ID=f1 FLUX_JOB_SIZE=5 FLUX_JOB_NNODES=2 FLUX_TASK_RANK=3 FLUX_TASK_LOCAL_ID=0
-> nodes=2 node_rank=None task_rank=3 task_count=5
job id alone: JOB_ID=9
-> scheduler=none
slurm's settings alone: SLURM_CONF=/etc/slurm/slurm.conf SLURM_PROCID=0 PBS_NODENUM=0 PBS_NP=1
-> scheduler=none
pbs without torque's variables: PBS_JOBID=987654321.ctl PBS_NODENUM=0
-> scheduler=pbs node_rank=0
flux: FLUX_JOB_ID=\u0192abc1 FLUX_JOB_SIZE=8 FLUX_JOB_NNODES=2 FLUX_TASK_RANK=5 FLUX_TASK_LOCAL_ID=1 \
    PMI_RANK=5 PMI_SIZE=8
-> scheduler=flux job_id=fabc1 nodes=2 node_rank=1 task_rank=5 local_rank=1 local_count=None
flux on one node: FLUX_JOB_ID=f1 FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=1 FLUX_TASK_RANK=3 FLUX_TASK_LOCAL_ID=3
-> nodes=1 node_rank=0 task_rank=3 local_count=4
indexed job: KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=2 HOSTNAME=train-2
-> scheduler=kubernetes node_rank=2 job_id=train nodes=None
a pod whose name ends in another number: KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=2 HOSTNAME=train-3
-> scheduler=kubernetes node_rank=2 job_id=None
kubeflow trainer's torch policy: KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=2 HOSTNAME=train-node-0-2 \
    PET_NNODES=4 PET_NPROC_PER_NODE=auto PET_NODE_RANK=2 PET_MASTER_ADDR=train-node-0-0.train PET_MASTER_PORT=29500
-> scheduler=kubernetes node_rank=2 job_id=train-node-0
pod: KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=x
-> scheduler=kubernetes job_id=None
vessl: MASTER_ADDR=10.0.0.7 NODE_RANK=1 NUM_NODES=2 GPUS_PER_NODE=8
-> scheduler=given node_rank=1 nodes=2 gpus=8 leader_hosts=10.0.0.7
replica: MASTER_ADDR=job-0 MASTER_PORT=8000 RANK=1 WORLD_SIZE=4 KUBERNETES_SERVICE_HOST=x
-> scheduler=given node_rank=1 nodes=4 task_rank=None
kubeflow's pytorchjob: MASTER_ADDR=job-0 RANK=1 WORLD_SIZE=8 PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_NODE_RANK=1
-> scheduler=given node_rank=1 nodes=2 task_rank=None
an elastic one: MASTER_ADDR=job-0 RANK=1 WORLD_SIZE=2 PET_NNODES=1:4 PET_NPROC_PER_NODE=4
-> scheduler=given node_rank=1 nodes=2 task_rank=None
torchrun's worker: MASTER_ADDR=fd00::1 RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 \
    GROUP_RANK=1 GROUP_WORLD_SIZE=2
-> node_rank=1 nodes=2 task_rank=3 task_count=4 local_rank=1 local_count=2
pals in pbs: {quoted(environ(OPENPBS, "job.0.ctl") | NODE_FILE)} PALS_RANKID=5 PALS_NODEID=2 PALS_LOCAL_RANKID=1 \
    PALS_APID=a-b-c PALS_LOCAL_SIZE=2 PMI_RANK=5 PMI_SIZE=6
-> scheduler=pbs+pals job_id=0.ctl step=a-b-c nodes=3 node_rank=2 task_rank=5 local_count=2 hosts=node1,node2,node3 \
    is_batch=False cookie={environ(OPENPBS, "job.0.ctl")["PBS_JOBCOOKIE"]}
mpirun in a requeued job: SLURM_JOB_ID=7 SLURM_RESTART_COUNT=3 SLURM_JOB_NUM_NODES=2 {mpirun(0, 2, 0, 1)}
-> job_id=7 restarts=3
an earlier mingle's: MASTER_ADDR=10.0.0.7 NODE_RANK=1 NNODES=2 MINGLE_ID=7
-> scheduler=none node_rank=None
mpirun alone: {mpirun(3, 4, 1, 2)}
-> scheduler=mpi job_id=None step=prterun-node1-42@1 nodes=2 node_rank=1 task_rank=3 task_count=4 \
    local_rank=1 local_count=2
mpirun, nodes of different size: {mpirun(3, 5, 1, 2)}
-> nodes=None task_rank=3
mpirun in a slurm script: {quoted(BATCH)} {mpirun(3, 6, 1, 2)}
-> {WHOLE_JOB}
mpirun's daemon in a slurm step: {quoted(STEP)} {mpirun(3, 6, 1, 2)} SLURM_STEP_NODELIST=node[2-3] \
    SLURM_STEP_NUM_NODES=2 SLURM_TASKS_PER_NODE='1(x2)' SLURM_NODEID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 \
    SLURM_NTASKS=2 SLURM_STEP_TASKS_PER_NODE='1(x2)'
-> {WHOLE_JOB}
mpirun on part of a slurm job: {quoted(BATCH)} {mpirun(1, 2, 0, 1)}
-> nodes=2 node_rank=1 hosts= leader_hosts=node1,node2,node3
srun --mpi=pmi2: {quoted(STEP)} PMI_RANK={STEP["SLURM_PROCID"]} PMI_SIZE=6
-> scheduler=slurm step=0 node_rank=1 nodes=3
hydra in a slurm script: {quoted(BATCH)} PMI_RANK=4 PMI_SIZE=6 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2
-> scheduler=slurm+mpi node_rank=2 nodes=3 job_id=1
slurm in a pod: {quoted(STEP)} KUBERNETES_SERVICE_HOST=10.0.0.1
-> scheduler=slurm
slurm and what the user exported: {quoted(STEP)} MASTER_ADDR=h NODE_RANK=0
-> scheduler=slurm node_rank=1
"""
DOCUMENTED = {
    name: (assigned(variables), assigned(facts))
    for name, variables, facts in re.findall(r"^(.+?): (.*)\n-> (.*)$", DESCRIBED, re.MULTILINE)
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_innermost_scheduler_wins(name: str) -> None:
    """Each documented environment gives the facts that its documentation promises."""
    variables, expected = DOCUMENTED[name]
    facts = detect(variables)._asdict()
    seen = {name: ",".join(map(str, fact)) if isinstance(fact, tuple) else str(fact) for name, fact in facts.items()}
    assert {name: seen[name] for name in expected} == expected


SGE = {"JOB_ID": "5", "SGE_TASK_ID": "undefined", "NSLOTS": "6", "NHOSTS": "2"}


@pytest.mark.parametrize(
    ("variables", "name", "text", "slots"),
    [
        *(({"OAR_JOB_ID": "5"}, name, "n1\nn1\nn2\nn2\n", {"n1": 2, "n2": 2})
          for name in ("OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES")),
        (SGE, "PE_HOSTFILE", "n1 4 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\n", {"n1": 4, "n2": 2}),
        ({"LSB_JOBID": "5"}, "LSB_DJOB_HOSTFILE", "h2\nh2\nh1\n", {"h2": 2, "h1": 1}),
    ],
)  # fmt: skip
def test_hosts_and_slots_come_from_the_schedulers_file(
    variables: dict[str, str], name: str, text: str, slots: dict[str, int], tmp_path: Path
) -> None:
    """OAR's node file has three names; Grid Engine's NHOSTS must agree with its file."""
    (tmp_path / "hosts").write_text(text)
    found = detect({**variables, name: str(tmp_path / "hosts")})
    assert (found.job_id, found.nodes, found.hosts) == ("5", 2, tuple(slots))
    assert (found.tasks_per_node, found.task_count) == (tuple(slots.values()), sum(slots.values()))
    if variables is SGE:
        with pytest.raises(FactsError):
            detect({**variables, name: str(tmp_path / "hosts"), "NHOSTS": "3"})


@pytest.mark.parametrize("listed", ["h1", "h1 4 h2", "h1 x", "h1 0", "h1 4 h2 -1", "h1 4 -x 2"])
def test_lsf_names_a_number_for_each_host(listed: str) -> None:
    """A list that was cut off, or is none, is refused rather than guessed at."""
    with pytest.raises(FactsError):
        detect({"LSB_JOBID": "5", "LSB_MCPU_HOSTS": listed})


PAIR = ("node1", "node2")


@pytest.mark.parametrize(
    ("hostname", "hosts", "leader_hosts"),
    [("node2", PAIR, PAIR[:1]), ("elsewhere", PAIR, PAIR[:1]), ("node1.cluster", (), PAIR)],
)
def test_a_launcher_may_number_the_jobs_hosts_in_another_order(
    monkeypatch: pytest.MonkeyPatch, hostname: str, hosts: tuple[str, ...], leader_hosts: tuple[str, ...]
) -> None:
    """`mpirun --host node2,node1` puts rank 0 on node2, and rank 1 on the job's first host."""
    job = "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=node[1-2]"
    variables = assigned(f"{job} {mpirun(2, 4, 0, 2)}")
    found = detect(variables, hostname)
    assert (found.node_rank, found.hosts, found.leader_hosts) == (1, hosts, leader_hosts)
    monkeypatch.setattr("socket.gethostname", lambda: hostname)
    assert member_spec(variables, {"scope": "task"}).rank == 1


@pytest.mark.parametrize(
    ("hosts", "hostname", "node_rank"),
    [
        *(("h1.cluster 1 h2.cluster 1", name, 1) for name in ("h2", "h2.example.com")),
        ("h1.cluster 1 h2.cluster 1", "h1", 0),
        *(("h1.cluster 1 h2.cluster 1", name, None) for name in ("h3", "", None)),
        *(("h.a 1 h.b 1", name, rank) for name, rank in (("h", None), ("h.b", 1))),
    ],
)
def test_hosts_without_numbers_are_found_by_a_unique_name(
    hosts: str, hostname: str | None, node_rank: int | None
) -> None:
    """Where the scheduler only lists hosts, this host's place in the list is its rank."""
    assert detect({"LSB_JOBID": "5", "LSB_MCPU_HOSTS": hosts}, hostname).node_rank == node_rank
    assert detect(BATCH, "node1").node_rank is None  # a batch script runs on the first host and is no member


@pytest.mark.parametrize(("nodes", "local"), [(1, 1), (1, 4), (3, 2), (4, 1), (2, 8)])
def test_tasks_that_fill_node_after_node_find_their_places(nodes: int, local: int) -> None:
    """Each task of a uniform run; if they are dealt out, only the node of task 0 is node 0."""
    size = nodes * local
    filled = [detect(assigned(mpirun(rank, size, rank % local, local))) for rank in range(size)]
    assert [(found.nodes, found.node_rank) for found in filled] == [(nodes, rank // local) for rank in range(size)]
    dealt = [detect(assigned(mpirun(rank, size, rank // nodes, local))).node_rank for rank in range(size)]
    assert dealt[0] == 0
    assert nodes == 1 or 0 not in dealt[1:]


IN_JOB = JobFacts(
    "slurm", "7", nodes=3, hosts=("a", "b", "c"), slot=0, local_count=2, tasks_per_node=(2, 2, 2), nodes_of_job=4,
    is_batch=True, cpus=8, sources={"cpus": "CPUS"},
)  # fmt: skip


def test_a_run_places_its_members_itself() -> None:
    """What it says replaces the scheduler's facts, and what these say of one process is nobody's then."""
    run = {"step": "s", "restarts": 3, "nodes": 2, "node_rank": 1, "hosts": ["b", "c"], "local_rank": 0}
    sources = {"cpus": "CPUS"} | dict.fromkeys([*run, "leader_hosts"], "MINGLE_RUN")
    assert table.placed_by_run(IN_JOB, {"MINGLE_RUN": json.dumps(run)}) == JobFacts(
        "slurm", "7", "s", 3, 2, 1, ("b", "c"), ("b",), local_rank=0, local_count=2, cpus=8, sources=sources
    )
    assert table.placed_by_run(IN_JOB, {"MINGLE_RUN": ""}) is IN_JOB
    assert table.placed_by_run(IN_JOB, {"MINGLE_RUN": '{"nodes": 3}'}).hosts == ("a", "b", "c")
    most = {"nodes": 65_536, "node_rank": 65_535, "task_rank": 16_777_215, "task_count": 16_777_216}
    most |= {"local_rank": 4095, "local_count": 4096, "job_id": "x" * 255, "restarts": 16_777_216}
    found = table.placed_by_run(JobFacts("none"), {"MINGLE_RUN": json.dumps(most)})
    assert {name: getattr(found, name) for name in most} == most


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        *((text, "one JSON object") for text in ("{", "[]", "7", "[" * 100_000)),
        ('{"nodes": 2, "host": "a"}', "a valid host from"),
        *((f'{{"{name}": {value}}}', f"a valid {name} from") for name, values in {
            "nodes": (65_537, "true", '"2"', 2.0, "null"), "node_rank": (-1, 65_536), "local_rank": (4096,),
            "local_count": (4097,), "restarts": (16_777_217,), "hosts": ('"a"', '["-a"]', "[1]"),
            "job_id": (7, '"a\\n"', f'"{"x" * 256}"'), "step": (f'"{"x" * 256}"',),
        }.items() for value in values),
    ],
)  # fmt: skip
def test_what_no_run_says_is_refused(run: str, expected: str) -> None:
    with pytest.raises(FactsError) as caught:
        table.placed_by_run(IN_JOB, {"MINGLE_RUN": run})
    assert caught.value.expected.startswith(expected)
    assert caught.value.remedy == "unset MINGLE_RUN, which only `mingle run` sets"


HOSTILE = [
    *("", " ", "0", "1", "2", "-1", "00", "1.5", "1e3", "0x10", "+1", "\u0663", "9" * 10, "9" * 5000, "4294967295"),
    *("$(touch /tmp/x)", "`id`", "';id;'", '"', "\\", "\n", "1\n", "\0", "\x1b[2J", "\ud800", "\u202e", "*", "~"),
    *("node[1-3]", "node[1-999999999]", "node[1", "n1", "2(x3),1", "2(x99999999)", "h1 4 h2 4", "h1 x", "-x"),
    *("/dev/zero", "/nonexistent", "/proc/self/mem", "/proc/self/environ", "/", ".", "1.ctl", "2[4].ctl", "../1"),
]
TORQUE = {"PBS_JOBID": "9", "PBS_NP": "2", "PBS_NODENUM": "1", "PBS_NODEFILE": "/n", "PBS_TASKNUM": "1"}
STARTS = [STEP, BATCH, TORQUE, environ(OPENPBS, "tmrsh.0.ctl.node2")]
STARTS += [DOCUMENTED[name][0] for name in ("flux", "mpirun in a slurm script", "sge sister", "indexed job")]


@pytest.mark.parametrize("start", STARTS)
def test_a_hostile_value_in_any_one_variable_is_an_error_of_ours_or_has_no_effect(start: dict[str, str]) -> None:
    """No text of the facts has anything that a shell, a path or a terminal would act on."""
    for name, value in product(start, HOSTILE):
        try:
            found = detect({**start, name: value})
            texts = [found.job_id or "", found.step, *found.hosts, *found.leader_hosts]
        except FactsError as error:
            found, texts = None, [str(error)]
        assert all(map(str.isprintable, texts)), (name, value)
        assert found is None or not set("".join(texts)) & set("$`'\"\\;*~ "), (name, value)
