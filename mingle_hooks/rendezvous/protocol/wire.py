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
                                       ←  ROSTER     all members, to who asks for them (packed_roster.py)
                                       ←  ANSWER     MAC, epoch, the world, this member's place
      READY      MAC, epoch, lease_ms  →
                                       ←  HOLD       MAC, epoch; READY again, for others are awaited
                                       ←  COMMIT     MAC, epoch
      DONE       MAC                   →

FAILED ends it from the leader's side, GAVE_UP or FAILED from the member's. Nobody prints before COMMIT, and COMMIT is
sent only when all N are READY and each waits at least LAST_WORD_S longer (leases.py).

The member proves first. HELLO's proof is over its nonce and the address that it dialled, so that it is of use in no
other place, and a leader takes each nonce once. Who proves nothing gets REFUSED, in which nothing depends on the key:
a reason and a host's name, in every version alike. VERIFY and VERIFIED, of another connection, go the same way.
"""

from __future__ import annotations

import hmac
import socket
import struct
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from mingle_hooks import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from mingle_hooks.rendezvous.protocol.attempt import Secret

    Why = Literal["version", "key", "run", "relay"]

HEADER = struct.Struct("!IB")
MAC_BYTES = 32
NONCE_BYTES = 16

# Without proof.
HELLO, CHALLENGE, REFUSED, VERIFY, VERIFIED = range(1, 6)
# With proof.
CHECKIN, WELCOME, REACHED, PROGRESS, ANSWER, READY, COMMIT, DONE, FAILED, GAVE_UP, MOVED, RIVAL, HOLD = range(16, 29)
# The roster, whose digest the sealed answer holds.
ROSTER = 32

# Why a leader refuses who says HELLO: another version of the protocol, another key, the key in another run of the job,
# or a connection that somebody relays.
VERSION: Why = "version"
KEY: Why = "key"
RUN: Why = "run"
RELAY: Why = "relay"
REASONS = (VERSION, KEY, RUN, RELAY)

# A stranger's frame: tag, nonce, proofs and a host's name, in JSON.
MOST_STRANGER_BYTES = 1024
# A member's frame: names and numbers of one member, and the addresses that it reached.
MOST_MEMBER_BYTES = 8 * 1024
# A leader's frame: the roster of 65,536 members at some 100 bytes each.
MOST_LEADER_BYTES = 8 * 1024 * 1024

# Digits of an IPv6 zone's number: what fits into 32 bits.
MOST_ADVERTISED = 8  # addresses that a leader offers; no node has more networks that matter
LONGEST_ZONE = 9

Body = dict[str, Any]


class WireError(Exception):
    """The other side sent something that no honest member sends; the connection is closed, no more."""


def frame(kind: int, payload: bytes) -> bytes:
    """Return one frame."""
    return HEADER.pack(len(payload), kind) + payload


def encode(body: Mapping[str, object]) -> bytes:
    """Return a body as compact JSON."""
    return jsontext.dumps(body).encode()


def decode(payload: bytes) -> Body:
    """Return a JSON object; anything else raises WireError."""
    try:
        body = jsontext.loads(payload)
    except (ValueError, RecursionError) as error:
        raise WireError("not JSON") from error
    if not isinstance(body, dict):
        raise WireError("not an object")
    return body


class Sealer:
    """Seals and opens the frames of one connection, after both nonces are known.

    `mine` and `theirs` are b"member" or b"leader". The count inside each MAC makes a repeated, dropped or
    reordered frame fail.
    """

    __slots__ = ("_key", "_mine", "_opened", "_sealed", "_theirs")

    def __init__(self, secret: Secret, member_nonce: bytes, leader_nonce: bytes, mine: bytes, theirs: bytes) -> None:
        self._key = secret.mac(b"session", member_nonce, leader_nonce)
        self._mine, self._theirs = mine, theirs
        self._sealed = self._opened = 0

    def seal(self, kind: int, payload: bytes) -> bytes:
        """Return a whole frame with its MAC."""
        mac = self._mac(self._mine, self._sealed, kind, payload)
        self._sealed += 1
        return HEADER.pack(len(payload) + MAC_BYTES, kind) + mac + payload

    def open(self, kind: int, payload: bytes) -> Body:
        """Return the body of a frame; a wrong MAC raises WireError."""
        mac, payload = payload[:MAC_BYTES], payload[MAC_BYTES:]
        if not compare_digest(mac, self._mac(self._theirs, self._opened, kind, payload)):
            raise WireError("wrong MAC")
        self._opened += 1
        return decode(payload)

    def _mac(self, side: bytes, count: int, kind: int, payload: bytes) -> bytes:
        return hmac.digest(self._key, side + struct.pack("!QB", count, kind) + payload, "sha256")


def integer(body: Body, name: str, low: int, high: int) -> int:
    """Return body[name], an integer from low to high. Raises WireError."""
    value = body.get(name)
    if type(value) is not int or not low <= value <= high:
        raise WireError(f"{name}: not an integer from {low} to {high}")
    return value


def optional_integer(body: Body, name: str, low: int, high: int) -> int | None:
    """Return body[name], an integer from low to high, or None. Raises WireError."""
    return None if body.get(name) is None else integer(body, name, low, high)


def text(body: Body, name: str, longest: int) -> str:
    """Return body[name], printable text of at most `longest` characters. Raises WireError."""
    value = body.get(name)
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise WireError(f"{name}: not printable text of at most {longest} characters")
    return value


def reason(body: Body) -> Why:
    """Return why a leader refuses: body["why"], one of REASONS. Raises WireError."""
    for known in REASONS:
        if body.get("why") == known:
            return known
    raise WireError("why: not a reason")


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
    """Return one end of a connection as text that both sides write alike: its zone differs between hosts."""
    return f"{str(where[0]).partition('%')[0]} {where[1]}"


def dialled(address: str, port: int) -> str:
    """Return an address that is dialled as the endpoint that the other side sees."""
    if ":" in address:
        address = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address.partition("%")[0]))
    return endpoint((address, port))


def split(end: str) -> tuple[str, int]:
    """Return address and port of an endpoint that the other side wrote. Raises WireError."""
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
