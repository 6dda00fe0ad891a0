"""horovodrun, which takes its hosts from an option.

Read in horovod 0.28, runner/common/util/hosts.py: `host:slots` joined by commas. Use it as
`horovodrun -np "$WORLD_SIZE" -H "$MINGLE_HOSTS" python train.py`.
"""

from __future__ import annotations

from mingle_hooks.export.frameworks import hosts
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


def settings(view: View) -> dict[str, str]:
    """Return the host list, or nothing without a roster."""
    found = hosts.slots(view.world.roster)
    return {"MINGLE_HOSTS": ",".join(f"{host}:{slots}" for host, slots in found.items())} if found else {}
