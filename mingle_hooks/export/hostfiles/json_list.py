"""JSON, with all that is known of each member."""

from __future__ import annotations

from collections.abc import Sequence

from mingle_hooks import values
from mingle_hooks.world import Member


def text(members: Sequence[Member]) -> str:
    """Return a list with an object for each member; its address is null where nobody was asked for it."""
    rows = [
        {"rank": rank, "host": host, "address": address or None, "slots": slots}
        for rank, host, address, slots in members
    ]
    return f"{values.to_json(rows)}\n"
