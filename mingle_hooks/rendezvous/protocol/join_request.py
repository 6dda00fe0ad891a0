"""What a member says of itself when it checks in."""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.fabric.machine import is_hostname
from mingle_hooks.rendezvous.protocol.failure import OBSTACLES, Failure
from mingle_hooks.rendezvous.protocol.spent import Spent
from mingle_hooks.rendezvous.protocol.wire import WireError, hexadecimal, integer, optional_integer, text
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.rendezvous.protocol.wire import Body

MEMBER_BYTES = 16
LONGEST_TOPOLOGY = 255
# What a user may have exported and every member must agree on, with the longest value that is taken.
LONGEST_FINGERPRINT = LONGEST_ADDRESSES = 1024
LAST_CLOCK_MS = 10**15  # in the year 33658
PINNED = {"MASTER_ADDR": 253, "MASTER_PORT": 5, "WORLD_SIZE": 8, "NODE_RANK": 5}


class JoinRequest(NamedTuple):
    """What a member says of itself."""

    member: bytes  # random, one per process
    host: str
    rank: int | None
    nodes: int | None
    slots: int
    machine: str  # equal for members that share a network stack
    pinned: Mapping[str, str] = MappingProxyType({})
    wants_roster: bool = False
    spent: Spent | None = None  # how it came to check in, for who asks who was last
    topology: str = ""  # the switches above it, from the top down; empty where nobody asks, or nobody knows
    fingerprint: str = ""  # of its node; a member without one is not compared
    addresses: str = ""  # of its node, each with what carries it
    clock_ms: int | None = None  # the time of day when it said so
    obstacle: Failure | None = None  # why it cannot start the command

    def body(self, clock_ms: int | None = None) -> Body:
        """Return what travels, at this time of day."""
        compared = {"fingerprint": self.fingerprint, "addresses": self.addresses, "clock_ms": clock_ms}
        body: Body = {
            **(compared if self.fingerprint else {}),
            "member": self.member.hex(),
            "host": self.host,
            "rank": self.rank,
            "nodes": self.nodes,
            "slots": self.slots,
            "machine": self.machine,
            "given": dict(self.pinned),
            "roster": self.wants_roster,
        }
        body |= {"topology": self.topology} if self.topology else {}
        body |= {"obstacle": self.obstacle.body()} if self.obstacle else {}
        return {**body, "spent": list(self.spent)} if self.spent else body

    @classmethod
    def parse(cls, body: Body) -> JoinRequest:
        """Return the check-in that a member sent; WireError when a part of it is out of bounds."""
        host, pinned = text(body, "host", 253), body.get("given")
        if not is_hostname(host):
            raise WireError("host: not a host name")
        if not isinstance(pinned, dict) or not pinned.keys() <= PINNED.keys():
            raise WireError("given: not variables of a world")
        return cls(
            member=hexadecimal(body, "member", MEMBER_BYTES),
            host=host,
            rank=optional_integer(body, "rank", 0, MOST_NODES - 1),
            nodes=optional_integer(body, "nodes", 1, MOST_NODES),
            slots=integer(body, "slots", 1, MOST_SLOTS),
            machine=text(body, "machine", 64),
            pinned={name: text(pinned, name, PINNED[name]) for name in pinned},
            wants_roster=body.get("roster") is True,
            spent=Spent.parse(body["spent"]) if "spent" in body else None,
            topology=_told(body, "topology", LONGEST_TOPOLOGY),
            # One object for all members that say the same: a leader of thousands keeps each.
            fingerprint=sys.intern(_told(body, "fingerprint", LONGEST_FINGERPRINT)),
            addresses=_told(body, "addresses", LONGEST_ADDRESSES),
            clock_ms=optional_integer(body, "clock_ms", 0, LAST_CLOCK_MS),
            obstacle=_obstacle(body["obstacle"], host) if "obstacle" in body else None,
        )


def _obstacle(body: object, host: str) -> Failure:
    """Return why a member cannot start the command, on the host that it has checked in from. Raises WireError."""
    failure = Failure.parse(body if isinstance(body, dict) else {})
    if failure.kind not in OBSTACLES:
        raise WireError("obstacle: not one of a command")
    return Failure(failure.kind, (host, failure.parts[1]))


def _told(body: Body, name: str, longest: int) -> str:
    """Return a text that a member of another version does not send. Raises WireError."""
    return text(body, name, longest) if name in body else ""
