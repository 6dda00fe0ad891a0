"""One epoch of a leader that closes: each member has its answer, says READY, and is asked anew until all wait at once.

An epoch ends unsaid where a member is lost; the next one is another object, so nothing of this one counts there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.protocol.leases import LAST_WORD_S, LEASE_S, RENEW_S, Leases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mingle_hooks.rendezvous.leader.answers import Answers
    from mingle_hooks.rendezvous.leader.session import Session


class Closing:
    """The answers, and the members' promises to wait for the word."""

    def __init__(
        self, clock: Callable[[], float], epoch: int, answers: Answers, sessions: Mapping[bytes, Session]
    ) -> None:
        self.epoch, self.answers, self.leases = epoch, answers, Leases(clock)
        self._sessions = sessions  # the leader's: who has come back is asked where it is now
        for member, session in sessions.items():
            self.leases.ask(member)
            answers.send(session, member)

    def may_commit(self, member: bytes, lease_s: float, members: int) -> bool:
        """Note a member's promise, and tell whether all, so many besides the leader, now wait long enough."""
        self.leases.promised(member, lease_s)
        # Who is about to give up is not asked again: it says so itself.
        if lease_s <= LAST_WORD_S or len(self.leases) != members:
            return False
        return not self._renew(self.leases.ending(LAST_WORD_S))

    def renew(self) -> None:
        """Have those whose promise has run for a while give another."""
        self._renew(self.leases.ending(LEASE_S - RENEW_S))

    def silent(self) -> list[bytes]:
        """Return the members that have been asked and have not said READY."""
        return [member for member in self._sessions if self.leases.owes(member)]

    def say_again(self, session: Session, member: bytes) -> None:
        """Tell a member of the formed world once more: its connection broke before the word arrived."""
        self.leases.renewed(member)
        self.answers.send(session, member)
        session.tell(wire.COMMIT, {"epoch": self.epoch})

    def _renew(self, members: list[bytes]) -> bool:
        for member in members:
            if self.leases.ask(member):
                self._sessions[member].tell(wire.HOLD, {"epoch": self.epoch})
        return bool(members)
