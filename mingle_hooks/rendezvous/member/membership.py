"""A member's side: checked in with one leader, from the welcome to the word that the world is formed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.member.probe import Probe
from mingle_hooks.rendezvous.protocol import answer, wire
from mingle_hooks.rendezvous.protocol.failure import LONGEST_PART, Failure, age_s
from mingle_hooks.rendezvous.protocol.leases import LEASE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop, Timer
    from mingle_hooks.rendezvous.member.dialer import ProvenLeader
    from mingle_hooks.rendezvous.protocol.answer import Answer
    from mingle_hooks.rendezvous.protocol.attempt import Attempt, Secret
    from mingle_hooks.rendezvous.protocol.join_request import JoinRequest
    from mingle_hooks.rendezvous.protocol.states import MembershipState

# The best address comes first. The next one is tried so much later, in seconds, unless one that may serve all is there
# by then, or has answered: some round trips of the longest way.
PROBE_NEXT_S = 0.25
# What a leader says only where it has not said the word, and first has to ask every member for another promise.
_NO_WORD = (wire.WELCOME, wire.PROGRESS, wire.FAILED, wire.MOVED)


class Progress(NamedTuple):
    """How far the world is, as its leader last told."""

    inside: int
    nodes: int | None
    missing: str
    rejected: tuple[str, ...] = ()


class Membership:
    """One check-in. States: *waiting*, *ready*, and at the end *formed*, *failed*, *moved* or *lost*."""

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        proven: ProvenLeader,
        me: JoinRequest,
        accepts: Callable[[str], bool],
        patience: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self._loop, self._attempt, self._secret = loop, attempt, secret
        self.proven, self.me, self._accepts, self._on_change = proven, me, accepts, on_change
        self._patience = patience  # for how many seconds this member can still wait
        self.lease_ends = loop.clock()  # until then it asks nobody but this leader
        self.state: MembershipState = "waiting"
        self.is_free = False  # the leader has shown that it has not said the word, and must ask for a new promise
        self.progress: Progress | None = None
        self.failure: Failure | None = None
        self.failed_ago_s = 0.0
        self.answer: Answer | None = None
        self.moved_to: list[tuple[str, int]] = []
        self._packed = b""
        self._probes: list[Probe] = []
        self._untried: list[Probe] = []
        self._next: Timer | None = None  # None: all are tried, or the others are held back
        self._needs_all = False  # all members are in, and some of them have not reached the best address
        proven.connection.on_frame, proven.connection.on_end = self._frame, self._ended
        proven.connection.most_bytes = wire.MOST_LEADER_BYTES
        self._tell(wire.CHECKIN, me.body(int(time.time() * 1000)))

    def give_up(self, after_s: int) -> None:
        """Tell the leader that this member will not wait any longer."""
        self._tell(wire.GAVE_UP, {"after_s": after_s})

    def fail(self, failure: Failure) -> None:
        """Tell the leader why there can be no world."""
        self._tell(wire.FAILED, failure.body())

    def accuse(self, host: str, member: bytes) -> None:
        """Tell the leader of another that leads by the same right."""
        self._tell(wire.RIVAL, {"host": host[:LONGEST_PART], "member": member.hex()})

    def hang_up(self) -> None:
        """Give this connection up, as if its other end had."""
        self._ended("hung up")

    def close(self) -> None:
        """Let go of the connection and of every address being tried."""
        self.proven.connection.close()
        self._hold_others_back()
        for probe in self._probes:
            probe.close()

    def _tell(self, kind: int, body: wire.Body) -> None:
        self.proven.connection.send(self.proven.sealer.seal(kind, wire.encode(body)))

    def _ended(self, _reason: str) -> None:
        self._settle("lost")

    def _settle(self, state: MembershipState) -> None:
        if self.state in ("waiting", "ready"):
            self.state = state
            self.close()
            self._on_change()

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == wire.ROSTER:
            self._packed = payload  # the answer tells whether it is the leader's
            return
        body = self.proven.sealer.open(kind, payload)
        if kind == wire.ANSWER and "roster" in body:
            self._check_roster(wire.text(body, "roster", 64))
        try:
            self._obey(kind, body)
        except wire.WireError as error:  # it holds the key, so coming back would only bring the same again
            self.failure = Failure("protocol", (self.proven.label, str(error)))
            self._settle("failed")

    def _obey(self, kind: int, body: wire.Body) -> None:
        self.is_free = self.is_free or kind in _NO_WORD
        if kind == wire.WELCOME:
            self._welcome(body)
        elif kind == wire.PROGRESS:
            self._progress(body)
        elif kind == wire.ANSWER:
            self.answer, self.state = answer.parse(self._with_roster(body)), "ready"
            self.is_free = False
            self._promise(self.answer["epoch"])
        elif kind == wire.HOLD:
            self._hold(wire.integer(body, "epoch", 1, answer.LAST_EPOCH))
        elif kind == wire.COMMIT:
            self._commit(body)
        elif kind == wire.FAILED:
            self.failure, self.failed_ago_s = Failure.parse(body), age_s(body)
            self._settle("failed")
        elif kind == wire.MOVED:
            self.moved_to = _endpoints(body)
            self._settle("moved")
        else:
            raise wire.WireError("not a leader's frame")

    def _check_roster(self, digest: str) -> None:
        """Raise WireError: the roster has no MAC but this digest. One changed on the way ends the connection only."""
        from mingle_hooks.rendezvous.protocol import packed_roster

        packed_roster.check(self._packed, digest)

    def _with_roster(self, body: wire.Body) -> wire.Body:
        packed, self._packed = self._packed, b""
        if "roster" not in body:
            return body
        from mingle_hooks.rendezvous.protocol import packed_roster

        return {**body, "roster": packed_roster.unpack(packed)}

    def _welcome(self, body: wire.Body) -> None:
        port, advertised = wire.integer(body, "port", 1, 65535), body.get("offers")
        if not isinstance(advertised, list) or len(advertised) > wire.MOST_ADVERTISED or self._probes:
            raise wire.WireError("offers")
        for offer in advertised:
            if not isinstance(offer, list) or len(offer) != 2 or type(offer[0]) is not int:  # noqa: PLR2004 - a pair
                raise wire.WireError("offers")
            address = wire.address({"address": offer[1]}, "address")
            self._probes.append(self._probe(offer[0], address, port))
        self._untried = list(self._probes)
        self._try_next()
        self._on_change()

    def _progress(self, body: wire.Body) -> None:
        # A leader tells this only while it gathers: an earlier answer will never be confirmed.
        self.state, self.answer = "waiting", None
        rejected = body.get("knocks")
        if not isinstance(rejected, list) or len(rejected) > 64:  # noqa: PLR2004 - far above what a leader sends
            raise wire.WireError("knocks")
        self.progress = Progress(
            wire.integer(body, "in", 0, 10**6),
            wire.integer(body, "of", 0, 10**6) or None,
            wire.text(body, "missing", 400),
            tuple(wire.text({"knock": rejected_peer}, "knock", 64) for rejected_peer in rejected),
        )
        if self.progress.inside == self.progress.nodes and not self._needs_all:
            self._needs_all = True
            self._hold_others_back()
            self._try_next()
        self._on_change()

    def _hold(self, epoch: int) -> None:
        if self.answer is None or epoch != self.answer["epoch"]:
            raise wire.WireError("a lease for another answer")
        self._promise(epoch)

    def _promise(self, epoch: int) -> None:
        """Say for how long this member will wait for the word, and keep to it."""
        lease_s = max(min(LEASE_S, self._patience()), 0.0)
        self.lease_ends = self._loop.clock() + lease_s
        self._tell(wire.READY, {"epoch": epoch, "lease_ms": int(lease_s * 1000)})
        self._on_change()

    def _commit(self, body: wire.Body) -> None:
        if self.answer is None or wire.integer(body, "epoch", 1, answer.LAST_EPOCH) != self.answer["epoch"]:
            raise wire.WireError("a commit for another answer")
        self._tell(wire.DONE, {})
        self._settle("formed")

    # Which of the offered addresses are tried, and when.

    def _try_next(self) -> None:
        self._next = None
        if self._untried:
            self._next = self._loop.after(PROBE_NEXT_S, self._try_next)
            # A leader that has thousands at its door is slow to answer, and would be slower for more to answer.
            if self._needs_all or not any(self._may_serve_all(probe.connected) for probe in self._probes):
                self._untried.pop(0).start()

    def _hold_others_back(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _may_serve_all(self, address: str) -> bool:
        """Whether this is an address that the world may use: loopback serves the members of one machine only."""
        return bool(address) and not address.startswith("127.") and address != "::1"

    def _probe(self, offer: int, address: str, port: int) -> Probe:
        parts = self._loop, self._attempt, self._secret, self.proven.leader
        return Probe(*parts, address, port, lambda probe: self._answered(offer, probe))

    def _answered(self, offer: int, probe: Probe) -> None:
        """Try no worse address than this one, unless it turns out that others do not reach it."""
        if self.reached(offer, probe.own_address) and not self._needs_all and self._may_serve_all(probe.address):
            self._hold_others_back()

    def reached(self, offer: int, own_address: str) -> bool:
        """Tell the leader, and return whether this address of ours may be used."""
        if not self._accepts(own_address):
            return False
        self._tell(wire.REACHED, {"offer": offer, "own": own_address})
        return True


def _endpoints(body: wire.Body) -> list[tuple[str, int]]:
    rows = body.get("to")
    if not isinstance(rows, list) or len(rows) > wire.MOST_ADVERTISED:
        raise wire.WireError("to")
    return [
        (wire.address({"address": row[0]}, "address"), wire.integer({"port": row[1]}, "port", 1, 65535))
        for row in rows
        if isinstance(row, list) and len(row) == 2  # noqa: PLR2004 - a pair
    ]
