"""What a discovery backend works with, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from mingle_hooks.rendezvous.connection import Endpoint, Loop
from mingle_hooks.rendezvous.roster import Entry
from mingle_hooks.rendezvous.wire import Attempt, Secret

# Who is heard by multicast and does not seem to hear us, for the message at the deadline.
#
# It is a hint and no more: anybody can send a recorded beacon or question again, from any address.

# A question or its answer may be lost, so a leader that was asked less often is not called deaf.
LEAST_QUERIES = 2
MOST_LEADERS = 256
MOST_QUERIERS = 16_384  # one of each member of the largest world
MOST_SHOWN = 4


class Advertisement(NamedTuple):
    """What a leader lets be known of itself."""

    leader: bytes
    ticket: int
    addresses: tuple[str, ...]  # the best first
    ports: tuple[int, ...]  # where it takes check-ins

    @property
    def precedence(self) -> tuple[int, bytes]:
        """What the lowest of wins an election."""
        return (self.ticket, self.leader)


class OneWay:
    """Leaders whose beacons come and that do not answer, and members that ask a leader."""

    def __init__(self) -> None:
        self._leaders: dict[bytes, tuple[str, int]] = {}  # -> its address, and how often it was asked in vain
        self._queriers: dict[bytes, str] = {}  # member -> its address

    def heard(self, leader: bytes, addresses: Sequence[str]) -> None:
        """Note a leader's beacon that answers nothing."""
        if len(self._leaders) < MOST_LEADERS and addresses:
            self._leaders.setdefault(leader, (addresses[0], 0))

    def questioned(self, leader: bytes) -> None:
        """Note that this leader has been asked because of its beacon."""
        if leader in self._leaders:
            address, count = self._leaders[leader]
            self._leaders[leader] = (address, count + 1)

    def answered(self, leader: bytes) -> None:
        """Note that this leader hears us."""
        self._leaders.pop(leader, None)

    def queried(self, member: bytes, address: str) -> None:
        """Note a member that asks us, the leader; a link-local address tells a person the least."""
        known = self._queriers.get(member, "fe80:")
        if known.startswith("fe80:") and len(self._queriers) < MOST_QUERIERS:
            self._queriers[member] = address

    def report(self, arrived: Collection[Entry] = ()) -> list[str]:
        """Return what to tell; `arrived` are the members that are in."""
        deaf = _shown(address for address, count in self._leaders.values() if count >= LEAST_QUERIES)
        members = {entry.join_request.member for entry in arrived}
        # One that was started again has another name, and the same addresses.
        addresses = {text.partition("=")[0] for entry in arrived for text in entry.addresses.split()}
        absent = _shown(
            address for member, address in self._queriers.items() if member not in members and address not in addresses
        )
        report = []
        if deaf:
            report.append(f"multicast from {deaf} arrives here, but ours does not arrive there")
        if absent:
            report.append(
                f"multicast from {absent} arrives here, but ours does not arrive there, or its TCP connections do not"
                " arrive here"
            )
        return report


def _shown(addresses: Iterable[str]) -> str:
    found = [*dict.fromkeys(addresses)]
    return ", ".join(found[:MOST_SHOWN]) + (" and more" if found[MOST_SHOWN:] else "")


class Context(NamedTuple):
    """What a backend works with."""

    loop: Loop
    attempt: Attempt
    secret: Secret
    dial: Callable[[Endpoint], None]
    reject: Callable[[str], None]  # an address that showed another key
    note: Callable[[str], None]  # something that a person should know
    leader_hosts: tuple[str, ...] = ()
    host_suffix: str = ""
    master: tuple[str, int | None] | None = None
    ports: tuple[int, ...] = ()  # check-in ports to try on the leader's host
    directory: str | None = None
    multicast_port: int = 0
    nets: tuple[str, ...] = ()  # interface names or CIDRs that may be used; empty: all
    ttl: int = 1
    nodes: int | None = None
    joined: Callable[[], tuple[int, bytes] | None] = lambda: None  # the precedence of the leader that has been joined
    member: bytes = bytes(16)  # this member's name
    one_way: OneWay | None = None  # where to note who is heard and does not answer


class Backend(Protocol):
    """One backend. Its owner calls close(), on every path. `faults` tell, for a message, what part of it failed."""

    faults: list[str]

    def search(self, *, wanted: bool) -> None:
        """Look for a leader actively from now on, or stop that."""

    def announce(self, advertisement: Advertisement | None) -> None:
        """Make this leader known from now on, or stop that."""

    def tried(self) -> str:
        """Tell, for a message, where this backend has looked."""

    def close(self) -> None:
        """Stop, and leave nothing behind."""
