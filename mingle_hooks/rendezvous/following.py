"""The leader that a member has joined: stay with it, come back to it, or go on to another, and keep one's promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import MissingError
from mingle_hooks.rendezvous.member.dialer import Endpoint
from mingle_hooks.rendezvous.member.membership import Membership
from mingle_hooks.rendezvous.protocol.leases import LAST_WORD_S, LINGER_S
from mingle_hooks.rendezvous.search import LOOK

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.errors import MingleError
    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.member.dialer import ProvenLeader
    from mingle_hooks.rendezvous.member.membership import Progress
    from mingle_hooks.rendezvous.outcome import Deadline, Outcome
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.failure import Failure
    from mingle_hooks.rendezvous.protocol.join_request import JoinRequest
    from mingle_hooks.rendezvous.protocol.spent import Stopwatch
    from mingle_hooks.rendezvous.request import Request
    from mingle_hooks.rendezvous.search import Search

# A member whose time is over waits this long for its leader to tell everybody why.
GOODBYE_S = 2.0
# A lost leader is called again after this long: it may only have lost this one connection.
CALL_AGAIN_S = 0.2
# And then this often by a member that has promised to wait for its word.
ASK_AGAIN_S = 1.0
# So long before its lease ends, in seconds, a member that has heard nothing calls its leader again. A leader commits
# only where leases last longer (LAST_WORD_S), so COMMIT has been sent by then, or will not be.
ASK_BEFORE_S = 4.0


class Promise(NamedTuple):
    """To wait for one leader's word, and for nobody else's, until a time by this member's clock."""

    leader: bytes
    ends: float


class Following:
    """At most one leader at a time; the owner calls close().

    `look_again` has the whole member look for a leader as at its start, and `leads` tells whether others follow it.
    """

    def __init__(
        self,
        loop: Loop,
        request: Request,
        secret: Secret,
        me: JoinRequest,
        search: Search,
        outcome: Outcome,
        deadline: Deadline,
        stopwatch: Stopwatch,
        look_again: Callable[[], None],
        leads: Callable[[], bool],
    ) -> None:
        self._loop, self._request, self._secret, self.me = loop, request, secret, me
        self._search, self._outcome, self._look_again, self._leads = search, outcome, look_again, leads
        self._deadline, self._stopwatch = deadline, stopwatch
        self.membership: Membership | None = None
        self.progress: Progress | None = None  # as some leader last told
        self.promise: Promise | None = None
        self.is_late = False  # it leaves soon, and promises to wait for nobody
        self._is_passing_over = False

    @property
    def precedence(self) -> tuple[int, bytes] | None:
        """The leader's, which another one would have to be better than; None where none is joined."""
        return self.membership.proven.precedence if self.membership is not None else None

    def close(self) -> None:
        """Hang up."""
        if self.membership is not None:
            self.membership.close()

    def meet(self, proven: ProvenLeader) -> bool:
        """Tell whether to join this leader. Where not, it is dropped; where so, any other one has been left."""
        membership = self.membership
        if membership is None:
            joins = self.bound_to() in (None, proven.leader)
        elif proven.ticket == 0 and membership.proven.ticket == 0 and proven.leader != membership.proven.leader:
            self._search.accuse(proven, membership.proven.label, membership.proven.leader)
            membership.accuse(proven.label, proven.leader)
            return False
        else:
            joins = not self._stays(membership, proven)
        if not joins:
            self._search.drop(proven)
        elif membership is not None:
            self.membership = None
            membership.close()
        return joins

    def _stays(self, membership: Membership, proven: ProvenLeader) -> bool:
        """Whether this member stays with its leader, though another, or the same one, has been found.

        It does once it awaits the word, also where it has just come back to that leader: that one may still say the
        word by its earlier promise. A leader that has failed meanwhile is worse than itself before, and the same.
        """
        awaits = membership.state == "ready" or self.bound_to() is not None
        return awaits or proven.leader == membership.proven.leader or proven.precedence >= membership.proven.precedence

    def join(self, proven: ProvenLeader) -> None:
        """Check in with this leader."""
        self.membership = Membership(
            self._loop,
            self._request.attempt,
            self._secret,
            proven,
            self.me._replace(spent=self._stopwatch.spent(self._loop.names_s)),
            self._accepts,
            lambda: 0.0 if self.is_late else self._deadline.left_s(),
            self._changed,
        )

    def give_up(self) -> None:
        """Tell the leader that this member's time is over, and wait a little for the reason that it tells everybody."""
        self.is_late = True
        if self.membership is None:
            self._outcome.fail(self._unanswered())
            return
        self.membership.give_up(self._deadline.waited_s())
        # Its leader now tells everybody the same reason; should it be gone, ours has to do.
        self._loop.after(GOODBYE_S, lambda: self._outcome.fail(self._unanswered()))

    def fail(self, failure: Failure) -> None:
        """Tell the leader why there can be no world, and end; but the word may have been said, and be under way."""
        self.is_late = True
        if self.membership is not None:
            self.membership.fail(failure)
        self._outcome.fail(failure.error(), max(self._bound_s(), GOODBYE_S if self.membership is not None else 0.0))

    def bound_to(self) -> bytes | None:
        """Return the one leader that can tell whether the world has formed, once this member has promised to wait.

        The leader counts on the promise only for its time. But who has not been told the word cannot know that it was
        not said, also later, so nobody else's world is joined: of two that both exist, one would be wrong.
        """
        return self.promise.leader if self.promise is not None else None

    def _bound_s(self) -> float:
        """Return for how much longer it has promised so, in seconds."""
        return max(self.promise.ends - self._loop.clock(), 0.0) if self.promise is not None else 0.0

    def _accepts(self, own_address: str) -> bool:
        """Whether a connection from this address of ours is on a network that was asked for."""
        prefer = self._request.prefer
        if not prefer:
            return True
        from mingle_hooks.fabric.interfaces import is_preferred

        return is_preferred(own_address, prefer)

    def _changed(self) -> None:
        membership = self.membership
        if membership is None:
            return
        if membership.progress is not None:
            self.progress = membership.progress
            self._search.rejections.reject(membership.progress.rejected)
        if membership.state == "ready":
            self._promised(Promise(membership.proven.leader, membership.lease_ends))
        elif membership.is_free:
            self.promise = None
        if membership.state == "formed" and membership.answer is not None:
            self._outcome.form(membership.answer)
        elif membership.state == "failed" and membership.failure is not None:
            if self._deadline.is_before(membership.failed_ago_s):
                self._pass_over(membership, membership.failure)
            else:
                told = membership.failure.error()
                error = self._search.here(told)
                error.is_of_rank_0 = str(error) == str(told)
                self._outcome.fail(error)
        elif membership.state in ("moved", "lost"):
            self.membership = None
            self._seek_again(membership)

    def _promised(self, promise: Promise) -> None:
        if promise == self.promise:
            return
        self.promise = promise
        left_s = promise.ends - self._loop.clock()
        if left_s > LAST_WORD_S:  # with less the leader does not commit
            self._loop.after(left_s - ASK_BEFORE_S, lambda: self._doubt(promise))

    def _doubt(self, promise: Promise) -> None:
        """Call the leader again while it still answers: COMMIT may be lost on a connection that only this end keeps."""
        membership, left_s = self.membership, promise.ends - self._loop.clock()
        is_late = left_s < ASK_BEFORE_S - 1  # this host was suspended: COMMIT may be there, and not read yet
        if self.promise is promise and membership is not None and membership.state == "ready" and not is_late:
            membership.hang_up()

    # Without the leader that was.

    def _pass_over(self, membership: Membership, failure: Failure) -> None:
        """Go on without a leader that had failed before this process began: an earlier run's, or this one is late.

        It is late where no other leader comes while the failed one is still there to tell everybody.
        """
        self.membership = None
        self._search.rest(membership.proven.endpoint, LINGER_S / 2)
        self._look_again()
        if not self._is_passing_over:
            self._is_passing_over = True
            self._loop.after(LINGER_S, lambda: self._was_late(failure))

    def _was_late(self, failure: Failure) -> None:
        is_bound = self.bound_to() is not None  # it has lost its connection, and asks for the word
        if self.membership is None and not self._leads() and not is_bound and self._outcome.answer is None:
            error = failure.error()
            error.is_of_rank_0 = True
            self._outcome.fail(error)

    def _seek_again(self, membership: Membership) -> None:
        endpoint = membership.proven.endpoint
        self._search.rest(endpoint, CALL_AGAIN_S)
        if self.bound_to() is not None:
            # The others may already have the world, so this leader is the only one to ask.
            self._ask(endpoint)
            return
        if self.is_late:
            self._outcome.fail(self._unanswered())
            return
        for address, port in membership.moved_to:
            self._search.dial(Endpoint(address, port, endpoint.backend))
        self._loop.after(CALL_AGAIN_S, lambda: self._call_again(endpoint))
        self._look_again()

    def _call_again(self, endpoint: Endpoint) -> None:
        if self.membership is None:
            self._search.dial(endpoint)

    def _ask(self, endpoint: Endpoint) -> None:
        """Ask a leader that was lost after its answer came, until it says the word or this member's time is over."""
        if self.membership is not None or self._outcome.is_over:
            return
        if self.bound_to() is not None:
            self._search.rest(endpoint, 0.0)  # whatever it, or whoever is on the way to it, answered before
            self._search.dial(endpoint)
            self._loop.after(ASK_AGAIN_S, lambda: self._ask(endpoint))
        elif self.is_late:
            self._outcome.fail(self._unanswered())
        else:
            self._call_again(endpoint)
            self._look_again()

    def _unanswered(self) -> MingleError:
        after_s = self._deadline.waited_s()
        if self.membership is None:
            return self._search.nobody(after_s)
        if self.membership.state == "ready":
            expected = f"rank 0, {self.membership.proven.label}, to commit the world within {after_s} s"
            return self._search.here(MissingError(expected, "no commit, though this member had confirmed", LOOK))
        missing = f", missing {self.progress.missing}" if self.progress is not None else ""
        expected = f"an answer from rank 0, {self.membership.proven.label}, within {after_s} s"
        return self._search.here(MissingError(expected, f"none{missing}", LOOK))
