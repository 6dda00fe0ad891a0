"""The frameworks that are tried: each with the line that a person types, and the unchanged script that it trains."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

SCRIPTS = Path(__file__).parent
NODES = 3
# Slots of the three nodes: alike, or all different.
ALIKE, UNEVEN = (1, 1, 1), (1, 2, 4)


class Row(NamedTuple):
    """One line of the table.

    `line` is typed on every node, or after srun; {size} and {nodes} are the numbers of this world, {python} is the
    interpreter's full path. `per_slot` says that the framework starts a process for each slot, else it is `each`.
    `needs_names` says why it does not train where names do not resolve, and what to do: the page has it there.
    """

    name: str
    package: str  # whose version stands in the table; "" for a program, whose `version` command tells
    line: str
    script: str
    per_slot: bool = False
    each: int = 1
    env: Mapping[str, str] = MappingProxyType({})
    own_pids: bool = False  # looks at all processes of its machine, and ends those of its kind
    version: str = ""
    by_tasks: bool = False  # counts Slurm's tasks, whatever the slots
    longest_s: float = 200.0  # a try takes 20 s, beside others 60; one that torch's own end spoils would wait for 300
    needs_names: str = ""

    @property
    def uneven(self) -> tuple[int, ...]:
        """Slots that differ from node to node, where the framework has a process for each."""
        return UNEVEN if self.per_slot else ALIKE

    def size(self, slots: tuple[int, ...]) -> int:
        """Return how many processes are to train."""
        return sum(slots) if self.per_slot else len(slots) * self.each

    def command(self, slots: tuple[int, ...], python: str) -> str:
        """Return what follows the first options of `mingle exec`, as a shell reads it."""
        line = self.line.replace(self.script, str(SCRIPTS / self.script))
        return line.format(size=self.size(slots), nodes=len(slots), python=python)


# mpi4py lies beside the others: Lightning starts MPI where it finds it, which aborts under a srun without PMI.
_BESIDE = {"PYTHONPATH": f"{sys.prefix}/lib/mpi4py"}
MPI = MappingProxyType({**_BESIDE, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
# mpi4py's wheel looks for MPICH's library by the name of its ABI, which Debian's does not have: tests/setup makes it.
MPICH = MappingProxyType({**_BESIDE, "LD_LIBRARY_PATH": f"{sys.prefix}/lib/mpich"})
# DeepSpeed compiles for a minute where it does not find what it has compiled, and a killed try's lock stops all others.
COMPILED = MappingProxyType({"TORCH_EXTENSIONS_DIR": f"{sys.prefix}/torch_extensions"})
ACCELERATE, LIGHTNING, MPI4PY = "train_accelerate.py", "train_lightning.py", "train_mpi.py"

ROWS = (
    Row("torchrun", "torch", "torchrun train_torch.py {size}", "train_torch.py", per_slot=True),
    Row(
        "torchrun, elastic",
        "torch",
        "--for torchrun-elastic torchrun train_torch.py {size}",
        "train_torch.py",
        per_slot=True,
    ),
    Row("torch, one process per node", "torch", "python train_torch.py {size}", "train_torch.py"),
    Row(
        "torch, one process per task", "torch", "--scope task --slots 1 python train_torch.py {size}", "train_torch.py"
    ),
    Row("accelerate", "accelerate", "accelerate launch train_accelerate.py {size}", ACCELERATE, per_slot=True),
    Row("accelerate by torchrun", "accelerate", "torchrun train_accelerate.py {size}", ACCELERATE, per_slot=True),
    Row("accelerate, one process per node", "accelerate", "python train_accelerate.py {size}", ACCELERATE),
    Row("Lightning, one process per node", "lightning", "python train_lightning.py {size} {nodes} 1", LIGHTNING),
    Row(
        "Lightning, which starts 2 per node",
        "lightning",
        "--for lightning --slots 2 python train_lightning.py {size} {nodes} 2",
        LIGHTNING,
        each=2,
    ),
    Row(
        "Lightning by torchrun",
        "lightning",
        "--slots 2 torchrun train_lightning.py {size} {nodes} 2",
        LIGHTNING,
        each=2,
    ),
    Row(
        "JAX",
        "jax",
        "--for jax python train_jax.py {size}",
        "train_jax.py",
        longest_s=60,
        needs_names="on CPUs, JAX's own copy of Gloo uses the address of its host's name: in /etc/hosts, give each host"
        " an address that the others reach (as root; `mingle check` finds such nodes); on GPUs JAX uses NCCL",
    ),
    Row("TensorFlow", "tensorflow-cpu", "--for tensorflow python train_tensorflow.py {size}", "train_tensorflow.py"),
    Row(
        "DeepSpeed",
        "deepspeed",
        "deepspeed train_deepspeed.py {size}",
        "train_deepspeed.py",
        per_slot=True,
        env=COMPILED,
        longest_s=400,
    ),
    Row("Ray", "ray", "ray symmetric-run -- python train_ray.py {size}", "train_ray.py", own_pids=True, longest_s=240),
    Row("XGBoost", "xgboost-cpu", "--for xgboost python train_xgboost.py {size}", "train_xgboost.py"),
    Row("MLX", "mlx", "--for mlx python train_mlx.py {size}", "train_mlx.py"),
    Row(
        "Open MPI",
        "",
        "mpirun -x PYTHONPATH {python} train_mpi.py {size}",
        MPI4PY,
        per_slot=True,
        by_tasks=True,
        env=MPI,
        version="mpirun --version",
    ),
    Row(
        "MPICH",
        "",
        "mpiexec.hydra {python} train_mpi.py {size}",
        MPI4PY,
        per_slot=True,
        env=MPICH,
        version="mpiexec.hydra --version",
    ),
)

# Not a try like the others: one node is killed meanwhile, and started again.
REJOIN = Row(
    "torchrun, elastic, one node killed and restarted",
    "torch",
    "--for torchrun-elastic torchrun train_elastic.py {size} 60",
    "train_elastic.py",
)
