"""Which of many sockets are ready: epoll(7), or poll(2) where there is none, without importing `selectors`."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    Call = Callable[[int], None]

    class Watched(Protocol):
        """A socket, or a pipe's end."""

        def fileno(self) -> int:
            """Return its descriptor."""


READ, WRITE = select.POLLIN, select.POLLOUT  # epoll's are the same numbers


class Poller:
    """Holds what each socket is watched for, and what to call; the owner closes it."""

    def __init__(self) -> None:
        self.watched: dict[int, Call] = {}  # by descriptor
        self._kernel = select.epoll() if hasattr(select, "epoll") else select.poll()
        self._second = 1 if hasattr(self._kernel, "close") else 1000  # epoll waits for seconds, poll for milliseconds

    def close(self) -> None:
        """Free what the kernel keeps."""
        if hasattr(self._kernel, "close"):
            self._kernel.close()

    def watch(self, sock: Watched, events: int, call: Call) -> None:
        """Watch sock for READ, WRITE or both. Raises OSError for want of memory or watches."""
        self._kernel.register(sock.fileno(), events)
        self.watched[sock.fileno()] = call

    def rewatch(self, sock: Watched, events: int, call: Call) -> None:
        """Change what sock is watched for."""
        self._kernel.modify(sock.fileno(), events)
        self.watched[sock.fileno()] = call

    def unwatch(self, sock: Watched) -> None:
        """Stop watching an open socket; harmless where it is not watched now."""
        if self.watched.pop(sock.fileno(), None) is not None:
            self._kernel.unregister(sock.fileno())

    def ready(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return the descriptors that are ready within timeout_s, and for what; an error is ready for both."""
        found = self._kernel.poll(timeout_s * self._second)
        return [(fd, min(events, READ | WRITE)) for fd, events in found]
