"""The roster as launchers want it: every host once, with all its slots."""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.world import Member


def slots(roster: tuple[Member, ...]) -> dict[str, int]:
    """Return host -> slots in rank order; members that share a host are added up."""
    found: dict[str, int] = {}
    for member in roster:
        found[member.host] = found.get(member.host, 0) + member.slots
    return found
