"""The leader's ports, and whole rendezvous of members in threads of one host, by each discovery backend."""

import os
import resource
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import SECRET, Clock, free_ports, join_request, observer, request as any_request

from mingle_hooks.errors import MingleError, MissingError, NetworkError, UsageError
from mingle_hooks.net import addresses
from mingle_hooks.rendezvous import rendezvous
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.local_tasks import follow_first_task, serve_local_tasks
from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.rendezvous import OPEN_FILES, Limits, Listeners, check_limits, meet, read_limits
from mingle_hooks.rendezvous.wire import Attempt, Body

LOOPBACK_HOSTS: dict[str, Any] = {"via": ("hosts",), "leader_hosts": ("127.0.0.1",)}


def request(attempt: str, **parts: Any) -> Request:
    """Return the request of a member of three."""
    return any_request(attempt=Attempt(attempt), **{"nodes": 3, **parts})


def together(*requests: Request) -> tuple[list[Body | MingleError], list[str]]:
    """Return what each gets, in order, and the notes of all."""
    notes: list[str] = []

    def one(asked: Request) -> Body | MingleError:
        try:
            return meet(asked, observer(notes.append))
        except MingleError as error:
            return error

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests)), notes


def answers(results: list[Body | MingleError]) -> list[Body]:
    """Return the answers of members that all got one, the same one."""
    proven = [result for result in results if isinstance(result, dict)]
    assert len(proven) == len(results), results
    assert len({answer["digest"] for answer in proven}) == 1
    return proven


@pytest.mark.parametrize("backend", ["hosts", "master", "directory"])
@pytest.mark.parametrize("ranked", [True, False])
def test_each_backend_alone_forms_one_world(backend: str, *, ranked: bool, tmp_path: Path) -> None:
    """It does so with ranks, and by election."""
    how: dict[str, Any] = {
        "hosts": LOOPBACK_HOSTS,
        "master": {"via": ("master",), "master": ("127.0.0.1", None)},
        "directory": {"via": ("directory",), "directory": str(tmp_path)},
    }[backend]
    members = [request(f"{backend} {ranked}", rank=rank if ranked else None, **how) for rank in range(3)]
    results, notes = together(*members)
    ranks = [answer["rank"] for answer in answers(results)]
    assert (ranks if ranked else sorted(ranks)) == [0, 1, 2]
    assert notes == os.listdir(tmp_path) == []


def test_a_named_port_serves_check_in_and_world_also_when_several_candidates_share_a_host() -> None:
    """One of them gets it."""
    how: dict[str, Any] = {"via": ("master",), "master": ("127.0.0.1", 24_417)}
    proven = answers(together(*(request("named", **how) for _ in range(3)))[0])
    assert {answer["port"] for answer in proven} == {24_417}


@pytest.mark.parametrize("role", ["first task", "another task"])
def test_a_host_that_was_suspended_past_its_deadline_ends_when_it_wakes(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLOCK_BOOTTIME has gone on, CLOCK_MONOTONIC has not; tests/simulator has leaders and members."""
    clock, wakes_at = time.clock_gettime, time.monotonic() + 0.3

    def suspended(which: int) -> float:
        is_over = which == time.CLOCK_BOOTTIME and time.monotonic() > wakes_at
        return clock(which) + (1000.0 if is_over else 0.0)

    monkeypatch.setattr(time, "clock_gettime", suspended)
    waits: dict[str, Callable[[], object]] = {
        "first task": lambda: serve_local_tasks(
            [str(tmp_path / "node")], "here", 2, 120.0, lambda _s, _peers: pytest.fail("met")
        ),
        "another task": lambda: follow_first_task([str(tmp_path / "node")], 1, 120.0),
    }
    with pytest.raises(MissingError):
        waits[role]()
    assert time.monotonic() - wakes_at < 60.0  # a bound on one that does not, and waits for 120 s


@pytest.mark.parametrize("parts", [{"slots": 0}, {"slots": 10**6}, {"host": "bad name"}, {"rank": 10**6}, {"nodes": 0}])
def test_a_check_in_that_no_leader_accepts_is_refused_before_anything_is_opened(parts: dict[str, Any]) -> None:
    """A member does not call again and again to be refused."""
    with pytest.raises(UsageError):
        meet(request("bad", **{**LOOPBACK_HOSTS, "rank": 1, **parts}), observer())


# The leader's ports: taken, named, used a minute ago, or all in use.


def listeners() -> closing[Listeners]:
    """Give listeners that are closed in the end."""
    return closing(Listeners())


def test_the_first_free_port_of_each_group_is_opened_in_both_families() -> None:
    """A port that is taken in one family is passed over: some members would reach its leader, and others not."""
    four = free_ports(4)
    with (
        socket.create_server(("127.0.0.1", four[0])),
        socket.create_server(("::", four[1]), family=socket.AF_INET6),
        listeners() as opened,
    ):
        opened.open_check_in([four[:3], four[2:]])
        assert opened.check_in == [four[2]]
        assert {listener.getsockname()[1] for listener in opened.sockets} == {four[2]}
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, four[2])).close()
        socket.create_server(("127.0.0.1", four[1])).close()


def test_a_port_in_time_wait_is_taken_where_the_user_names_it_or_no_other_of_its_group_is_free() -> None:
    """An earlier run leaves it so, or a stranger that was turned away; a port with a listener is never taken."""
    three = free_ports(3)
    for port in three[:2]:
        listener = addresses.bound("0.0.0.0", port)
        addresses.keep(listener)
        listener.close()
    with listeners() as opened:
        opened.open_check_in([three])
        assert opened.check_in == [three[2]]
        assert not opened._open(three[0], reuse=False)
        opened.open_named(three[0])
        assert opened.master == three[0]
        with pytest.raises(
            NetworkError, match="all 3 are taken, 1 of them for check-in, 1 of them by closed connections"
        ):
            opened.open_master(SECRET, three)
    with socket.create_server(("", three[2])), socket.create_server(("127.0.0.1", three[0])), listeners() as opened:
        opened.open_check_in([three])
        assert opened.check_in == [three[1]]
        with pytest.raises(NetworkError, match=rf"port {three[2]} free.*saw it in use; try"):
            opened.open_named(three[2])


def test_a_full_port_range_is_reported() -> None:
    """The error has the range and what to try."""
    two = free_ports(2)
    with listeners() as taken, listeners() as opened:
        assert all(taken._open(port, reuse=False) for port in two)
        with pytest.raises(NetworkError, match=f"{two[0]}-{two[1]}.*all 2 are taken"):
            opened.open_master(SECRET, two)
        assert opened.sockets == []
    with listeners() as opened:
        opened.open_check_in([[port] for port in two])
        with pytest.raises(NetworkError, match="all 2 are taken, 2 of them for check-in;"):  # nobody else has them
            opened.open_master(SECRET, two)


def stand(loop: Loop, **parts: Any) -> Any:
    """Have a member of two stand as a candidate."""
    return rendezvous.stand_as_candidate(
        loop, any_request(**{"nodes": 2, **parts}), SECRET, join_request(), lambda: None
    )


def test_a_named_port_that_is_taken_is_refused_for_rank_0_and_left_to_the_other_candidate() -> None:
    """Several members of one host may stand; one of them gets the port."""
    port = free_ports(1)[0]
    with socket.create_server(("", port)), Loop(Clock()) as loop:
        for named in ({"master": ("127.0.0.1", port)}, {"pinned": {"MASTER_PORT": str(port)}}):
            with pytest.raises(NetworkError, match=f"port {port}"):
                stand(loop, rank=0, **named)
            assert stand(loop, rank=None, **named) is None
        assert not loop.poller.watched


@pytest.mark.parametrize(
    ("addr", "hosts", "rank", "is_own"),
    [
        ("127.0.0.1", ("a",), 0, True),  # of one host
        ("127.0.0.1", ("a", "b"), 0, False),
        ("192.0.2.9", ("a", "b"), 0, False),
        ("192.0.2.9", ("a", "b"), None, True),  # another host's, which is rank 0 then
        ("no-such-host.invalid", ("a",), 0, False),
    ],
)
def test_an_exported_address_has_to_be_rank_0s(
    addr: str, hosts: tuple[str, ...], rank: int | None, *, is_own: bool
) -> None:
    its = any_request(nodes=len(hosts), hosts=hosts, rank=rank, pinned={"MASTER_ADDR": addr})
    _, failure = rendezvous._named_addresses(its)
    assert (failure is None) == is_own


def test_standing_raises_the_limit_of_open_files_and_takes_that_back() -> None:
    """The command of `mingle exec` gets the user's limit, even after an error."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, limits[1]))
        with Loop(Clock()) as loop:
            candidate = stand(loop, rank=0)
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(520, limits[1])
            candidate.close()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, limits[1])
            assert not loop.poller.watched
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_host_that_cannot_hold_all_members_fails_as_rank_0_and_is_the_last_to_be_elected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may still be elected, as others may be no better: then it fails once it holds as many as it can."""
    monkeypatch.setattr(rendezvous, "read_limits", lambda _addresses: Limits(20, {OPEN_FILES: 1400}, 0))
    for rank in (0, None):
        with Loop(Clock()) as loop, closing(stand(loop, rank=rank, nodes=1500)) as candidate:
            leader = candidate.leader
            loop.turn(0.0)
            assert (leader.state, leader.terms.ticket >= rendezvous.LAST_TICKETS) == (
                ("failed", False) if rank == 0 else ("gathering", True)
            )
            assert leader.capacity.members == 1380
            assert leader._over_capacity() is None
            leader.capacity = leader.capacity._replace(members=1)
            assert leader._over_capacity().kind == "limits"
    with Loop(Clock()) as loop, closing(stand(loop, nodes=1300)) as candidate:
        assert candidate.leader.capacity is None
        assert 0 < candidate.leader.terms.ticket < rendezvous.LAST_TICKETS


def test_the_first_connection_at_the_worlds_port_is_treated_like_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection has what its listener has when it arrives, and a member may dial as soon as anybody listens."""
    early: list[socket.socket] = []

    class Dialled(socket.socket):
        """A socket that gets a connection as soon as it listens."""

        def listen(self, backlog: int = 5) -> None:  # type: ignore[override]
            super().listen(backlog)
            if self.family == socket.AF_INET:
                early.append(socket.create_connection(("127.0.0.1", self.getsockname()[1]), timeout=5))

    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(addresses.socket, "socket", Dialled)
    with closing(Listeners(hold=False)) as opened:
        opened.open_named(port)
        with opened.sockets[0].accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == addresses.RESET_ON_CLOSE
    for sock in early:
        sock.close()


# Which limits are too low for how many members, and what is printed about them.


AMPLE = {
    "fs.file-max": 10**6,
    "net.core.somaxconn": 65_536,
    "net.ipv4.tcp_max_syn_backlog": 2048,
    "net.ipv4.tcp_syncookies": 1,
    "net.ipv4.neigh.default.gc_thresh3": 131_072,
    "net.netfilter.nf_conntrack_max": 262_144,
}


def host(open_files: int = 10**6, on_subnet: int = 0, **kernel: int) -> Limits:
    """Return the limits of a host with ample ones but for these, by the last part of their names."""
    names = {name.rpartition(".")[2].replace("-", "_"): name for name in AMPLE}
    values = {OPEN_FILES: open_files, **AMPLE, **{names[key]: value for key, value in kernel.items()}}
    return Limits(20, values, on_subnet)


@pytest.mark.parametrize(
    ("nodes", "its", "found"),
    [
        (65_536, host(), []),
        (65_536, Limits(20, {}, 0), []),  # no limit of files, and a kernel, or a namespace, that shows none
        (5000, host(5020), []),
        (5000, host(5019), [("ulimit -Hn", 5512, True)]),
        (5000, host(file_max=5019), [("fs.file-max", 10_512, True)]),
        (16_384, host(somaxconn=4096), []),
        (16_385, host(somaxconn=4096), [("net.core.somaxconn", 16_385, False)]),
        (5000, host(tcp_max_syn_backlog=128), []),  # there are cookies
        (5000, host(tcp_max_syn_backlog=128, tcp_syncookies=0), [("net.ipv4.tcp_max_syn_backlog", 5000, False)]),
        (5000, host(gc_thresh3=1024, on_subnet=254), []),  # the others come through a router
        (5000, host(gc_thresh3=1024, on_subnet=2046), [("net.ipv4.neigh.default.gc_thresh3", 2046, False)]),
        (5000, host(gc_thresh3=1024, on_subnet=65_534), [("net.ipv4.neigh.default.gc_thresh3", 5000, False)]),
        (5000, host(nf_conntrack_max=9999), [("net.netfilter.nf_conntrack_max", 10_000, False)]),
    ],
)
def test_a_limit_that_is_too_low_is_found_with_the_value_that_suffices(
    nodes: int, its: Limits, found: list[tuple[str, int, bool]]
) -> None:
    fatal, slow = rendezvous.shortfalls(nodes, its)
    assert [(*row, row[0] in fatal) for row in (*fatal.items(), *slow.items())] == found


def test_only_what_cannot_hold_the_members_is_an_error() -> None:
    short, warning = check_limits(5000, "node1", host(4096, somaxconn=128))
    assert short.members == 4096 - 20
    assert str(short.failure.error()) == (
        "expected limits for 5000 nodes on node1, rank 0's host; saw ulimit -Hn 4096; "
        "try LimitNOFILE=5512 for the scheduler's daemon there, or `ulimit -Hn 5512` as root"
    )
    assert warning == (
        "node1, rank 0's host, delays some of 5000 nodes that connect at once (net.core.somaxconn 128); "
        "try `sysctl -w net.core.somaxconn=5000` there"
    )
    assert check_limits(5000, "node1", host(somaxconn=128)) == (None, warning)
    both, nothing = check_limits(5000, "node1", host(4096, file_max=3000))
    assert (both.members, nothing) == (3000 - 20, None)
    assert "saw ulimit -Hn 4096, fs.file-max 3000;" in str(both.failure.error())
    assert "`ulimit -Hn 5512` as root, and `sysctl -w fs.file-max=10512`" in str(both.failure.error())


def test_the_limits_are_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing values are left out; subnets are those of the leader's addresses, without gateways, of all routes."""
    (tmp_path / "self/fd").mkdir(parents=True)
    for number in range(7):
        (tmp_path / "self/fd" / str(number)).touch()
    (tmp_path / "sys/net/core").mkdir(parents=True)
    (tmp_path / "sys/net/core/somaxconn").write_text("4096\n")
    (tmp_path / "sys/fs").mkdir()
    (tmp_path / "sys/fs/file-max").write_text("many\n")

    def route(network: str, flags: int, mask: str) -> str:
        def word(address: str) -> str:
            return f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}"

        return f"eth0\t{word(network)}\t00000000\t{flags:04X}\t0\t0\t0\t{word(mask)}\t0\t0\t0"

    (tmp_path / "net").mkdir()
    rows = [
        *[route("10.8.0.0", 1, "255.255.255.0")] * 100,
        "\udcff",
        route("10.1.0.0", 1, "255.255.252.0"),
        "short",
        route("0.0.0.0", 3, "0.0.0.0"),
        route("10.9.9.0", 1, "255.255.255.0"),
        route("10.0.0.0", 3, "255.0.0.0"),
        route("172.17.0.0", 1, "255.255.0.0"),
    ]
    (tmp_path / "net/route").write_bytes(os.fsencode("\n".join(["Iface\tDestination", *rows]) + "\n"))
    read = os.read  # the kernel gives no more than a page of a table at once
    monkeypatch.setattr(os, "read", lambda descriptor, most: read(descriptor, min(most, 4096)))
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 5000))
    found = read_limits(["fe80::1", "10.1.3.9", "10.9.9.9"], str(tmp_path))
    files = {OPEN_FILES: 5000}
    assert found == Limits(7, {"net.core.somaxconn": 4096, **files}, 1022)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, resource.RLIM_INFINITY))
    assert read_limits(["10.1.3.9"], str(tmp_path / "none")) == Limits(0, {}, 0)


@pytest.mark.parametrize(
    ("nodes", "allowed", "asked", "strangers"),
    [(None, 10**6, 262_656, 16_384), (100, 1024, 912, 796), (1000, 1024, 4512, 64), (None, 1024, 262_656, 896)],
)
def test_connections_without_proof_get_what_descriptors_are_left(
    nodes: int | None, allowed: int, asked: int, strangers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four for each member, or for each of the most that there may be; within bounds."""
    needs: list[int] = []
    monkeypatch.setattr("mingle_hooks.files.raise_open_files_limit", lambda need: needs.append(need) or allowed)
    assert (rendezvous._allow_open_files(nodes), needs) == (strangers, [asked])


def test_only_rank_0_leads_before_another_has_checked_in() -> None:
    for rank, members, leads in ((0, 1, True), (None, 1, False), (None, 2, True)):
        with Loop(Clock()) as loop, closing(stand(loop, rank=rank)) as candidate:
            assert (candidate.leader.terms.ticket == candidate.advertisement.ticket == 0) == (rank == 0)
            its: Any = SimpleNamespace(_leader=SimpleNamespace(terms=candidate.leader.terms, roster=range(members)))
            assert rendezvous.Rendezvous._leads(its) is leads
            assert stand(loop, rank=1) is None


def test_others_look_where_the_user_says_else_where_the_scheduler_does() -> None:
    """Unless only other ways are asked for."""
    hosts = tuple(f"node{number}" for number in range(9))
    asked = ({"master": ("m", None)}, {}, {"via": ("multicast", "hosts")}, {"via": ("multicast", "directory")})
    found = [rendezvous._named_hosts(any_request(leader_hosts=hosts, **parts).spec) for parts in asked]
    assert found == [("m",), hosts[:8], hosts[:8], ()]
