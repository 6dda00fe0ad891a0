"""Where a leader is found: the discovery backends, and the calls to what they find.

All backends that apply run at once and independently; to add one, add a row to BACKENDS.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import mingle_hooks
from mingle_hooks import errors
from mingle_hooks.errors import LIMITS, MingleError, NetworkError, PlaceError, reason
from mingle_hooks.files import read_bounded, write_new
from mingle_hooks.rendezvous import multicast, wire
from mingle_hooks.rendezvous.connection import (
    BACKOFF_S,
    CALL_S,
    STALLED_S,
    Connection,
    Endpoint,
    Lookup,
    Loop,
    Timer,
    dial,
    notice_loss,
)
from mingle_hooks.rendezvous.messages import CHECK_HOST, LONGEST_PART, MEMBER_BYTES
from mingle_hooks.rendezvous.roster import RejectedPeers, peer_label
from mingle_hooks.rendezvous.wire import Attempt, Secret, check_in_ports

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.leader import Leader
    from mingle_hooks.rendezvous.member import MemberSpec, Request
    from mingle_hooks.rendezvous.rendezvous import Candidate

# The interface of a backend.


class Advertisement(NamedTuple):
    """What a leader announces of itself."""

    leader: bytes
    ticket: int
    addresses: tuple[str, ...]  # the best first
    ports: tuple[int, ...]  # where members check in

    @property
    def precedence(self) -> tuple[int, bytes]:
        """The key of an election: the lowest wins."""
        return (self.ticket, self.leader)


class Context(NamedTuple):
    """What a backend needs to know, and the functions that it calls."""

    loop: Loop
    spec: MemberSpec
    secret: Secret
    dial: Callable[[Endpoint], bool]  # False: it cannot be called now
    reject: Callable[[str], None]  # called with an address that uses another key
    note: Callable[[str], None]  # called with a message for the user
    joined: Callable[[], tuple[int, bytes] | None]  # the joined leader's precedence
    member: bytes  # this member's random id

    @property
    def ports(self) -> tuple[int, ...]:
        """The check-in ports to try on the leader's host."""
        groups = check_in_ports(self.spec.attempt, self.secret, self.spec.settings.port_range)
        return tuple(dict.fromkeys([port for group in groups for port in group]))


class Backend(Protocol):
    """One backend. Its owner calls close(), on every path. `faults` are the parts that failed, for a message."""

    faults: list[str]

    def search(self, *, wanted: bool) -> None:
        """Start, or stop, an active search for a leader."""

    def announce(self, advertisement: Advertisement | None) -> None:
        """Announce this leader from now on, or stop announcing it."""

    def tried(self) -> str:
        """Return where this backend has looked, for a message."""

    def close(self) -> None:
        """Stop, and remove all that it has created."""


# By the host that the scheduler names first: the job's own check-in ports are tried there.

# The first attempts follow quickly, as a job starts everywhere at about the same time; later ones are rarer.
HOSTS_FIRST_DELAY_S = 0.005
HOSTS_GROWTH = 1.15  # so a pause is about a seventh of the time waited so far, and adds no more than that to it
HOSTS_LONGEST_DELAY_S = 0.25
# With many members each dials less often, so that rank 0's host sees at most some 4,000 rounds a second.
ROUNDS_PER_SECOND = 4000
# An unknown name is looked up again after so many seconds: it may have been registered since.
LOOK_UP_AGAIN_S = 5.0
# So is a known name, more rarely, as it costs the name server: a pod that was replaced has another address.
LOOK_UP_KNOWN_AGAIN_S = 30.0


def hosts_backend(context: Context) -> HostsBackend | None:
    """Return this backend if the scheduler names hosts."""
    hosts, suffix = context.spec.facts.leader_hosts, context.spec.settings.host_suffix
    names = [host + suffix for host in hosts] if suffix else []
    return HostsBackend(context, "hosts", [*names, *hosts], context.ports) if hosts else None


class HostsBackend:
    """Dials each of `ports` on each address of each of `hosts`, repeatedly."""

    def __init__(self, context: Context, name: str, hosts: Sequence[str], ports: Sequence[int]) -> None:
        self._context, self._name, self._hosts, self._ports = context, name, hosts, ports
        self._delay = HOSTS_FIRST_DELAY_S
        self._timer = Timer()
        self._addresses: dict[str, list[str]] = {}
        self._left: list[Endpoint] = []  # that could not be called in the last round
        self._lookups: dict[str, Lookup] = {}  # one per name, so that a server that does not answer delays no other
        self._next_lookup = self._next_renewal = 0.0  # of unknown names, and of all
        self.faults: list[str] = []

    def search(self, *, wanted: bool) -> None:
        """Start, or stop, dialling."""
        if wanted and not self._timer.is_set:
            self._delay = HOSTS_FIRST_DELAY_S
            self._next_renewal = 0.0  # the leader that was lost may have moved
            self._round()
        elif not wanted:
            self._timer.cancel()

    def announce(self, advertisement: Advertisement | None) -> None:
        """Do nothing: members find a leader because it listens on the job's ports."""

    def tried(self) -> str:
        """Return the hosts and ports."""
        unknown = [host for host in self._hosts if self._addresses.get(host) == []]
        what = f"{', '.join(self._hosts[:3])} ports {', '.join(map(str, self._ports))}"
        return what + (f" (name not known: {', '.join(unknown[:3])})" if unknown else "")

    def close(self) -> None:
        """Stop; a look-up that hangs ends by itself, or with the process."""
        self.search(wanted=False)
        for lookup in self._lookups.values():
            lookup.close()

    def _round(self) -> None:
        loop = self._context.loop
        if loop.clock() >= self._next_lookup:
            self._next_lookup = loop.clock() + LOOK_UP_AGAIN_S
            if is_renewal := loop.clock() >= self._next_renewal:
                self._next_renewal = loop.clock() + LOOK_UP_KNOWN_AGAIN_S
            for host in self._hosts:
                if (is_renewal or not self._addresses.get(host)) and host not in self._lookups:
                    self._look_up(host)
        known = {
            Endpoint(address, port, self._name): None
            for host in self._hosts
            for address in self._addresses.get(host, ())
            for port in self._ports
        }
        # Many hosts have more ports than the dialer has calls: those that had no turn are now the first.
        turns = dict.fromkeys([*(endpoint for endpoint in self._left if endpoint in known), *known])
        self._left = [endpoint for endpoint in turns if not self._context.dial(endpoint)]
        longest = max(HOSTS_LONGEST_DELAY_S, (self._context.spec.nodes or 1) / ROUNDS_PER_SECOND)
        self._timer = loop.after(loop.about(self._delay), self._round)
        self._delay = min(self._delay * HOSTS_GROWTH, longest)

    def _look_up(self, host: str) -> None:
        loop = self._context.loop
        loop.names_since = min(loop.names_since, loop.clock())
        try:
            self._lookups[host] = Lookup(loop, host, self._looked_up)
        except (OSError, NetworkError) as error:  # no descriptor or thread: the next round may have one
            loop.missed(error)
            self.faults = [f"names not looked up: {reason(error)}"]

    def _looked_up(self, host: str, addresses: list[str]) -> None:
        """Store the addresses of a host, and dial new ones at once."""
        del self._lookups[host]
        loop, known = self._context.loop, self._addresses.get(host, [])
        if addresses and not known:  # else nothing has waited for this answer
            loop.names_s = loop.clock() - loop.names_since
        self._addresses[host] = addresses or known  # a name server may fail for a moment
        self.faults = []
        if self._timer.is_set and set(addresses) - set(known):
            self._timer.cancel()
            self._round()


# By the host that the user names: --master HOST[:PORT].


def master_backend(context: Context) -> HostsBackend | None:
    """Return this backend if --master was given."""
    if context.spec.settings.master is None:
        return None
    host, port = context.spec.settings.master
    return HostsBackend(context, "master", [host], context.ports if port is None else (port,))


# By a directory that all members share: the leader writes a small, signed file there.

DIRECTORY_FIRST_DELAY_S = 0.05
DIRECTORY_GROWTH = 1.5
# Shared file systems show a new name to others within about a second; polling faster only loads the server.
DIRECTORY_LONGEST_DELAY_S = 1.0
MOST_FILE_BYTES = 2048
# Files of candidates that are read at a time; the best candidate is soon the only one. Killed ones leave theirs behind.
MOST_FILES = 64
SUFFIX = ".mingle"
SALT_BYTES = 16
MARK_DIGITS = 16  # of a file name, in hex: 64 bits, which cannot be guessed while a world forms


def directory_backend(context: Context) -> DirectoryBackend | None:
    """Return this backend if a directory is set. Raises PlaceError if it cannot be used."""
    directory = context.spec.settings.directory
    if directory is None:
        return None
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK) or not os.path.isdir(directory):
        remedy = "mkdir -p, chmod u+rwx, or another --directory"
        raise PlaceError("a shared directory that this user can write to", directory, remedy)
    return DirectoryBackend(context, directory)


class _Notice(NamedTuple):
    """The part of a leader's file that others need."""

    addresses: Annotated[tuple[Annotated[str, wire.address], ...], wire.Most(wire.MOST_ADVERTISED)]
    ports: Annotated[tuple[Annotated[int, wire.within(1, 65535)], ...], wire.Most(4)]


class DirectoryBackend:
    """Polls a directory for leaders' files, and writes this leader's own while it is announced."""

    def __init__(self, context: Context, directory: str) -> None:
        self._context, self._directory = context, directory
        self._prefix = context.spec.attempt.tag.hex() + "-"
        self.faults: list[str] = []
        self._own: tuple[str, ...] = ()  # this leader's file, and its draft
        self._delay = DIRECTORY_FIRST_DELAY_S
        self._files_read = 0
        self._timer = Timer()

    def search(self, *, wanted: bool) -> None:
        """Start, or stop, polling the directory."""
        self._timer.cancel()
        if wanted:
            self._delay = DIRECTORY_FIRST_DELAY_S
            self._poll()

    def announce(self, advertisement: Advertisement | None) -> None:
        """Write this leader's file atomically, or remove it. Raises PlaceError."""
        if advertisement is None:
            self._remove()
            return
        leader, addresses = advertisement.leader.hex(), advertisement.addresses[: wire.MOST_ADVERTISED]
        body = wire.encode({**advertisement._asdict(), "leader": leader, "addresses": addresses})
        # Who sees a name can take it, so no draft and no earlier file tells the next one.
        path = self._own[0] if self._own else os.path.join(self._directory, self._name(os.urandom(SALT_BYTES).hex()))
        draft = os.path.join(self._directory, f"{self._prefix}{os.urandom(SALT_BYTES).hex()}.part")
        self._own = (path, draft)
        try:
            write_new(draft, self._context.secret.mac(b"notice", body) + body)
            os.replace(draft, path)
        except OSError as error:
            self._remove()
            seen = f"{draft}: {error.strerror}"
            raise PlaceError("to write a file in the shared directory", seen, "another --directory") from error

    def tried(self) -> str:
        """Return the directory."""
        return self._directory

    def close(self) -> None:
        """Stop, and remove this leader's file."""
        self.search(wanted=False)
        self._remove()

    def _remove(self) -> None:
        own, self._own = self._own, ()
        for path in own:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._context.note(f"cannot remove {path}: {error.strerror}")

    def _poll(self) -> None:
        for path in self._files():
            self._read(path)
        self._timer = self._context.loop.after(self._delay, self._poll)
        self._delay = min(self._delay * DIRECTORY_GROWTH, DIRECTORY_LONGEST_DELAY_S)

    def _name(self, salt: str) -> str:
        """Return a leader's file name, which only holders of the key can compute: no other files crowd it out."""
        mark = self._context.secret.mac(b"file", os.fsencode(salt)).hex()[:MARK_DIGITS]
        return f"{self._prefix}{salt}-{mark}{SUFFIX}"

    def _files(self) -> list[str]:
        try:
            listed = sorted(os.listdir(self._directory))
        except OSError as error:  # the file server may be away for a while; the deadline bounds that
            self._context.loop.missed(error)
            self.faults = [reason(error)]
            return []
        self.faults = []
        names = [name for name in listed if name.startswith(self._prefix) and name.endswith(SUFFIX)]
        found = [name for name in names if name == self._name(name[len(self._prefix) :].partition("-")[0])]
        if len(found) < len(names):
            self._context.reject("a file in the shared directory")  # another key wrote it
        first = self._files_read % max(1, len(found))
        self._files_read = first + MOST_FILES
        paths = [os.path.join(self._directory, name) for name in (found[first:] + found[:first])[:MOST_FILES]]
        return [path for path in paths if path not in self._own]

    def _read(self, path: str) -> None:
        try:
            # Neither follow a link nor wait at a FIFO that another user may have put there.
            data = read_bounded(path, MOST_FILE_BYTES, os.O_NOFOLLOW)
        except OSError as error:  # it is gone, not readable or no regular file, or the file server fails
            self._context.loop.missed(error)
            return
        mac, body = data[: wire.MAC_BYTES], data[wire.MAC_BYTES :]
        if not self._context.secret.agrees(mac, b"notice", body):
            return
        try:
            notice = wire.parse(_Notice, wire.decode(body))
        except wire.WireError:
            return
        for address in notice.addresses:
            for port in notice.ports:
                self._context.dial(Endpoint(address, port, "directory"))


class Row(NamedTuple):
    """One backend, and its properties.

    `open` returns None if the backend does not apply. A backend that `is_costly` to load opens last, after a head start
    for the others. A backend that `detects_rivals` reports a second leader by right without a search. If one
    `asks_named_hosts`, only the hosts that the scheduler names have candidates.
    """

    open: Callable[[Context], Backend | None]
    is_costly: bool = False
    detects_rivals: bool = False
    asks_named_hosts: bool = False


# Cheapest first.
BACKENDS = {
    "master": Row(master_backend),
    "hosts": Row(hosts_backend, asks_named_hosts=True),
    "directory": Row(directory_backend),
    "multicast": Row(multicast.backend, is_costly=True, detects_rivals=True),
}

# The calls to what the backends find: each leader that proves itself is handed over.

# Concurrent connections; with more endpoints, the oldest makes room once it has had FAIR_S seconds.
MOST_CALLS = 64
FAIR_S = 1.0
MISMATCH_BACKOFF_S = 5.0


class ProvenLeader(NamedTuple):
    """A leader that has proved that it holds the key. The receiver owns the connection."""

    endpoint: Endpoint
    connection: Connection
    sealer: wire.Sealer
    leader: bytes
    ticket: int  # 0: rank 0 by right
    host: str

    @property
    def precedence(self) -> tuple[int, bytes]:
        """The key of an election: the lowest wins."""
        return (self.ticket, self.leader)

    @property
    def label(self) -> str:
        """The leader's name in messages."""
        return f"{self.host} ({self.endpoint.address})"


class Dialer:
    """All calls in progress. `on_proven` is called with each leader.

    `on_mismatch` is called with each address that refuses this member or proves nothing, the host name that it claims,
    and why (see wire.REASONS). `on_relay` is called with an endpoint that relays a leader, and the leader's own, as a
    relay could stop at the worst time. Neither is proved: they serve a message, and one more call.
    """

    def __init__(
        self,
        loop: Loop,
        attempt: Attempt,
        secret: Secret,
        on_proven: Callable[[ProvenLeader], None],
        on_mismatch: Callable[[str, str, wire.Why], None],
        on_relay: Callable[[Endpoint, Endpoint], None],
        host: str = "",
    ) -> None:
        self.loop, self.secret, self.host = loop, secret, host
        self.on_proven, self.on_mismatch, self.on_relay = on_proven, on_mismatch, on_relay
        self.tag = attempt.tag.hex()  # sent in each call, of which there may be thousands
        self._calls: dict[tuple[str, int], _Call] = {}
        self._retry_at: dict[tuple[str, int], float] = {}

    def dial(self, endpoint: Endpoint) -> bool:
        """Dial an endpoint, unless a call to it is in progress or has just failed; return False if that must wait."""
        key, now = (endpoint.address, endpoint.port), self.loop.clock()
        if (known := self._calls.get(key)) is not None:
            known.backends.add(endpoint.backend)
        if known is not None or self._retry_at.get(key, 0.0) > now:
            return True
        if len(self._calls) >= MOST_CALLS:
            oldest = next(iter(self._calls.values()))
            if now - oldest.since < FAIR_S:
                return False
            oldest.hang_up()
        try:
            sock = dial(*key)
            notice_loss(sock, drop_unsent=True)
            self._calls[key] = _Call(self, endpoint, sock)
        except OSError as error:  # no route now, or a limit is reached; its backend will name it again
            self.loop.missed(error)
            return False
        return True

    def is_calling(self, backend: str) -> bool:
        """Return whether an endpoint of this backend has not answered yet."""
        return any(backend in call.backends for call in self._calls.values())

    def back_off(self, endpoint: Endpoint, delay_s: float = BACKOFF_S) -> None:
        """Do not dial an endpoint for delay_s seconds."""
        self._retry_at.pop(key := (endpoint.address, endpoint.port), None)  # so that the oldest is the first
        if len(self._retry_at) > 16 * MOST_CALLS:
            del self._retry_at[next(iter(self._retry_at))]
        self._retry_at[key] = self.loop.clock() + delay_s

    def forget(self, endpoint: Endpoint) -> None:
        """Remove a call that has ended."""
        self._calls.pop((endpoint.address, endpoint.port), None)

    def close(self) -> None:
        """End every call."""
        for call in list(self._calls.values()):
            call.hang_up()


class _Call:
    """One connection, until the other side has proved that it holds the key. Raises OSError if it cannot be watched."""

    def __init__(self, dialer: Dialer, endpoint: Endpoint, sock: socket.socket) -> None:
        self._dialer, self._endpoint, self.backends = dialer, endpoint, {endpoint.backend}
        self.since = dialer.loop.clock()
        self._nonce = os.urandom(wire.NONCE_BYTES)
        self._connection = Connection(dialer.loop, sock, self._frame, self._ended)
        self._connection.stalled_s = STALLED_S
        self._timer = dialer.loop.after(CALL_S, self.hang_up)
        at = wire.dialled(endpoint.address, endpoint.port)
        self._connection.send(wire.hello(dialer.secret, dialer.tag, self._nonce, dialer.host, at))

    def hang_up(self) -> None:
        """End this call, and let others have their turn."""
        self._connection.close()
        self._dialer.back_off(self._endpoint)
        self._ended("no answer")

    def _ended(self, _reason: str) -> None:
        self._timer.cancel()
        self._dialer.forget(self._endpoint)

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == wire.REFUSED:
            self._refused(wire.decode(payload))
        elif kind == wire.CHALLENGE:
            self._challenged(wire.decode(payload))
        else:
            raise wire.WireError("not an answer to a greeting")

    def _refused(self, body: wire.Body) -> None:
        """Use a refusal for messages only: anybody can send one."""
        dialer = self._dialer
        why: wire.Why = wire.one_of(wire.REASONS)(body, "why")
        host = wire.text(body, "host", 253)
        at = wire.split(wire.text(body, "at", 64)) if why == "relay" else None
        self._refuse_for(MISMATCH_BACKOFF_S)
        if at is not None:
            # A leader's own address is no relay; strangers that name each other without end would take all calls.
            if not self._endpoint.is_told:
                dialer.on_relay(self._endpoint, Endpoint(*at, self._endpoint.backend, is_told=True))
        else:
            dialer.on_mismatch(self._endpoint.address, host, why)

    def _refuse_for(self, backoff_s: float) -> None:
        self._ended("refused")
        self._connection.close()
        self._dialer.back_off(self._endpoint, backoff_s)

    def _challenged(self, body: wire.Body) -> None:
        dialer = self._dialer
        leader_nonce = wire.hexadecimal(body, "nonce", wire.NONCE_BYTES)
        leader = wire.hexadecimal(body, "leader", MEMBER_BYTES)
        ticket = wire.integer(body, "ticket", 0, 2**63 - 1)
        host = wire.text(body, "host", 253)
        proof = wire.hexadecimal(body, "proof", wire.MAC_BYTES)
        terms = (leader, ticket.to_bytes(8, "big"), host.encode())
        if not dialer.secret.agrees(proof, b"challenge", self._nonce, leader_nonce, *terms):
            self._refuse_for(MISMATCH_BACKOFF_S)
            dialer.on_mismatch(self._endpoint.address, host, "key")
            return
        self._ended("answered")
        sealer = wire.Sealer(dialer.secret, self._nonce, leader_nonce, b"member", b"leader")
        dialer.on_proven(ProvenLeader(self._endpoint, self._connection, sealer, leader, ticket, host))


# One member's search for a leader: its discovery backends, its calls, and the peers that it rejects.

# Multicast takes 30 ms of processor time to load: the other backends get a head start of so many seconds.
HEAD_START_S = 0.2


class Search:
    """A member's search for its leader, by every backend; each leader that proves itself is passed to `on_proven`.

    The reason why a backend cannot be opened or used any longer is kept for the final message, and the others go on.
    `candidate` is this member's own leader, if any, which is announced. `joined()` is the precedence of the leader that
    this member has joined, if any. Each relay is reported once, and the first peer with another key; the final message
    names all of them. The owner calls close().
    """

    def __init__(
        self,
        loop: Loop,
        request: Request,
        secret: Secret,
        note: Callable[[str], None],
        on_proven: Callable[[ProvenLeader], None],
        joined: Callable[[], tuple[int, bytes] | None],
        member: bytes,
    ) -> None:
        self._loop, self._request = loop, request
        self._relays = RejectedPeers()  # those that have been reported
        self._has_reported_key = False
        self._refusals = {why: RejectedPeers() for why in wire.REASONS}  # leaders that refused this member
        self._dialer = Dialer(
            loop, request.spec.attempt, secret, on_proven, self._mismatch, self._relayed, request.host
        )
        self.dial = self._dialer.dial
        self.back_off = self._dialer.back_off
        self._context = Context(loop, request.spec, secret, self.dial, self._reject, note, joined, member)
        self.candidate: Candidate | None = None
        self._wanted: tuple[str, ...] = ()
        self._later: tuple[str, ...] = ()  # still to be opened
        self._backends: dict[str, Backend] = {}
        self._reasons: dict[str, str] = {}  # name -> why that backend cannot be used

    def close(self) -> None:
        """Close every backend and call."""
        for backend in self._backends.values():
            backend.close()
        self._dialer.close()

    def open(self, names: Sequence[str]) -> None:
        """Open those of the named backends that apply here. Raises NetworkError if none can be used."""
        self._wanted = tuple(name for name in BACKENDS if name in names)
        self._later = tuple(name for name in self._wanted if BACKENDS[name].is_costly)
        for name in self._wanted:
            if name not in self._later:
                self._open(name)
        if self._backends and self._later:
            self._loop.after(HEAD_START_S, self._open_later)
        else:
            self._open_later()

    def seek(self) -> None:
        """Search by every backend, and announce this member if it is a leader. Raises NetworkError if none is left."""
        for name in tuple(self._backends):
            self._seek(name)
        self._check()

    def look(self, name: str) -> None:
        """Search at once for another leader by one backend, if this member leads and that backend is in use."""
        if name in self._backends:
            self._backends[name].search(wanted=self.leader is not None and self.leader.state == "gathering")

    def pause(self) -> None:
        """Stop searching and announcing: a leader has been found."""
        for backend in self._backends.values():
            backend.announce(None)
            backend.search(wanted=False)

    def tried(self) -> str:
        """Return where all backends have looked, and which could not, for a message."""
        return "; ".join([*(f"{name}: {backend.tried()}" for name, backend in self._backends.items()), *self.faults()])

    def faults(self) -> list[str]:
        """Return which backends, or parts of them, could not be used, and why, for a message."""
        lost = [f"no {name}: {why}" for name, why in self._reasons.items()]
        return lost + [f"{name}: {fault}" for name, backend in self._backends.items() for fault in backend.faults]

    @property
    def leader(self) -> Leader | None:
        """This member's own leader, None without one."""
        return self.candidate.leader if self.candidate is not None else None

    def is_alone(self) -> bool:
        """Return whether the shared directory announces no other live leader: a last check before a world forms.

        Of two leaders that are announced at the same time, at least one checks when the other's file is there.
        """
        self.look("directory")
        return not self._dialer.is_calling("directory")

    def drop(self, proven: ProvenLeader, backoff_s: float = BACKOFF_S) -> None:
        """Close the connection to a proved leader, and do not dial it for backoff_s seconds."""
        proven.connection.close()
        self._dialer.back_off(proven.endpoint, backoff_s)

    def send(self, proven: ProvenLeader, kind: int, body: wire.Body) -> None:
        """Send a proved leader one message, and close the connection."""
        proven.connection.send(proven.sealer.seal(kind, wire.encode(body)))
        self.drop(proven)

    def report_rival(self, proven: ProvenLeader, host: str, member: bytes) -> None:
        """Tell a proved leader of another one by right, and close the connection."""
        self.send(proven, wire.RIVAL, {"host": host[:LONGEST_PART], "member": member.hex()})

    def with_local_faults(self, error: MingleError) -> MingleError:
        """Add this host's own faults to an error about a missing or unreachable peer."""
        if not isinstance(error, (errors.MissingError, NetworkError)):
            return error
        short = self._loop.shortage
        lacks = [*self.faults(), *([short.seen] if short else [])]
        lacks = [lack for lack in lacks if lack not in error.seen]
        one_way = self.one_way() if isinstance(error, errors.MissingError) else []
        seen = "; ".join([*one_way, *([f"here {'; '.join(lacks)}"] if lacks else []), error.seen])
        return type(error)(error.expected, seen, LIMITS[short.kind][1] if short else error.remedy)

    def one_way(self) -> list[str]:
        """Return whose multicast arrives here while ours does not seem to arrive there."""
        backend = self._backends.get("multicast")
        arrived = self.leader.roster.entries() if self.leader is not None else []
        return backend.one_way(arrived) if isinstance(backend, multicast.MulticastBackend) else []

    def no_leader(self, after_s: int) -> MingleError:
        """Return the error of a member that has not found rank 0 within after_s seconds."""
        spec = self._request.spec
        expected = f"rank 0{spec.expected_leader} within {after_s} s"
        seen = f"no answer (tried {self.tried()})"
        # A variable left over from another job is likelier than a firewall.
        remedy = f"unset {spec.exported} if another job left it, or {CHECK_HOST}" if spec.exported else CHECK_HOST
        return self.refusal() or self.with_local_faults(errors.MissingError(expected, seen, remedy))

    def reject(self, labels: Iterable[str]) -> None:
        """Report the first address that uses another key: further ones are likely the same host's."""
        for label in labels:
            if not self._has_reported_key:
                self._has_reported_key = True
                self._context.note(f"refused {label}, which uses this id with another key")

    def refusal(self) -> MingleError | None:
        """Return the likely reason why no leader was found, if leaders have refused this member."""
        seen = {why: ", ".join(rejected.list()) for why, rejected in self._refusals.items()}
        if others := seen["version"]:
            here, remedy = f"version {mingle_hooks.__version__} here", "the same version of mingle on every member"
            return errors.ConflictError(f"the same version of mingle as {others} has", here, remedy)
        if others := seen["run"]:
            remedy = "pbs_tmrsh or pbsdsh to start every member, or the job's PBS_JOBCOOKIE in every shell"
            expected = f"the same run of the job as {others}, by PBS_JOBCOOKIE"
            return errors.SecretError(expected, "another one, or none, here", remedy)
        if not (others := seen["key"]):
            return None
        here = f"another key here ({self._request.key_from})" if self._request.key_from else "another key here"
        remedy = "the same --key-file or MINGLE_KEY on every member (`mingle key` makes one)"
        return errors.SecretError(f"the same key as {others} has for this id", here, remedy)

    def _open_later(self) -> None:
        names, self._later = self._later, ()
        for name in names:
            self._open(name)
        self._check()

    def _check(self) -> None:
        """Raise NetworkError if no backend is left, nor any still to be opened."""
        if not self._backends and not self._later:
            short = self._loop.shortage
            seen = "; ".join([*self.faults(), *([short.seen] if short else [])])
            seen = seen or f"none (of {', '.join(self._wanted) or 'none'})"
            remedy = "--master HOST, or --directory with a directory that all members share"
            raise NetworkError("a discovery backend that works here", seen, LIMITS[short.kind][1] if short else remedy)

    def _open(self, name: str) -> None:
        """Open a backend, if it applies. Whatever its import or start raises is its reason."""
        try:
            backend = BACKENDS[name].open(self._context)
        except Exception as error:  # noqa: BLE001 - an import may raise anything, and the message shows it
            self._drop(name, error)
            return
        if backend is None:
            return
        self._backends[name] = backend
        if self._context.joined() is None:
            self._seek(name)

    def _drop(self, name: str, error: Exception) -> None:
        """Go on without a backend."""
        self._loop.missed(error)
        self._reasons[name] = reason(error)
        if (backend := self._backends.pop(name, None)) is not None:
            backend.close()

    def _seek(self, name: str) -> None:
        backend = self._backends[name]
        advertisement = self.candidate.advertisement if self.candidate is not None else None
        try:
            if advertisement is not None:
                backend.announce(advertisement)
            if advertisement is None or advertisement.ticket:
                backend.search(wanted=True)
            elif not BACKENDS[name].detects_rivals:
                # A leader by right looks for another one too, once it has served the members that come first, unless
                # the backend reports a rival by itself, as beacons do.
                self._loop.after(HEAD_START_S, lambda: self.look(name))
        except (MingleError, OSError) as error:
            self._drop(name, error)

    def _relayed(self, endpoint: Endpoint, leader: Endpoint) -> None:
        """Dial a leader directly instead of its relay: an attacker's, or a service's address in front of a pod."""
        if self._relays.add(endpoint.address):
            seen = f"{endpoint.address} only relays {leader.address}"
            self._context.note(f"{seen}: connecting to {leader.address} directly")
        self._dialer.dial(leader)

    def _mismatch(self, address: str, host: str, why: wire.Why) -> None:
        self._refusals[why].add(address, host)
        self._reject(address, host, why)

    def _reject(self, address: str, host: str = "", why: wire.Why = "key") -> None:
        if self.leader is not None:
            self.leader.refused[why].add(address, host)
        if why == "key":
            self.reject([peer_label(address, host)])
