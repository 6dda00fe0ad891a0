"""How each message that docs/ shows is brought about: the tables that test_messages.py goes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TROUBLE, PINNED = "troubleshooting.md", "schedulers/given-ranks.md"
LINE = "mingle exec torchrun train.py"
PROCESS_GROUP = "REAL_python -c 'import torch.distributed as dist; dist.init_process_group(\"gloo\")'"
ACCELERATOR = "REAL_python -c 'from accelerate import Accelerator; Accelerator(cpu=True)'"
KEY = "0123456789abcdef" * 4  # and two digits more, which differ


class Case(NamedTuple):
    """What is typed, and what else is exported; where it is said before any meeting, one host is enough."""

    typed: str
    env: Mapping[str, str] = {}
    is_alone: bool = False


# In salloc's shell on node1, for two nodes.
IN_SHELL = {
    (TROUBLE, "saw a shell that runs on node1 only"): Case(LINE),
    (TROUBLE, "this shell runs on node1 only"): Case("mingle env"),
    (TROUBLE, "torchrun: error: …"): Case(
        'eval "$(mingle env)"; REAL_torchrun train.py', {"PET_RDZV_BACKEND": "static"}
    ),
    (TROUBLE, "RANK expected"): Case(f'eval "$(mingle env)"; {PROCESS_GROUP}'),
    (TROUBLE, "accelerate launch train.py'"): Case(f'eval "$(mingle env)"; {ACCELERATOR}'),
    (TROUBLE, "RendezvousTimeoutError"): Case('eval "$(mingle env --timeout 1)"; REAL_torchrun train.py'),
}

# On node1 and node2 as two tasks of one step.
IN_STEP = {
    (TROUBLE, "missing node2"): Case("bash -c '[ $SLURM_NODEID = 1 ] || mingle exec --timeout 2 true'"),
    (TROUBLE, "saw no answer"): Case("bash -c '[ $SLURM_NODEID = 0 ] || mingle exec --timeout 2 true'"),
    (TROUBLE, "an address on eth9"): Case("mingle exec --iface eth9 --timeout 2 true"),
    (TROUBLE, "MASTER_ADDR=localhost"): Case(LINE, {"MASTER_ADDR": "localhost"}),
    (TROUBLE, "WORLD_SIZE=8"): Case(LINE, {"WORLD_SIZE": "8"}),
    (TROUBLE, "saw 1 (--nodes); try"): Case("mingle exec --nodes 1 true"),
    (TROUBLE, "saw --standalone"): Case("mingle exec torchrun --standalone train.py"),
    (TROUBLE, "port 29500 free"): Case(
        'bash -c \'exec 3< <(python3 -uc "import socket, time; s = socket.create_server((\\"\\", 29500)); '
        "print(1, flush=True); time.sleep(9)\"); read -r _ <&3; mingle exec --timeout 2 true; kill $!'",
        {"MASTER_PORT": "29500"},
    ),
    (TROUBLE, "another key here"): Case(
        f"bash -c 'export MINGLE_KEY={KEY}0$SLURM_NODEID; mingle exec --timeout 2 true'"
    ),
    (TROUBLE, "saw node2: train.py"): Case(
        "bash -c 'cd /tmp; [ $SLURM_NODEID = 1 ] || touch train.py; mingle exec python3 train.py; rm -f train.py'"
    ),
}

# On node1 and node2, two tasks each.
IN_TASKS = {
    (TROUBLE, "one task on each node"): Case(LINE),
    (TROUBLE, "one torchrun on each node"): Case("mingle exec --scope task torchrun train.py"),
    (TROUBLE, "local rank 1 gone"): Case(
        "bash -c 'case $SLURM_PROCID in 2) mingle exec --scope task --timeout 30 true;;"
        " 3) timeout -s KILL 3 mingle exec --scope task --timeout 30 true;; esac'"
    ),
    (TROUBLE, "missing local rank 1"): Case(
        "bash -c '[ $SLURM_LOCALID = 1 ] || mingle exec --scope task --timeout 2 true'"
    ),
}

# On two hosts without a scheduler, {i} is 0 and 1.
ON_HOSTS = {
    (TROUBLE, "two leaders"): Case("mingle exec --id b --nodes 2 --rank 0 true"),
    (TROUBLE, "a job, or --nodes"): Case("mingle exec true", is_alone=True),
    (TROUBLE, "saw none given"): Case("env -u MINGLE_KEY mingle exec --id d --nodes 2 true", is_alone=True),
    (PINNED, "WORLD_SIZE=2"): Case(
        "mingle exec --id f --slots 2 true",
        {"RANK": "{i}", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "23456"},
    ),
    (TROUBLE, "mode 0644"): Case(
        "umask 022; mkdir -p ~/.config/mingle; mingle key >~/.config/mingle/key;"
        " env -u MINGLE_KEY mingle exec --id e --nodes 2 true",
        is_alone=True,
    ),
}

SHOWN = [*IN_SHELL, *IN_STEP, *IN_TASKS, *ON_HOSTS]

# What the tables of usual mistakes on the schedulers' pages quote, and what brings it about. JOB is a new number.
PBS = {"PBS_JOBID": "7.ctl", "PBS_NODEFILE": "NODEFILE", "PBS_NODENUM": "{i}", "PBS_TASKNUM": "0000000{i}"}
PBS_SHELL = {"PBS_JOBID": "7.ctl", "PBS_NODEFILE": "NODEFILE", "PBS_NODENUM": "0", "PBS_TASKNUM": "1"}
TORQUE_SHELL = {**PBS_SHELL, "PBS_NUM_NODES": "2"}
LSF = {"LSB_JOBID": "JOB", "LSB_MCPU_HOSTS": "node1 1 node2 1"}
SGE = {"JOB_ID": "JOB", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": "PE_FILE"}
OAR = {"OAR_JOB_ID": "JOB", "OAR_NODEFILE": "NODEFILE"}
FLUX = {
    "FLUX_JOB_ID": "JOB",
    "FLUX_JOB_NNODES": "2",
    "FLUX_JOB_SIZE": "2",
    "FLUX_TASK_RANK": "{i}",
    "FLUX_TASK_LOCAL_ID": "0",
}
OMPI = {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "0"), ("SIZE", "2"), ("LOCAL_RANK", "0"))}
GIVEN_ENV = {"RANK": "{i}", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "23456"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
TWO_KEYS = Case("MINGLE_KEY=" + KEY + "0{i} mingle exec --id h --nodes 2 --timeout 2 true")
ONLY_1 = "[ {i} = 1 ] || mingle exec --timeout 2 torchrun train.py"

MISTAKES: dict[tuple[str, str], Case] = {
    ("slurm", "expected a step of the job"): Case(LINE, {"SLURM_JOB_ID": "7"}, is_alone=True),
    ("slurm", "saw no job here"): Case(LINE, is_alone=True),
    ("pbs", "expected to start torchrun on every node of the job"): Case(LINE, PBS_SHELL, is_alone=True),
    ("pbs", "expected one slot on each host, or --scope; saw 2 slots (pbs)"): Case(
        LINE, {**PBS, "PBS_NODEFILE": "SLOTFILE"}, is_alone=True
    ),
    ("pbs", "env: 'mingle': No such file or directory"): Case(
        "LC_ALL=C env PATH=/usr/bin:/bin mingle exec true", is_alone=True
    ),
    ("torque", "expected to start torchrun on every node of the job"): Case(LINE, TORQUE_SHELL, is_alone=True),
    ("torque", "expected one rank 0; saw two leaders: node1 and node1"): Case(
        "[ {i} = 1 ] || { PBS_TASKNUM=2 mingle exec --timeout 3 true & "
        "PBS_TASKNUM=3 mingle exec --timeout 3 true; wait; }",
        {**TORQUE_SHELL, "PBS_JOBID": "9.ctl"},
    ),
    ("lsf", "expected 2 members"): Case(ONLY_1, LSF),
    ("lsf", "missing node2"): Case(ONLY_1, LSF),
    ("sge", "expected 2 members"): Case(ONLY_1, SGE),
    ("sge", "missing node2"): Case(ONLY_1, SGE),
    ("oar", "expected 2 members"): Case(ONLY_1, OAR),
    ("oar", "missing node2"): Case(ONLY_1, OAR),
    ("oar", "missing any member that knows the number of nodes (--nodes)"): Case(ONLY_1, {"OAR_JOB_ID": "JOB"}),
    ("flux", "expected one rank 0; saw two leaders: node1 and node1"): Case(
        "[ {i} = 1 ] || { FLUX_TASK_RANK=1 FLUX_TASK_LOCAL_ID=1 mingle exec --timeout 3 --scope task true & "
        "FLUX_TASK_LOCAL_ID=0 mingle exec --scope task --timeout 3 true; wait; }",
        {**FLUX, "FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "0"},
    ),
    ("flux", "expected 2 members"): Case("[ {i} = 1 ] || mingle exec --timeout 2 true", FLUX),
    ("flux", "expected rank 0"): Case("[ {i} = 0 ] || mingle exec --timeout 2 true", FLUX),
    ("mpi", "expected one task on each node; saw 2"): Case(
        LINE, {**OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, is_alone=True
    ),
    ("mpi", "expected an id that all members share"): Case(
        LINE, {**OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, is_alone=True
    ),
    ("kubernetes", "expected the number of members; saw none; try --nodes N"): Case(
        "mingle exec --id a true", POD, is_alone=True
    ),
    ("kubernetes", "expected an id that all members share; saw none (scheduler: kubernetes)"): Case(
        "mingle exec --nodes 2 true", POD, is_alone=True
    ),
    ("kubernetes", "expected rank 0 … name not known"): Case(
        "mingle exec --nodes 2 --timeout 2 --master train-0.train true",
        {**POD, "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1"},
    ),
    ("plain-hosts", "expected a key that all members share; saw none given"): Case(
        "env -u MINGLE_KEY mingle exec --id g --nodes 2 true", is_alone=True
    ),
    ("plain-hosts", "another key here"): TWO_KEYS,
    ("plain-hosts", "uses this id with another key"): TWO_KEYS,
    ("plain-hosts", "saw no job here"): Case("mingle exec --id a true", is_alone=True),
    ("plain-hosts", "expected an id that all members share"): Case("mingle exec --nodes 2 true", is_alone=True),
    ("plain-hosts", "saw an empty one (is $JOB set?)"): Case('mingle exec --id "$JOB" --nodes 2 true', is_alone=True),
    ("plain-hosts", "expected the same number of nodes from every member"): Case(
        "mingle exec --id j --nodes $(({i} + 2)) true"
    ),
    ("given-ranks", "expected an id that all members share; saw none (scheduler: given)"): Case(
        LINE, GIVEN_ENV, is_alone=True
    ),
    ("given-ranks", "expected an address of rank 0"): Case(
        "mingle exec --id k --timeout 2 true", {**GIVEN_ENV, "MASTER_ADDR": "localhost", "MASTER_PORT": "23457"}
    ),
    ("given-ranks", "unset MASTER_ADDR"): Case(
        "mingle exec --id l --timeout 2 true", {**GIVEN_ENV, "MASTER_ADDR": "localhost"}
    ),
    ("given-ranks", "expected a key that all members share"): Case(
        "env -u MINGLE_KEY mingle exec --id m true", GIVEN_ENV, is_alone=True
    ),
    ("given-ranks", "expected the same WORLD_SIZE on every member that exports it"): Case(
        "mingle exec --id n true", {**GIVEN_ENV, "NUM_NODES": "2", "WORLD_SIZE": "1{i}", "MASTER_PORT": "23458"}
    ),
    ("given-ranks", "expected the same MASTER_PORT on every member that exports it"): Case(
        "[ {i} = 1 ] || unset MASTER_PORT; mingle exec --id o true", {**GIVEN_ENV, "MASTER_PORT": "23459"}
    ),
    ("given-ranks", "saw '' (--master)"): Case(
        'unset MASTER_PORT; mingle exec --id p --master "$MASTER_ADDR:$MASTER_PORT" true', GIVEN_ENV, is_alone=True
    ),
}
# These are shown on the page of messages too, which brings them about.
ALSO_SHOWN = {
    ("slurm", "expected to start torchrun on every node of the job"),
    ("slurm", "expected one task on each node; saw 2 (slurm)"),
}
