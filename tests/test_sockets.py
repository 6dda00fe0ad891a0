"""Sockets as the library's, without its enumerations."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from mingle_hooks import sockets as typed

# Type checkers see `socket` there; this is what runs.
sockets: Any = typed


def test_the_numbers_are_the_librarys() -> None:
    """And the functions."""
    for name in ("AF_INET", "AF_INET6", "AF_UNIX", "SOCK_STREAM", "SOCK_DGRAM", "SOL_SOCKET", "SO_REUSEADDR"):
        assert getattr(sockets, name) == getattr(socket, name)
    assert sockets.has_ipv6 == socket.has_ipv6
    assert sockets.gethostname() == socket.gethostname()


def test_a_caller_is_accepted_and_answered() -> None:
    """The connection blocks, whether its listener does or not, and `with` closes all three."""
    with sockets.socket(sockets.AF_INET) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(5.0)
        with sockets.create_connection(listener.getsockname(), 5.0) as client:
            served, address = listener.accept()
            with served:
                assert address == client.getsockname()
                assert served.gettimeout() is None
                client.sendall(b"a")
                assert served.recv(2) == b"a"
    assert [sock.fileno() for sock in (listener, client, served)] == [-1, -1, -1]


def test_a_pair_is_connected() -> None:
    """Both ways."""
    one, other = sockets.socketpair()
    with one, other:
        one.send(b"a")
        other.send(b"b")
        assert (one.recv(1), other.recv(1)) == (b"b", b"a")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_refused_connection_leaves_nothing_open(address: str) -> None:
    """The suite's guard looks at what is open after each test."""
    with pytest.raises(OSError, match=r"refused|not supported|assign requested"):
        sockets.create_connection((address, 1), 1.0)


def test_the_library_is_not_loaded() -> None:
    """It would take an eighth of a member's start."""
    script = "import sys, mingle_hooks.sockets; print({'socket', 'selectors', 'enum'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
