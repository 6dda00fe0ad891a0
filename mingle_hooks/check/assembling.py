"""From hosts to what each is told to probe, and from what they answer to a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check import rounds
from mingle_hooks.check.report import Name, Network, Pair, Report
from mingle_hooks.check.words import MOST_HOSTS, Met, heard, known, listed, names
from mingle_hooks.fabric.machine import is_hostname
from mingle_hooks.rendezvous.protocol.wire import WireError, integer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mingle_hooks.check.report import Host
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
    here: Sequence[int],
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
            mine = _met(counted[number])
            rows |= {(number, row.number, row.network): row for row in mine}
            came |= _counts(number, counted[number])
            refused = sum(row.had_no_room and row.sent < rounds.datagrams(len(here)) for row in mine)
            had_no_room = any(row.had_no_room for row in mine)
            whole = _completed(its, told, met[number], counted[number])
            made.append(whole._replace(clock=clocks.get(number), had_no_room=had_no_room, refused=refused))
        except (KeyError, WireError) as wrong:
            why = f": {wrong}" if isinstance(wrong, WireError) else ""
            made.append(its._replace(missing=f"it started, then did not answer in time{why}"))
    names_left = {made[number].name for number in here if made[number].missing is None}
    made = [its if its.missing is not None else _overrun(n, its, counted[n], rows, came) for n, its in enumerate(made)]
    pairs = _pairs(made, here, shared, rows, came)
    sound, unknown = (tuple(pair for pair, is_known in pairs if is_known == which) for which in (True, False))
    return Report(tuple(made), _left(shared, names_left), sound, unknown=unknown)


def _overrun(
    number: int,
    host: Host,
    counted: Body,
    rows: Mapping[tuple[int, int, int], Met],
    came: Mapping[tuple[int, int, int], int],
) -> Host:
    """Return a host with what it dropped itself, where nothing else can have been lost on the way to it."""
    dropped = integer(counted, "dropped", 0, 1 << 62)
    lost = sum(max(row.sent - came.get(way, 0), 0) for way, row in rows.items() if way[1] == number)
    return host._replace(dropped=dropped if lost <= dropped else 0)


def _left(shared: Sequence[Network], names: set[str]) -> tuple[Network, ...]:
    """Return the networks with those hosts that are still there."""
    found = []
    for network in shared:
        ends = [end for end in zip(network.hosts, network.addresses, strict=True) if end[0] in names]
        found.append(Network(network.name, tuple(host for host, _ in ends), tuple(address for _, address in ends)))
    return tuple(found)


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
        late_s=integer(met, "late_ms", 0, 1 << 31) / 1000,
        own_name=known(met.get("own")),
        names=tuple(Name(told[n], its) for n, its in names(listed(met, "names", MOST_HOSTS)) if n < len(told)),
        multicast=heard(listed(counted, "multicast", MOST_HOSTS), told),
    )


def _pairs(
    hosts: Sequence[Host],
    here: Sequence[int],
    shared: Sequence[Network],
    rows: Mapping[tuple[int, int, int], Met],
    came: Mapping[tuple[int, int, int], int],
) -> list[tuple[Pair, bool]]:
    """Return what both ends of each way say of it, and whether what did not arrive says anything."""
    count = rounds.datagrams(len(here))
    found = []
    for one, other in (pair for turn in rounds.rounds(len(here)) for pair in turn):
        a, b = here[one], here[other]
        for network, its in enumerate(shared):
            there, back = rows.get((a, b, network)), rows.get((b, a, network))
            if there is not None and back is not None:
                pair = Pair(hosts[a].name, hosts[b].name, its.name, rtt_us=there.rtt_us, mtu=there.mtu)
                pair = pair._replace(open_there=there.closed, open_back=back.closed)
                pair = pair._replace(sent=there.sent, there=min(came.get((a, b, network), 0), there.sent))
                pair = pair._replace(sent_back=back.sent, back=min(came.get((b, a, network), 0), back.sent))
                is_busy = any(hosts[its].late_s or hosts[its].dropped for its in (a, b))
                if is_busy or there.had_no_room or back.had_no_room:
                    found.append((pair._replace(mtu=None), _is_whole(pair, count)))
                else:
                    found.append((pair, True))
    return found


def _is_whole(pair: Pair, count: int) -> bool:
    """Tell whether all that is sent between two hosts has arrived."""
    return pair.there == pair.back == count and pair.open_there == pair.open_back == ""


def mbits(answer: Body | None) -> int | None:
    """Return what a transfer carried; None where nothing is known of it."""
    try:
        octets, took_ns = (integer(answer or {}, name, 0, 1 << 62) for name in ("octets", "ns"))
    except WireError:
        return None
    return octets * 8 * 1000 // took_ns if took_ns else None
