"""A person names rank 0's host: --master HOST[:PORT]."""

from __future__ import annotations

from mingle_hooks.rendezvous.discovery import Context
from mingle_hooks.rendezvous.discovery.hosts import HostsBackend


def backend(context: Context) -> HostsBackend | None:
    """Return this backend where --master was given."""
    if context.master is None:
        return None
    host, port = context.master
    return HostsBackend(context, "master", [host], context.ports if port is None else (port,))
