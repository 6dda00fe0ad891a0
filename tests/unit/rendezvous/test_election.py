"""The leader's ports: taken, named, used a minute ago, or all in use."""

from __future__ import annotations

import resource
import socket
from contextlib import closing

import pytest
from support.gathering import ATTEMPT, SECRET, Clock, join_request

from mingle_hooks.errors import NetworkError
from mingle_hooks.net import ports
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.rendezvous import Listeners, stand_as_candidate
from mingle_hooks.rendezvous.wire import Material


def listeners() -> closing[Listeners]:
    """Give listeners that are closed in the end."""
    return closing(Listeners())


def free_ports(count: int) -> range:
    """Return adjacent ports that nobody listens on."""
    for first in range(40_000, 60_000, 37):
        with listeners() as opened:
            if all(opened._open(port, reuse=False) for port in range(first, first + count)):
                return range(first, first + count)
    raise AssertionError("no free ports on this machine")


def request(**parts: object) -> Request:
    """Return the request of a rank 0."""
    rank = {"rank": 0, "nodes": 2, **parts}
    return Request(ATTEMPT, key=Material(b"k" * 32), host="h", machine="m", slots=1, **rank)  # type: ignore[arg-type]


def test_the_first_free_port_of_each_group_is_opened_in_both_families() -> None:
    """A port that is taken in one family is passed over."""
    three = free_ports(3)
    with socket.create_server(("127.0.0.1", three[0])), listeners() as opened:
        opened.open_check_in([[three[0], three[1]], [three[1], three[2]]])
        assert opened.check_in == [three[1]]
        socket.create_connection(("127.0.0.1", three[1])).close()
        socket.create_connection(("::1", three[1])).close()


def test_a_port_that_is_taken_in_ipv6_alone_is_left_alone_in_ipv4_too() -> None:
    """Half a port would be a leader that some members reach and others do not."""
    two = free_ports(2)
    with socket.create_server(("::", two[0]), family=socket.AF_INET6), listeners() as opened:
        opened.open_check_in([two])
        assert opened.check_in == [two[1]]
        assert {listener.getsockname()[1] for listener in opened.sockets} == {two[1]}
        socket.create_server(("127.0.0.1", two[0])).close()


def test_a_check_in_port_in_time_wait_is_taken_where_no_other_of_its_group_is_free() -> None:
    """An earlier run leaves it so, or a stranger that was turned away there; one where somebody listens never is."""
    three = free_ports(3)
    for port in three[:2]:
        listener = ports.bound("0.0.0.0", port)
        ports.keep(listener)
        listener.close()
    with listeners() as opened:
        opened.open_check_in([three])
        assert opened.check_in == [three[2]]
    with socket.create_server(("", three[2])), socket.create_server(("127.0.0.1", three[0])), listeners() as opened:
        opened.open_check_in([three])
        assert opened.check_in == [three[1]]


def test_a_full_port_range_is_reported() -> None:
    """With the range and what to do."""
    two = free_ports(2)
    with listeners() as taken, listeners() as opened:
        assert all(taken._open(port, reuse=False) for port in two)
        with pytest.raises(NetworkError, match=f"{two[0]}-{two[1]}.*all 2 are taken"):
            opened.open_master(SECRET, two)
        assert opened.sockets == []


def test_ports_in_time_wait_are_reported_as_such() -> None:
    """Nobody listens there, so there is nobody to look for."""
    two = free_ports(2)
    with socket.socket() as server:  # no SO_REUSEADDR, so nobody gets the port again before its time is over
        server.bind(("127.0.0.1", two[0]))
        server.listen()
        with socket.create_connection(("127.0.0.1", two[0])) as client:
            server.accept()[0].close()
            assert client.recv(1) == b""
    with listeners() as opened, pytest.raises(NetworkError, match=r"it in use, by closed connections.*TIME_WAIT"):
        opened.open_named(two[0])
    with socket.create_server(("", two[1])), listeners() as opened:
        with pytest.raises(NetworkError, match=r"all 2 are taken, 1 of them by closed connections.*TIME_WAIT"):
            opened.open_master(SECRET, two)
        with pytest.raises(NetworkError, match=rf"port {two[1]} free.*saw it in use; try"):
            opened.open_named(two[1])


def test_a_named_port_is_taken_again_within_the_minute_that_it_is_in_time_wait() -> None:
    """A person who names a port runs twice."""
    port = free_ports(1)[0]
    first = ports.bound("127.0.0.1", port)
    ports.keep(first)
    first.close()
    with listeners() as opened:
        assert not opened._open(port, reuse=False)
        opened.open_named(port)
        assert opened.master == port


def test_a_named_port_that_is_taken_is_refused_for_rank_0_and_left_to_the_other_candidate() -> None:
    """Several members of one host may stand; one of them gets the port."""
    port = free_ports(1)[0]
    with socket.create_server(("", port)), Loop(Clock()) as loop:
        for named in ({"master": ("127.0.0.1", port)}, {"pinned": {"MASTER_PORT": str(port)}}):
            with pytest.raises(NetworkError, match=f"port {port}"):
                stand_as_candidate(loop, request(**named), SECRET, join_request(), lambda: None)
            assert stand_as_candidate(loop, request(rank=None, **named), SECRET, join_request(), lambda: None) is None
        assert not loop.poller.watched


def test_standing_raises_the_limit_of_open_files_and_takes_that_back() -> None:
    """What `mingle exec` becomes finds its user's limit, also after an error."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, limits[1]))
        with Loop(Clock()) as loop:
            precedence = stand_as_candidate(loop, request(), SECRET, join_request(), lambda: None)
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(520, limits[1])
            precedence.close()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, limits[1])
            assert not loop.poller.watched
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_connection_that_arrives_first_at_the_worlds_port_is_treated_like_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection has what its listener has when it arrives, and a member may dial as soon as anybody listens."""
    early: list[socket.socket] = []

    class Dialled(socket.socket):
        """A socket to which somebody connects in the instant in which it listens."""

        def listen(self, backlog: int = 5) -> None:  # type: ignore[override]
            super().listen(backlog)
            if self.family == socket.AF_INET:
                early.append(socket.create_connection(("127.0.0.1", self.getsockname()[1]), timeout=5))

    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(ports.socket, "socket", Dialled)
    with closing(Listeners(hold=False)) as opened:
        opened.open_named(port)
        with opened.sockets[0].accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == ports.GONE_AT_ONCE
    for sock in early:
        sock.close()
