"""The discovery backends, each alone and together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.gathering import ATTEMPT, OTHER, SECRET, Clock, join_request, until

from mingle_hooks.errors import NetworkError, PlaceError
from mingle_hooks.rendezvous import discovery
from mingle_hooks.rendezvous.connection import Endpoint, Loop, is_local, resolve
from mingle_hooks.rendezvous.discovery import (
    BACKENDS,
    MOST_FILES,
    Advertisement,
    Context,
    Discovery,
    directory_backend,
)
from mingle_hooks.rendezvous.multicast import MOST_SHOWN, OneWay
from mingle_hooks.rendezvous.roster import Entry
from mingle_hooks.rendezvous.wire import MOST_ADVERTISED, Secret, encode
from mingle_hooks.settings import BACKENDS as NAMES

# A backend that cannot be opened, or fails later, is a reason told at the end, and the others go on.


class Dialer:
    """A member that looks, or announces itself, by some backends; the package of multicast may be broken."""

    def __init__(
        self, *, advertisement: Advertisement | None = None, directory: Path | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        self.loop, self.notes = Loop(), list[str]()
        context = Context(
            self.loop,
            ATTEMPT,
            SECRET,
            dial=lambda _endpoint: None,
            reject=self.notes.append,
            note=self.notes.append,
            leader_hosts=hosts,
            ports=(20_001,),
            directory=None if directory is None else str(directory),
        )
        self.discovery = Discovery(context, lambda: True, lambda: advertisement, lambda: False)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        over: list[int] = []
        self.loop.after(seconds, lambda: over.append(1))
        self.loop.run(lambda: bool(over))


def test_each_backend_that_settings_take_has_its_row() -> None:
    """In the same order; settings cannot ask the rows, which are above them."""
    assert tuple(BACKENDS) == NAMES


def multicast_modules() -> list[str]:
    """Name the modules of multicast that are loaded."""
    return [name for name in sys.modules if name.startswith(("multicast_expert", "netifaces"))]


@pytest.fixture(params=["import netifaces_is_missing", "raise OSError('broken')", "1 / 0", "def"])
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Put a netifaces that cannot be imported before the real one; return what Python says of it."""
    (tmp_path / "netifaces.py").write_text(request.param + "\n")
    before = {name: sys.modules.pop(name) for name in multicast_modules()}
    sys.path.insert(0, str(tmp_path))
    yield {"i": "No module named", "r": "broken", "1": "ZeroDivisionError", "d": "SyntaxError"}[request.param[0]]
    sys.path.remove(str(tmp_path))
    for name in multicast_modules():
        del sys.modules[name]
    sys.modules.update(before)


def test_a_missing_or_broken_package_is_a_reason_and_other_backends_go_on(broken: str) -> None:
    """The search by name goes on, and the message has both."""
    search = Dialer(hosts=("127.0.0.1",))
    with search.loop:
        search.discovery.open(["hosts", "multicast"])
        search.wait(0.3)
        told = search.discovery.tried()
        search.discovery.close()
    assert told.startswith("hosts: 127.0.0.1 ports 20001; no multicast: ")
    assert broken in told
    assert search.notes == []


def test_the_error_has_each_reason_if_no_backend_can_be_opened(broken: str, tmp_path: Path) -> None:
    """71, at once; with another way, the directory is a reason only, for this node alone may not have mounted it."""
    search = Dialer(directory=tmp_path / "none", hosts=("127.0.0.1",))
    with search.loop:
        with pytest.raises(NetworkError) as caught:
            search.discovery.open(["directory", "multicast"])
        search.discovery.open(["hosts", "directory"])
        tried = search.discovery.tried()
        search.discovery.close()
    assert "no multicast: " in caught.value.seen
    assert broken in caught.value.seen
    for text in (caught.value.seen, tried):
        assert "no directory: expected a shared directory" in text
        assert str(tmp_path / "none") in text
    assert tried.startswith("hosts: ")
    assert search.notes == []


@pytest.mark.parametrize("hosts", [("127.0.0.1",), ()], ids=["another way", "the last way"])
def test_a_directory_that_vanishes_in_use_leaves_the_other_backends(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    """A leader that cannot write its file any more is still found by name; by no way, it does not wait for members."""
    place = tmp_path / "shared"
    place.mkdir()
    search = Dialer(advertisement=ADVERTISED, directory=place, hosts=hosts)
    with search.loop:
        search.discovery.open(["hosts", "directory"] if hosts else ["directory"])
        (leaf,) = os.listdir(place)
        os.unlink(place / leaf)
        place.rmdir()
        with nullcontext() if hosts else pytest.raises(NetworkError, match="no directory"):
            search.discovery.seek()
        tried = search.discovery.tried()
        search.discovery.close()
    assert "no directory: " in tried


def test_a_directory_that_cannot_be_read_for_a_while_is_a_reason_until_it_can(tmp_path: Path) -> None:
    """A file server that is away comes back, and the way with it."""
    place = tmp_path / "shared"
    place.mkdir()
    search = Dialer(directory=place)
    with search.loop:
        search.discovery.open(["directory"])
        place.rmdir()
        search.discovery.seek()
        gone = search.discovery.tried()
        place.mkdir()
        search.discovery.seek()
        back = search.discovery.tried()
        search.discovery.close()
    assert gone == f"directory: {place}; directory: No such file or directory: {place}"
    assert back == f"directory: {place}"


# The scheduler's first host is tried at the job's own ports, again and again.


@contextmanager
def looking(make: Any = discovery.hosts_backend, clock: Clock | None = None, **parts: Any) -> Iterator[tuple[Any, ...]]:
    """Give a loop, a backend that looks for a leader in it, and what that has found."""
    found: list[Endpoint] = []
    with Loop(clock or Clock()) as loop:
        backend = make(Context(loop, ATTEMPT, SECRET, found.append, print, print, ports=(20_001, 20_002), **parts))
        backend.search(wanted=True)
        yield loop, backend, found
        backend.close()
        assert not loop.poller.watched


def test_every_port_of_every_address_is_named_again_and_again() -> None:
    """Until it is stopped."""
    with looking(leader_hosts=("127.0.0.1",)) as (loop, backend, found):
        until(loop, lambda: len(found) >= 6)
        backend.search(wanted=False)
        count, done = len(found), list[int]()
        loop.after(0.1, lambda: done.append(1))
        until(loop, lambda: done)
        assert len(found) == count
    assert set(found) == {Endpoint("127.0.0.1", port, "hosts") for port in (20_001, 20_002)}


def test_an_unknown_name_delays_no_other_and_is_looked_up_again() -> None:
    """Each is looked up by itself, and reported; it may be registered later."""
    clock, unknown = Clock(), "no-such-host.invalid"
    names = (unknown, "bad..name", "-", "x" * 300, "\u00fc", "127.0.0.1")
    with looking(clock=clock, leader_hosts=names) as (loop, backend, found):
        until(loop, lambda: len(found) >= 2 and len(backend._addresses) == len(names))
        assert unknown in backend.tried()
        assert "not known" in backend.tried()
        assert {endpoint.address for endpoint in found} == {"127.0.0.1"}
        assert (backend._addresses[unknown], backend._lookups) == ([], {})
        clock.ahead += discovery.LOOK_UP_AGAIN_S
        until(loop, lambda: unknown in backend._lookups)


def test_the_name_on_the_fast_network_is_tried_first_and_closing_waits_for_no_name_server() -> None:
    """The host's own name too, as not every host need have another; a look-up that has begun ends by itself."""
    with looking(leader_hosts=("node1",), host_suffix="-ib") as (_, backend, _):
        assert backend.tried().startswith("node1-ib, node1 ports ")


def test_master_means_its_own_port_or_the_jobs() -> None:
    """As given by --master HOST[:PORT]."""
    for port, expected in ((7000, {7000}), (None, {20_001, 20_002})):
        with looking(discovery.master_backend, master=("127.0.0.1", port)) as (loop, _, found):
            until(loop, lambda found=found: len(found) >= 2)
        assert {endpoint.port for endpoint in found} == expected
        assert {endpoint.backend for endpoint in found} == {"master"}
    with Loop() as loop:
        nothing = Context(loop, ATTEMPT, SECRET, print, print, print)
        assert discovery.master_backend(nothing) is discovery.hosts_backend(nothing) is None


def test_an_address_is_local_when_a_socket_can_be_bound_to_it() -> None:
    """Names are looked up before; text that is no address is not."""
    addresses = ("127.0.0.1", "127.0.1.1", "192.0.2.1", "2001:db8::1", "nonsense")
    assert [is_local(address) for address in addresses] == [True, sys.platform == "linux", False, False, False]


def test_a_name_resolves_or_has_no_addresses() -> None:
    """Nothing raises, whatever the name."""
    assert resolve("127.0.0.1", 5.0) == ["127.0.0.1"]
    assert resolve("\0", 5.0) == []
    assert resolve("a" * 10_000, 5.0) == []


# A leader's file in a shared directory: read strictly, and gone in the end.


ADVERTISED = Advertisement(b"L" * 16, 5, ("10.0.0.1", "fd00::1"), (20_001, 20_002))
LEADS = {(a, p) for a in ADVERTISED.addresses for p in ADVERTISED.ports}


class Place:
    """A directory, one member's backend for it, and what came of that."""

    def __init__(self, directory: Path, secret: Secret = SECRET) -> None:
        self.found: list[Endpoint] = []
        self.rejected: list[str] = []
        self.notes: list[str] = []
        sinks = self.found.append, self.rejected.append, self.notes.append
        context = Context(Loop(Clock()), ATTEMPT, secret, *sinks, directory=str(directory))
        self.backend: Any = directory_backend(context)
        self.loop = context.loop

    def look(self) -> set[tuple[str, int]]:
        """Look once, and return the leads."""
        self.backend.search(wanted=True)
        self.backend.search(wanted=False)
        return {(endpoint.address, endpoint.port) for endpoint in self.found}

    def close(self) -> None:
        """End it."""
        self.backend.close()
        self.loop.__exit__(None, None, None)


@pytest.fixture
def place() -> Iterator[Callable[..., Place]]:
    """Make places that are closed with the test."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(closing(Place(*arguments)))


def test_an_announced_leader_is_found_and_leaves_no_file(place: Callable[..., Place], tmp_path: Path) -> None:
    """The file is private, whole from the first moment, and removed."""
    leader, member = place(tmp_path), place(tmp_path)
    leader.backend.announce(ADVERTISED)
    assert member.look() == LEADS
    assert leader.look() == set()
    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in os.listdir(tmp_path)] == [0o600]
    leader.backend.announce(None)
    assert os.listdir(tmp_path) == []
    leader.backend.announce(ADVERTISED)
    leader.backend.close()
    assert os.listdir(tmp_path) == []
    assert leader.notes + member.notes + leader.rejected + member.rejected == []


def test_a_notice_has_as_many_addresses_as_others_read(place: Callable[..., Place], tmp_path: Path) -> None:
    """The writer leaves out the rest, which are the worst; a notice that has more is not read at all."""
    leader, member = place(tmp_path), place(tmp_path)
    many = tuple(f"10.0.0.{number}" for number in range(1, MOST_ADVERTISED + 2))
    leader.backend.announce(ADVERTISED._replace(addresses=many))
    assert {address for address, _ in member.look()} == {*many[:-1]}
    (path,) = tmp_path.iterdir()
    body = encode({"addresses": many, "ports": ADVERTISED.ports})
    path.write_bytes(SECRET.mac(b"notice", body) + body)
    member.found.clear()
    assert member.look() == set()


def test_a_file_that_cannot_be_put_in_its_place_leaves_no_draft(
    place: Callable[..., Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quota may end between the two."""
    monkeypatch.setattr(os, "replace", lambda *_paths: os.listdir(f"{tmp_path}/none"))
    leader = place(tmp_path)
    with pytest.raises(PlaceError):
        leader.backend.announce(ADVERTISED)
    leader.backend.close()
    assert os.listdir(tmp_path) == []


def test_a_leader_with_another_key_is_reported_once_and_not_dialled(
    place: Callable[..., Place], tmp_path: Path
) -> None:
    """Its file cannot be ours."""
    leader, member = place(tmp_path, OTHER), place(tmp_path)
    leader.backend.announce(ADVERTISED)
    assert member.look() == member.look() == set()
    assert len(member.rejected) == 1
    assert len(member.rejected[0]) <= 64


@pytest.mark.parametrize("what", ["empty", "garbage", "huge", "link", "fifo", "directory", "other's words", "device"])
def test_any_file_under_a_leaders_name_is_not_trusted(place: Callable[..., Place], tmp_path: Path, what: str) -> None:
    """And it neither blocks nor breaks the search."""
    leader, member = place(tmp_path), place(tmp_path)
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


def test_names_that_others_make_up_cannot_crowd_out_a_leader(place: Callable[..., Place], tmp_path: Path) -> None:
    """Whoever may write into the directory without the key."""
    tag = ATTEMPT.tag.hex()
    for number in range(2 * MOST_FILES):
        (tmp_path / f"{tag}-{number:032x}-{'0' * 16}.mingle").touch()
    (tmp_path / f"{tag}-.mingle").mkdir()
    (tmp_path / f"{tag}-----.mingle").touch()
    with open(os.path.join(os.fsencode(tmp_path), tag.encode() + b"-\xff\n\x1b[2J.mingle"), "wb"):
        pass
    leader, member = place(tmp_path), place(tmp_path)
    leader.backend.announce(ADVERTISED)
    assert member.look() == LEADS
    assert len(member.rejected) == 1


def test_a_directory_that_goes_away_meanwhile_is_no_leader_found(place: Callable[..., Place], tmp_path: Path) -> None:
    """The file server may be away for a moment; the deadline bounds it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    member = place(shared)
    shared.rmdir()
    assert member.look() == set()
    with pytest.raises(PlaceError, match="No such file"):
        member.backend.announce(ADVERTISED)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_path_that_is_no_directory_is_refused_at_once(place: Callable[..., Place], tmp_path: Path, name: str) -> None:
    """With the path, and what to do."""
    (tmp_path / "file").touch()
    with pytest.raises(PlaceError, match=name):
        place(tmp_path / name)


# Who is heard by multicast and does not seem to hear us.


LEADER, MEMBER = b"L" * 16, b"M" * 16


def test_a_leader_that_leaves_two_questions_unanswered_does_not_receive_them() -> None:
    """One unanswered question may be a loss, and a leader that has answered receives them."""
    ears = OneWay()
    ears.heard(LEADER, ("10.0.0.1", "10.1.0.1"))
    ears.questioned(LEADER)
    assert ears.report() == []
    ears.questioned(LEADER)
    assert ears.report() == ["multicast from 10.0.0.1 arrives here, but ours does not arrive there"]
    ears.answered(LEADER)
    assert ears.report() == []


def test_a_member_that_asks_and_does_not_check_in_is_listed_by_its_best_address() -> None:
    """A link-local one is listed only without another."""
    ears = OneWay()
    for address in ("fe80::1", "10.0.0.2", "10.1.0.2", "fe80::1"):
        ears.queried(MEMBER, address)
    assert [said.partition(",")[0] for said in ears.report()] == ["multicast from 10.0.0.2 arrives here"]
    assert "ours does not arrive there, or its TCP connections do not arrive here" in ears.report()[0]


def test_a_member_that_has_checked_in_is_not_listed() -> None:
    """Nor one that was started again under another name."""
    ears = OneWay()
    ears.queried(MEMBER, "fe80::1")
    ears.queried(b"N" * 16, "10.0.0.3")
    its = Entry(join_request(member=MEMBER), "10.9.0.2")
    its.addresses = "10.0.0.3=100G,mtu9000"
    assert ears.report([its]) == []


def test_a_message_names_only_so_many() -> None:
    """However many ask."""
    ears = OneWay()
    for number in range(MOST_SHOWN + 1):
        ears.queried(bytes([number]) * 16, f"10.0.0.{number}")
    assert ears.report()[0].startswith("multicast from 10.0.0.0, 10.0.0.1, 10.0.0.2, 10.0.0.3 and more arrives")
