"""IP addresses and their networks, as far as the choice of a network needs them.

`ipaddress` knows more, and takes 3 ms to load: rank 0's, for which the whole job waits.
"""

from __future__ import annotations

from mingle_hooks import sockets as socket
from mingle_hooks.typed import NamedTuple

_OCTETS = 4  # of an IPv4 address


class Network(NamedTuple):
    """A network: its first address, with all host bits zero, and the length of its prefix in bits."""

    octets: bytes
    prefix: int

    def __str__(self) -> str:
        """Return its CIDR."""
        return f"{_text(self.octets)}/{self.prefix}"


class Address(NamedTuple):
    """One address of an interface, and the length of its network's prefix in bits."""

    octets: bytes
    prefix: int

    @property
    def host(self) -> str:
        """The bare address, IPv6 without brackets or zone."""
        return _text(self.octets)

    @property
    def version(self) -> int:
        """4 or 6."""
        return 4 if len(self.octets) == _OCTETS else 6

    @property
    def network(self) -> Network:
        """The network that it is on."""
        return Network(_masked(self.octets, self.prefix), self.prefix)

    def is_in(self, network: Network) -> bool:
        """Tell whether a network, of whichever family, has this address."""
        return _masked(self.octets, network.prefix) == network.octets

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this host has it."""
        return self.octets[0] == 127 if self.version == 4 else self.octets == bytes(15) + b"\x01"  # noqa: PLR2004

    @property
    def is_link_local(self) -> bool:
        """Tell whether it means something on one link only: 169.254.0.0/16, fe80::/10."""
        return self.octets[:2] == b"\xa9\xfe" if self.version == 4 else _masked(self.octets[:2], 10) == b"\xfe\x80"  # noqa: PLR2004

    @property
    def is_a_hosts(self) -> bool:
        """Tell whether it is one host's: neither a group's nor nobody's."""
        is_group = 224 <= self.octets[0] < 240 if self.version == 4 else self.octets[0] == 255  # noqa: PLR2004
        return not is_group and any(self.octets)


def ip_address(text: str, prefix: int | None = None) -> Address:
    """Read ADDRESS, ADDRESS/PREFIX, or an address with its prefix; a zone (`%eth0`) is left out. Raises ValueError."""
    bare, slash, digits = text.partition("/")
    bare = bare.partition("%")[0]
    try:
        octets = socket.inet_pton(socket.AF_INET6 if ":" in bare else socket.AF_INET, bare)
    except OSError:
        raise ValueError(f"no IP address: {text!r}") from None
    if slash:
        prefix = int(digits)
    bits = len(octets) * 8
    if prefix is not None and not 0 <= prefix <= bits:
        raise ValueError(f"a prefix of 0 to {bits} bits: {text!r}")
    return Address(octets, bits if prefix is None else prefix)


def _masked(octets: bytes, bits: int) -> bytes:
    """Return the octets with all but the first so many bits zero; the longest mask masks nothing."""
    spare = max(0, len(octets) * 8 - bits)
    return (int.from_bytes(octets, "big") >> spare << spare).to_bytes(len(octets), "big")


def _text(octets: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(octets) == _OCTETS else socket.AF_INET6, octets)
