"""Why a world has not formed in time, as every member is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.failure import Failure
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.errors import Shortage
    from mingle_hooks.rendezvous.leader.roster import Roster
    from mingle_hooks.rendezvous.leader.terms import Terms
    from mingle_hooks.rendezvous.protocol.failure import Kind
    from mingle_hooks.rendezvous.rejected import RejectedPeers

# Why somebody was refused -> the failure that says so where members are missing; the likeliest mistake first.
REFUSALS: dict[wire.Why, Kind] = {wire.VERSION: "versions", wire.RUN: "runs", wire.KEY: "keys"}


class Seen(NamedTuple):
    """What a leader knows when the time is over."""

    roster: Roster
    terms: Terms
    host: str  # the leader's
    refused: Mapping[wire.Why, RejectedPeers]
    shortage: Shortage | None  # what the leader's host has run out of
    one_way: Sequence[str] = ()  # tells whom the leader hears by multicast, and who does not come


def failure(seen: Seen, after_s: int, silent: list[str] | None) -> Failure:
    """Return why there is no world: no common address, or members missing, with the likeliest cause.

    `silent` are the hosts that hold the answer and have not said READY, None where no answer was sent.
    """
    roster = seen.roster
    if silent is None and roster.complete:
        short = roster.short_of([offer.address for offer in seen.terms.advertised])
        return Failure("network", (seen.host, short))
    nodes, inside, missing = str(roster.nodes or "all"), str(len(roster)), roster.missing()
    if silent is not None:
        inside = f"{len(roster) - len(silent)} of {inside} confirmed"
        missing = fold(silent) or "none, but some too late"
    if seen.shortage is not None:
        inside += f" (on {seen.host}: {seen.shortage.seen})"
        return Failure(seen.shortage.kind, (nodes, str(after_s), inside, missing))
    if silent is not None:
        return Failure("unconfirmed", (nodes, str(after_s), inside, missing))
    for why, kind in REFUSALS.items():
        if rejected := seen.refused[why].list():
            return Failure(kind, (nodes, str(after_s), f"{inside}, missing {missing}", ", ".join(rejected)))
    if seen.one_way and len(roster) > 1:  # who is alone says it itself
        inside += f" (on {seen.host}: {'; '.join(seen.one_way)})"
    return Failure("missing", (nodes, str(after_s), inside, missing))
