"""JAX: jax.distributed.initialize reads the address and the local devices; user code reads the two numbers.

Read in jax 0.10, _src/distributed.py. The numbers have Kubeflow's names. Under Slurm or Open MPI JAX takes
one device per process unless JAX_LOCAL_DEVICE_IDS says otherwise, so node scope, where one process drives all
slots, says so; task scope leaves it to JAX, as LOCAL_RANK is no device where the scheduler masks devices.
"""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


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
    return found
