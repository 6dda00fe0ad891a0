"""JAX: plain `jax.distributed.initialize()` in every process.

Read in jax 0.10, _src/distributed.py and _src/clusters/: it reads the address and the local devices from its own
variables, but the two numbers only from a cluster that it knows. Where there is none (neither Slurm nor Open
MPI) the smallest set of Open MPI's variables by which it detects one says them: OMPI_MCA_orte_hnp_uri is the mark,
in Open MPI's own form, and holds the coordinator's address. A program that uses MPI beside JAX needs mpirun, and then
gets none of these. JAX_NUM_PROCESSES and JAX_PROCESS_ID are Kubeflow's names, for user code.

Under Slurm or Open MPI JAX takes one device per process unless JAX_LOCAL_DEVICE_IDS says otherwise, so node scope,
where one process drives all slots, says so; task scope leaves it to JAX, as LOCAL_RANK is no device where the
scheduler masks devices.
"""

from __future__ import annotations

from mingle_hooks.world import View

MARK = "OMPI_MCA_orte_hnp_uri"
# By all of these JAX finds Slurm (clusters/slurm_cluster.py).
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")


def settings(view: View) -> dict[str, str]:
    """Return the whole set, or nothing."""
    if view.process is None or view.processes is None:
        return {}
    found = {
        "JAX_COORDINATOR_ADDRESS": view.endpoint,
        "JAX_NUM_PROCESSES": str(view.processes),
        "JAX_PROCESS_ID": str(view.process),
    }
    if view.scope == "node" and view.place.slots is not None:
        found["JAX_LOCAL_DEVICE_IDS"] = ",".join(str(device) for device in range(view.place.slots))
    return found | _cluster(view)


def _cluster(view: View) -> dict[str, str]:
    """Return what JAX takes for Open MPI, where it would find no cluster."""
    if MARK in view.user_environ or all(name in view.user_environ for name in _SLURM):
        return {}
    family = "tcp6" if view.endpoint.startswith("[") else "tcp"
    found = {
        MARK: f"0.0;{family}://{view.endpoint}",
        "OMPI_COMM_WORLD_SIZE": str(view.processes),
        "OMPI_COMM_WORLD_RANK": str(view.process),
    }
    if view.scope == "task" and view.place.local_rank is not None:
        found["OMPI_COMM_WORLD_LOCAL_RANK"] = str(view.place.local_rank)
    return found
