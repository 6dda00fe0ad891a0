"""A person names rank 0's host: --master HOST[:PORT]."""

from __future__ import annotations

from mingle_hooks.rendezvous.ways.hosts import HostsWay
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.ways import Context


def way(context: Context) -> HostsWay | None:
    """Return this way where --master was given."""
    if context.master is None:
        return None
    host, port = context.master
    return HostsWay(context, "master", [host], context.ports if port is None else (port,))
