"""The discovery backends. All that apply are used at once; none needs another.

A new backend is one file and one line in BACKENDS.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mingle_hooks.errors import MingleError, NetworkError, UsageError, limit, reason
from mingle_hooks.rendezvous.connection import READ, Loop
from mingle_hooks.rendezvous.roster import Entry
from mingle_hooks.rendezvous.wire import Attempt, Secret
from mingle_hooks.values import nearest

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.dialer import Endpoint


class Row(NamedTuple):
    """One backend: its module in this folder, and what the others have to know before it is loaded.

    The module has `backend(context) -> Backend | None`; None where it does not apply. One that `is_costly` to load
    opens last, after a head start for the others. By one that `hears_rivals` a leader by right hears of another such
    leader without asking. Where one `asks_named_hosts`, candidates stand on the hosts that the scheduler names, and
    nowhere else.
    """

    module: str
    is_costly: bool = False
    hears_rivals: bool = False
    asks_named_hosts: bool = False


# Cheapest first.
BACKENDS = {
    "master": Row("master"),
    "hosts": Row("hosts", asks_named_hosts=True),
    "directory": Row("directory"),
    "multicast": Row("multicast", is_costly=True, hears_rivals=True),
}


class Advertisement(NamedTuple):
    """What a leader lets be known of itself."""

    leader: bytes
    ticket: int
    addresses: tuple[str, ...]  # the best first
    ports: tuple[int, ...]  # where it takes check-ins

    @property
    def precedence(self) -> tuple[int, bytes]:
        """What the lowest of wins an election."""
        return (self.ticket, self.leader)


class Context(NamedTuple):
    """What a backend works with."""

    loop: Loop
    attempt: Attempt
    secret: Secret
    dial: Callable[[Endpoint], None]
    reject: Callable[[str], None]  # an address that showed another key
    note: Callable[[str], None]  # something that a person should know
    leader_hosts: tuple[str, ...] = ()
    host_suffix: str = ""
    master: tuple[str, int | None] | None = None
    ports: tuple[int, ...] = ()  # check-in ports to try on the leader's host
    directory: str | None = None
    multicast_port: int = 0
    nets: tuple[str, ...] = ()  # interface names or CIDRs that may be used; empty: all
    ttl: int = 1
    nodes: int | None = None
    joined: Callable[[], tuple[int, bytes] | None] = lambda: None  # the precedence of the leader that has been joined
    member: bytes = bytes(16)  # this member's name
    one_way: OneWay | None = None  # where to note who is heard and does not answer


class Backend(Protocol):
    """One backend. Its owner calls close(), on every path. `faults` tell, for a message, what part of it failed."""

    faults: list[str]

    def search(self, *, wanted: bool) -> None:
        """Look for a leader actively from now on, or stop that."""

    def announce(self, advertisement: Advertisement | None) -> None:
        """Make this leader known from now on, or stop that."""

    def tried(self) -> str:
        """Tell, for a message, where this backend has looked."""

    def close(self) -> None:
        """Stop, and leave nothing behind."""


def chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the backends of these names, all where none is named. Raises UsageError for a name that is none."""
    for name in names:
        if name not in BACKENDS:
            raise UsageError(f"one or more of {', '.join(BACKENDS)}", name, f"--via {nearest(name, BACKENDS)}")
    return names or tuple(BACKENDS)


def open_backend(name: str, context: Context) -> Backend | None:
    """Return the backend of that name, None where it does not apply here."""
    backend: Backend | None = import_module(f"{__name__}.{BACKENDS[name].module}").backend(context)
    return backend


# All the discovery backends that one member uses, as one.

# Multicast costs 30 ms of processor to load; where another backend may answer first, it gets this head start.
HEAD_START_S = 0.2


class Discovery:
    """Opens the backends, and has them search and announce as the member's state asks; the owner calls close().

    A backend that cannot be opened, or used any longer, is a reason to tell at the end, and the others go on.
    `is_wanted` tells whether a backend that opens late is still of use, `advertisement` what this leader, or candidate,
    announces (None: nothing), and `leads` whether it still gathers members by right.
    """

    def __init__(
        self,
        context: Context,
        is_wanted: Callable[[], bool],
        advertisement: Callable[[], Advertisement | None],
        leads: Callable[[], bool],
    ) -> None:
        self._context, self._is_wanted, self._advertisement, self._leads = context, is_wanted, advertisement, leads
        self._wanted: tuple[str, ...] = ()
        self._later: tuple[str, ...] = ()  # to be opened when their time has come
        self._backends: dict[str, Backend] = {}
        self._reasons: dict[str, str] = {}  # name -> why that backend is of no use

    def open(self, names: Sequence[str]) -> None:
        """Open those of the named backends that apply here; NetworkError where none can be used."""
        self._wanted = tuple(name for name in BACKENDS if name in names)
        self._later = tuple(name for name in self._wanted if BACKENDS[name].is_costly)
        for name in self._wanted:
            if name not in self._later:
                self._open(name)
        if self._backends and self._later:
            self._context.loop.after(HEAD_START_S, self._open_later)
        else:
            self._open_later()

    def seek(self) -> None:
        """Look for a leader by every backend, and announce this one where it is one. Raises as open() does."""
        for name in tuple(self._backends):
            self._seek(name)
        self._check()

    def look(self, name: str) -> None:
        """Look at once for another leader by one backend, where this member leads and that backend is used."""
        if name in self._backends:
            self._backends[name].search(wanted=self._leads())

    def rest(self) -> None:
        """Fall silent: a leader has been found."""
        for backend in self._backends.values():
            backend.announce(None)
            backend.search(wanted=False)

    def tried(self) -> str:
        """Tell, for a message, where all backends have looked, and which could not."""
        return "; ".join([*(f"{name}: {backend.tried()}" for name, backend in self._backends.items()), *self.faults()])

    def faults(self) -> list[str]:
        """Tell, for a message, which backends, or parts of them, could not be used, and why."""
        lost = [f"no {name}: {why}" for name, why in self._reasons.items()]
        return lost + [f"{name}: {fault}" for name, backend in self._backends.items() for fault in backend.faults]

    def close(self) -> None:
        """Close every backend."""
        for backend in self._backends.values():
            backend.close()

    def _open_later(self) -> None:
        names, self._later = self._later, ()
        for name in names:
            self._open(name)
        self._check()

    def _check(self) -> None:
        """Raise NetworkError where no backend is left, nor any that is still to be opened."""
        if not self._backends and not self._later:
            raise NetworkError(
                "a discovery backend that works here",
                "; ".join(self.faults()) or f"none (of {', '.join(self._wanted) or 'none'})",
                "--master HOST, or --directory with a directory that all members share",
            )

    def _open(self, name: str) -> None:
        """Open a backend, if it applies. Whatever another's package, or ours, raises then is its reason."""
        try:
            backend = open_backend(name, self._context)
        except Exception as error:  # noqa: BLE001 - an import may raise anything, and the message tells it
            self._drop(name, error)
            return
        if backend is None:
            return
        self._backends[name] = backend
        if self._is_wanted():
            self._seek(name)

    def _drop(self, name: str, error: Exception) -> None:
        """Go on without a backend."""
        self._context.loop.missed(error)
        self._reasons[name] = reason(error)
        if (backend := self._backends.pop(name, None)) is not None:
            backend.close()

    def _seek(self, name: str) -> None:
        advertisement, backend = self._advertisement(), self._backends[name]
        try:
            if advertisement is not None:
                backend.announce(advertisement)
            if advertisement is None or advertisement.ticket:
                backend.search(wanted=True)
            elif not BACKENDS[name].hears_rivals:
                # A leader by right looks for another one too, once the members that are on their way have had its
                # attention, unless that backend tells of it unasked, as beacons do.
                self._context.loop.after(HEAD_START_S, lambda: self.look(name))
        except (MingleError, OSError) as error:
            self._drop(name, error)


# Who is heard by multicast and does not seem to hear us, for the message at the deadline.
#
# It is a hint and no more: anybody can send a recorded beacon or question again, from any address.

# A question or its answer may be lost, so a leader that was asked less often is not called deaf.
LEAST_ASKED = 2
MOST_LEADERS = 256
MOST_ASKERS = 16_384  # one of each member of the largest world
MOST_SHOWN = 4


class OneWay:
    """Leaders whose beacons come and that do not answer, and members that ask a leader."""

    def __init__(self) -> None:
        self._leaders: dict[bytes, tuple[str, int]] = {}  # -> its address, and how often it was asked in vain
        self._askers: dict[bytes, str] = {}  # member -> its address

    def heard(self, leader: bytes, addresses: Sequence[str]) -> None:
        """Note a leader's beacon that answers nothing."""
        if len(self._leaders) < MOST_LEADERS and addresses:
            self._leaders.setdefault(leader, (addresses[0], 0))

    def questioned(self, leader: bytes) -> None:
        """Note that this leader has been asked because of its beacon."""
        if leader in self._leaders:
            address, count = self._leaders[leader]
            self._leaders[leader] = (address, count + 1)

    def answered(self, leader: bytes) -> None:
        """Note that this leader hears us."""
        self._leaders.pop(leader, None)

    def asked(self, member: bytes, address: str) -> None:
        """Note a member that asks us, the leader; a link-local address tells a person the least."""
        known = self._askers.get(member, "fe80:")
        if known.startswith("fe80:") and len(self._askers) < MOST_ASKERS:
            self._askers[member] = address

    def told(self, arrived: Collection[Entry] = ()) -> list[str]:
        """Return what to tell; `arrived` are the members that are in."""
        deaf = _shown(address for address, count in self._leaders.values() if count >= LEAST_ASKED)
        members = {entry.join_request.member for entry in arrived}
        # One that was started again has another name, and the same addresses.
        addresses = {word.partition("=")[0] for entry in arrived for word in entry.addresses.split()}
        absent = _shown(
            address for member, address in self._askers.items() if member not in members and address not in addresses
        )
        told = []
        if deaf:
            told.append(f"multicast from {deaf} arrives here, but ours does not arrive there")
        if absent:
            told.append(
                f"multicast from {absent} arrives here, but ours does not arrive there, or its TCP connections do not"
                " arrive here"
            )
        return told


def _shown(addresses: Iterable[str]) -> str:
    found = [*dict.fromkeys(addresses)]
    return ", ".join(found[:MOST_SHOWN]) + (" and more" if found[MOST_SHOWN:] else "")


# Host names to addresses, without ever waiting for a name server that does not answer.

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
