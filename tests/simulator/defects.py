"""Mistakes put in on purpose: each is one that a programmer could make, and the rules have to find it."""

from __future__ import annotations

import builtins
import contextlib
import time
from typing import TYPE_CHECKING, Any

from mingle_hooks.rendezvous import connection as loop
from mingle_hooks.rendezvous import dialer, leader, roster, wire
from mingle_hooks.rendezvous import dialer as search
from mingle_hooks.rendezvous import leader as acceptor
from mingle_hooks.rendezvous import leader as closing
from mingle_hooks.rendezvous import member as following
from mingle_hooks.rendezvous import member as membership
from mingle_hooks.rendezvous import messages as leases
from mingle_hooks.rendezvous import wire as attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _too_early(self: Any, member: bytes, lease_s: float, members: int) -> bool:
    self.leases.promised(member, lease_s)
    return len(self.leases) >= members - 1


def _unlooked(self: Any, member: bytes, lease_s: float, members: int) -> bool:
    self.leases.promised(member, lease_s)
    return lease_s > leases.LAST_WORD_S and len(self.leases) == members


def _say_once(_self: Any, session: Any, _checkin: Any) -> None:
    session.leave()


def _from_now(self: Any, member: bytes, lease_s: float) -> None:
    self._asked.pop(member, None)
    self._ends[member] = self._clock() + lease_s


_closed = leader.Leader._close


def _close_unsorted(self: Any, offer: int) -> None:
    roster.sorted = lambda rows, **_: list(rows)  # type: ignore[attr-defined]
    try:
        _closed(self, offer)
    finally:
        roster.sorted = builtins.sorted  # type: ignore[attr-defined]


def _yes(_one: bytes, _other: bytes) -> bool:
    return True


def _unnoticed(_sock: object, **_how: object) -> None:
    return


def _believes(side: bytes) -> Callable[..., wire.Body]:
    """Return Sealer.open() without a look at the MAC of what this side has said."""
    checked = wire.Sealer.open

    def opened(self: Any, kind: int, payload: bytes) -> wire.Body:
        return wire.decode(payload[wire.MAC_BYTES :]) if self._theirs == side else checked(self, kind, payload)

    return opened


# what is wrong -> each place, and what stands there instead
DEFECTS: dict[str, list[tuple[object, str, Any]]] = {
    "a lease is not looked at": [(leases.Leases, "ending", lambda _self, _within_s: [])],
    "leases are not looked at again after a late turn": [(closing.Closing, "may_commit", _unlooked)],
    "a lease begins when its promise arrives": [(leases.Leases, "promised", _from_now)],
    "any MAC will do": [(attempt, "compare_digest", _yes), (wire, "compare_digest", _yes)],
    "a sorted() is dropped": [(leader.Leader, "_close", _close_unsorted)],
    "a member breaks its promise": [(following.Following, "bound_to", lambda _self: None)],
    "the last word is said once": [(leader.Leader, "_again", _say_once)],
    "the word goes out a promise too early": [(closing.Closing, "may_commit", _too_early)],
    "a leader leaves with its own answer": [
        (leader.Leader, "everybody_done", property(lambda self: self.state == "formed"))
    ],
    "a rank is not compared": [(roster.Roster, "_no_room", lambda _self, _entry: None)],
    "a lost leader is not noticed": [(membership.Membership, "_ended", lambda _self, _reason: None)],
    "numbers of nodes are not compared": [(roster.Roster, "_contradiction", lambda self, entry: self._no_room(entry))],
    "a leader does not look who else is announced": [(search.Search, "is_alone", lambda _self: True)],
    "leases and deadlines stand still with a suspended host": [(loop, "CLOCK", time.CLOCK_MONOTONIC)],
    "leases and deadlines go by the time of day": [(loop, "CLOCK", time.CLOCK_REALTIME)],
    "a member does not check its leader's MAC": [(wire.Sealer, "open", _believes(b"leader"))],
    "a leader does not check its members' MACs": [(wire.Sealer, "open", _believes(b"member"))],
    "a half-open connection is not noticed": [(module, "notice_loss", _unnoticed) for module in (acceptor, dialer)],
    "a probe is left open": [(membership.Membership, "close", lambda self: self.proven.connection.close())],
}

# The first schedule that finds each: where that has moved, all are tried again.
FOUND_BY = {
    "a lease is not looked at": 71,
    "leases are not looked at again after a late turn": 71,
    "a lease begins when its promise arrives": 71,
    "any MAC will do": 33,
    "a sorted() is dropped": 3,
    "a member breaks its promise": 89,
    "the last word is said once": 9,
    "the word goes out a promise too early": 34,
    "a leader leaves with its own answer": 63,
    "a rank is not compared": 87,
    "a lost leader is not noticed": 3,
    "numbers of nodes are not compared": 4,
    "a leader does not look who else is announced": 802,
    "leases and deadlines stand still with a suspended host": 41,
    "leases and deadlines go by the time of day": 27,
    "a member does not check its leader's MAC": 767,
    "a leader does not check its members' MACs": 3080,
    "a half-open connection is not noticed": 67,
    "a probe is left open": 8,
}


@contextlib.contextmanager
def defect(name: str) -> Iterator[None]:
    """Put one in while the context lasts."""
    kept = [(owner, at, vars(owner)[at], value) for owner, at, value in DEFECTS[name]]
    for owner, at, _, value in kept:
        setattr(owner, at, value)
    try:
        yield
    finally:
        for owner, at, before, _ in kept:
            setattr(owner, at, before)
