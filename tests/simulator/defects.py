"""Mistakes put in on purpose: each is one that a programmer could make, and the rules have to find it."""

import builtins
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from mingle_hooks.rendezvous import connection, discovery, leader, member, messages, roster, wire
from simulator.process import replacing


def _too_early(self: Any, member: bytes, lease_s: float, members: int) -> bool:
    self.leases.promised(member, lease_s)
    return len(self.leases) >= members - 1


def _unlooked(self: Any, member: bytes, lease_s: float, members: int) -> bool:
    self.leases.promised(member, lease_s)
    return lease_s > messages.COMMIT_DELIVERY_S and len(self.leases) == members


def _from_now(self: Any, member: bytes, lease_s: float) -> None:
    self._requested.pop(member, None)
    self._ends[member] = self._clock() + lease_s


_closed = leader.Leader._close


def _close_unsorted(self: Any, offer: int) -> None:
    roster.sorted = lambda rows, **_: list(rows)  # type: ignore[attr-defined]
    try:
        _closed(self, offer)
    finally:
        roster.sorted = builtins.sorted  # type: ignore[attr-defined]


def _has_formed(self: Any) -> bool:
    return self.state == "formed"


def _unnoticed(_sock: object, **_how: object) -> None:
    return


def _believes(side: bytes) -> Callable[..., wire.Body]:
    """Return Sealer.open() without a look at the MAC of what this side has said."""
    checked = wire.Sealer.open

    def opened(self: Any, kind: int, payload: bytes) -> wire.Body:
        return wire.decode(payload[wire.MAC_BYTES :]) if self._peer == side else checked(self, kind, payload)

    return opened


# what is wrong -> the first schedule that finds it (where that has moved, all are tried again), each place, and what
# stands there instead
DEFECTS: dict[str, tuple[int, list[tuple[object, str, Any]]]] = {
    "a lease is not looked at": (101, [(messages.Leases, "ending", lambda _self, _within_s: [])]),
    "leases are not looked at again after a late turn": (101, [(leader.Closing, "may_commit", _unlooked)]),
    "a lease begins when its promise arrives": (101, [(messages.Leases, "promised", _from_now)]),
    "any MAC will do": (33, [(wire, "compare_digest", lambda _one, _other: True)]),
    "a sorted() is dropped": (3, [(leader.Leader, "_close", _close_unsorted)]),
    "a member breaks its promise": (89, [(member.Follower, "bound_to", lambda _self: None)]),
    "COMMIT is sent once": (89, [(leader.Leader, "_rejoin", lambda _self, session, _checkin: session.leave())]),
    "COMMIT goes out a promise too early": (34, [(leader.Closing, "may_commit", _too_early)]),
    "a leader leaves with its own answer": (63, [(leader.Leader, "all_done", property(_has_formed))]),
    "a rank is not compared": (108, [(roster.Roster, "_no_room", lambda _self, _entry: None)]),
    "a lost leader is not noticed": (9, [(member.Membership, "_ended", lambda _self, _reason: None)]),
    "numbers of nodes are not compared": (4, [(roster.Roster, "_contradiction", roster.Roster._no_room)]),
    "a leader does not look who else is announced": (2387, [(discovery.Search, "is_alone", lambda _self: True)]),
    "leases and deadlines stand still with a suspended host": (373, [(connection, "CLOCK", time.CLOCK_MONOTONIC)]),
    "leases and deadlines go by the time of day": (75, [(connection, "CLOCK", time.CLOCK_REALTIME)]),
    "a member does not check its leader's MAC": (391, [(wire.Sealer, "open", _believes(b"leader"))]),
    "a leader does not check its members' MACs": (2297, [(wire.Sealer, "open", _believes(b"member"))]),
    "a half-open connection is not noticed": (
        67,
        [(module, "notice_loss", _unnoticed) for module in (leader, discovery)],
    ),
    "a probe is left open": (8, [(member.Membership, "close", lambda self: self.proven.connection.close())]),
}


@contextlib.contextmanager
def defect(name: str) -> Iterator[None]:
    """Put one in while the context lasts."""
    with replacing(DEFECTS[name][1]):
        yield
