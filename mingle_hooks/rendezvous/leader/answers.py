"""What each member is told of the world that is about to form."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks import jsontext
from mingle_hooks.rendezvous.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.rendezvous.leader.roster import Entry
    from mingle_hooks.rendezvous.leader.session import Session
    from mingle_hooks.rendezvous.protocol.answer import Answer, Shared
    from mingle_hooks.world import Member


class Place(NamedTuple):
    """Where rank 0 of a world is reached, and which leader and epoch it is of."""

    attempt: bytes  # its name
    leader: bytes
    epoch: int
    addr: str  # MASTER_ADDR, as it was exported or found
    at: str  # the address that all have reached
    port: int


class Answers:
    """The answers of one epoch, a member's each, and the roster's frame for those who ask for it."""

    def __init__(self, place: Place, members: Sequence[tuple[Entry, Member]]) -> None:
        roster = [[row.node_rank, row.host, row.address, row.slots] for _, row in members]
        encoded = jsontext.dumps(roster).encode()
        shared = _shared(place, members, encoded)
        others = (entry.join_request for entry, _ in members if entry.join_request.member != place.leader)
        self._packed = b""
        digest = self._pack(encoded) if any(join_request.wants_roster for join_request in others) else ""
        self._bodies: dict[bytes, Answer] = {}
        offset = 0
        for entry, row in members:
            body = _answer(shared, row, offset)
            offset += row.slots
            if entry.join_request.wants_roster:
                body["roster"] = roster if entry.join_request.member == place.leader else digest
            self._bodies[entry.join_request.member] = body

    def of(self, member: bytes) -> Answer | None:
        """Return a member's answer, None where it is no member of this world."""
        return self._bodies.get(member)

    def send(self, session: Session, member: bytes) -> None:
        """Send a member its own, the roster first where it asked for that."""
        answer = self._bodies[member]
        if "roster" in answer:
            session.connection.send(self._packed)
        session.tell(wire.ANSWER, answer)

    def _pack(self, encoded: bytes) -> str:
        """Have the roster's frame ready for those members who ask for it; return what their answers say of it."""
        from mingle_hooks.rendezvous.protocol import packed_roster  # few members ask for it

        packed = packed_roster.pack(encoded)
        self._packed = wire.frame(wire.ROSTER, packed)
        return packed_roster.digest(packed)


def size(members: Sequence[tuple[Entry, Member]]) -> int:
    """Return the world size: all members' slots."""
    return sum(row.slots for _, row in members)


def _shared(place: Place, members: Sequence[tuple[Entry, Member]], roster: bytes) -> Shared:
    nodes, total = len(members), size(members)
    said = wire.encode({"nodes": nodes, "size": total, "addr": place.addr, "port": place.port})
    return {
        "nodes": nodes,
        "size": total,
        "addr": place.addr,
        "port": place.port,
        # With the leader's nonce: two worlds in a row may have the same address and port, and are not the same.
        "digest": sha256(place.attempt + place.leader + said + roster).hexdigest()[:16],
        "epoch": place.epoch,
        "at": place.at,
    }


def _answer(shared: Shared, row: Member, offset: int) -> Answer:
    return {**shared, "rank": row.node_rank, "offset": offset, "own": row.address, "slots": row.slots}
