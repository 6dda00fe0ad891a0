"""A person names rank 0's host: --master HOST[:PORT]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.discovery.hosts import HostsBackend

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.discovery import Context


def backend(context: Context) -> HostsBackend | None:
    """Return this backend where --master was given."""
    if context.master is None:
        return None
    host, port = context.master
    return HostsBackend(context, "master", [host], context.ports if port is None else (port,))
