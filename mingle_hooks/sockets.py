"""The operating system's sockets by the names that `socket` gives them, on the way of `mingle env`.

Importing `socket`, `selectors` and `signal` takes an eighth of a member's time, most of it for enumerations that
name their numbers. Type checkers see the module `socket`; other ends of these sockets may be its own.
"""

from __future__ import annotations

import sys

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING or sys.implementation.name != "cpython":
    from socket import *
else:
    import _socket
    from _socket import *

    has_ipv6 = hasattr(_socket, "AF_INET6")

    class socket(_socket.socket):
        """A socket that `with` closes, and whose accept() returns one like it."""

        __slots__ = ()

        def __enter__(self):
            return self

        def __exit__(self, *_error):
            self.close()

        def accept(self):
            """Wait for a caller; return its connection, which blocks, and its address."""
            descriptor, address = self._accept()
            return socket(self.family, self.type, self.proto, descriptor), address

    def socketpair():
        """Return two sockets of this host that are connected with each other."""
        return tuple(socket(fileno=end.detach()) for end in _socket.socketpair())

    def create_connection(address, timeout):
        """Connect to an address (no host name) and port, each step within `timeout` seconds; raises OSError."""
        made = socket(AF_INET6 if ":" in address[0] else AF_INET)
        try:
            made.settimeout(timeout)
            made.connect(address)
        except BaseException:
            made.close()
            raise
        return made
