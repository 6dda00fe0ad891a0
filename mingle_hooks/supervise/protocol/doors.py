"""One port in all address families that this host has, or on loopback alone."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mingle_hooks.errors import limit
from mingle_hooks.fabric import ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def opened(
    chosen: Iterable[int], kinds: Sequence[int] = (socket.SOCK_STREAM,), *, is_local: bool = False
) -> tuple[int, list[socket.socket]]:
    """Open the first of these ports that is free in each family and kind; return it and its sockets, or 0 and none.

    Port 0 is one of the kernel's choice. What is a stream listens. Raises LimitError.
    """
    families: list[tuple[int, str]] = [(socket.AF_INET, "127.0.0.1" if is_local else "0.0.0.0")]  # noqa: S104 - any network of the hosts
    if not is_local and ports.has_ipv6():
        families.append((socket.AF_INET6, "::"))
    for port in chosen:
        kept: list[socket.socket] = []
        try:
            for family, address in families:
                for kind in kinds:
                    kept.append(socket.socket(family, kind))
                    port = _bound(kept[-1], address, port)  # noqa: PLW2901 - the kernel's choice is that of all
        except OSError as error:
            for sock in kept:
                sock.close()
            if (short := limit(error)) is not None:
                raise short from None
        else:
            return port, kept
    return 0, []


def _bound(sock: socket.socket, address: str, port: int) -> int:
    sock.settimeout(0)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((address, port))
    if sock.type & socket.SOCK_STREAM:
        sock.listen(ports.BACKLOG)
    return int(sock.getsockname()[1])
