"""What a probe and `mingle check` say to each other, over a link that both have proved themselves on.

::

    probe                                     mingle check
      JOIN, WELCOME     as a supervisor's, and then
      FACTS   what this host is            →
                                           ←  ORDER   probe these; count what came; send to this one
      ANSWER  what came of it              →
                                           ←  LEAVE

All that is said is parsed into bounded types: other hosts' text ends up on a terminal and on a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mingle_hooks.check.report import Address, Heard, Host, Space
from mingle_hooks.lint.text import LONGEST
from mingle_hooks.rendezvous.protocol.wire import WireError, address, integer, optional_integer, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.rendezvous.protocol.wire import Body

# Beside the kinds of a supervisor's messages.
FACTS, ORDER, ANSWER = 48, 49, 50
# What the probe is told by its environment, beside the key and the way.
IFACE, PORTS = "MINGLE_IFACE", "MINGLE_PORT_RANGE"
PROBE, COUNT, SEND = "probe", "count", "send"

MOST_ADDRESSES, MOST_OF_HOST = 32, 256
MOST_HOSTS = 1 << 16
_MOST = (1 << 63) - 1
_LONGEST = 300


class Peer(NamedTuple):
    """Another host on one network: who it is, when its turn is, whether this one begins, and the way there."""

    number: int
    turn: int
    begins: bool
    network: int
    mine: str
    theirs: str
    port: int
    mtu: int  # the smaller one of both interfaces'

    @classmethod
    def parse(cls, row: object) -> Peer:
        """Return what came. Raises WireError."""
        its = _dict(row, cls._fields)
        return cls(
            integer(its, "number", 0, MOST_HOSTS),
            integer(its, "turn", 0, MOST_HOSTS),
            its["begins"] is True,
            integer(its, "network", 0, MOST_HOSTS),
            address(its, "mine"),
            address(its, "theirs"),
            integer(its, "port", 1, 65535),
            integer(its, "mtu", 0, 1 << 20),
        )


class Met(NamedTuple):
    """What a probe knows of another host on one network: what it sent, round trip, largest packet, why TCP failed.

    `had_no_room` tells that its kernel took nothing for that host, at one time at least.
    """

    number: int
    network: int
    sent: int
    rtt_us: int | None
    mtu: int | None
    closed: str
    had_no_room: bool

    @classmethod
    def parse(cls, row: object) -> Met:
        """Return what came. Raises WireError."""
        its = _dict(row, cls._fields)
        return cls(
            integer(its, "number", 0, MOST_HOSTS),
            integer(its, "network", 0, MOST_HOSTS),
            integer(its, "sent", 0, MOST_HOSTS),
            optional_integer(its, "rtt_us", 0, _MOST),
            optional_integer(its, "mtu", 0, 1 << 20),
            text(its, "closed", _LONGEST),
            its["had_no_room"] is True,
        )


def host(name: str, body: Body) -> Host:
    """Return what a host says of itself. Raises WireError."""
    return Host(
        name=name,
        hostname=text(body, "hostname", 253),
        identity=text(body, "identity", 253),
        gpus=optional_integer(body, "gpus", 0, 1 << 16),
        fingerprint=text(body, "fingerprint", LONGEST),
        addresses=tuple(_address(row) for row in listed(body, "addresses", MOST_ADDRESSES)),
        every=tuple(address({"its": its}, "its") for its in listed(body, "every", MOST_OF_HOST)),
        guests=tuple((iface, where) for iface, where in _pairs(listed(body, "guests", MOST_ADDRESSES))),
        spaces=tuple(_space(row) for row in listed(body, "spaces", MOST_ADDRESSES)),
        faults=tuple(text({"fault": row}, "fault", _LONGEST) for row in listed(body, "faults", MOST_ADDRESSES)),
    )


def names(rows: Sequence[object]) -> tuple[tuple[int, tuple[str, ...] | None], ...]:
    """Return by number what each host's name is; None where nobody answered. Raises WireError."""
    found = []
    for row in rows:
        its = _dict(row, ("number", "addresses"))
        found.append((integer(its, "number", 0, MOST_HOSTS), known(its["addresses"])))
    return tuple(found)


def known(addresses: object) -> tuple[str, ...] | None:
    """Return a name's addresses. Raises WireError."""
    if addresses is None:
        return None
    return tuple(address({"its": its}, "its") for its in listed({"its": addresses}, "its", MOST_ADDRESSES))


def heard(rows: Sequence[object], hosts: Sequence[str]) -> tuple[Heard, ...]:
    """Return from whom multicast came. Raises WireError."""
    found = []
    for row in rows:
        its = _dict(row, ("iface", "hosts", "fault"))
        numbers = [integer({"its": its_}, "its", 0, len(hosts) - 1) for its_ in listed(its, "hosts", len(hosts))]
        iface, fault = text(its, "iface", _LONGEST), text(its, "fault", _LONGEST)
        found.append(Heard(iface, tuple(hosts[number] for number in sorted(set(numbers))), fault))
    return tuple(found)


def listed(body: Body, name: str, most: int) -> list[Any]:
    """Return body[name], a list of so many. Raises WireError."""
    rows = body.get(name)
    if not isinstance(rows, list) or len(rows) > most:
        raise WireError(f"{name}: not a list of at most {most}")
    return rows


def _dict(row: object, fields: Sequence[str]) -> Body:
    if not isinstance(row, dict) or row.keys() != set(fields):
        raise WireError(f"not a row of {', '.join(fields)}")
    return row


def _address(row: object) -> Address:
    its = _dict(row, Address._fields)
    return Address(
        text(its, "iface", _LONGEST),
        text(its, "kind", _LONGEST),
        address(its, "address"),
        integer(its, "prefix", 0, 128),
        optional_integer(its, "mtu", 0, 1 << 20),
        optional_integer(its, "speed_mbps", 0, _MOST),
        integer(its, "port", 0, 65535),
    )


def _space(row: object) -> Space:
    its = _dict(row, Space._fields)
    free, total = (optional_integer(its, name, 0, _MOST) for name in ("free_mb", "total_mb"))
    return Space(text(its, "path", _LONGEST), free, total)


def _pairs(rows: Sequence[object]) -> list[tuple[str, str]]:
    found = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:  # noqa: PLR2004 - a pair
            raise WireError("not a pair")
        found.append((text({"its": row[0]}, "its", _LONGEST), address({"its": row[1]}, "its")))
    return found
