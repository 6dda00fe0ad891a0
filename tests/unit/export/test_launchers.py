"""Launchers: recognised by the words of a command, completed, and refused where an option leaves the world."""

import os
import re
import shlex
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mingle_hooks import plugins
from mingle_hooks.errors import UsageError
from mingle_hooks.export import launchers
from mingle_hooks.export.launchers import find, is_first_host, recognise
from mingle_hooks.job import member_spec
from mingle_hooks.rendezvous.member import MemberSpec
from mingle_hooks.rendezvous.messages import Assignment, Member, View, World
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import Scope

SEATS = (Member(0, "n1", "10.0.0.1", 2), Member(1, "n2", "10.0.0.2", 4))
WORLD = World("job7", 2, 6, "10.0.0.1", 29_500, "0123456789abcdef", SEATS)
SECOND = View(WORLD, Assignment(1, 4, 2, "10.0.0.2", "ib0"), "node", {"HF_HOME": "/nowhere"})
FIRST = SECOND._replace(place=Assignment(0, 2, 0, "10.0.0.1", "ib0"))
ONE = FIRST._replace(world=WORLD._replace(nodes=1, size=4))
UNPLACED = SECOND._replace(place=Assignment(None, 4, None))  # as in a batch script
ALIKE = SECOND._replace(world=WORLD._replace(size=2), place=Assignment(1, 1, 1, "10.0.0.2"))
UNCOUNTED = SECOND._replace(world=WORLD._replace(size=None))  # as with --no-wait
EXPORTED = {"MINGLE_HOSTFILE": "/run/host file", "MINGLE_HOSTS": "n1:2,n2:4"}
MACHINES = "--num_machines 2 --num_processes 8 --machine_rank 1 --main_process_ip 10.0.0.1 --main_process_port 29500"
RANKED = MACHINES.replace("--machine_rank 1 ", "")
STANDARD = "--deepspeed_multinode_launcher standard"
JOB = {"id": "a", "nodes": "2", "rank": "1"}
MASTER = "--master_addr 10.0.0.1 --master_port 29500"


def completed(line: str, view: View = SECOND) -> str:
    """Return a command as it is started."""
    return shlex.join(launchers.completed(shlex.split(line), view, EXPORTED))


@pytest.mark.parametrize(
    ("line", "view", "added"),  # at the mark
    [
        ("accelerate launch | t.py -x", SECOND, f"{MACHINES} --same_network --multi_gpu"),
        ("accelerate launch | --use_fsdp --machine-rank=1 t.py --cpu", SECOND, f"{RANKED} --same_network"),
        ("accelerate launch | --cpu t.py", ALIKE._replace(world=WORLD._replace(size=None)),
         f"{MACHINES} --same_network".replace("es 8", "es 2")),
        ("accelerate launch | --cpu t.py", ALIKE, f"{MACHINES} --same_network".replace("es 8", "es 2")),
        ("accelerate launch | --use_fsdp --gpu_ids 0,1,3 t.py", SECOND, f"{MACHINES} --same_network".replace("8", "6")),
        ("accelerate launch | --gpu_ids all t.py", SECOND, f"{MACHINES} --same_network --multi_gpu"),
        ("accelerate launch | --rdzv_backend=static t.py", SECOND, f"{MACHINES} --same_network --multi_gpu"),
        ("accelerate launch | --rdzv_backend c10d t.py", SECOND, f"{MACHINES} --rdzv_conf is_host=0 --multi_gpu"),
        ("accelerate launch | --use_deepspeed t.py", SECOND, f"{MACHINES} --same_network {STANDARD}"),
        ("accelerate launch | --use_deepspeed --deepspeed_multinode_launcher nossh t.py", SECOND,
         f"{MACHINES} --same_network"),
        ("deepspeed | --include localhost:2,3 t.py", ONE, "--master_port 29500"),
        ("accelerate launch | --use_deepspeed t.py", ONE._replace(place=SECOND.place),
         f"{MACHINES} --same_network".replace("es 2", "es 1").replace("es 8", "es 4")),
        ("deepspeed | t.py --deepspeed", SECOND, f"--hostfile '/run/host file' --no_ssh --node_rank 1 {MASTER}"),
        ("deepspeed | -H mine --master_port 7 --no_local_rank t.py", SECOND, f"--no_ssh --node_rank 1 {MASTER[:22]}"),
        ("ray symmetric-run | --num-cpus=4 -- python t.py", SECOND, "--address 10.0.0.1:29500 --min-nodes 2"),
        ("ray start | --block", FIRST, "--head --port 29500 --node-ip-address 10.0.0.1"),
        ("ray start | --block", SECOND, "--address 10.0.0.1:29500 --node-ip-address 10.0.0.2"),
        ("ray start | --block", SECOND._replace(place=Assignment(1, 4, 2)), "--address 10.0.0.1:29500"),  # --no-wait
        ("ray start |", FIRST._replace(place=Assignment(0, 4, 0)), "--head --port 29500 --node-ip-address 10.0.0.1"),
        ("horovodrun | python t.py", FIRST, "-np 6 -H n1:2,n2:4"),
        *(
            (line, FIRST, "")
            for line in (
                "horovodrun --verbose -np 2 -H a:2 python t.py", "horovodrun --check-build -np 2 -H a:2 ./t",
                "ray start --address=x:1", "torchrun t.py", "python t.py",
            )
        ),
        *((line, UNPLACED, "") for line in ("accelerate launch t.py", "deepspeed t.py", "ray start", "horovodrun ./t")),
    ],
)  # fmt: skip
def test_a_launcher_gets_the_options_that_the_user_did_not_give(line: str, view: View, added: str) -> None:
    """They come before the user's own arguments; what follows the script is the script's. No place, no options."""
    assert completed(line.replace(" |", ""), view) == line.replace("|", added)


@pytest.mark.parametrize("text", ["debug: false\ndistributed_type: '{}'\n", '{{"distributed_type": "{}"}}'])
@pytest.mark.parametrize("is_default", [False, True])
def test_accelerate_s_own_file_decides_how_processes_start(text: str, tmp_path: Path, *, is_default: bool) -> None:
    """Named or the default one, in YAML or in JSON; where it names none that starts several, one is added."""
    file = tmp_path / "accelerate" / "default_config.yaml"
    file.parent.mkdir()
    view = SECOND._replace(user_environ={"HF_HOME": str(tmp_path) if is_default else "/nowhere"})
    named = "" if is_default else f"--config_file {file} "
    for kind in ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED"):
        file.write_text(text.format(kind))
        is_added = "--multi_gpu" in completed(f"accelerate launch {named}t.py", view)
        assert is_added is (kind in ("NO", "MULTI_CPU")), kind


@pytest.mark.parametrize(
    ("text", "processes", "added"),
    [
        ("distributed_type: DEEPSPEED\n", 8, f" {STANDARD}"),
        ("deepspeed_config:\n  deepspeed_multinode_launcher: pdsh\ndistributed_type: DEEPSPEED\n", 8, f" {STANDARD}"),
        ('{"distributed_type": "DEEPSPEED", "x": {"deepspeed_multinode_launcher": "standard"}}', 8, ""),
        ("distributed_type: FSDP\ngpu_ids: 0, 1,2\n", 6, ""),
        ('{"gpu_ids": "0", "distributed_type": "FSDP"}', 2, ""),
        ("distributed_type: FSDP\ngpu_ids: all\n", 8, ""),
    ],
)
def test_accelerate_s_own_file_completes_the_options(text: str, processes: int, added: str, tmp_path: Path) -> None:
    """Settings that it has are left to it, unless each node would train alone with them, and its GPUs are counted."""
    (tmp_path / "a.yaml").write_text(text)
    machines = MACHINES.replace("8", str(processes))
    line = completed(f"accelerate launch --config_file {tmp_path}/a.yaml t.py")
    assert line.partition(" --config_file")[0] == f"accelerate launch {machines} --same_network{added}"


@pytest.mark.parametrize(
    ("line", "view", "why"),
    [
        ("accelerate launch --cpu t.py", SECOND, "6 on 2 nodes.*leaving out --cpu"),
        ("accelerate launch --cpu t.py", UNCOUNTED, "8 on 2 nodes.*leaving out --cpu"),
        *((f"{line} t.py", SECOND, "leaving that option out") for line in (
            "accelerate launch --machine_rank=0", "deepspeed --node_rank 0", "ray start --head",
        )),
        *((line, UNCOUNTED, "saw only this node's, with --no-wait")
          for line in ("deepspeed t.py", "horovodrun -np 2 ./t", "horovodrun -H a:1,b:1 ./t")),
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_completed_is_refused(line: str, view: View, why: str) -> None:
    """An option takes the node out of the world, --cpu starts one process on each, or the hosts are unknown."""
    with pytest.raises(UsageError, match=why):
        launchers.completed(line.split(), view, {})


def test_a_pipe_that_names_accelerate_s_settings_is_left_to_accelerate() -> None:
    """As of `--config_file <(…)`: its text can be read only once."""
    reader, writer = os.pipe()
    os.write(writer, b"distributed_type: FSDP")
    os.close(writer)
    completed(f"accelerate launch --config_file /dev/fd/{reader} t.py")
    with open(reader) as pipe:
        assert pipe.read() == "distributed_type: FSDP"


# Launcher -> lines, with a mark behind its name.
FOUND = {
    "torchrun": """
        torchrun | train.py; /opt/venv/bin/torchrun | train.py; python -m torch.distributed.run | train.py
        python3.11 -u -X dev -m torch.distributed.launch | train.py; env torchrun | train.py
        /usr/bin/singularity exec a.sif python -m torch.distributed.run | train.py; env A=1 B=2 torchrun | train.py
        python -W x --check-hash-based-pycs always -m torch.distributed.run |""",
    "accelerate": """
        accelerate launch | train.py; accelerate-launch | train.py; python -m accelerate.commands.launch | train.py
        python -m accelerate.commands.accelerate_cli launch | train.py
        apptainer exec --nv --bind=/data a.sif accelerate launch | train.py
        uv run python -m accelerate.commands.launch | t.py; uv run -m accelerate.commands.launch | t.py
        nice -n 5 ionice -c 3 taskset -c 0-3 accelerate launch | t.py
        nohup timeout -k 9 2h stdbuf -oL setsid unbuffer accelerate launch | t.py""",
    "deepspeed": """
        deepspeed | train.py; singularity --quiet exec --nv -B /a:/b --pwd /c i.sif deepspeed | t.py
        env -u A -u B C=1 deepspeed | t.py; uv run --frozen --extra cuda -- deepspeed | t.py
        conda run -n e --no-capture-output deepspeed | t.py; python -u /opt/bin/deepspeed | t.py
        time -f %e numactl -l -N 0 --membind=0 deepspeed | t.py
        nsys profile -o x -t cuda --stats=true deepspeed | t.py""",
    "composer": "composer | train.py",
    "llamafactory": "llamafactory-cli train | config.yaml; lmf train |",
    "swift": "swift sft | --model x; env A=1 apptainer exec a.sif swift pt |",
    "ray": "ray start | --block; ray symmetric-run | -- python train.py",
    "horovodrun": "horovodrun | python train.py",
    "mpirun": "mpiexec.hydra | ./train",
    "srun": "srun | ./train",
}


@pytest.mark.parametrize(
    ("name", "line"),
    [(name, line.strip()) for name, lines in FOUND.items() for line in re.split("[;\n]", lines) if line.strip()],
)
def test_a_launcher_is_known_by_its_own_name_or_its_module_s(name: str, line: str) -> None:
    """Whatever path and options of Python stand before it."""
    launcher, end = find(line.replace(" |", "").split())
    assert launcher is not None
    assert (launcher.name, end) == (name, line.split().index("|"))


@pytest.mark.parametrize(
    "line",
    [
        *("python train.py", "python torchrun", "python -m torch.distributed.runner train.py", "python -m", "python"),
        *("python -X -m torch.distributed.run", "accelerate config", "accelerate", "ray stop", "bash -c torchrun"),
        *("my-torchrun train.py", "apptainer exec a.sif python train.py", "apptainer exec torchrun"),
        *("uv sync", "uv run", "uv", "nsys stats torchrun", "numactl -N", "conda run -n torchrun", "env -u torchrun"),
        *("timeout torchrun", "nice -n torchrun", "uv run -m", "taskset -p 1"),
        *("apptainer run a.sif torchrun train.py", "env -i torchrun train.py", "env A=1", "torchrun.sh"),
    ],
)
def test_any_other_program_is_none(line: str) -> None:
    """A launcher's name as an argument makes none."""
    assert recognise(shlex.split(line)) is None


@pytest.mark.parametrize(
    ("line", "given", "frameworks", "has_rank"),
    [
        ("env", None, ("torchrun", "gloo", "process"), True),
        ("env", "lightning", ("torchrun", "gloo", "lightning"), False),  # which starts the node's processes
        ("env", "none", (), False),
        ("torchrun t.py", None, ("torchrun", "gloo", "cpu"), False),
        ("torchrun --rdzv_backend=c10d t.py", None, ("torchrun-elastic", "gloo", "cpu"), False),
        ("torchrun --rdzv-backend static t.py", None, ("torchrun", "gloo", "cpu"), False),
        ("torchrun --nnodes 1:4 t.py", None, ("torchrun-elastic", "gloo", "cpu"), False),  # static would wait for 4
        ("torchrun --nnodes 1:2 t.py", None, ("torchrun", "gloo", "cpu"), False),
        ("torchrun --rdzv-backend c10d --rdzv-endpoint n1:1 t.py", None, ("torchrun", "gloo", "cpu"), False),
        ("accelerate launch t.py", None, ("torchrun", "gloo", "cpu"), False),
        ("accelerate launch --cpu t.py", None, ("torchrun", "gloo", "cpu"), True),
        ("accelerate launch t.py --cpu", None, ("torchrun", "gloo", "cpu"), False),
        ("deepspeed t.py", None, ("torchrun", "gloo", "deepspeed"), False),
        # The other nodes may have another name for the interface, and get rank 0's variables.
        ("mpirun ./t", None, ("torchrun", "mpi"), False),
        ("mpirun ./t", "gloo", ("torchrun", "gloo", "mpi"), False),
    ],
)
def test_a_command_gets_what_it_reads_and_a_rank_if_it_is_a_nodes_only_process(
    line: str, given: str | None, frameworks: tuple[str, ...], *, has_rank: bool
) -> None:
    """LOCAL_RANK would make Lightning wait for processes that nobody starts."""
    command, spec = line.split(), member_spec({}, JOB | {"frameworks": given})
    assert launchers.with_frameworks(command, spec).settings.frameworks == frameworks
    place = launchers.with_ranks(command, spec, ALIKE).place
    assert (place.rank, place.local_rank) == ((1, 0) if has_rank else (None, None))
    assert launchers.with_ranks(command, spec, SECOND) == SECOND  # which has several processes


@pytest.mark.parametrize(
    ("name", "host", "hosts", "is_first"),
    [
        ("node1", None, ("node1", "node2"), True),
        ("node1.cluster", None, ("node1",), True),
        ("node1", None, ("node1.cluster",), True),
        ("login", None, ("node1",), False),
        ("login", "node1", ("node1",), True),
        ("node1", "node2", ("node1", "node2"), False),
        ("node1", "node1.other", ("node1.cluster",), False),
        ("node1", None, (), False),
    ],
)
def test_the_first_host_is_known_by_the_schedulers_name_or_else_by_its_short_name(
    name: str, host: str | None, hosts: tuple[str, ...], *, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell of salloc may be on a login host."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert is_first_host(JobFacts("slurm", host=host, hosts=hosts)) is is_first


# What is refused before check-in.

SPEC = member_spec({}, JOB)
OF_RANK_0, OF_ANY_RANK = (member_spec({}, JOB | {"rank": rank}) for rank in ("0", None))
ALONE = member_spec({}, {"id": "a", "nodes": "1", "rank": "0"})
IN_RUN = member_spec({"MINGLE_RUN_FORMED": "1"}, JOB)


def with_facts(scope: Scope, **fields: Any) -> MemberSpec:
    """Return a spec in which the scheduler says this."""
    return SPEC._replace(facts=JobFacts("x", **fields), settings=SPEC.settings._replace(scope=scope))


IN_BATCH = with_facts("node", host="n1", nodes=2, is_batch=True)
TWO_TASKS, ONE_TASK = with_facts("task", local_count=2), with_facts("task", local_count=1, tasks_per_node=(1, 1))
LEAVES = "expected {} in the world of {} nodes; saw --.* train alone; try leaving that option out"
ONE_EACH = "one torchrun on each node, as it .*; saw 2 tasks on a node; try --ntasks-per-node=1 without --scope task"
OPTIONS = (
    *("accelerate launch --num_machines 1 t.py", "deepspeed --num_nodes 1 t.py", "deepspeed --force --num_node 1 t.py"),
    *("accelerate launch --machine_rank=0 t.py", "deepspeed --no_ssh_check --node_rank 0 t.py", "ray start --head"),
    "ray start --address=localhost:6379",
)
BY_VERBATIM, BY_PORT = "leaving out --verbatim", "leaving it out, or exporting MASTER_PORT=6379"
# The spec, the refusal, and lines; those that begin with "verbatim" have that option.
CHECKED: list[tuple[MemberSpec, str, tuple[str, ...]]] = [
    # An option of a line for one node, with which each node would train alone; argparse takes its beginning for it.
    (SPEC, LEAVES.format("torchrun", 2), tuple(f"torchrun {words}" for words in (
        "--standalone t.py", "--nnodes=1 --nproc_per_node=8 t.py", "--nproc-per-node 8 --nnodes 1 t.py",
        "--nnodes 3:4 t.py", "--nnodes=x t.py", "--node_rank=0 t.py", "--master_addr localhost t.py",
        "--rdzv-endpoint=127.0.0.1:29500 t.py", "--no-python --standalone program", "--nnode=1 t.py",
        "--nnode 1 t.py", "--master_add localhost t.py", "--no_py --nnodes 1 program",
    ))),
    (SPEC, LEAVES.format("torchrun", 2), ("python3 -m torch.distributed.run --nnodes 1 t.py",)),
    (SPEC, "", tuple(f"torchrun {words}" for words in (
        "t.py --standalone --nnodes 1", "-m pkg.train --standalone", "--nproc-per-node 8 --max-restarts=3 t.py",
        "--nnodes=1:2 --nproc-per-node=gpu t.py", "--nnodes 2 --node-rank 1 --master-addr node1 t.py", "",
        "--nproc-per-node",
    ))),
    *((spec, LEAVES.format(".*", 2), OPTIONS) for spec in (SPEC, OF_ANY_RANK)),
    # A rank may be this node's, if it is certain. With --verbatim mingle adds no options, so it may be another's.
    (SPEC, "", ("torchrun --node-rank 1", "accelerate launch --machine_rank=1 t.py", "deepspeed --node_rank 1 t.py",
                "verbatim ray start --head", "verbatim accelerate launch --num_machines 2 --machine_rank 0 t.py")),
    (OF_ANY_RANK, LEAVES.format(".*", 2), ("torchrun --node-rank 1", "accelerate launch --machine_rank=1 t.py")),
    (OF_RANK_0, "", ("ray start --head --port=1", "accelerate launch --num_machines 2 --machine_rank 0 t.py")),
    *((spec, BY_PORT, ("ray start --block --port=6379",)) for spec in (SPEC, OF_ANY_RANK)),
    # A launcher within a shell or the like gets no options.
    (SPEC, r"mingle exec .* in that line", (
        "bash -c 'cd x; deepspeed t.py'", "apptainer run -H /x i.sif deepspeed t.py",
        "bash -c '. a.sh && accelerate launch t.py'", "sh -c '(deepspeed t.py)'",
    )),
    (SPEC, "", (
        "bash -c 'mingle exec deepspeed t.py'", "bash -c 'torchrun t.py'", "./run.sh deepspeed", "bash a.sh deepspeed",
        "bash -c 'eval \"$(mingle env)\"; deepspeed t.py'", "python t.py deepspeed", "uv run t.py deepspeed",
        "./prog fit deepspeed", "bash -c 'python t.py --strategy deepspeed'", "./train --deepspeed",
        "bash -c 'accelerate launch --num_machines 2 --machine_rank $NODE_RANK t.py'", "python3 t.py --standalone",
        "verbatim bash -c 'cd x; deepspeed t.py'",
    )),
    (SPEC, LEAVES.format("torchrun", 2), (
        "bash -c 'torchrun --standalone t.py'", "apptainer exec a.sif sh -c 'cd x; torchrun --nnodes=1 t.py'",
    )),
    (SPEC, "", (
        "sh -c 'torchrun --nnodes $N --node-rank $R t.py'", "verbatim bash -c 'torchrun --standalone t.py'",
        "sh -c 'torchrun --standalone a.py; torchrun t.py'", "sh -c 'torchrun --nnodes=${N:-1} --node_rank=0 t.py'",
    )),
    # One that starts too few processes, or to which nothing names the nodes.
    (SPEC, "try -n 2 or more", ("mpirun -n 1 ./t",)),
    (SPEC, "try --n 2 or more", ("mpirun --n 1 ./t", "mpirun --nolocal --n 1 ./t")),
    (SPEC, "saw -np 1, which leaves some nodes out; try -np 2 or", ("horovodrun -np 1 ./t", "mpirun -np 1 -n 3 ./t")),
    (SPEC, BY_VERBATIM, ("verbatim accelerate launch t.py", "verbatim deepspeed t.py", "verbatim mpirun ./t")),
    (SPEC, "", ("mpirun -n 2 ./t", "verbatim mpirun --hostfile=mine ./t")),
    (IN_RUN, "", ("verbatim mpirun ./t",)),  # it knows its hosts
    (IN_RUN, BY_VERBATIM, ("verbatim horovodrun ./t",)),
    # A shell that runs on one node only, from which the scheduler and a launcher of all nodes reach the others.
    (IN_BATCH, "to start torchrun on every node of the job; saw a shell that runs on n1 only; try mingle run torchrun",
     ("torchrun t.py",)),
    (IN_BATCH._replace(facts=IN_BATCH.facts._replace(on_every_node="srun")),
     "n1 only; try srun in front: srun mingle exec torchrun t.py", ("torchrun t.py",)),
    (IN_BATCH, "", ("mpirun ./t", "srun ./t")),
    # Several tasks on a node, of which each would start all of its processes.
    *((spec, ONE_EACH, ("torchrun t.py",))
      for spec in (TWO_TASKS, with_facts("task", local_count=1, tasks_per_node=(1, 2, 1)))),
    *((spec, "", ("torchrun t.py",)) for spec in (ONE_TASK, with_facts("task"), with_facts("node", local_count=2))),
    (TWO_TASKS, "", ("python t.py", "mpirun ./t")),
    # Of one node nothing leaves, and of an unknown number only what is for one.
    (ALONE, "", ("torchrun --standalone t.py", "mpirun -n 1 ./t", "torchrun --nnodes 1 --max-restarts 2 t.py")),
    (ALONE._replace(nodes=None), "", ("mpirun -n 1 ./t", "torchrun --nnodes 1 --max-restarts 2 t.py")),
    (ALONE._replace(nodes=None), LEAVES.format("torchrun", "several"), ("torchrun --standalone t.py",)),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "refusal", "line"), [(*its, line) for *its, lines in CHECKED for line in lines])
def test_a_command_that_would_not_join_the_world_is_refused(spec: MemberSpec, refusal: str, line: str) -> None:
    """It would train alone and end with 0. The error has the line that works."""
    words = shlex.split(line)
    is_verbatim = words[:1] == ["verbatim"]
    with pytest.raises(UsageError, match=refusal) if refusal else nullcontext():
        launchers.check_command(words[is_verbatim:], spec, verbatim=is_verbatim)


@pytest.mark.parametrize(("line", "job_id"), [("mpirun ./t", None), ("horovodrun ./t", None), ("horovodrun ./t", "7")])
def test_a_launcher_of_all_nodes_whose_hosts_nobody_knows_is_refused_on_each(line: str, job_id: str | None) -> None:
    """With --no-wait it would start all processes on one node, or fail there, while the others end with 0."""
    spec = with_facts("node", job_id=job_id)
    with pytest.raises(UsageError, match="leaving out --no-wait"):
        launchers.check_command(line.split(), spec, no_wait=True)
    launchers.check_command([*line.split()[:1], "-H", "a,b", "./t"], spec, no_wait=True)
    launchers.check_command(["mpirun", "./t"], with_facts("node", job_id="7"), no_wait=True)


def test_what_is_tried_without_a_job_is_what_this_host_has(tmp_path: Path) -> None:
    """A program that submits jobs, or else names of hosts; a quoted word stays one."""
    line = "mingle run python 'a b'"
    for name, tried in ((None, "mingle run --hosts node1,node2 python 'a b'"), ("bsub", f"{line} in a job script"),
                        ("salloc", f"salloc -N2 {line}")):  # fmt: skip
        if name:
            (tmp_path / name).write_text("")
            (tmp_path / name).chmod(0o755)
        said = launchers.anywhere(["python", "a b"], {"PATH": str(tmp_path)})
        assert said.replace(", for bsub", "") == f"{tried}; or --alone to train on this host only"


def test_a_launcher_of_all_nodes_is_started_by_rank_0_s_alone() -> None:
    """Every node starts any other command itself."""
    for line, view, is_elsewhere in (
        ("mpirun ./t", SECOND, True), ("mpirun ./t", FIRST, False), ("torchrun t.py", SECOND, False),
        ("python t.py", SECOND, False), ("mpirun ./t", UNPLACED, False),
    ):  # fmt: skip
        assert launchers.is_elsewhere(line.split(), view) is is_elsewhere


def test_a_plugin_s_launcher_is_known_by_its_words_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plugin is asked for a shell, Python, a script or a module."""
    asked: list[str] = []
    rows = {name: launchers.Launcher(name, (words,), (), "node") for name, words in (("a", "a"), ("b", "b run"))}
    monkeypatch.setattr(plugins, "find", lambda _kind, name, *_: asked.append(name) or rows.get(name))
    assert find(["env", "A=1", "/opt/a", "t.py"]) == (rows["a"], 3)
    assert find(["apptainer", "exec", "i.sif", "b", "run", "t.py"]) == (rows["b"], 5)
    assert [find(line.split()) for line in ("b stop", "b", "bash a", "python3 a", "a.py", "a.sh", "python -m a")] == (
        [(None, 0)] * 7
    )
    assert asked == ["a", "b", "b", "b"]
