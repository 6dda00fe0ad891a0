"""The bytes between members: frames, their bounds, and the proof that the other side holds the key.

A frame is ``length (4 bytes, big-endian) | kind (1 byte) | payload``; length counts the payload. A payload is
JSON, before it, from CHECKIN on, a 32-byte MAC over direction, count, kind and JSON.

::

    member                                leader
      HELLO      tag, version, nonce,
                 host, proof, door     →
                                       ←  CHALLENGE  nonce, leader, ticket, host, proof
      CHECKIN    MAC, the member       →
                                       ←  WELCOME    MAC, addresses to try, port
      REACHED    MAC, which            →
                                       ←  PROGRESS   MAC, how many are in
                                       ←  ROSTER     all members, if requested (messages.pack_roster)
                                       ←  ANSWER     MAC, epoch, the world, this member's place
      READY      MAC, epoch, lease_ms  →
                                       ←  HOLD       MAC, epoch: send READY again, as others are awaited
                                       ←  COMMIT     MAC, epoch
      DONE       MAC                   →

FAILED ends it from the leader's side, GAVE_UP or FAILED from the member's. No member prints before COMMIT, which is
sent only when all N are READY and each waits at least COMMIT_DELIVERY_S longer (messages.Leases).

The member proves the key first. HELLO's proof covers its nonce and the address that it dialled, so it is valid at no
other address, and a leader accepts each nonce once. A member without a proof gets REFUSED, which does not depend on the
key: a reason and a host name, alike in every version. VERIFY and VERIFIED, on another connection, work the same way.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from hmac import compare_digest
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from mingle_hooks import values
from mingle_hooks.net.addresses import candidates, is_hostname

HEADER = struct.Struct("!IB")
MAC_BYTES = 32
NONCE_BYTES = 16

# Without proof.
HELLO, CHALLENGE, REFUSED, VERIFY, VERIFIED = range(1, 6)
# With proof.
CHECKIN, WELCOME, REACHED, PROGRESS, ANSWER, READY, COMMIT, DONE, FAILED, GAVE_UP, MOVED, RIVAL, HOLD = range(16, 29)
# The roster, whose digest the sealed answer holds.
ROSTER = 32

# Why a leader refuses a HELLO: another version of the protocol, another key, another run of the job, or a connection
# that is relayed.
Why = Literal["version", "key", "run", "relay"]
REASONS: tuple[Why, ...] = get_args(Why)

# A stranger's frame: tag, nonce, proofs and a host name, in JSON.
MOST_STRANGER_BYTES = 1024
# A member's frame: names and numbers of one member, and the addresses that it reached.
MOST_MEMBER_BYTES = 8 * 1024
# A leader's frame: the roster of 65,536 members at some 100 bytes each.
MOST_LEADER_BYTES = 8 * 1024 * 1024

MOST_ADVERTISED = 8  # addresses that a leader offers; no node has more networks that matter
LONGEST_ZONE = 9  # digits of an IPv6 zone's number, which fits into 32 bits
MOST_PID = (1 << 31) - 1

Body = dict[str, Any]


class WireError(Exception):
    """The other side sent something that no honest member sends: its connection is closed."""


def frame(kind: int, payload: bytes) -> bytes:
    """Return one frame."""
    return HEADER.pack(len(payload), kind) + payload


def encode(body: Mapping[str, object]) -> bytes:
    """Return a body as compact JSON."""
    return values.to_json(body).encode()


def decode(payload: bytes) -> Body:
    """Return a JSON object; anything else raises WireError."""
    try:
        body = values.from_json(payload)
    except (ValueError, RecursionError) as error:
        raise WireError("not JSON") from error
    if not isinstance(body, dict):
        raise WireError("not an object")
    return body


class Sealer:
    """Seals and opens the frames of one connection, after both nonces are known.

    `sender` and `peer` are b"member" or b"leader". The count inside each MAC makes a repeated, dropped or reordered
    frame fail.
    """

    __slots__ = ("_hmac", "_opened", "_peer", "_sealed", "_sender")

    def __init__(self, secret: Secret, member_nonce: bytes, leader_nonce: bytes, sender: bytes, peer: bytes) -> None:
        key = secret.mac(b"session", member_nonce, leader_nonce)
        self._hmac = hmac.new(key, digestmod="sha256")  # its key is set up once
        self._sender, self._peer = sender, peer
        self._sealed = self._opened = 0

    def seal(self, kind: int, payload: bytes) -> bytes:
        """Return a whole frame with its MAC."""
        mac = self._mac(self._sender, self._sealed, kind, payload)
        self._sealed += 1
        return HEADER.pack(len(payload) + MAC_BYTES, kind) + mac + payload

    def open(self, kind: int, payload: bytes) -> Body:
        """Return the body of a frame; a wrong MAC raises WireError."""
        mac, payload = payload[:MAC_BYTES], payload[MAC_BYTES:]
        if not compare_digest(mac, self._mac(self._peer, self._opened, kind, payload)):
            raise WireError("wrong MAC")
        self._opened += 1
        return decode(payload)

    def _mac(self, side: bytes, count: int, kind: int, payload: bytes) -> bytes:
        mac = self._hmac.copy()
        mac.update(side + struct.pack("!QB", count, kind) + payload)
        return mac.digest()


def integer(body: Body, name: str, low: int, high: int) -> int:
    """Return body[name], an integer from low to high. Raises WireError."""
    value = body.get(name)
    if type(value) is not int or not low <= value <= high:
        raise WireError(f"{name}: not an integer from {low} to {high}")
    return value


def text(body: Body, name: str, longest: int) -> str:
    """Return body[name], printable text of at most `longest` characters. Raises WireError."""
    value = body.get(name)
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise WireError(f"{name}: not printable text of at most {longest} characters")
    return value


def address(body: Body, name: str) -> str:
    """Return body[name], an IP address; a link-local one may carry its zone's number (`fe80::1%3`).

    Raises WireError.
    """
    value = text(body, name, 64)
    host, percent, zone = value.partition("%")
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError as error:
        raise WireError(f"{name}: not an address") from error
    if percent and not (zone.isascii() and zone.isdigit() and len(zone) <= LONGEST_ZONE):
        raise WireError(f"{name}: not a zone's number")
    return value


def endpoint(where: tuple[Any, ...]) -> str:
    """Return one end of a connection as both sides write it: without its zone, which differs between hosts."""
    return f"{str(where[0]).partition('%')[0]} {where[1]}"


def dialled(address: str, port: int) -> str:
    """Return the endpoint that the other side sees when this address and port are dialled."""
    if ":" in address:
        address = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address.partition("%")[0]))
    return endpoint((address, port))


def split(end: str) -> tuple[str, int]:
    """Return the address and port of an endpoint. Raises WireError."""
    where, _, port = end.rpartition(" ")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= len("65535") else 0
    return address({"address": where}, "address"), integer({"port": number}, "port", 1, 65535)


def hexadecimal(body: Body, name: str, size: int) -> bytes:
    """Return body[name], `size` bytes as hex digits. Raises WireError."""
    try:
        value = bytes.fromhex(text(body, name, 2 * size))
    except ValueError as error:
        raise WireError(f"{name}: not hex") from error
    if len(value) != size:
        raise WireError(f"{name}: not {size} bytes")
    return value


# A record is a NamedTuple whose annotations bound what each field may hold when it arrives from another host.
#
# Annotated[int, within(0, 9)], Annotated[str, address] and so on, with any reader of a body's value; bool; another
# record; Annotated[tuple[X, ...], Most(32)]; each also `| None`. A field with a default may be absent. The checks of a
# type are derived once, as a leader reads thousands of its messages.

Reader = Callable[[Body, str], Any]
Record = TypeVar("Record", bound=NamedTuple)


class Key(str):
    """The name of a field in a message, where it differs from the attribute's."""

    __slots__ = ()


class Most(int):
    """The largest number of items of a list."""

    __slots__ = ()


def within(low: int, high: int) -> Reader:
    """Return the reader of an integer from low to high."""
    return lambda body, name: integer(body, name, low, high)


def printable_text(longest: int) -> Reader:
    """Return the reader of printable text of at most `longest` characters."""
    return lambda body, name: text(body, name, longest)


def flag(body: Body, name: str) -> bool:
    """Return body[name], true or false. Raises WireError."""
    value = body.get(name)
    if not isinstance(value, bool):
        raise WireError(f"{name}: neither true nor false")
    return value


def hex_bytes(size: int) -> Reader:
    """Return the reader of `size` bytes, written as hex digits."""
    return lambda body, name: hexadecimal(body, name, size)


def any_text(longest: int) -> Reader:
    """Return the reader of any text of at most `longest` characters, which must not be printed unchecked."""

    def read(body: Body, name: str) -> str:
        value = body.get(name)
        if not isinstance(value, str) or len(value) > longest:
            raise WireError(f"{name}: not text of at most {longest} characters")
        return value

    return read


def one_of(known: tuple[str, ...]) -> Reader:
    """Return the reader of one of these texts."""

    def read(body: Body, name: str) -> str:
        value = body.get(name)
        if not isinstance(value, str) or value not in known:
            raise WireError(f"{name}: none of {', '.join(known)}")
        return value

    return read


def host_name(body: Body, name: str) -> str:
    """Return body[name], a host name. Raises WireError."""
    value = text(body, name, 253)
    if not is_hostname(value):
        raise WireError(f"{name}: not a host name")
    return value


def parse(kind: type[Record], body: object) -> Record:
    """Return a message, or a row of one, as a record. Raises WireError.

    A field without a default has to be there. Fields that the record does not have are ignored: a later version of
    mingle on another host may send more.
    """
    fields = _fields(kind)
    keys = [key for key, *_ in fields]
    if isinstance(body, (list, tuple)) and len(body) == len(keys):
        body = dict(zip(keys, body, strict=True))
    if not isinstance(body, dict):
        raise WireError(f"neither an object nor a row of {', '.join(keys)}")
    found = []
    for key, read, needed, default in fields:
        if needed and key not in body:
            raise WireError(f"{key}: missing")
        found.append(read(body, key) if key in body else default)
    return kind._make(found)


def body_of(record: tuple[Any, ...]) -> Body:
    """Return the body of a record whose values JSON can hold."""
    return {key: value for (key, *_), value in zip(_fields(type(record)), record, strict=True)}


@cache
def _fields(kind: Any) -> list[tuple[str, Reader, bool, Any]]:
    """Return each field's key and reader, whether it is required, and its default."""
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        key = next((str(note) for note in _notes(hint) if isinstance(note, Key)), name)
        defaults = kind._field_defaults
        found.append((key, _reader(hint), name not in defaults, defaults.get(name)))
    return found


def _notes(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def _reader(hint: Any) -> Reader:
    """Return the reader of a field with this annotation."""
    for note in _notes(hint):
        if callable(note):
            return note  # type: ignore[no-any-return]
    plain = hint.__origin__ if _notes(hint) else hint
    origin, inner = get_origin(plain), get_args(plain)
    if origin in (Union, UnionType):
        given = _reader(inner[0])
        return lambda body, name: None if body.get(name) is None else given(body, name)
    if origin is tuple:
        return _list_reader(_reader(inner[0]), next(note for note in _notes(hint) if isinstance(note, Most)))
    if origin is Literal:
        return one_of(inner)
    if plain is bool:
        return flag
    return nested(plain)


def nested(kind: type[NamedTuple]) -> Reader:
    """Return the reader of a record in a record, whose errors begin with its name."""

    def read(body: Body, name: str) -> Any:
        try:
            return parse(kind, body.get(name))
        except WireError as error:
            raise WireError(f"{name}: {error}") from None

    return read


def _list_reader(item: Reader, most: int) -> Reader:
    def read(body: Body, name: str) -> Any:
        rows = body.get(name)
        if not isinstance(rows, (list, tuple)) or len(rows) > most:
            raise WireError(f"{name}: not a list of at most {most}")
        return tuple(item({name: row}, name) for row in rows)

    return read


# The name of one attempt to form a world, and what is derived from it.

# Part of every key, and of every HELLO. Names, ports and groups are the same in every version of the protocol, so that
# members of two versions meet, and can report the mismatch.
PROTOCOL_VERSION = 3
TAG_BYTES = 8
# Check-in ports to try on the leader's host. Two follow from the id, so that a member with another key learns so; two
# follow from the key, so that no other user of that host can occupy all of them first.
OPEN_PORTS = 2
KEYED_PORTS = 2
# So many ports are tried as MASTER_PORT before the rest of the range.
MASTER_PORTS = 16


class Material(bytes):
    """Key material that no message or trace can show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<key>"


class Attempt(NamedTuple):
    """Id, step, restarts and run: a requeued job never meets members of its earlier run.

    `run` distinguishes a rerun from the first run where the scheduler does not count them. It is part of the key and of
    no name: names are public, and on PBS it derives from the job's cookie, which starts tasks on the job's hosts.
    """

    id: str
    step: str = ""
    restarts: int = 0
    run: Material = Material()

    @property
    def name(self) -> bytes:
        """The name as bytes, unique but for the run."""
        return _joined(b"mingle", self.id.encode(), self.step.encode(), str(self.restarts).encode())

    @property
    def tag(self) -> bytes:
        """Eight bytes that mark this world's packets; public, and never trusted."""
        return sha256(b"tag" + self.name).digest()[:TAG_BYTES]

    @property
    def group4(self) -> str:
        """IPv4 multicast group, site-local (RFC 2365)."""
        high, low = sha256(b"group" + self.name).digest()[:2]
        return f"239.255.{high}.{low}"

    @property
    def group6(self) -> str:
        """IPv6 multicast group: transient, link-local scope (RFC 4291)."""
        hashed = sha256(b"group" + self.name).digest()
        # multicast_expert compares addresses as text, so no part may begin with a zero.
        high, low = (int.from_bytes(part, "big") | 0x1000 for part in (hashed[:2], hashed[2:4]))
        return f"ff12::{high:x}:{low:x}"

    def seed(self, purpose: bytes) -> bytes:
        """Bytes for choosing ports, which follow from the id alone."""
        return sha256(purpose + self.name).digest()


class Secret:
    """An attempt's own key, derived from the members' key, which itself never leaves this host.

    `attempt_secret` is the key that all runs of the attempt share: by it a leader tells another run from a stranger.
    """

    __slots__ = ("_key", "attempt_secret")

    def __init__(self, key: bytes, attempt_secret: Secret | None = None) -> None:
        self._key = key
        self.attempt_secret = attempt_secret or self

    @classmethod
    def derive(cls, material: Material, attempt: Attempt) -> Secret:
        """Return the key of one attempt; no two attempts, runs or versions share one."""
        world = (b"world", bytes([PROTOCOL_VERSION]), attempt.name)
        attempt_secret = cls(hmac.digest(material, _joined(*world), "sha256"))
        if not attempt.run:
            return attempt_secret
        return cls(hmac.digest(material, _joined(*world, attempt.run), "sha256"), attempt_secret)

    @property
    def master_seed(self) -> bytes:
        """The seed of MASTER_PORT, the same in all runs: another user of rank 0's host cannot predict it."""
        return self.attempt_secret.mac(b"master")

    def mac(self, purpose: bytes, *parts: bytes) -> bytes:
        """Return the MAC, 32 bytes, of the parts, each with its length: only holders of the key can compute it."""
        return hmac.digest(self._key, _joined(purpose, *parts), "sha256")

    def agrees(self, mac: bytes, purpose: bytes, *parts: bytes) -> bool:
        """Return, in constant time, whether mac is this key's MAC of the parts."""
        return compare_digest(mac, self.mac(purpose, *parts))

    def sealed(self, data: bytes, mac_bytes: int, *purpose: bytes) -> bytes:
        """Return a datagram that only holders of the key can make: data, and the first mac_bytes of its MAC."""
        return data + self.mac(*purpose, data)[:mac_bytes]

    def opened(self, datagram: bytes, mac_bytes: int, *purpose: bytes) -> bytes | None:
        """Return the data of a datagram, None if its MAC is wrong."""
        data, mac = datagram[:-mac_bytes], datagram[-mac_bytes:]
        return data if compare_digest(mac, self.mac(*purpose, data)[:mac_bytes]) else None


def hello(secret: Secret, tag: str, nonce: bytes, host: str, at: str) -> bytes:
    """Return HELLO with a proof of the key, for the endpoint that was dialled."""
    body = {
        "tag": tag,
        "version": PROTOCOL_VERSION,
        "nonce": nonce.hex(),
        "host": host,
        "at": at,
        "proof": secret.mac(b"hello", nonce, at.encode()).hex(),
        "door": secret.attempt_secret.mac(b"door", nonce, at.encode()).hex(),
    }
    return frame(HELLO, encode(body))


def check_in_ports(attempt: Attempt, secret: Secret, port_range: range) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ports that members try: those that follow from the id, and those that follow from the key."""
    open_ports = candidates(attempt.seed(b"check-in"), OPEN_PORTS, port_range)
    return open_ports, candidates(secret.mac(b"check-in"), KEYED_PORTS, port_range)


def multicast_port(attempt: Attempt) -> int:
    """Return the UDP port of this world's beacons; several worlds may share it."""
    return candidates(attempt.seed(b"beacon"), 1)[0]


def run_material(cookie: str | None) -> Material:
    """Return the material that distinguishes one run of a job from the next by its cookie, empty without one."""
    return Material(sha256(b"run" + cookie.encode()).digest() if cookie else b"")


def _joined(*parts: bytes) -> bytes:
    """Return the parts, each with its length, so that no other parts give the same bytes."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


# The states of each side of a rendezvous, for type checkers.

# A leader's, or a candidate's: see leader.py.
LeaderState = Literal["gathering", "closing", "formed", "failed", "withdrawn"]
# A member's: see member.py.
MembershipState = Literal["waiting", "ready", "formed", "failed", "moved", "lost"]
