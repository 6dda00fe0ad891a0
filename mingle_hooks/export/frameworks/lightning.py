"""Lightning, which is content with MASTER_ADDR, MASTER_PORT and NODE_RANK.

Read in lightning 2.6, fabric/plugins/environments/lightning.py: it starts the node's processes itself unless
LOCAL_RANK is set, so node scope never exports that one.
"""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.export.view import View


def settings(view: View) -> dict[str, str]:  # noqa: ARG001 -- as every framework's
    """Return nothing more."""
    return {}
