"""XGBoost and rabit: the tracker runs beside rank 0, on the port after the master port.

Rabit and dmlc-core read these from the environment. xgboost.collective of 2.1 and later takes the same names as
arguments, the port as a number:

    port = int(os.environ["DMLC_TRACKER_PORT"])
    RabitTracker(n_workers=…, host_ip=os.environ["DMLC_TRACKER_URI"], port=port, sortby="task").start()  # on rank 0
    CommunicatorContext(dmlc_tracker_uri=…, dmlc_tracker_port=port, dmlc_task_id=os.environ["DMLC_TASK_ID"])

and rank 0 ends with `tracker.wait_for()`, as the others still take their leave of the tracker.

Its tracker binds without SO_REUSEADDR, and so never gets the master port, which is kept for those who bind with it
unless --port-hold says off on rank 0; the others cannot know that, so it is the port after it in any case.
The port after it has not been tried: if another program has it, the tracker says so and ends.
"""

from __future__ import annotations

from mingle_hooks.world import View

LAST_PORT = 65_535


def settings(view: View) -> dict[str, str]:
    """Return the whole set, or nothing."""
    if view.process is None or view.processes is None:
        return {}
    port = view.world.master_port
    return {
        "DMLC_TRACKER_URI": view.world.master_addr,
        "DMLC_TRACKER_PORT": str(port + 1 if port < LAST_PORT else port - 1),
        "DMLC_TASK_ID": str(view.process),
        "DMLC_NUM_WORKER": str(view.processes),
    }
