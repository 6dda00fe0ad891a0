"""How each block of docs/ that is a command is run: the tables that test_shown_lines.py goes through."""

from __future__ import annotations

from typing import NamedTuple

SLURM, PBS, MPI = "schedulers/slurm.md", "schedulers/pbs.md", "schedulers/mpi.md"
PLAIN, PINNED, KUBERNETES = "schedulers/plain-hosts.md", "schedulers/given-ranks.md", "schedulers/kubernetes.md"
RECIPES, TROUBLE = "from-recipes.md", "troubleshooting.md"
TORCHRUN = "srun mingle exec torchrun train.py"
TASKS = "mingle exec --scope task python train.py"

Where = tuple[str, str]  # a page, and the mark of its block


class Allocated(NamedTuple):
    """The options of salloc in whose shell a block is run, and how large its world is."""

    options: str
    size: int
    then: str = ""


ALLOCATED: dict[Where, Allocated] = {
    (SLURM, TORCHRUN): Allocated("-N2", 2),
    (SLURM, "srun --ntasks="): Allocated("-N2 --ntasks-per-node=2", 2),
    (SLURM, "srun bash -c 'eval"): Allocated("-N2", 2),
    (SLURM, "MINGLE_KEY=$(mingle key)"): Allocated("-N2", 2, then=f"; {TORCHRUN}"),
    (MPI, "mpirun --map-by ppr:1:node mingle exec torchrun train.py"): Allocated("-N2 --ntasks-per-node=2", 2),
    (MPI, f"mpirun {TASKS}"): Allocated("-N2 --ntasks-per-node=2", 4),
}

# Batch scripts, and the size of their world.
BATCH: dict[Where, int] = {
    (SLURM, "#SBATCH --nodes=4"): 4,
    (SLURM, "#SBATCH --nodes=2"): 8,
    ("run.md", "#SBATCH --nodes=4"): 4,
    (RECIPES, "srun mingle exec --for nccl"): 2,
}

# `mingle template … | submit`: the first of a page's line is a script that bash can read.
TEMPLATES: list[Where] = [
    (SLURM, "mingle template sbatch"),
    (PBS, "mingle template pbs"),
    ("schedulers/torque.md", "mingle template torque"),
    ("schedulers/lsf.md", "mingle template lsf"),
    ("schedulers/sge.md", "mingle template sge --nodes 4 -- torchrun train.py | qsub"),
    ("schedulers/sge.md", "--directive"),
]

# What the scheduler of a line would set on host number {i}, from 0, of {n}; the line is run from `mingle exec` on.
LSF = "LSB_JOBID=7 LSB_MCPU_HOSTS='node1 1 node2 1'"
PALS = "PALS_RANKID={i} PALS_NODEID={i} PALS_LOCAL_RANKID=0 PALS_LOCAL_SIZE=1 PMI_SIZE={n} MINGLE_ID=a"
JSM = "JSM_NAMESPACE_RANK={i} JSM_NAMESPACE_SIZE={n} JSM_NAMESPACE_LOCAL_RANK=0 JSM_NAMESPACE_LOCAL_SIZE=1"
TORQUE = "PBS_JOBID=7.ctl PBS_NUM_NODES={n} PBS_NODENUM={i} PBS_TASKNUM=2"
SGE = "JOB_ID=7 SGE_TASK_ID=undefined NHOSTS={n} NSLOTS={n}"
FLUX = "FLUX_JOB_ID=f7 FLUX_JOB_NNODES={n} FLUX_JOB_SIZE={n} FLUX_TASK_RANK={i} FLUX_TASK_LOCAL_ID=0"
REPLICA = "RANK={i} WORLD_SIZE={n} MASTER_ADDR=node1 MASTER_PORT=23456"
POD = "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX={i}"


class Variables(NamedTuple):
    """What is set on each of `count` hosts, as assignments, and what is left out of the line before `start`."""

    environ: str
    count: int = 2
    start: str = "mingle exec"


BY_VARIABLES: dict[Where, Variables] = {
    ("schedulers/lsf.md", 'blaunch "$host"'): Variables(LSF),
    ("schedulers/lsf.md", "jsrun"): Variables(f"{LSF} {JSM}"),
    ("schedulers/torque.md", "pbsdsh -o -h"): Variables(TORQUE),
    ("schedulers/sge.md", "qrsh -inherit"): Variables(SGE, start='"$(command'),
    ("schedulers/flux.md", "flux run -N4 -n4 mingle exec torchrun train.py"): Variables(FLUX),
    ("schedulers/flux.md", "--directory"): Variables(FLUX),
    (MPI, "mpiexec -n 4 --ppn 1"): Variables(PALS),
    (PINNED, "mingle exec --id exp7 torchrun train.py"): Variables(REPLICA),
    (PINNED, '--master "$MASTER_ADDR'): Variables(REPLICA),
    (PINNED, "env -u WORLD_SIZE"): Variables(f"{REPLICA} GPUS_PER_NODE=2", start="env -u"),
    (KUBERNETES, "kind: Job"): Variables(f"{POD} HOSTNAME=train-{{i}}", 4),
    (KUBERNETES, "train-workers-0-0"): Variables(f"{POD} HOSTNAME=train-workers-0-{{i}}", 4),
    (PLAIN, "mingle exec --id exp7 --nodes 4 torchrun train.py"): Variables("", 4),
    (PLAIN, "--master node1"): Variables("", 4),
    (PLAIN, "--directory"): Variables("", 4),
}

# The rest have a test of their own.
PBS_SCRIPT, OAR_SCRIPT = (PBS, "#PBS -l select"), ("schedulers/oar.md", 'sort -u "$OAR_NODEFILE"')
PLAIN_KEY, PLAIN_SSH = (PLAIN, "umask 077"), (PLAIN, "ssh ")
LIGHTNING = (TROUBLE, "--for lightning")
LINT, RECIPE = (RECIPES, "--lint"), (RECIPES, "MASTER_PORT=29500")
ADDRESS = (RECIPES, "|| echo exit 1")
EVALUATED = (SLURM, "|| echo exit 1")
PLACES, MISSING = (TROUBLE, "torchrun --no-python"), (TROUBLE, "|| echo exit 1")
EXPLAIN, EXPLAINED = (TROUBLE, "srun mingle exec --explain"), (TROUBLE, "IGNORED")
OWN = [PBS_SCRIPT, OAR_SCRIPT, PLAIN_KEY, PLAIN_SSH, LINT, LIGHTNING, ADDRESS, PLACES, MISSING, EXPLAIN, EXPLAINED]
OWN += [EVALUATED]
# tests/system/docs/test_tutorial.py runs these, one after the other.
TUTORIAL: list[Where] = [
    ("tutorial.md", mark)
    for mark in ("--id laptop", "--id alone", "#SBATCH", "sbatch job.sh", "srun -N2", "mingle check", "qsub")
]
DRAWING = ("how-it-works.md", "RENDEZVOUS")  # no command

# Python, which tests/unit/test_api.py runs.
API: list[Where] = [("api.md", mark) for mark in ("mingle_hooks.variables", "MissingError", "mingle_hooks.render")]

RUN: list[Where] = [*ALLOCATED, *BATCH, *TEMPLATES, *BY_VARIABLES, *OWN, *API, *TUTORIAL, DRAWING]
