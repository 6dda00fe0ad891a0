"""Takes a leader's connections in, and keeps those who have not shown the key few and short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.callers import Callers
from mingle_hooks.rendezvous.protocol.connection import notice_loss

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.leader.session import Session
    from mingle_hooks.rendezvous.loop import Loop

# A connection without proof is dropped after this long: ten times a handshake with two lost packets.
STRANGER_S = 10.0
# Greetings that are remembered, so that nobody can say them again: several of each of 16,384 members.
MOST_NONCES = 100_000


class Acceptor:
    """Accepts on listeners that it is given; from then on it owns them, and every session. The owner calls close()."""

    def __init__(
        self,
        loop: Loop,
        listeners: Sequence[socket.socket],
        open_session: Callable[[socket.socket, str], Session],
        most_strangers: int,
    ) -> None:
        self._loop, self._open_session, self._most_strangers = loop, open_session, most_strangers
        self.connected: dict[Session, None] = {}
        self.strangers: dict[Session, None] = {}  # of these, who has not proved to hold the key; oldest first
        self._nonces: dict[bytes, None] = {}  # of greetings, oldest first
        for listener in listeners:
            notice_loss(listener, drop_unsent=False)
        self._callers = Callers(loop, listeners, self._take, self._make_room)

    @property
    def has_members(self) -> bool:
        """Whether anybody is connected who has proved to hold the key."""
        return len(self.connected) > len(self.strangers)

    def close(self) -> None:
        """Let go of every socket and timer."""
        for session in self.connected:
            session.connection.close()
        self.connected.clear()
        self.strangers.clear()
        self._callers.close()

    def leave(self, port: int) -> None:
        """Listen no longer on a port, where there is another one; it stays bound."""
        self._callers.leave(port)

    def hand_over(self, port: int) -> list[socket.socket]:
        """Return the sockets that keep a port, on which nobody listens any more. The caller closes them."""
        return self._callers.hand_over(port)

    def proved(self, session: Session) -> None:
        """Note that the other side of a session holds the key."""
        self.strangers.pop(session, None)

    def forget(self, session: Session) -> None:
        """Forget a connection that has ended; once more changes nothing."""
        self.connected.pop(session, None)
        self.strangers.pop(session, None)

    def sweep(self) -> None:
        """Let strangers go that say nothing."""
        oldest = self._loop.clock() - STRANGER_S
        for session in list(self.strangers):
            if session.since > oldest:
                break
            session.leave()

    def is_new(self, nonce: bytes) -> bool:
        """Tell whether nobody has used this nonce yet, and note it."""
        if nonce in self._nonces:
            return False
        self._nonces[nonce] = None
        if len(self._nonces) > MOST_NONCES:
            del self._nonces[next(iter(self._nonces))]
        return True

    def _make_room(self) -> bool:
        """Let the stranger go who has said nothing for longest, if there is one."""
        for session in self.strangers:
            session.leave()
            return True
        return False

    def _take(self, sock: socket.socket, where: str) -> None:
        session = self._open_session(sock, where)
        self.connected[session] = self.strangers[session] = None
        if len(self.strangers) > self._most_strangers:
            next(iter(self.strangers)).leave()
