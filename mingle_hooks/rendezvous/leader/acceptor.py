"""Takes a leader's connections in, and keeps those who have not shown the key few and short."""

from __future__ import annotations

import errno

from mingle_hooks import sockets as socket
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mingle_hooks.rendezvous.leader.session import Session
    from mingle_hooks.rendezvous.loop import Loop, Timer

# Accept this many connections before looking at the others again.
ACCEPT_AT_ONCE = 256
# A connection without proof is dropped after this long: ten times a handshake with two lost packets.
STRANGER_S = 10.0
# Out of descriptors or memory: then somebody has to go, and it is whoever has said nothing for longest.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Where nobody can go, look this much later, in seconds, whether there is room: the callers wait in the kernel.
ROOM_S = 0.2
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
        self._listeners = list(listeners)
        self.connected: dict[Session, None] = {}
        self.strangers: dict[Session, None] = {}  # of these, who has not proved to hold the key; oldest first
        self._nonces: dict[bytes, None] = {}  # of greetings, oldest first
        self._rooms: dict[int, Timer] = {}  # listener's descriptor -> when it is listened to again
        for listener in self._listeners:
            listener.settimeout(0)
            self._listen(listener)

    @property
    def has_members(self) -> bool:
        """Whether anybody is connected who has proved to hold the key."""
        return len(self.connected) > len(self.strangers)

    def close(self) -> None:
        """Let go of every socket and timer."""
        for timer in self._rooms.values():
            timer.cancel()
        for session in self.connected:
            session.connection.close()
        self.connected.clear()
        self.strangers.clear()
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.unwatch(listener)
                listener.close()

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

    def _listen(self, listener: socket.socket) -> None:
        self._loop.watch(listener, READ, lambda _events: self._accept(listener))

    def _make_room(self, listener: socket.socket) -> None:
        """Let the stranger go who has said nothing for longest; where there is none, leave callers waiting a while."""
        if self.strangers:
            next(iter(self.strangers)).leave()
            return
        self._loop.unwatch(listener)
        self._rooms[listener.fileno()] = self._loop.after(ROOM_S, lambda: self._listen(listener))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                sock, where = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # else the caller's own trouble, which accept(2) hands on
                self._loop.missed(error)
                if error.errno in _SHORT:
                    self._make_room(listener)
                return
            try:
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                session = self._open_session(sock, where[0])
            except OSError as error:  # it has gone already, or there is no memory to watch it
                self._loop.missed(error)
                sock.close()
                continue
            self.connected[session] = self.strangers[session] = None
            if len(self.strangers) > self._most_strangers:
                next(iter(self.strangers)).leave()
