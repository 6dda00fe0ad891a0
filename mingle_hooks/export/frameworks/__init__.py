"""The frameworks: each is one module with `settings(view)`, and `files(view)` where it wants a file.

`settings` returns name -> value, and nothing at all where something that it needs is not known, or what makes the
framework end at once: half of its variables make it hang (kubeflow/trainer#3277). Only variables that the framework
was seen to read are here; MINGLE_* names are for the user's own command line.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Literal, NamedTuple

from mingle_hooks import plugins
from mingle_hooks.errors import UsageError
from mingle_hooks.plugins import Plugin
from mingle_hooks.values import nearest
from mingle_hooks.world import File

Need = Literal["roster", "names", "iface", "hcas", "cpu_only", "memory", "site"]

# What the caller has to find out before it asks a framework.
ROSTER: Need = "roster"  # World.roster
NAMES: Need = "names"  # hosts in it by names that this node can reach them by, else by address
IFACE: Need = "iface"  # Assignment.iface and Assignment.address
HCAS: Need = "hcas"  # fabric.infiniband.active_ports()
SITE: Need = "site"  # View.site
CPU_ONLY: Need = "cpu_only"  # View.is_cpu_only
MEMORY: Need = "memory"  # the saved answer, for a member that is started again: rejoin.with_memory()


class Framework(NamedTuple):
    """Where a framework's code is, all that it may export, and what it needs."""

    module: str
    names: tuple[str, ...]
    needs: frozenset[Need] = frozenset()
    files: bool = False


_PET = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_PET_RDZV = ("PET_RDZV_BACKEND", "PET_RDZV_ID", "PET_RDZV_ENDPOINT", "PET_RDZV_CONF", "PET_LOCAL_ADDR")
_NO_RANK = "MV2_COMM_WORLD_RANK"
_OPEN_MPI = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
_OMPI = ("OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
_RESTARTS = ("PET_MAX_RESTARTS", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE")
_HOSTS = frozenset({ROSTER})
_NAMED_HOSTS = _HOSTS | {NAMES}
_NETWORK = frozenset({IFACE})

# The names stand here and not in the modules, so that all of them are known without loading any.
FRAMEWORKS = {
    "torchrun": Framework("torchrun", (*_PET, *_PET_RDZV, _NO_RANK)),
    "torchrun-elastic": Framework(
        "torchrun_elastic", (*_PET[:3], *_PET_RDZV, _NO_RANK, *_RESTARTS), _NETWORK | {MEMORY}
    ),
    "accelerate": Framework(
        "accelerate", ("MINGLE_ACCELERATE_CONFIG", "ACCELERATE_USE_CPU"), frozenset({CPU_ONLY}), files=True
    ),
    "cpu": Framework("cpu", ("ACCELERATE_USE_CPU",), frozenset({CPU_ONLY})),
    "process": Framework("process", ("TORCHELASTIC_RUN_ID", "ACCELERATE_USE_CPU"), frozenset({CPU_ONLY})),
    "lightning": Framework("lightning", ("TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME")),
    "deepspeed": Framework("deepspeed", ("MINGLE_HOSTFILE",), _NAMED_HOSTS, files=True),
    "mpi": Framework(
        "mpi",
        (
            "MINGLE_HOSTFILE",
            *_OPEN_MPI,
            "MINGLE_MACHINEFILE",
            "HYDRA_HOST_FILE",
            "I_MPI_HYDRA_HOST_FILE",
            "HYDRA_IFACE",
            "SLURM_OVERLAP",
        ),
        _NAMED_HOSTS | _NETWORK,
        files=True,
    ),
    "horovod": Framework("horovod", ("MINGLE_HOSTS",), _NAMED_HOSTS),
    "jax": Framework(
        "jax",
        ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS", *_OMPI),
    ),
    "tensorflow": Framework("tensorflow", ("TF_CONFIG",), _HOSTS),
    "ray": Framework("ray", ("RAY_ADDRESS",)),
    "xgboost": Framework("xgboost", ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")),
    "mlx": Framework("mlx", ("MLX_RANK", "MLX_HOSTFILE"), _HOSTS, files=True),
    "swift": Framework("swift", ("NPROC_PER_NODE",)),
    "llamafactory": Framework("llamafactory", ("FORCE_TORCHRUN", "NPROC_PER_NODE")),
    "composer": Framework("composer", ("BASE_RANK",)),
    "vllm": Framework("vllm", ("VLLM_HOST_IP",)),
    "sglang": Framework("sglang", ("SGLANG_HOST_IP",)),
    "nccl": Framework("nccl", ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"), _NETWORK | {SITE}),
    "gloo": Framework("gloo", ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), _NETWORK),
    "ucx": Framework("ucx", ("UCX_NET_DEVICES",), frozenset({IFACE, HCAS})),
}

# Those of other packages that were asked for, by name.
_added: dict[str, Plugin] = {}

# What everybody gets: torchrun's set, as most people then type `torchrun train.py`, and the interface for Gloo, which
# any program may use: torch's backend on CPUs is Gloo unless it is told otherwise. NONE says that nobody gets them.
DEFAULT, ALWAYS, NONE = "torchrun", "gloo", "none"


def profiles(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the frameworks to export for: DEFAULT, ALWAYS and those asked for, or with NONE those asked for alone.

    DEFAULT is left out where one of those asked for sets its variables too. Raises UsageError for an unknown name.
    """
    if NONE in asked:
        return tuple(name for name in dict.fromkeys(asked) if name != NONE)
    names = set(FRAMEWORKS[DEFAULT].names)
    is_replaced = any(names.intersection(framework(name).names) for name in asked if name != DEFAULT)
    first = (DEFAULT,) if DEFAULT in asked or not is_replaced else ()
    return tuple(dict.fromkeys((*first, ALWAYS, *asked)))


def framework(name: str) -> Framework:
    """Return the framework of this name, ours or a plugin's; UsageError, with the nearest known name, for another."""
    if name in FRAMEWORKS:
        return FRAMEWORKS[name]

    if (plugin := plugins.find(plugins.FRAMEWORKS, name, _RETURNS)) is not None:
        row: Framework = plugin.row("FRAMEWORK", Framework)
        _added[name] = plugin
        return row

    known = [*FRAMEWORKS, *plugins.names(plugins.FRAMEWORKS), NONE]
    raise UsageError(f"a framework: {', '.join(known)}", name, f"--for {nearest(name, known)}")


def _are_settings(found: object) -> bool:
    return isinstance(found, dict) and all(isinstance(text, str) for pair in found.items() for text in pair)


def _are_files(found: object) -> bool:

    return isinstance(found, tuple) and all(isinstance(file, File) for file in found)


_RETURNS = {"settings": ("a dict of strings", _are_settings), "files": ("a tuple of File", _are_files)}


def load(name: str) -> ModuleType | Plugin:
    """Return the framework's module. Raises UsageError."""
    row = framework(name)
    return _added[name] if name in _added else import_module(f"{__name__}.{row.module}")


def added() -> tuple[str, ...]:
    """Return what the plugins that were asked for may export."""
    return tuple(variable for name in _added for variable in framework(name).names)


def needs(names: tuple[str, ...]) -> frozenset[Need]:
    """Return what the caller has to find out for these frameworks.

    Raises UsageError.
    """
    none: frozenset[Need] = frozenset()
    return none.union(*(framework(name).needs for name in names))
