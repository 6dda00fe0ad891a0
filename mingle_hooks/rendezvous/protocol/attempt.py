"""The name of one try at forming a world, and all that is derived from it."""

from __future__ import annotations

import hmac
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

from mingle_hooks.fabric import ports

# Of the protocol: part of every key, and told in every HELLO. Names, ports and groups are the same in every version,
# so that members of two versions do meet, and can tell each other so.
VERSION = 3
TAG_BYTES = 8
# Check-in ports to try on the leader's host. Two can be worked out by anybody who knows the id, so that a
# member with another key can be told so; two only by those who hold the key, so that nobody else on that
# host can take them all first.
OPEN_PORTS = 2
KEYED_PORTS = 2
# MASTER_PORT is looked for among this many before the rest of the range.
MASTER_PORTS = 16


class Material(bytes):
    """Key material that no message or trace can show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<key>"


class Attempt(NamedTuple):
    """id + step + restarts + run: a requeued job never meets its own past.

    `run` tells a rerun from the first run where the scheduler counts none. It is part of the key and of no name, as
    names are public and PBS makes it of its job's cookie, which starts tasks on the job's hosts.
    """

    id: str
    step: str = ""
    restarts: int = 0
    run: Material = Material()

    @property
    def name(self) -> bytes:
        """The name as bytes in which no two attempts are alike, but for their runs."""
        return _joined(b"mingle", self.id.encode(), self.step.encode(), str(self.restarts).encode())

    @property
    def tag(self) -> bytes:
        """Eight bytes that tell this world's packets from others'; public, and never trusted."""
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
        # multicast_expert compares addresses as text, so neither part may begin with a zero.
        high, low = (int.from_bytes(part, "big") | 0x1000 for part in (hashed[:2], hashed[2:4]))
        return f"ff12::{high:x}:{low:x}"

    def seed(self, purpose: bytes) -> bytes:
        """Bytes for choosing ports, that anybody who knows the id can work out."""
        return sha256(purpose + self.name).digest()


class Secret:
    """An attempt's own key, derived from the members' key, which itself never leaves this host.

    `door` is the key that all runs of the attempt share: by it a leader knows another run from a stranger.
    """

    __slots__ = ("_key", "door")

    def __init__(self, key: bytes, door: Secret | None = None) -> None:
        self._key = key
        self.door = door or self

    @classmethod
    def derive(cls, material: Material, attempt: Attempt) -> Secret:
        """Return the key of one attempt; no two attempts, runs or versions share one."""
        world = (b"world", bytes([VERSION]), attempt.name)
        door = cls(hmac.digest(material, _joined(*world), "sha256"))
        return cls(hmac.digest(material, _joined(*world, attempt.run), "sha256"), door) if attempt.run else door

    @property
    def master_seed(self) -> bytes:
        """What MASTER_PORT is chosen by, the same in all runs: another user of rank 0's host cannot work it out."""
        return self.door.mac(b"master")

    def mac(self, purpose: bytes, *parts: bytes) -> bytes:
        """Return 32 bytes over parts, each with its length, that only holders of the key can make."""
        return hmac.digest(self._key, _joined(purpose, *parts), "sha256")

    def agrees(self, mac: bytes, purpose: bytes, *parts: bytes) -> bool:
        """Tell, in constant time, whether mac is this key's over parts."""
        return compare_digest(mac, self.mac(purpose, *parts))


def check_in_ports(attempt: Attempt, secret: Secret, port_range: range) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ports that members try: those that everybody can work out, and those that the key tells."""
    return (
        ports.candidates(attempt.seed(b"check-in"), OPEN_PORTS, port_range),
        ports.candidates(secret.mac(b"check-in"), KEYED_PORTS, port_range),
    )


def multicast_port(attempt: Attempt) -> int:
    """Return the UDP port of this world's beacons; several worlds may share it."""
    return ports.candidates(attempt.seed(b"beacon"), 1)[0]


def run_of(cookie: str | None) -> Material:
    """Return what tells one run of a job from the next, by a variable that differs; nothing where there is none."""
    return Material(sha256(b"run" + cookie.encode()).digest() if cookie else b"")


def _joined(*parts: bytes) -> bytes:
    """Return the parts, each with its length: no other parts give the same."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])
