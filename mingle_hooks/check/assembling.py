"""From hosts to what each is told to probe, and from what they answer to a report."""

from __future__ import annotations

from mingle_hooks.check import rounds
from mingle_hooks.check.report import Name, Pair, Report
from mingle_hooks.check.words import MOST_HOSTS, Met, heard, known, listed, names
from mingle_hooks.fabric.machine import is_hostname
from mingle_hooks.rendezvous.protocol.wire import WireError, integer
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.check.report import Host, Network
    from mingle_hooks.rendezvous.protocol.wire import Body

# Beyond so many hosts only so many of them say a word by multicast; all listen.
_MOST_SPEAKERS = 64
_MTU = 1500  # of an interface that does not tell


def orders(hosts: Sequence[Host], here: Sequence[int], shared: Sequence[Network]) -> tuple[dict[int, Body], int]:
    """Return what each host is told, and how many turns that takes."""
    turns = rounds.rounds(len(here))
    step = -(-len(here) // _MOST_SPEAKERS)
    found: dict[int, Body] = {
        number: {"peers": [], "names": [], "count": rounds.datagrams(len(here)), "multicast": place % step == 0}
        for place, number in enumerate(here)
    }
    ways = [dict(zip(its.hosts, its.addresses, strict=True)) for its in shared]
    ends = {(its.name, end.address): (end.port, end.mtu or _MTU) for its in hosts for end in its.addresses}
    for turn, pairs in enumerate(turns):
        for a, b in pairs:
            for begins, one, other in ((True, here[a], here[b]), (False, here[b], here[a])):
                order, mine, theirs = found[one], hosts[one].name, hosts[other].name
                order["names"].append({"number": other, "name": _name(hosts[other])})
                for network, at in enumerate(ways):
                    if mine in at and theirs in at and at[mine] != at[theirs]:
                        port, mtu = ends[theirs, at[theirs]]
                        row = (other, turn, begins, network, at[mine], at[theirs], port)
                        order["peers"] += _peer(row, min(mtu, ends[mine, at[mine]][1]))
    return found, len(turns)


def _peer(row: tuple[object, ...], mtu: int) -> list[Body]:
    """Return the row of one way; none where the other has no port that is free."""
    fields = ("number", "turn", "begins", "network", "mine", "theirs", "port")
    return [{**dict(zip(fields, row, strict=True)), "mtu": mtu}] if row[-1] else []


def _name(host: Host) -> str:
    """Return by which name others look a host up: the scheduler's, or its own where that is an address."""
    is_address = ":" in host.name or not host.name.strip("0123456789.")
    return host.hostname if is_address or host.name == "localhost" or not is_hostname(host.name) else host.name


def assembled(
    hosts: Sequence[Host],
    shared: Sequence[Network],
    met: Mapping[int, Body],
    counted: Mapping[int, Body],
    clocks: Mapping[int, tuple[float, float]],
) -> Report:
    """Return the report, without findings; a host that did not answer any more is missing."""
    told = [its.name for its in hosts]
    rows: dict[tuple[int, int, int], Met] = {}
    came: dict[tuple[int, int, int], int] = {}
    made = []
    for number, its in enumerate(hosts):
        if its.missing is not None:
            made.append(its)
            continue
        try:
            rows |= {(number, row.number, row.network): row for row in _met(met[number])}
            came |= _counts(number, counted[number])
            made.append(_completed(its, told, met[number], counted[number])._replace(clock=clocks.get(number)))
        except (KeyError, WireError) as wrong:
            why = f": {wrong}" if isinstance(wrong, WireError) else ""
            made.append(its._replace(missing=f"it started, and then gave no answer in time{why}"))
    return Report(tuple(made), tuple(shared), tuple(_pairs(made, shared, rows, came)))


def _met(body: Body) -> list[Met]:
    return [Met.parse(row) for row in listed(body, "met", MOST_HOSTS)]


def _counts(number: int, body: Body) -> dict[tuple[int, int, int], int]:
    """Return how many datagrams came to a host, by who sent them and on which network."""
    found = {}
    for row in listed(body, "heard", MOST_HOSTS):
        if not isinstance(row, list) or len(row) != 3:  # noqa: PLR2004 - who, where, how many
            raise WireError("heard: not who, where and how many")
        its = dict(zip(("sender", "network", "count"), row, strict=True))
        sender, network = integer(its, "sender", 0, MOST_HOSTS), integer(its, "network", 0, MOST_HOSTS)
        found[sender, number, network] = integer(its, "count", 0, 1 << 20)
    return found


def _completed(host: Host, told: Sequence[str], met: Body, counted: Body) -> Host:
    return host._replace(
        own_name=known(met.get("own")),
        names=tuple(Name(told[n], its) for n, its in names(listed(met, "names", MOST_HOSTS)) if n < len(told)),
        multicast=heard(listed(counted, "multicast", MOST_HOSTS), told),
    )


def _pairs(
    hosts: Sequence[Host],
    shared: Sequence[Network],
    rows: Mapping[tuple[int, int, int], Met],
    came: Mapping[tuple[int, int, int], int],
) -> list[Pair]:
    here = [number for number, its in enumerate(hosts) if its.missing is None]
    everybody = [number for number, its in enumerate(hosts) if its.addresses]
    count, found = rounds.datagrams(len(everybody)), []
    for turn in rounds.rounds(len(everybody)):
        for a, b in turn:
            one, other = everybody[a], everybody[b]
            for network, its in enumerate(shared):
                there, back = rows.get((one, other, network)), rows.get((other, one, network))
                if there is not None and back is not None and {one, other} <= {*here}:
                    heard_there, heard_back = (
                        min(came.get((*way, network), 0), count) for way in ((one, other), (other, one))
                    )
                    found.append(
                        Pair(
                            hosts[one].name,
                            hosts[other].name,
                            its.name,
                            count,
                            heard_there,
                            heard_back,
                            there.rtt_us,
                            there.mtu,
                            there.closed,
                            back.closed,
                        )
                    )
    return found


def mbits(answer: Body | None) -> int | None:
    """Return what a transfer carried; None where nothing is known of it."""
    try:
        octets, took_ns = (integer(answer or {}, name, 0, 1 << 62) for name in ("octets", "ns"))
    except WireError:
        return None
    return octets * 8 * 1000 // took_ns if took_ns else None
