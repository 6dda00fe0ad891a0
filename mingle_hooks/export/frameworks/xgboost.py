"""XGBoost and rabit: the tracker runs beside rank 0, on the master port.

Rabit and dmlc-core read these from the environment. xgboost.collective.init of 2.1 and later takes the same
names as arguments: `init(**{k: v for k, v in os.environ.items() if k.startswith("DMLC_")})`.
"""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


def settings(view: View) -> dict[str, str]:
    """Return the whole set, or nothing."""
    if view.process is None or view.processes is None:
        return {}
    return {
        "DMLC_TRACKER_URI": view.world.master_addr,
        "DMLC_TRACKER_PORT": str(view.world.master_port),
        "DMLC_TASK_ID": str(view.process),
        "DMLC_NUM_WORKER": str(view.processes),
    }
