"""A leader and its members in one process and one loop, over real loopback sockets, with a clock that can jump."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Endpoint, Loop
from mingle_hooks.rendezvous.discovery import Context, Dialer, ProvenLeader
from mingle_hooks.rendezvous.leader import Leader
from mingle_hooks.rendezvous.member import Membership, MemberSpec, Request
from mingle_hooks.rendezvous.messages import JoinRequest
from mingle_hooks.rendezvous.rendezvous import Listeners
from mingle_hooks.rendezvous.roster import AdvertisedAddress, Roster, Terms
from mingle_hooks.rendezvous.wire import Attempt, Material, Secret
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.settings import load

ATTEMPT = Attempt("a-test")
KEY = Material(b"the key of these tests")
SECRET = Secret.derive(KEY, ATTEMPT)
OTHER = Secret.derive(Material(b"another key than that"), ATTEMPT)
# What a leader of two may answer.
ANSWER: dict[str, Any] = {
    "epoch": 1,
    "nodes": 2,
    "size": 6,
    "addr": "10.0.0.1",
    "port": 23_000,
    "digest": "0123456789abcdef",
    "rank": 1,
    "offset": 2,
    "own": "10.0.0.2",
    "roster": [[0, "node1", "10.0.0.1", 2], [1, "_n2.site", "fd00::2", 4]],
}
# What a member says that no test has given.
SPEC: dict[str, Any] = {"attempt": ATTEMPT, "slots": 1, "rank_source": "", "user_environ": {}, "pinned": {}}
NO_JOB, SETTINGS = JobFacts("none"), load({}, {}, system_file="/dev/null/none")
# In real seconds; a bound on a test that hangs, not a measure.
PATIENCE_S = 20.0


@contextmanager
def no_descriptor_left(limit: int) -> Iterator[None]:
    """Lower this process's limit of file descriptors, and take all that are free."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class Clock:
    """The time, and as much more as a test has let pass; or one moment, while it is stopped."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.stopped_at: float | None = None

    def __call__(self) -> float:
        return (time.monotonic() if self.stopped_at is None else self.stopped_at) + self.ahead

    def stop(self) -> None:
        """Let time pass only by what is added."""
        self.stopped_at = time.monotonic()


def join_request(**parts: Any) -> JoinRequest:
    """Return a check-in of a member that says no more than it must."""
    least = {"host": "node1", "rank": None, "nodes": None, "slots": 1, "machine": "here"}
    return JoinRequest(**{"member": os.urandom(16), **least, **parts})


def request(**parts: Any) -> Request:
    """Return a member's request that says no more than it must, and waits a few seconds.

    `parts` are its own, or those of its spec, of the job's facts, or of the settings.
    """

    def of(kind: Any) -> dict[str, Any]:
        return {name: parts.pop(name) for name in kind._fields if name in parts}

    least = {"key": KEY, "host": "node1", "machine": "here", "timeout_s": 15.0}
    own, spec = {**least, **of(Request)}, {**dict.fromkeys(MemberSpec._fields), **SPEC, **of(MemberSpec)}
    return Request(
        MemberSpec(**{**spec, "facts": NO_JOB._replace(**of(JobFacts)), "settings": SETTINGS._replace(**parts)}), **own
    )


def context(
    loop: Loop,
    dial: Callable[[Endpoint], Any],
    report: Callable[[str], None] = print,
    *,
    secret: Secret = SECRET,
    joined: Callable[[], tuple[int, bytes] | None] = lambda: None,
    **parts: Any,
) -> Context:
    """Return what a discovery backend needs to know, of a member with this request."""
    return Context(loop, request(**parts).spec, secret, dial, report, report, joined, bytes(16))


def observer(note: Callable[[str], None] = lambda _text: None) -> Any:
    """Return an observer of a meeting that hears only notes."""
    return SimpleNamespace(progress=lambda _progress: None, failed=lambda _error: None, note=note, explain=None)


def until(loop: Loop, happens: Callable[[], object]) -> None:
    """Serve until something happens; fail when it does not."""
    deadline = time.monotonic() + PATIENCE_S
    loop.run(lambda: bool(happens()) or time.monotonic() > deadline)
    assert happens()


@contextmanager
def probed() -> Iterator[tuple[Room, Member, socket.socket]]:
    """Give a room of two, whose member has sent its probe to the test in place of the leader."""
    with Room(2) as room, socket.create_server(("127.0.0.1", 0)) as server:
        room.leader.terms = room.terms._replace(port=server.getsockname()[1])
        member = room.member(rank=1).come()
        room.until(lambda: member.membership is not None and member.membership._probes)
        with server.accept()[0] as asked:
            yield room, member, asked


class InRoom(Membership):
    """A member's side in a room whose addresses stand for those of networks, unless its leader calls them loopback."""

    advertised: tuple[AdvertisedAddress, ...] = ()
    out_of_reach: frozenset[int] = frozenset()

    def reached(self, offer: int, own_address: str) -> bool:
        """As if some of the offered addresses never answered in a way that counts."""
        return offer not in self.out_of_reach and super().reached(offer, own_address)

    def _may_serve_all(self, address: str) -> bool:
        return bool(address) and AdvertisedAddress(address, loopback=True) not in self.advertised


class Member:
    """One member: looks for the leader at one port, and checks in."""

    def __init__(self, room: Room, me: JoinRequest, secret: Secret = SECRET) -> None:
        self.room, self.me = room, me
        self.membership: InRoom | None = None
        self.mismatches: list[tuple[str, str, str]] = []
        self.relays: list[str] = []
        self.dialer = Dialer(
            room.loop,
            ATTEMPT,
            secret,
            self._leader_proven,
            lambda *who: self.mismatches.append(who),
            lambda *who: self.relays.extend(who),
            me.host,
        )
        self.secret = secret
        self.patience_s = 60.0
        self.out_of_reach: frozenset[int] = frozenset()

    def come(self, port: int | None = None) -> Member:
        """Begin to look for the leader."""
        self.dialer.dial(Endpoint("127.0.0.1", port or self.room.port, "test"))
        return self

    @property
    def state(self) -> str:
        """The membership's state, "" before there is one."""
        return self.membership.state if self.membership is not None else ""

    @property
    def answer(self) -> wire.Body:
        """The answer that this member holds."""
        assert self.membership.answer is not None
        return self.membership.answer

    def leave(self) -> None:
        """Hang up."""
        self.dialer.close()
        if self.membership is not None:
            self.membership.close()
            self.membership = None

    def _leader_proven(self, proven: ProvenLeader) -> None:
        self.leave()
        self.membership = InRoom(
            self.room.loop,
            ATTEMPT,
            self.secret,
            proven,
            self.me,
            lambda _own: True,
            lambda: self.patience_s,
            self.room.changed,
        )
        self.membership.advertised, self.membership.out_of_reach = self.room.terms.advertised, self.out_of_reach


class Room:
    """A leader on loopback, and whoever comes."""

    def __init__(
        self,
        nodes: int | None,
        *,
        advertised: tuple[AdvertisedAddress, ...] = (AdvertisedAddress("127.0.0.1"),),
        most: int = 1000,
        **me: Any,
    ) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.listeners = Listeners()
        self.listeners.open_check_in([range(20_000, 25_000)])
        self.listeners.open_master(SECRET, range(20_000, 25_000))
        self.port = self.listeners.check_in[0]
        self.me = join_request(rank=0, nodes=nodes, host="node0", **me)
        self.terms = Terms(advertised, self.listeners.master, 0)
        self.changes = 0
        self.leader = Leader(
            self.loop, ATTEMPT, SECRET, Roster(self.me), self.terms, self.listeners.sockets, self.changed, most
        )
        self.members: list[Member] = []

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_exception: object) -> None:
        for member in self.members:
            member.leave()
        self.leader.close()
        self.loop.__exit__(None, None, None)

    def changed(self) -> None:
        """Count what the leader and the members tell their owner."""
        self.changes += 1

    def member(self, secret: Secret = SECRET, **parts: Any) -> Member:
        """Return a new member, that has not come yet."""
        self.members.append(Member(self, join_request(**parts), secret))
        return self.members[-1]

    def joined(self, *secret: Secret, state: str = "waiting", **parts: Any) -> Member:
        """Return a new member that has checked in and is in this state."""
        before, member = len(self.leader.roster), self.member(*secret, **parts).come()
        self.until(lambda: member.state == state and (state != "waiting" or len(self.leader.roster) > before))
        return member

    def until(self, happens: Callable[[], object]) -> None:
        """Serve until something happens; fail when it does not."""
        until(self.loop, happens)

    def turn(self) -> None:
        """Serve what is ready now."""
        rung: list[int] = []
        self.loop.after(0.0, lambda: rung.append(1))
        self.loop.run(lambda: bool(rung))

    def skip(self, seconds: float) -> None:
        """Let time pass at once."""
        self.clock.ahead += seconds


def free_ports(count: int) -> range:
    """Return adjacent ports that were free a moment ago, for either family."""
    for first in range(27_100, 29_000, 3):
        with closing(Listeners()) as opened:
            if all(opened._open(port, reuse=False) for port in range(first, first + count)):
                return range(first, first + count)
    raise AssertionError("no free ports on this machine")


def talk(port: int) -> socket.socket:
    """Return a blocking connection to a leader."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.settimeout(PATIENCE_S)
    return sock


def hello(port: int, nonce: bytes = b"n" * 16, secret: Secret = SECRET, **parts: object) -> bytes:
    """Return the frame that begins a check-in at this port, with these parts instead of its own."""
    whole = wire.hello(secret, ATTEMPT.tag.hex(), nonce, "node9", f"127.0.0.1 {port}")
    return wire.frame(wire.HELLO, wire.encode({**wire.decode(whole[wire.HEADER.size :]), **parts}))


def heard(sock: socket.socket) -> tuple[int, wire.Body]:
    """Return the next frame of those that have no MAC."""
    length, kind = wire.HEADER.unpack(sock.recv(wire.HEADER.size, socket.MSG_WAITALL))
    return kind, wire.decode(sock.recv(length, socket.MSG_WAITALL))


@contextmanager
def relay(to: int) -> Iterator[int]:
    """Give a port where one connection is handed on, both ways, as it is."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(4096):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def serve() -> None:
        near, _ = server.accept()
        with near, socket.create_connection(("127.0.0.1", to)) as far:
            other = threading.Thread(target=copy, args=(far, near))
            other.start()
            copy(near, far)
            other.join()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
    thread.join()
