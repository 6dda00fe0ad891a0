"""Lightning, which is content with MASTER_ADDR, MASTER_PORT and NODE_RANK where it starts processes itself.

Read in lightning 2.6, fabric/plugins/environments/: it starts the node's processes unless LOCAL_RANK is set, so node
scope never exports that one. Under Slurm it takes the tasks of srun for its processes, and refuses one task for
several devices, unless the job's name is that of an interactive one.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks import process
from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return what keeps it from taking this world for another one."""
    if view.scope == "node" and "SLURM_JOB_ID" in view.user_environ:
        return {"SLURM_JOB_NAME": "interactive"}
    return process.settings(view._replace(is_cpu_only=False))
