"""Ray: the head is node rank 0, started with `ray start --head --port="$MASTER_PORT"`.

Read in ray 2.60, _private/services.py: RAY_ADDRESS is where ray.init connects.
"""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return the head's address, the same on all nodes."""
    return {"RAY_ADDRESS": view.endpoint}
