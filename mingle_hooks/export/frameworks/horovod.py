"""horovodrun, which takes its hosts from an option.

Read in horovod 0.28, runner/common/util/hosts.py: `host:slots` joined by commas. Use it as
`horovodrun -np "$WORLD_SIZE" -H "$MINGLE_HOSTS" python train.py`.
"""

from __future__ import annotations

from mingle_hooks.export.hostfiles import horovod
from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return the host list, or nothing without a roster."""
    return {"MINGLE_HOSTS": horovod.text(view.world.roster).strip()} if view.world.roster else {}
