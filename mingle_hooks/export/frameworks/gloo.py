"""Gloo and TensorPipe, torch's networks for CPUs and RPC: one bare name; a `^` or `=` would crash Gloo."""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return this node's interface."""
    iface = view.place.iface
    return {"GLOO_SOCKET_IFNAME": iface, "TP_SOCKET_IFNAME": iface} if iface else {}
