"""`ray start` and `ray symmetric-run`: the head is on rank 0, and every node is on the world's network.

Read in ray 2.60, scripts/scripts.py and scripts/symmetric_run.py. symmetric-run refuses --node-ip-address: each
of its nodes takes the address from which it reaches the head, which is on the world's network.
"""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.errors import UsageError
from mingle_hooks.export.launchers.words import absent, check, given
from mingle_hooks.world import View

_FLAGS = frozenset(
    {
        *("--head", "--block", "--no-redirect-output", "--disable-usage-stats", "-v", "--verbose", "--help"),
        *("--enable-resource-isolation", "--ray-debugger-external", "--include-log-monitor"),
    }
)


def options(name: tuple[str, ...], words: tuple[str, ...], view: View, _exported: Mapping[str, str]) -> tuple[str, ...]:
    """Return where the head is, and for `ray start` whether it is here. Raises UsageError."""
    asked = given(words, _FLAGS)
    check("ray", asked, view.world.nodes, view.place.node_rank)
    if name[-1] == "symmetric-run":
        return absent({"--address": view.endpoint, "--min-nodes": view.world.nodes}, asked)
    if "--head" in asked and view.place.node_rank != 0:
        raise UsageError("one head, on rank 0's node", "ray start --head on every node", "ray start without --head")
    if "--head" in asked or "--address" in asked:
        return ()
    own = {"--node-ip-address": view.place.address or view.world.master_addr}
    if view.place.node_rank == 0:
        return absent({"--head": None, "--port": view.world.master_port, **own}, asked)
    return absent({"--address": view.endpoint, **own}, asked)
