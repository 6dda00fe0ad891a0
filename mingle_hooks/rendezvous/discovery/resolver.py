"""Host names to addresses, without ever waiting for a name server that does not answer."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from mingle_hooks.errors import NetworkError, limit
from mingle_hooks.rendezvous.poller import READ

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.loop import Loop

# Addresses of one name that are used; more than the networks of any node.
MOST_ADDRESSES = 8
# How long a member waits for the addresses of a name before it goes on without them.
RESOLVE_S = 10.0


class Lookup:
    """Asks the resolver in a thread, for getaddrinfo(3) cannot be stopped; a late answer is dropped.

    Raises OSError for want of descriptors, and LimitError for want of threads.
    """

    def __init__(self, loop: Loop, host: str, on_result: Callable[[str, list[str]], None]) -> None:
        self._loop, self._host, self._on_result = loop, host, on_result
        if loop.names_since is None:
            loop.names_since = loop.clock()
        self._mine, theirs = socket.socketpair()
        self._result: dict[str, list[str]] = {}
        loop.watch(self._mine, READ, self._ready)
        try:
            _start(host, self._result, theirs)
        except NetworkError:
            self.close()
            raise

    def close(self) -> None:
        """Forget the answer."""
        if self._mine.fileno() >= 0:
            self._loop.unwatch(self._mine)
            self._mine.close()

    def _ready(self, _events: int) -> None:
        self.close()
        if self._loop.names_since is not None:
            self._loop.names_s = self._loop.clock() - self._loop.names_since
        self._on_result(self._host, self._result.get(self._host, []))


def resolve(host: str, timeout_s: float) -> list[str]:
    """Return the addresses of a host, none where it has none or the resolver takes longer than timeout_s.

    Raises as Lookup does.
    """
    result: dict[str, list[str]] = {}
    mine, theirs = socket.socketpair()
    with mine:
        _start(host, result, theirs)
        mine.settimeout(timeout_s)
        try:
            mine.recv(1)
        except TimeoutError:
            return []
        return result.get(host, [])


def _start(host: str, result: dict[str, list[str]], done: socket.socket) -> None:
    try:
        threading.Thread(target=_resolve, args=(host, result, done), daemon=True).start()
    except RuntimeError as error:
        done.close()
        raise limit(error) or error from None


def is_local(address: str) -> bool:
    """Tell whether an address is one of this host's: only then can a socket be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address.partition("%")[0], 0))
    except OSError:
        return False
    return True


def _resolve(host: str, result: dict[str, list[str]], done: socket.socket) -> None:
    with done:
        try:
            rows = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):  # ValueError: text that no host name is, not ASCII or with a NUL
            rows = []
        result[host] = list(dict.fromkeys(_text(row[4]) for row in rows))[:MOST_ADDRESSES]


def _text(where: tuple[object, ...]) -> str:
    address = str(where[0]).partition("%")[0]
    zone = (*where[3:], 0)[0]  # IPv6: address, port, flow, zone
    return f"{address}%{zone}" if zone else address
