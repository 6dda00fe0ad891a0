"""Where each variable that mingle exports is read: the newest release of its framework, the file, and its text.

`make test` sees that no name is missing, `make frameworks` that each text stands in that file of what is installed.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from mmap import ACCESS_READ, mmap
from typing import NamedTuple


class Read(NamedTuple):
    """One place where a variable is read."""

    package: str  # as pip knows it, or the project's name where it is no package for pip
    version: str  # the newest when this was read
    file: str  # in the package, or in the project's source
    text: str  # as it stands there


def _torch(file: str, text: str) -> Read:
    return Read("torch", "2.15.0", f"torch/{file}", text)


def _jax(name: str, file: str = "clusters/ompi_cluster.py") -> Read:
    return Read("jax", "0.10.2", f"jax/_src/{file}", name)


def _source(project: str, version: str, file: str, text: str) -> Read:
    """Return a place in the source of what pip does not have, or in its manual: it is not looked up again."""
    return Read(project, version, file, text)


def _nccl(name: str) -> Read:
    return _source("NCCL", "2.30.7", "src/misc/socket.cc", f'ncclGetEnv("{name}")')


_TORCHRUN = ("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port")
_TORCHRUN += ("rdzv-backend", "rdzv-id", "rdzv-endpoint", "rdzv-conf", "local-addr", "max-restarts")

# Names of mingle's own are for the user's command line, and Kubeflow's two for user code.
OWN = ("MINGLE_",)
FOR_USER_CODE = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "DMLC_TRACKER_PORT", "DMLC_TRACKER_URI", "DMLC_NUM_WORKER")
FOR_USER_CODE += ("DMLC_TASK_ID",)
READS = {
    # argparse_util.py takes an option's default from PET_ and its name.
    **{
        f"PET_{option.upper().replace('-', '_')}": _torch("distributed/run.py", f'"--{option}"') for option in _TORCHRUN
    },
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": _torch(
        "distributed/elastic/rendezvous/dynamic_rendezvous.py", 'os.getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0")'
    ),
    # Lightning 2.6.6 asks torch: plugins/environments/torchelastic.py, is_torchelastic_launched().
    "TORCHELASTIC_RUN_ID": _torch("distributed/distributed_c10d.py", 'os.getenv("TORCHELASTIC_RUN_ID") is not None'),
    "ACCELERATE_USE_CPU": Read("accelerate", "1.15.0", "accelerate/state.py", '"ACCELERATE_USE_CPU"'),
    "MV2_COMM_WORLD_RANK": Read("accelerate", "1.15.0", "accelerate/utils/environment.py", "MV2_COMM_WORLD_RANK"),
    "SLURM_JOB_NAME": Read("lightning", "2.6.6", "lightning/fabric/plugins/environments/slurm.py", "SLURM_JOB_NAME"),
    "SLURM_OVERLAP": _source("Slurm", "22.05", "srun(1)", "SLURM_OVERLAP"),
    "OMPI_MCA_orte_default_hostfile": _source("Open MPI", "4.1", "orte/runtime/orte_mca_params.c", "default_hostfile"),
    "PRTE_MCA_prte_default_hostfile": _source("PRRTE", "5.0", "src/runtime/prte_mca_params.c", '"default_hostfile"'),
    "HYDRA_HOST_FILE": _source("MPICH", "5.1", "src/pm/hydra/mpiexec/get_parameters.c", '"HYDRA_HOST_FILE"'),
    "HYDRA_IFACE": _source("MPICH", "5.1", "src/pm/hydra/mpiexec/get_parameters.c", '"HYDRA_IFACE"'),
    "I_MPI_HYDRA_HOST_FILE": _source("Intel MPI", "2021.15", "Developer Reference", "I_MPI_HYDRA_HOST_FILE"),
    "JAX_COORDINATOR_ADDRESS": _jax("JAX_COORDINATOR_ADDRESS", "distributed.py"),
    "JAX_LOCAL_DEVICE_IDS": _jax("JAX_LOCAL_DEVICE_IDS", "distributed.py"),
    "OMPI_MCA_orte_hnp_uri": _jax("OMPI_MCA_orte_hnp_uri"),
    "OMPI_COMM_WORLD_SIZE": _jax("OMPI_COMM_WORLD_SIZE"),
    "OMPI_COMM_WORLD_RANK": _jax("OMPI_COMM_WORLD_RANK"),
    "OMPI_COMM_WORLD_LOCAL_RANK": _jax("OMPI_COMM_WORLD_LOCAL_RANK"),
    "TF_CONFIG": Read(
        "tensorflow-cpu",
        "2.21.0",
        "tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py",
        "_TF_CONFIG_ENV = 'TF_CONFIG'",
    ),
    "RAY_ADDRESS": Read("ray", "2.60.0", "ray/_private/ray_constants.py", '"RAY_ADDRESS"'),
    "MLX_RANK": Read("mlx-cpu", "0.32.4", "mlx/lib/libmlx.so", "MLX_RANK"),
    "MLX_HOSTFILE": Read("mlx-cpu", "0.32.4", "mlx/lib/libmlx.so", "MLX_HOSTFILE"),
    # LLaMA-Factory 0.9.5 has the same name, in src/llamafactory/launcher.py.
    "NPROC_PER_NODE": Read("ms-swift", "4.6.0", "swift/cli/main.py", "os.getenv('NPROC_PER_NODE')"),
    "FORCE_TORCHRUN": Read("llamafactory", "0.9.5", "llamafactory/launcher.py", 'is_env_enabled("FORCE_TORCHRUN")'),
    "BASE_RANK": Read("mosaicml", "0.32.1", "composer/cli/launcher.py", "os.environ['BASE_RANK']"),
    "VLLM_HOST_IP": Read("vllm", "0.33.0", "vllm/envs.py", '"VLLM_HOST_IP"'),
    "SGLANG_HOST_IP": Read("sglang", "0.5.23", "sglang/srt/utils/network.py", 'os.getenv("SGLANG_HOST_IP", "")'),
    "NCCL_SOCKET_IFNAME": _nccl("NCCL_SOCKET_IFNAME"),
    "NCCL_SOCKET_FAMILY": _nccl("NCCL_SOCKET_FAMILY"),
    "GLOO_SOCKET_IFNAME": _torch("lib/libtorch_cpu.so", "GLOO_SOCKET_IFNAME"),
    "TP_SOCKET_IFNAME": _torch("lib/libtorch_cpu.so", "TP_SOCKET_IFNAME"),
    "UCX_NET_DEVICES": _source("UCX", "1.23", "src/ucp/core/ucp_context.c", '{"NET_DEVICES", UCP_RSC_CONFIG_ALL,'),
}


def unread() -> list[str]:
    """Return a line for each text that is not where it was read, of what is installed."""
    lines = []
    for name, read in READS.items():
        with suppress(PackageNotFoundError):
            path = str(distribution(read.package).locate_file(read.file))
            with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as its:  # libraries are large
                lines += [f"{name}: {read.text} is not in {read.file}"] if its.find(read.text.encode()) < 0 else []
    return lines
