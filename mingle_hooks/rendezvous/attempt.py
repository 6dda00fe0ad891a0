"""The name of one try at forming a world, and all that is derived from it."""

from __future__ import annotations

from mingle_hooks.digest import compare_digest, hmac_sha256, sha256
from mingle_hooks.typed import NamedTuple

# Part of every name, so that members which speak different protocols never meet.
PROTOCOL = b"mingle/1"
TAG_BYTES = 8
# Check-in ports to try on the leader's host. Two can be worked out by anybody who knows the id, so that a
# member with another key can be told so; two only by those who hold the key, so that nobody else on that
# host can take them all first.
OPEN_PORTS = 2
KEYED_PORTS = 2


class Attempt(NamedTuple):
    """id + step + restarts: a requeued job never meets its own past."""

    id: str
    step: str = ""
    restarts: int = 0

    @property
    def name(self) -> bytes:
        """The name as bytes in which no two attempts are alike (each part with its length)."""
        parts = (PROTOCOL, self.id.encode(), self.step.encode(), str(self.restarts).encode())
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

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


class Material(bytes):
    """Key material that no message or trace can show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<key>"


class Secret:
    """An attempt's own key, derived from the members' key, which itself never leaves this host."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def derive(cls, material: Material, attempt: Attempt) -> Secret:
        """Return the key of one attempt; no two attempts share one."""
        return cls(hmac_sha256(material, b"world" + attempt.name))

    def mac(self, purpose: bytes, *parts: bytes) -> bytes:
        """Return 32 bytes over parts, each with its length, that only holders of the key can make."""
        message = b"".join(len(part).to_bytes(4, "big") + part for part in (purpose, *parts))
        return hmac_sha256(self._key, message)

    def agrees(self, mac: bytes, purpose: bytes, *parts: bytes) -> bool:
        """Tell, in constant time, whether mac is this key's over parts."""
        return compare_digest(mac, self.mac(purpose, *parts))
