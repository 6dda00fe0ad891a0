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


def alone(typed: str, env: Mapping[str, str] | None = None) -> Case:
    """Return what one host is enough for."""
    return Case(typed, env or {}, is_alone=True)


GIVEN_ENV = {"RANK": "{i}", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "23456"}
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
    (TROUBLE, "a job, or --nodes"): alone("mingle exec true"),
    (TROUBLE, "saw none given"): alone("env -u MINGLE_KEY mingle exec --id d --nodes 2 true"),
    (PINNED, "WORLD_SIZE=2"): Case("mingle exec --id f --slots 2 true", GIVEN_ENV),
    (TROUBLE, "mode 0644"): alone(
        "umask 022; mkdir -p ~/.config/mingle; mingle key >~/.config/mingle/key;"
        " env -u MINGLE_KEY mingle exec --id e --nodes 2 true"
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
FLUX = {"FLUX_JOB_ID": "JOB", "FLUX_JOB_NNODES": "2", "FLUX_JOB_SIZE": "2", "FLUX_TASK_RANK": "{i}"}
FLUX["FLUX_TASK_LOCAL_ID"] = "0"
OMPI = {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "0"), ("SIZE", "2"), ("LOCAL_RANK", "0"))}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
ONLY_0, ONLY_1 = "[ {i} = 1 ] || ", "[ {i} = 0 ] || "
ONE_LEFT = ONLY_0 + "mingle exec --timeout 2 torchrun train.py"
TWO, TASK = "mingle exec --timeout 3 true", "mingle exec --timeout 3 --scope task true"

_MISTAKES: dict[str, dict[str | tuple[str, ...], Case]] = {
    "slurm": {
        "expected a step of the job": alone(LINE, {"SLURM_JOB_ID": "7"}),
        "saw no job here": alone(LINE),
    },
    "pbs": {
        "expected to start torchrun on every node of the job": alone(LINE, PBS_SHELL),
        "expected one slot on each host, or --scope; saw 2 slots (pbs)": alone(
            LINE, {**PBS, "PBS_NODEFILE": "SLOTFILE"}
        ),
        "env: 'mingle': No such file or directory": alone("LC_ALL=C env PATH=/usr/bin:/bin mingle exec true"),
    },
    "torque": {
        "expected to start torchrun on every node of the job": alone(LINE, TORQUE_SHELL),
        "expected one rank 0; saw two leaders: node1 and node1": Case(
            f"{ONLY_0}{{ PBS_TASKNUM=2 {TWO} & PBS_TASKNUM=3 {TWO}; wait; }}", {**TORQUE_SHELL, "PBS_JOBID": "9.ctl"}
        ),
    },
    "lsf": {("expected 2 members", "missing node2"): Case(ONE_LEFT, LSF)},
    "sge": {("expected 2 members", "missing node2"): Case(ONE_LEFT, SGE)},
    "oar": {
        ("expected 2 members", "missing node2"): Case(ONE_LEFT, OAR),
        "missing any member that knows the number of nodes (--nodes)": Case(ONE_LEFT, {"OAR_JOB_ID": "JOB"}),
    },
    "flux": {
        "expected one rank 0; saw two leaders: node1 and node1": Case(
            f"{ONLY_0}{{ FLUX_TASK_RANK=1 FLUX_TASK_LOCAL_ID=1 {TASK} & FLUX_TASK_LOCAL_ID=0 {TASK}; wait; }}",
            {**FLUX, "FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "0"},
        ),
        "expected 2 members": Case(f"{ONLY_0}mingle exec --timeout 2 true", FLUX),
        "expected rank 0": Case(f"{ONLY_1}mingle exec --timeout 2 true", FLUX),
    },
    "mpi": {
        "expected one task on each node; saw 2": alone(LINE, {**OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}),
        "expected an id that all members share": alone(LINE, {**OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}),
    },
    "kubernetes": {
        "expected the number of members; saw none; try --nodes N": alone("mingle exec --id a true", POD),
        "expected an id that all members share; saw none (scheduler: kubernetes)": alone(
            "mingle exec --nodes 2 true", POD
        ),
        "expected rank 0 … name not known": Case(
            "mingle exec --nodes 2 --timeout 2 --master train-0.train true",
            {**POD, "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1"},
        ),
    },
    "plain-hosts": {
        "expected a key that all members share; saw none given": alone(
            "env -u MINGLE_KEY mingle exec --id g --nodes 2 true"
        ),
        ("another key here", "uses this id with another key"): Case(
            f"MINGLE_KEY={KEY}0{{i}} mingle exec --id h --nodes 2 --timeout 2 true"
        ),
        "saw no job here": alone("mingle exec --id a true"),
        "expected an id that all members share": alone("mingle exec --nodes 2 true"),
        "saw an empty one (is $JOB set?)": alone('mingle exec --id "$JOB" --nodes 2 true'),
        "expected the same number of nodes from every member": Case("mingle exec --id j --nodes $(({i} + 2)) true"),
    },
    "given-ranks": {
        "expected an id that all members share; saw none (scheduler: given)": alone(LINE, GIVEN_ENV),
        "expected an address of rank 0": Case(
            "mingle exec --id k --timeout 2 true", {**GIVEN_ENV, "MASTER_ADDR": "localhost", "MASTER_PORT": "23457"}
        ),
        "unset MASTER_ADDR": Case("mingle exec --id l --timeout 2 true", {**GIVEN_ENV, "MASTER_ADDR": "localhost"}),
        "expected a key that all members share": alone("env -u MINGLE_KEY mingle exec --id m true", GIVEN_ENV),
        "expected the same WORLD_SIZE on every member that exports it": Case(
            "mingle exec --id n true", {**GIVEN_ENV, "NUM_NODES": "2", "WORLD_SIZE": "1{i}", "MASTER_PORT": "23458"}
        ),
        "expected the same MASTER_PORT on every member that exports it": Case(
            f"{ONLY_0}unset MASTER_PORT; mingle exec --id o true", {**GIVEN_ENV, "MASTER_PORT": "23459"}
        ),
        "saw '' (--master)": alone(
            'unset MASTER_PORT; mingle exec --id p --master "$MASTER_ADDR:$MASTER_PORT" true', GIVEN_ENV
        ),
    },
}
# A page, what it quotes of one output, and what brings that about.
MISTAKES = [
    (page, (quotes,) if isinstance(quotes, str) else quotes, case)
    for page, cases in _MISTAKES.items()
    for quotes, case in cases.items()
]
# These are shown on the page of messages too, which brings them about.
ALSO_SHOWN = {
    ("slurm", "expected to start torchrun on every node of the job"),
    ("slurm", "expected one task on each node; saw 2 (slurm)"),
}
