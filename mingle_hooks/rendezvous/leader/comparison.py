"""What the leader says of nodes that are not alike: a warning once the world has formed, or why none does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.protocol.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.lint.finding import Finding
    from mingle_hooks.rendezvous.leader.leader import Leader
    from mingle_hooks.rendezvous.leader.roster import Entry, Roster
    from mingle_hooks.rendezvous.leader.terms import Terms
    from mingle_hooks.rendezvous.request import Request

MOST_TOLD = 3  # differences in an error, which is one line
# What stands in a fingerprint or is far off in a clock that has to be told whoever else has it too.
_FULL, _CLOCK_S = "=full", 1.0


def refuse(leader: Leader, request: Request, offer: int) -> bool:
    """Fail where members differ in what they must not, in a world that uses this of the offered addresses."""
    found = _findings(leader.roster, leader.terms, offer, asks_rdma=request.asks_rdma)
    refused = [finding for finding in found if finding.field in request.strict]
    if refused:
        leader.fail(_failure(len(leader.roster), refused))
    return bool(refused)


def _failure(nodes: int, refused: Sequence[Finding]) -> Failure:
    """Return what all members are told: the first few differences, and who to leave out."""
    from mingle_hooks.lint import words

    texts, others = [finding.text for finding in refused[:MOST_TOLD]], words.exclude(refused)
    rest = [f"and {len(refused) - MOST_TOLD} more"] if refused[MOST_TOLD:] else []
    instead = others[0].removeprefix(words.EXCLUDE) if others else "nodes that agree"
    return Failure("differs", (str(nodes), "; ".join([*texts, *rest]), f"{instead}, or --no-strict"))


def lines(leader: Leader, at: str, *, asks_rdma: bool) -> list[str]:
    """Return what a person should know of the nodes of a world that uses this of the leader's addresses."""
    offer = next((place for place, its in enumerate(leader.terms.advertised) if its.address == at), 0)
    found = _findings(leader.roster, leader.terms, offer, asks_rdma=asks_rdma)
    if not found:
        return []
    from mingle_hooks.lint import words

    return words.lines(found)


def _findings(roster: Roster, terms: Terms, offer: int, *, asks_rdma: bool) -> list[Finding]:
    entries = [entry for entry in roster.entries() if entry.fingerprint]
    carriers = [_carrier(entry, offer) for entry in entries]
    unreached = [
        (its.address, short)
        for index, its in enumerate(terms.advertised[:offer])
        if not its.loopback and (short := [e.join_request.host for e in entries if index not in e.reached])
    ]
    if not asks_rdma and not unreached and len(set(carriers)) == 1 and _are_alike(entries):
        return []  # most worlds are: nothing is loaded for them
    from mingle_hooks.lint.compare import compare
    from mingle_hooks.lint.finding import Compared

    members = [
        Compared(
            entry.join_request.host,
            f"{entry.fingerprint} network={carrier}" if carrier else entry.fingerprint,
            entry.clock,
            entry.addresses,
        )
        for entry, carrier in zip(entries, carriers, strict=True)
    ]
    return compare(members, asks_rdma=asks_rdma, unreached=unreached)


def _are_alike(entries: Sequence[Entry]) -> bool:
    """Tell whether nothing can be found: one text, clocks within a second, each address once."""
    if len({entry.fingerprint for entry in entries}) > 1 or _FULL in entries[0].fingerprint:
        return False
    clocks = [entry.clock for entry in entries if entry.clock is not None]
    if max((low for low, _ in clocks), default=0.0) - min((high for _, high in clocks), default=0.0) > _CLOCK_S:
        return False
    addresses = [word for entry in entries for word in entry.addresses.split()]
    return len(set(addresses)) == len(addresses)


def _carrier(entry: Entry, offer: int) -> str:
    """Return speed and MTU of the interface by which a member is in the world, "" where it did not tell."""
    own = entry.reached.get(offer, entry.address)
    _, is_there, rest = entry.addresses.partition(f"{own}=")
    return rest.partition(" ")[0] if is_there else ""
