"""Which networks hosts share, by the addresses that they tell."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mingle_hooks.check.fingerprint import LONGEST
from mingle_hooks.check.report import Address, Heard, Host, Network, Space
from mingle_hooks.export.variables import own
from mingle_hooks.net.ports import DEFAULT_RANGE
from mingle_hooks.rendezvous.wire import Body, WireError, address, integer, optional_integer, text
from mingle_hooks.run.planning import facts_of, option_seconds, plan_hosts
from mingle_hooks.run.starters import Allocation, Starter
from mingle_hooks.settings import load

# What a probe and `mingle check` say to each other, over a link that both have proved themselves on.
#
# ::
#
#     probe                                     mingle check
#       JOIN, WELCOME     as a supervisor's, and then
#       FACTS   what this host is            →
#                                            ←  ORDER   probe these; count what came; send to this one
#       ANSWER  what came of it              →
#                                            ←  LEAVE
#
# All that is said is parsed into bounded types: other hosts' text ends up on a terminal and on a page.

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


def parse_report_host(name: str, body: Body) -> Host:
    """Return what a host says of itself. Raises WireError."""
    return Host(
        name=name,
        hostname=text(body, "hostname", 253),
        identity=text(body, "identity", 253),
        gpus=optional_integer(body, "gpus", 0, 1 << 16),
        fingerprint=text(body, "fingerprint", LONGEST),
        addresses=tuple(_address(row) for row in parse_listed(body, "addresses", MOST_ADDRESSES)),
        every=tuple(address({"its": its}, "its") for its in parse_listed(body, "every", MOST_OF_HOST)),
        guests=tuple((iface, where) for iface, where in _pairs(parse_listed(body, "guests", MOST_ADDRESSES))),
        spaces=tuple(_space(row) for row in parse_listed(body, "spaces", MOST_ADDRESSES)),
        faults=tuple(text({"fault": row}, "fault", _LONGEST) for row in parse_listed(body, "faults", MOST_ADDRESSES)),
    )


def parse_names(rows: Sequence[object]) -> tuple[tuple[int, tuple[str, ...] | None], ...]:
    """Return by number what each host's name is; None where nobody answered. Raises WireError."""
    found = []
    for row in rows:
        its = _dict(row, ("number", "addresses"))
        found.append((integer(its, "number", 0, MOST_HOSTS), parse_known(its["addresses"])))
    return tuple(found)


def parse_known(addresses: object) -> tuple[str, ...] | None:
    """Return a name's addresses. Raises WireError."""
    if addresses is None:
        return None
    return tuple(address({"its": its}, "its") for its in parse_listed({"its": addresses}, "its", MOST_ADDRESSES))


def parse_heard(rows: Sequence[object], hosts: Sequence[str]) -> tuple[Heard, ...]:
    """Return from whom multicast came. Raises WireError."""
    found = []
    for row in rows:
        its = _dict(row, ("iface", "hosts", "fault"))
        numbers = [integer({"its": its_}, "its", 0, len(hosts) - 1) for its_ in parse_listed(its, "hosts", len(hosts))]
        iface, fault = text(its, "iface", _LONGEST), text(its, "fault", _LONGEST)
        found.append(Heard(iface, tuple(hosts[number] for number in sorted(set(numbers))), fault))
    return tuple(found)


def parse_listed(body: Body, name: str, most: int) -> list[Any]:
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


# What one `mingle check` was asked for: on which hosts, by which networks and ports, and for how long.

# Up to so many hosts a check is over after the first of these, in seconds; for 256 hosts after 15.
_FEW, _FEW_S, _EACH_S = 16, 5.0, 1 / 24


class CheckRequest(NamedTuple):
    """What a check needs to know; `timeout_s` is for all of it but transfers."""

    starter: Starter
    job: Allocation
    timeout_s: float
    is_bandwidth: bool = False
    iface: tuple[object, ...] = ()
    port_range: range = DEFAULT_RANGE


def check_request(
    settings: Mapping[str, object], hosts: str | None, timeout: str | None, *, is_bandwidth: bool
) -> CheckRequest:
    """Return what this call asks for. Raises UsageError, FactsError and SettingsError."""
    users = own(os.environ)
    loaded = load(users, settings)
    starter, job = plan_hosts(facts_of(users, loaded, hosts), users, hosts)
    limit_s = option_seconds(timeout, "--timeout", _FEW_S + max(len(job.hosts) - _FEW, 0) * _EACH_S)
    return CheckRequest(starter, job, limit_s, is_bandwidth, loaded.iface, loaded.port_range)


# Each host's best address, where they share no network but routers lie between them, or each has a network of its own.
ROUTED = "routed"
# Networks that are probed; a node with more has rails that are alike.
MOST_NETWORKS = 8
# So many hosts with one address are no mistake of two: it is a bridge for each one's own guests.
_MOST_CLASHING = 2


def cidr(its: Address) -> str:
    """Return the network of an address."""
    return str(ipaddress.ip_interface(f"{its.address}/{its.prefix}").network)


def clashing_addresses(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return each address that two hosts or more have, with these hosts; no bridges of guests."""
    guests = bridge_addresses(hosts)
    return {address: its for address, its in _owners(hosts).items() if len(its) > 1 and address not in guests}


def bridge_addresses(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return each address that is a bridge for guests on the hosts that have it: nobody has another one there."""
    networks = _networks(hosts)
    is_bridge = {its.address for host in hosts for its in host.addresses if its.kind == "bridge"}
    found = {}
    for shared, owners in _owners(hosts).items():
        alone = any(set(known.values()) == {shared} for known in networks.values() if shared in known.values())
        if alone and len(owners) > 1 and (len(owners) > _MOST_CLASHING or shared in is_bridge):
            found[shared] = owners
    return found


def shared_networks(hosts: Sequence[Host]) -> tuple[Network, ...]:
    """Return the networks of two hosts or more, the best first.

    IPv6 counts where an interface has no IPv4 that is shared, so that no wire is probed twice.
    """
    guests = bridge_addresses(hosts)
    found = {
        name: known
        for name, known in _networks(hosts).items()
        if len(known) > 1 and not set(known.values()) <= guests.keys()
    }
    ifaces = {(host.name, its.address): its.iface for host in hosts for its in host.addresses}
    wires = {name: {(host, ifaces[host, its]) for host, its in known.items()} for name, known in found.items()}
    four = {wire for name, its in wires.items() if ":" not in name for wire in its}
    kept = {name: known for name, known in found.items() if ":" not in name or not wires[name] <= four}
    if len(hosts) > 1 and not any(len(known) == len(hosts) for known in kept.values()):
        kept |= _routed(hosts)
    order = sorted(kept, key=lambda name: (_place(hosts, kept[name]), -len(kept[name])))
    return tuple(Network(name, tuple(kept[name]), tuple(kept[name].values())) for name in order[:MOST_NETWORKS])


def _owners(hosts: Iterable[Host]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for host in hosts:
        for its in host.addresses:
            found[its.address] = (*found.get(its.address, ()), host.name)
    return found


def _networks(hosts: Iterable[Host]) -> dict[str, dict[str, str]]:
    """Return network -> host -> its first address there."""
    found: dict[str, dict[str, str]] = {}
    for host in hosts:
        for its in host.addresses:
            found.setdefault(cidr(its), {}).setdefault(host.name, its.address)
    return found


def _routed(hosts: Sequence[Host]) -> dict[str, dict[str, str]]:
    """Return each host's best address of a family that all have; nothing where there is none."""
    for is_six in (False, True):
        best = {
            host.name: next((its.address for its in host.addresses if (":" in its.address) == is_six), "")
            for host in hosts
        }
        if all(best.values()):
            return {ROUTED: best}
    return {}


def _place(hosts: Sequence[Host], known: dict[str, str]) -> float:
    """Return how far in front a network's addresses stand on its hosts."""
    places = [[its.address for its in host.addresses].index(known[host.name]) for host in hosts if host.name in known]
    return sum(places) / len(places)
