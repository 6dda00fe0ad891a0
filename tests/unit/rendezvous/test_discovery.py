"""The discovery backends, each alone and together."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.gathering import ATTEMPT, OTHER, SECRET, Clock, Room, context, relay, request, until

from mingle_hooks.errors import MissingError, NetworkError, PlaceError
from mingle_hooks.rendezvous import discovery, wire
from mingle_hooks.rendezvous.connection import CALL_S, Endpoint, Loop, is_local, resolve
from mingle_hooks.rendezvous.discovery import BACKENDS, MOST_CALLS, Advertisement, Dialer, ProvenLeader, Search
from mingle_hooks.rendezvous.wire import MOST_ADVERTISED, Secret, encode
from mingle_hooks.settings import BACKENDS as NAMES

ADVERTISED = Advertisement(b"L" * 16, 5, ("10.0.0.1", "fd00::1"), (20_001, 20_002))
LEADS = {(a, p) for a in ADVERTISED.addresses for p in ADVERTISED.ports}


class Looking:
    """A loop, a backend in it, and what that has found and reported."""

    def __init__(self, make: Callable[..., Any], secret: Secret = SECRET, **parts: Any) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.found: list[Endpoint] = []
        self.reports: list[str] = []
        self.backend = make(context(self.loop, self._dial, self.reports.append, secret=secret, **parts))

    def __enter__(self) -> Looking:
        return self

    def __exit__(self, *_error: object) -> None:
        self.backend.close()
        assert not self.loop.poller.watched
        self.loop.__exit__(None, None, None)

    def _dial(self, endpoint: Endpoint) -> bool:
        self.found.append(endpoint)
        return True

    def look(self) -> set[tuple[str, int]]:
        """Look once, and return the leads."""
        self.found.clear()
        self.backend.search(wanted=True)
        self.backend.search(wanted=False)
        return {(endpoint.address, endpoint.port) for endpoint in self.found}


# A backend that cannot be opened, or fails later, is a reason told at the end, and the others go on.


def search_in(
    loop: Loop, note: Callable[[str], None] = print, found: Callable[[ProvenLeader], None] = print, **parts: Any
) -> Search:
    """Return the search of a member with this request."""
    return Search(loop, request(**parts), SECRET, note, found, lambda: None, bytes(16))


@contextmanager
def searching(notice: Advertisement | None = None, clock: Clock | None = None, **parts: Any) -> Iterator[Search]:
    """Give the search of a member that looks, or announces itself, and has nothing to report meanwhile."""
    reports: list[str] = []
    with Loop(clock or Clock()) as loop:
        search = search_in(loop, reports.append, leader_hosts=("127.0.0.1",), **parts)
        leader: Any = SimpleNamespace(advertisement=notice, leader=SimpleNamespace(state="failed"))
        search.candidate = leader if notice is not None else None
        yield search
        search.close()
    assert reports == []


def test_each_backend_that_settings_take_has_its_row() -> None:
    """They have the same order; the settings cannot import the rows of a higher room."""
    assert tuple(BACKENDS) == NAMES


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ImportError("No module named 'netifaces'"), "No module named 'netifaces'"),
        (OSError(errno.ENODEV, "no such device"), "no such device"),
        (SyntaxError("invalid syntax"), "SyntaxError: invalid syntax"),
    ],
)
def test_a_backend_that_cannot_be_opened_is_a_reason_and_the_others_go_on(
    error: Exception, seen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A package may be missing or broken, or the directory not mounted; without another backend it is an error."""
    clock, nowhere = Clock(), str(tmp_path / "none")
    monkeypatch.setitem(BACKENDS, "multicast", BACKENDS["multicast"]._replace(open=Mock(side_effect=error)))
    with searching(clock=clock, directory=nowhere) as search:
        search.open(["hosts", "directory", "multicast"])
        assert "multicast" not in search.tried()  # it takes long to load
        clock.ahead = discovery.HEAD_START_S
        search._loop.turn(0.0)
        tried = search.tried()
    with searching(directory=nowhere) as search, pytest.raises(NetworkError) as caught:
        search.open(["directory", "multicast"])
    assert tried.startswith("hosts: 127.0.0.1 ports ")
    for text in (caught.value.seen, tried):
        assert f"no directory: expected a shared directory that this user can write to, saw {tmp_path}/none" in text
        assert text.endswith(f"no multicast: {seen}")


def test_a_signal_while_a_backend_loads_ends_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no failure of the backend, which the member would survive."""
    monkeypatch.setitem(BACKENDS, "hosts", discovery.Row(Mock(side_effect=KeyboardInterrupt)))
    with searching() as search, pytest.raises(KeyboardInterrupt):
        search.open(["hosts"])


@pytest.mark.parametrize("hosts", [["hosts"], []], ids=["another way", "the last way"])
def test_a_directory_that_vanishes_in_use_leaves_the_other_backends(tmp_path: Path, hosts: list[str]) -> None:
    """A leader that can no longer write its file is still found by name; without another backend it ends."""
    place = tmp_path / "shared"
    place.mkdir()
    with searching(ADVERTISED, directory=str(place)) as search:
        search.open([*hosts, "directory"])
        (leaf,) = os.listdir(place)
        os.unlink(place / leaf)
        place.rmdir()
        with nullcontext() if hosts else pytest.raises(NetworkError, match="no directory"):
            search.seek()
        assert "no directory: " in search.tried()


def test_a_directory_that_cannot_be_read_for_a_while_is_a_reason_until_it_can(tmp_path: Path) -> None:
    """A file server may come back; the deadline bounds the wait."""
    place = tmp_path / "shared"
    place.mkdir()
    with searching(directory=str(place)) as search:
        search.open(["directory"])
        place.rmdir()
        search.seek()
        assert search.tried() == f"directory: {place}; directory: No such file or directory: {place}"
        place.mkdir()
        search.seek()
        assert search.tried() == f"directory: {place}"


# The scheduler's first host is tried at the job's own ports, again and again.


def test_every_port_of_every_address_is_named_again_and_again() -> None:
    """Until it is stopped."""
    with Looking(discovery.hosts_backend, leader_hosts=("127.0.0.1",)) as its:
        its.backend.search(wanted=True)
        until(its.loop, lambda: len(its.found) >= 10)
        its.backend.search(wanted=False)
        count = len(its.found)
        its.clock.ahead += 1.0
        its.loop.turn(0.0)
        assert len(its.found) == count
        assert len(its.backend._ports) == 4
        assert set(its.found) == {Endpoint("127.0.0.1", port, "hosts") for port in its.backend._ports}


@pytest.mark.parametrize(("port", "count"), [(7000, 1), (None, 4)])
def test_master_means_its_own_port_or_the_jobs(port: int | None, count: int) -> None:
    """As given by --master HOST[:PORT]."""
    with Looking(discovery.master_backend, master=("127.0.0.1", port)) as its:
        its.backend.search(wanted=True)
        until(its.loop, lambda: len(its.found) >= count)
        assert {endpoint.backend for endpoint in its.found} == {"master"}
        ports = {endpoint.port for endpoint in its.found}
        assert (len(ports), port in ports) == (count, port is not None)


def test_an_unknown_name_delays_no_other_and_is_looked_up_again() -> None:
    """Each is looked up by itself, and reported; it may be registered later."""
    unknown = "no-such-host.invalid"
    names = (unknown, "bad..name", "-", "x" * 300, "\u00fc", "127.0.0.1")
    with Looking(discovery.hosts_backend, leader_hosts=names) as its:
        its.backend.search(wanted=True)
        until(its.loop, lambda: len(its.found) >= 2 and len(its.backend._addresses) == len(names))
        assert f"(name not known: {unknown}, bad..name, -)" in its.backend.tried()
        assert {endpoint.address for endpoint in its.found} == {"127.0.0.1"}
        assert (its.backend._addresses[unknown], its.backend._lookups) == ([], {})
        its.clock.ahead += discovery.LOOK_UP_AGAIN_S
        until(its.loop, lambda: unknown in its.backend._lookups)


def test_a_known_name_is_looked_up_again_too_and_keeps_its_addresses_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod may come again with another address; a search that starts again does not wait half a minute for it."""
    lookup = Mock()
    monkeypatch.setattr(discovery, "Lookup", lookup)
    with Looking(discovery.hosts_backend, leader_hosts=("node1",)) as its:
        its.clock.stop()

        def looked_up_after(seconds: float) -> int:
            its.clock.ahead += seconds
            its.loop.turn(0.0)
            return lookup.call_count

        def dialled(*addresses: str) -> set[str]:
            its.found.clear()
            its.backend._looked_up("node1", [*addresses])
            return {endpoint.address for endpoint in its.found}

        lookup.side_effect = OSError(errno.EMFILE, "too many")
        its.backend.search(wanted=True)
        assert len(its.backend.faults) == 1
        lookup.side_effect = None
        assert looked_up_after(discovery.LOOK_UP_AGAIN_S) == 2
        assert (dialled("10.0.0.1"), its.backend.faults) == ({"10.0.0.1"}, [])
        its.loop.names_s = 0.0
        assert looked_up_after(discovery.LOOK_UP_AGAIN_S) == 2
        assert looked_up_after(discovery.LOOK_UP_KNOWN_AGAIN_S) == 3
        assert dialled() == set()  # not at once, but in the next round
        assert looked_up_after(discovery.LOOK_UP_KNOWN_AGAIN_S) == 4
        assert its.found[0].address == "10.0.0.1"
        assert dialled("10.0.0.2") == {"10.0.0.2"}
        its.backend.search(wanted=False)
        its.clock.ahead += discovery.LOOK_UP_AGAIN_S
        its.backend.search(wanted=True)
        assert lookup.call_count == 5
        dialled()
        its.backend._lookups["node1-ib"] = Mock()  # a name that no host has is looked up again and again
        its.backend._looked_up("node1-ib", [])
        assert its.loop.names_s == 0.0


def test_hosts_behind_the_16th_are_dialled_too(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before them refuse soon, and with four ports each they could take all calls of every round."""
    hosts, dialled = [f"10.0.0.{number}" for number in range(1, 65)], set()

    def refused(address: str, _port: int) -> socket.socket:
        dialled.add(address)
        near, far = socket.socketpair()
        far.close()
        near.settimeout(0)
        return near

    monkeypatch.setattr(discovery, "dial", refused)
    monkeypatch.setattr(discovery, "notice_loss", Mock())
    monkeypatch.setattr(discovery, "Lookup", Mock())
    with Loop(clock) as loop:
        dialer = Dialer(loop, ATTEMPT, SECRET, print, print, print)
        backend: Any = discovery.hosts_backend(context(loop, dialer.dial, leader_hosts=tuple(hosts)))
        backend._addresses = {host: [host] for host in hosts}
        backend.search(wanted=True)
        for _ in range(10):
            clock.ahead += 2 * discovery.HOSTS_LONGEST_DELAY_S
            loop.turn(0.0)
        assert dialled == {*hosts}
        backend.close()
        dialer.close()


def test_the_name_on_the_fast_network_is_tried_first_and_closing_waits_for_no_name_server() -> None:
    """The host's own name is tried too, as not every host has another; a look-up that has begun ends by itself."""
    with Looking(discovery.hosts_backend, leader_hosts=("node1",), host_suffix="-ib") as its:
        its.backend.search(wanted=True)
        assert its.backend.tried().startswith("node1-ib, node1 ports ")


def test_a_backend_that_nothing_is_said_for_does_not_apply() -> None:
    with Loop() as loop:
        assert [row.open(context(loop, print)) for row in list(BACKENDS.values())[:3]] == [None] * 3


def test_an_address_is_local_when_a_socket_can_be_bound_to_it() -> None:
    """Text that is no address is not local: names have been looked up before."""
    addresses = ("127.0.0.1", "127.0.1.1", "192.0.2.1", "2001:db8::1", "nonsense")
    assert [is_local(address) for address in addresses] == [True, sys.platform == "linux", False, False, False]


def test_a_name_resolves_or_has_no_addresses() -> None:
    """No name raises an error."""
    assert [resolve(name, 5.0) for name in ("127.0.0.1", "\0", "a" * 10_000)] == [["127.0.0.1"], [], []]


# A leader's file in a shared directory: read strictly, and gone in the end.


Place = Callable[..., Looking]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Make backends of one directory, which are closed with the test."""
    with ExitStack() as stack:
        make, there = discovery.directory_backend, {"directory": str(tmp_path)}
        yield lambda **how: stack.enter_context(Looking(make, **{**there, **how}))


def test_an_announced_leader_is_found_and_leaves_no_file(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is private, whole from the first moment, and removed, as is a draft that cannot replace it."""
    leader, member = place(), place()
    leader.backend.announce(ADVERTISED)
    assert (member.look(), leader.look()) == (LEADS, set())
    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in os.listdir(tmp_path)] == [0o600]
    leader.backend.announce(None)
    assert os.listdir(tmp_path) == []
    leader.backend.announce(ADVERTISED)
    leader.backend.close()
    assert os.listdir(tmp_path) == leader.reports == member.reports == []
    monkeypatch.setattr(os, "replace", lambda *_paths: os.listdir(f"{tmp_path}/none"))
    with pytest.raises(PlaceError, match="No such file"):
        leader.backend.announce(ADVERTISED)
    assert os.listdir(tmp_path) == []


def test_nobody_can_take_a_leaders_file_name_before_it_does(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may create what a draft's name shows, or a name that has been used."""
    leader, member, replace = place(), place(), os.replace

    def late(draft: str, path: str) -> None:
        (tmp_path / Path(draft).stem).mkdir()
        replace(draft, path)

    monkeypatch.setattr(os, "replace", late)
    leader.backend.announce(ADVERTISED)
    (used,) = (path for path in tmp_path.iterdir() if path.is_file())
    leader.backend.announce(ADVERTISED)
    assert [path for path in tmp_path.iterdir() if path.is_file()] == [used]
    leader.backend.announce(None)
    used.mkdir()
    leader.backend.announce(ADVERTISED)
    assert (member.look(), member.reports) == (LEADS, [])


def test_a_notice_has_as_many_addresses_as_others_read(place: Place, tmp_path: Path) -> None:
    """The writer leaves out the rest, which are the worst; a notice that has more is not read at all."""
    leader, member = place(), place()
    many = tuple(f"10.0.0.{number}" for number in range(1, MOST_ADVERTISED + 2))
    leader.backend.announce(ADVERTISED._replace(addresses=many))
    assert {address for address, _ in member.look()} == {*many[:-1]}
    (path,) = tmp_path.iterdir()
    body = encode({"addresses": many, "ports": ADVERTISED.ports})
    path.write_bytes(SECRET.mac(b"notice", body) + body)
    assert member.look() == set()


def test_a_leader_with_another_key_is_reported_and_not_dialled(place: Place) -> None:
    """Its file cannot be ours."""
    leader, member = place(secret=OTHER), place()
    leader.backend.announce(ADVERTISED)
    assert member.look() == member.look() == set()
    assert {*member.reports} == {"a file in the shared directory"}


@pytest.mark.parametrize("what", ["empty", "garbage", "huge", "link", "fifo", "directory", "other's words", "device"])
def test_any_file_under_a_leaders_name_is_not_trusted(place: Place, tmp_path: Path, what: str) -> None:
    """It neither blocks nor breaks the search."""
    leader, member = place(), place()
    leader.backend.announce(ADVERTISED)
    (name,) = os.listdir(tmp_path)
    path, words = tmp_path / name, (tmp_path / name).read_bytes()
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(words)
    {
        "empty": path.touch,
        "garbage": lambda: path.write_bytes(bytes(range(256))),
        "huge": lambda: path.write_bytes(words + bytes(10_000_000)),
        "link": lambda: path.symlink_to(tmp_path / "elsewhere"),
        "fifo": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "device": lambda: path.symlink_to("/dev/zero"),
        "other's words": lambda: path.write_bytes(words.replace(b"20001", b"20009")),
    }[what]()
    assert member.look() == set()
    if path.is_dir():
        path.rmdir()


def test_names_that_others_make_up_cannot_crowd_out_a_leader(place: Place, tmp_path: Path) -> None:
    """Users without the key may write to the directory."""
    tag = ATTEMPT.tag.hex()
    for number in range(2 * discovery.MOST_FILES):
        (tmp_path / f"{tag}-{number:032x}-{'0' * 16}.mingle").touch()
    (tmp_path / f"{tag}-.mingle").mkdir()
    (tmp_path / f"{tag}-----.mingle").touch()
    with open(os.path.join(os.fsencode(tmp_path), tag.encode() + b"-\xff\n\x1b[2J.mingle"), "wb"):
        pass
    leader, member = place(), place()
    leader.backend.announce(ADVERTISED)
    assert member.look() == LEADS
    assert {*member.reports} == {"a file in the shared directory"}


def test_files_that_killed_leaders_left_behind_cannot_crowd_out_a_leader(place: Place, tmp_path: Path) -> None:
    """They have the key, and more of them than are read at a time sort before the living one's."""
    leader, member = place(), place()
    leader.backend.announce(ADVERTISED)
    (name,) = os.listdir(tmp_path)
    for number in range(2 * discovery.MOST_FILES):
        (tmp_path / leader.backend._name(f"{number:032x}")).touch()
    assert sorted(os.listdir(tmp_path)).index(name) >= discovery.MOST_FILES
    found = [member.look() for _ in range(3)]
    assert LEADS in found


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_path_that_is_no_directory_is_refused_at_once(place: Place, tmp_path: Path, name: str) -> None:
    """The error has the path, and what to try."""
    (tmp_path / "file").touch()
    with pytest.raises(PlaceError, match=name):
        place(directory=str(tmp_path / name))


# What is found is dialled, and only a leader that proves itself, where it says it is, is handed over.


@contextmanager
def deaf(count: int) -> Iterator[list[socket.socket]]:
    """Give listeners that accept nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]


def test_many_endpoints_that_do_not_answer_do_not_block_one_that_does() -> None:
    """An old beacon that is sent again and again costs connections and nothing else."""
    with Room(2) as room, deaf(MOST_CALLS) as servers:
        member = room.member(rank=1)
        for server in servers:
            member.dialer.dial(Endpoint("127.0.0.1", server.getsockname()[1], "test"))
        member.come()
        assert len(member.dialer._calls) == MOST_CALLS
        assert ("127.0.0.1", room.port) not in member.dialer._calls
        room.skip(discovery.FAIR_S)
        member.come()
        assert len(member.dialer._calls) == MOST_CALLS
        room.until(lambda: member.state == "waiting")
        room.skip(CALL_S + 1)
        room.turn()
        assert member.state == "waiting"


def test_an_endpoint_is_dialled_once_at_a_time_and_less_often_without_an_answer() -> None:
    """Other endpoints get their turn."""
    with Room(2) as room, deaf(1) as (server,):
        member, port = room.member(), server.getsockname()[1]
        for backend in "abb":
            member.dialer.dial(Endpoint("127.0.0.1", port, backend))
        assert len(member.dialer._calls) == 1
        assert [member.dialer.is_calling(backend) for backend in "abc"] == [True, True, False]
        room.skip(6.0)
        room.until(lambda: not member.dialer._calls)
        member.come(port)
        assert not member.dialer._calls
        room.skip(2.0)
        member.come(port)
        assert len(member.dialer._calls) == 1


def test_an_endpoint_that_failed_is_forgotten_among_a_thousand_others(
    pair: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backend will name it again; a lack of descriptors is kept for the final message."""
    dialer = Dialer(pair.loop, ATTEMPT, SECRET, print, print, print)
    with deaf(1) as (server,):
        first = Endpoint("127.0.0.1", server.getsockname()[1], "test")
        dialer.back_off(first, 1000.0)
        for port in range(16 * MOST_CALLS):
            dialer.back_off(Endpoint("10.0.0.1", port, "test"))
            dialer.dial(first)
        assert not dialer._calls
        dialer.back_off(Endpoint("10.0.0.2", 1, "test"))
        with monkeypatch.context() as patch:
            patch.setattr(discovery, "dial", Mock(side_effect=OSError(errno.EMFILE, "too many")))
            assert not dialer.dial(first)
        assert pair.loop.shortage is not None
        with monkeypatch.context() as patch:  # its socket is closed
            patch.setattr(pair.loop, "watch", Mock(side_effect=OSError(errno.ENOSPC, "no watches left")))
            assert not dialer.dial(first)
        dialer.dial(first)
        assert len(dialer._calls) == 1
        dialer.dial(Endpoint("10.0.0.1", 5, "test"))  # younger ones are not forgotten with it
        assert len(dialer._calls) == 1
    for address in ("240.0.0.1", "::ffff:0:0", "ff02::1", "0.0.0.1"):
        dialer.dial(Endpoint(address, 1, "test"))
    dialer.close()
    assert not dialer._calls


def said(kind: int, body: wire.Body) -> bytes:
    """Return a frame."""
    return wire.frame(kind, wire.encode(body))


def test_any_answer_of_a_stranger_only_ends_the_call() -> None:
    """It may send garbage, wrong frames, a challenge without proof, or nothing."""
    challenge = {"nonce": "00" * 16, "leader": "00" * 16, "ticket": 0, "host": "h", "proof": "00" * 32}
    refused = {"why": "key", "host": "r", "at": "127.0.0.1 1"}
    answers = [
        b"HTTP/1.0 400 Bad Request\r\n\r\n",
        wire.frame(wire.VERIFIED, b"{}"),
        *(said(wire.CHALLENGE, {**challenge, **part}) for part in ({"host": "\x1b[2J"}, {})),
        *(said(wire.REFUSED, {**refused, **part}) for part in ({"why": "$(id)"}, {})),
        said(wire.REFUSED, {**refused, "why": "relay", "at": "node1 80"}),
        said(wire.REFUSED, {"why": "version", "host": "v", "more": 1}),  # of another version
        b"",
    ]
    with Room(2) as room, deaf(1) as (server,):
        member = room.member()
        for answer in answers:
            room.skip(10.0)
            member.come(server.getsockname()[1])
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(answer)
                if answer:
                    room.until(lambda: not member.dialer._calls)
            room.until(lambda: not member.dialer._calls)
        assert member.state == ""
        assert member.mismatches == [("127.0.0.1", *who) for who in (("h", "key"), ("r", "key"), ("v", "version"))]
        assert member.relays == []


def test_strangers_that_name_each_other_as_leaders_get_two_calls() -> None:
    """Else each answer would be a new call, and all calls would be theirs for ever."""
    with Room(2) as room, deaf(3) as servers:
        looking = search_in(room.loop)
        where = [("127.0.0.1", server.getsockname()[1]) for server in servers]
        looking.dial(Endpoint(*where[0], "test"))
        for server, its, other in zip(servers, where, where[1:], strict=False):
            with server.accept()[0] as accepted:
                accepted.sendall(said(wire.REFUSED, {"why": "relay", "host": "r", "at": f"{other[0]} {other[1]}"}))
                room.until(lambda its=its: its in looking._dialer._retry_at)  # type: ignore[misc]
        assert not looking._dialer._calls
        looking.close()


# Where one member looks for a leader, and what it says where it has found none.


def test_a_relay_is_detected_before_anything_depends_on_it() -> None:
    """It could stop at the worst time: the leader reports its own address, which is dialled; a note names the relay."""
    found: list[ProvenLeader] = []
    notes: list[str] = []
    with Room(2) as room, relay(room.port) as port:
        looking = search_in(room.loop, notes.append, found.append)
        looking.dial(Endpoint("127.0.0.1", port, "test"))
        room.until(lambda: found)
        assert [proven.endpoint for proven in found] == [Endpoint("127.0.0.1", room.port, "test", is_told=True)]
        assert notes == ["127.0.0.1 only relays 127.0.0.1: connecting to 127.0.0.1 directly"]
        assert looking.refusal() is None
        found[0].connection.close()
        looking.close()


def test_the_first_peer_with_another_key_is_reported_and_all_are_in_the_error(pair: Room) -> None:
    """Further ones are likely the same host's."""
    notes: list[str] = []
    looking = search_in(pair.loop, notes.append)
    for address in ("10.0.0.8", "10.0.0.9"):
        looking._mismatch(address, "", "key")
    assert notes == ["refused 10.0.0.8, which uses this id with another key"]
    assert looking.no_leader(9).expected == "the same key as 10.0.0.8, 10.0.0.9 has for this id"
    looking.close()


def test_multicast_that_goes_one_way_explains_who_is_missing_and_no_other_failure(
    monkeypatch: pytest.MonkeyPatch, pair: Room
) -> None:
    """A member that hears of another reason, such as an old MASTER_ADDR, need not look at its network."""
    monkeypatch.setattr(Search, "one_way", lambda _search: ["multicast from 10.0.0.2 arrives here"])
    looking = search_in(pair.loop)
    missing = looking.with_local_faults(MissingError("2 members", "1", ""))
    assert missing.seen == "multicast from 10.0.0.2 arrives here; 1"
    assert looking.with_local_faults(NetworkError("an address", "MASTER_ADDR=a", "")).seen == "MASTER_ADDR=a"
    looking.close()


ADDR = {"MASTER_ADDR": "10.0.0.1"}


@pytest.mark.parametrize(
    ("parts", "where", "left_over"),
    [
        ({"leader_hosts": ("node7",)}, " (node7)", ""),
        ({"pinned": ADDR}, " (10.0.0.1, from the exported MASTER_ADDR)", "MASTER_ADDR"),
        ({"rank": 1, "rank_source": "NODE_RANK"}, " (this is rank 1, from the exported NODE_RANK)", "NODE_RANK"),
        ({"rank": 1}, "", ""),
    ],
)
def test_a_missing_leader_is_named_with_what_may_have_led_astray(
    parts: dict[str, Any], where: str, left_over: str, pair: Room
) -> None:
    """It has the scheduler's name; an old variable is likelier than a firewall, and the remedy names both."""
    looking = search_in(pair.loop, **parts)
    error = looking.no_leader(9)
    first = f"unset {left_over} if another job left it, or " if left_over else ""
    assert (error.expected, error.remedy) == (f"rank 0{where} within 9 s", first + discovery.CHECK_HOST)
    looking.close()


@pytest.mark.parametrize(
    ("ticket", "detects_rivals", "at_once", "later"),
    [
        (None, False, [("search", True)], []),
        (7, False, [("announce",), ("search", True)], []),
        (0, False, [("announce",)], [("search", True)]),
        (0, True, [("announce",)], []),
    ],
)
def test_a_leader_by_right_looks_for_another_once_it_has_served_the_first(
    monkeypatch: pytest.MonkeyPatch, ticket: int | None, at_once: list[Any], later: list[Any], *, detects_rivals: bool
) -> None:
    calls: list[object] = []
    backend: Any = SimpleNamespace(
        announce=lambda _notice: calls.append(("announce",)), search=lambda *, wanted: calls.append(("search", wanted))
    )
    monkeypatch.setitem(BACKENDS, "hosts", discovery.Row(lambda _context: backend, detects_rivals=detects_rivals))
    clock, its = Clock(), SimpleNamespace(state="gathering")
    with Loop(clock) as loop:
        search = search_in(loop)
        if ticket is not None:
            notice = ADVERTISED._replace(ticket=ticket)
            search.candidate = SimpleNamespace(advertisement=notice, leader=its)  # type: ignore[assignment]
        search.open(["hosts"])
        assert calls == at_once
        clock.ahead += discovery.HEAD_START_S
        loop.turn(0.0)
    assert calls == at_once + later
