"""One check, from the start of its probes to the report; and the search for hosts that make a command fail."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import combinations
from typing import Literal, NamedTuple

from mingle_hooks.check import report
from mingle_hooks.check.report import Finding, Flow, Heard, Host, Name, Network, Pair, Report, network_ends
from mingle_hooks.check.rules import judge, shared_networks, slow_flows
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.variables import own
from mingle_hooks.net.addresses import is_hostname
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Body, WireError, integer, parse
from mingle_hooks.run.launching import Launching
from mingle_hooks.run.messages import JOIN, MOST_STRANGERS, Join, Leave, Link, Reception, Welcome
from mingle_hooks.run.processes import shell_status
from mingle_hooks.run.start import Options, Request, facts_of, option_seconds, plan_hosts, plan_request, run_command
from mingle_hooks.run.starters import Allocation, Starter
from mingle_hooks.run.status import wait_for
from mingle_hooks.schedulers.facts import fold
from mingle_hooks.settings import Settings, load

# The options of one `mingle check`: hosts, networks, ports and deadlines.

# Starting may be slow without any fault of a host: logins take 5 s if a directory service is busy.
START_S = 60.0
# Up to this many hosts a check takes this long after their start, in seconds; each further host adds: 15 s for 256.
_FEW, _FEW_S, _EACH_S = 16, 5.0, 1 / 24


class CheckRequest(NamedTuple):
    """A check: `start_s` bounds the start of the probes, `timeout_s` all that follows except transfers."""

    starter: Starter
    job: Allocation
    settings: Settings
    timeout_s: float
    start_s: float = START_S
    is_bandwidth: bool = False


def check_request(
    settings: Mapping[str, object], hosts: str | None, timeout: str | None, start: str | None, *, is_bandwidth: bool
) -> CheckRequest:
    """Return the check that these options describe. Raises UsageError, FactsError and SettingsError."""
    users = own(os.environ)
    loaded = load(users, settings)
    starter, job = plan_hosts(facts_of(users, loaded, hosts), users, hosts)
    limit_s = option_seconds(timeout, "--timeout", _FEW_S + max(len(job.hosts) - _FEW, 0) * _EACH_S)
    start_s = option_seconds(start, "--start", START_S)
    return CheckRequest(starter, job, loaded, limit_s, start_s, is_bandwidth)


# Which hosts probe each other, and when: few at once, and of many hosts each probes only some.

Round = tuple[tuple[int, int], ...]  # pairs; the first host of each begins

# Up to this many hosts, all pairs are probed.
MOST_WITH_ALL = 64
# Beyond, each host begins with this many others, and as many begin with it.
_OFFSETS = 4
# Datagrams to each host. Among few hosts, each has to count more.
FEW, MANY_DATAGRAMS, DATAGRAMS = 8, 20, 10


def probe_rounds(count: int) -> tuple[Round, ...]:
    """Return the rounds: a tournament in which all meet, or, for many hosts, a ring with some longer steps across."""
    return _tournament(count) if count <= MOST_WITH_ALL else _ring(count)


def other_hosts(count: int) -> int | None:
    """Return how many others each host probes; None for all."""
    return None if count <= MOST_WITH_ALL else 2 * len(_offsets(count))


def datagram_rounds(count: int) -> int:
    """Return how many datagrams a host sends to each other host."""
    return MANY_DATAGRAMS if count <= FEW else DATAGRAMS


def transfer_rounds(count: int) -> tuple[Round, ...]:
    """Return rounds of senders and receivers: each sends to both of its neighbours in a ring, one at a time."""
    edges = [(i, (i + 1) % count) for i in range(count if count > 2 else count - 1)]  # noqa: PLR2004 - two have one wire
    parts = [edges[0 : count - count % 2 : 2], edges[1::2], edges[count - 1 :] if count % 2 else []]
    both = [part if is_forth else [(b, a) for a, b in part] for part in parts for is_forth in (True, False)]
    return tuple(tuple(part) for part in both if part)


def _tournament(count: int) -> tuple[Round, ...]:
    """Return a round for each sum of two numbers; with an even count the last host meets whoever is left.

    Each host begins about half of its probes.
    """
    odd = count - 1 + count % 2
    turns: list[list[tuple[int, int]]] = [[] for _ in range(odd)]
    for one, other in combinations(range(count), 2):
        turn = turns[(one + other if other < odd else 2 * one) % odd]
        turn.append((one, other) if (one + other) % 2 else (other, one))
    return tuple(map(tuple, turns))


def _ring(count: int) -> tuple[Round, ...]:
    return tuple(tuple((i, (i + offset) % count) for i in range(count)) for offset in _offsets(count))


def _offsets(count: int) -> tuple[int, ...]:
    """Return steps that grow by the same factor, so that any two hosts are a few steps apart."""
    base = count ** (1 / _OFFSETS)
    return tuple(sorted({round(base**power) for power in range(_OFFSETS)}))


# From hosts to the orders of their probes, and from the answers to a report.

# Of more hosts than this, only this many send multicast; all listen.
_MOST_SPEAKERS = 64
_MTU, _LARGEST = 1500, 65535  # of an interface that does not report one, and of any packet
# A port that the kernel chose is tried in the first turns only, as two hosts or four suffice to find a firewall: in a
# turn of many hosts, each meets two.
_FREE_TURNS, _FREE_TURNS_OF_MANY = 4, 1

_STOPPED = "it started, then did not answer in time"

Rows = dict[tuple[int, int, int], report.Measured]  # from host, to host, network
Arrivals = dict[tuple[int, int, int], int]  # the same -> datagrams that arrived


def probe_orders(hosts: Sequence[Host], here: Sequence[int], shared: Sequence[Network]) -> tuple[dict[int, Body], int]:
    """Return the order of each host's probe, and how many turns that takes."""
    turns = probe_rounds(len(here))
    free_turns = _FREE_TURNS if other_hosts(len(here)) is None else _FREE_TURNS_OF_MANY
    step = -(-len(here) // _MOST_SPEAKERS)
    orders: dict[int, Body] = {
        number: {"peers": [], "names": [], "count": datagram_rounds(len(here)), "multicast": place % step == 0}
        for place, number in enumerate(here)
    }
    networks = [network_ends(hosts, network) for network in shared]
    for turn, pairs in enumerate(turns):
        for a, b in pairs:
            for begins, number, other in ((True, here[a], here[b]), (False, here[b], here[a])):
                host = hosts[other]
                orders[number]["names"].append({"number": other, "name": _name_to_look_up(host)})
                for network, ends in enumerate(networks):
                    mine, theirs = ends.get(hosts[number].name), ends.get(host.name)
                    # A port is 0 if it found none that is free.
                    if mine and theirs and mine.address != theirs.address and mine.port and theirs.port:
                        mtu = min(theirs.mtu or _MTU, mine.mtu or _MTU, _LARGEST)
                        free_port = theirs.free_port if turn < free_turns else 0
                        ways = mine.address, theirs.address, theirs.port, mtu, free_port
                        orders[number]["peers"].append(report.Peer(other, turn, begins, network, *ways)._asdict())
    return orders, len(turns)


def _name_to_look_up(host: Host) -> str:
    """Return the name that others know a host by: the job's, or the host's own if that is an address."""
    is_address = ":" in host.name or not host.name.strip("0123456789.")
    return host.hostname if is_address or host.name == "localhost" or not is_hostname(host.name) else host.name


def assemble_report(
    hosts: Sequence[Host],
    here: Sequence[int],
    shared: Sequence[Network],
    met: Mapping[int, Body],
    counted: Mapping[int, Body],
    asked_at: float,
    arrived_at: Mapping[int, float],
) -> Report:
    """Return the report, without findings; a host that stopped answering is missing.

    `asked_at` and `arrived_at` are when the hosts were asked to count, and when their answers came, since 1970.
    """
    names = [host.name for host in hosts]
    rows: Rows = {}
    arrived: Arrivals = {}
    found = [*hosts]
    for number in here:
        try:
            # In this order: a late answer to PROBE may stand where that to COUNT should be.
            its, answer = parse(report.Found, met[number]), parse(report.Counted, counted[number])
            found[number] = _completed(hosts[number], names, its, answer, datagram_rounds(len(here)))
        except KeyError:
            found[number] = hosts[number]._replace(missing=_STOPPED, is_late=True)
            continue
        except WireError as wrong:
            found[number] = hosts[number]._replace(missing=f"{_STOPPED}: {wrong}")
            continue
        clock_s = answer.time_ms / 1000
        found[number] = found[number]._replace(clock=(clock_s - arrived_at[number], clock_s + 0.001 - asked_at))
        rows |= {(number, row.number, row.network): row for row in answer.met}
        arrived |= {(row.sender, number, row.network): row.datagrams for row in answer.heard}
    lost: Counter[int] = Counter()
    for way, row in rows.items():
        lost[way[1]] += max(row.sent - arrived.get(way, 0), 0)
    present = [number for number in here if found[number].missing is None]
    for number in present:
        if lost[number] > found[number].dropped:  # something else was lost on the way to it
            found[number] = found[number]._replace(dropped=0)
    pairs = [*_pairs(found, here, shared, rows, arrived)]
    sound, unknown = (tuple(pair for pair, is_known in pairs if is_known == which) for which in (True, False))
    ends = [(network.name, network_ends([hosts[number] for number in present], network)) for network in shared]
    networks = [Network(name, tuple(known), tuple(end.address for end in known.values())) for name, known in ends]
    return Report(tuple(found), tuple(networks), sound, unknown=unknown)


def _completed(host: Host, hosts: Sequence[str], found: report.Found, counted: report.Counted, datagrams: int) -> Host:
    """Return a host with what its probe found; so many datagrams go to each peer. Raises WireError."""
    heard = counted.multicast
    if any(number >= len(hosts) for row in heard for number in row.hosts):
        raise WireError("hosts: no host of this check")
    return host._replace(
        late_s=found.late_ms / 1000,
        own_name=found.own,
        names=tuple(Name(hosts[row.number], row.addresses) for row in found.names if row.number < len(hosts)),
        multicast=tuple(Heard(row.iface, tuple(hosts[n] for n in sorted(set(row.hosts))), row.fault) for row in heard),
        dropped=counted.dropped,
        had_no_room=any(row.had_no_room for row in counted.met),
        refused=sum(row.had_no_room and row.sent < datagrams for row in counted.met),
    )


def _pairs(
    hosts: Sequence[Host], here: Sequence[int], shared: Sequence[Network], rows: Rows, arrived: Arrivals
) -> Iterator[tuple[Pair, bool]]:
    """Yield the pairs that both ends measured, and whether losses between them are known to be real."""
    count = datagram_rounds(len(here))
    for one, other in (pair for turn in probe_rounds(len(here)) for pair in turn):
        a, b = here[one], here[other]
        is_busy = any(hosts[number].late_s or hosts[number].dropped for number in (a, b))
        for network, shared_network in enumerate(shared):
            there, back = rows.get((a, b, network)), rows.get((b, a, network))
            if there is None or back is None:
                continue
            came = min(arrived.get((a, b, network), 0), there.sent)
            came_back = min(arrived.get((b, a, network), 0), back.sent)
            ends = hosts[a].name, hosts[b].name, shared_network.name
            counts = there.sent, came, back.sent, came_back
            closed = there.closed, back.closed, there.free_closed, back.free_closed
            pair, is_known = Pair(*ends, *counts, there.rtt_us, there.mtu, *closed), True
            if is_busy or there.had_no_room or back.had_no_room:
                is_known = came == came_back == count and there.closed == back.closed == ""
                pair = pair._replace(mtu=None, free_there=None, free_back=None)
            yield pair, is_known


def mbits(answer: Body | None) -> int | None:
    """Return the throughput of a transfer in Mbit/s; None if it is not known."""
    try:
        octets, took_ns = (integer(answer or {}, name, 0, 1 << 62) for name in ("octets", "ns"))
    except WireError:
        return None
    return octets * 8 * 1000 // took_ns if took_ns else None


# The check itself.

# The share for probing of the time after the start; the rest is for what follows.
_PROBE_SHARE = 0.25
# What has not arrived after this many seconds, in which the probe ran, is lost: TCP connects again after 1 s and 3 s. A
# probe that does not run at times may take longer, up to the time of the whole check.
_PROBE_S = 3.5
_COUNT_S, _TRANSFER_S, _LEAVE_S = 1.0, 2.0, 1.0
_SILENCE_MS = 60_000
# How often the starters' ends are looked for, in seconds.
_POLL_S = 0.05
# This many slow transfers are tried again, this often: another program may have used the network.
_MOST_AGAIN, _AGAIN = 8, 2
_LONGEST_WHY = 200


def run_check(request: CheckRequest) -> Report:
    """Return the report. Raises UsageError, NetworkError and PlaceError."""
    with Loop() as loop, closing(Session(loop, request)) as session:
        session.start()
        return session.report()


class Session:
    """The probes of one check: their connections, `facts` and `answers` by the number of their host.

    `gone` has why the connection of a host ended. A turn of probing takes at most `turn_s` seconds, all of them
    `turns_s`.
    """

    turn_s, turns_s = 0.04, 1.0

    def __init__(self, loop: Loop, request: CheckRequest) -> None:
        self._loop, self._request = loop, request
        self._began = self._started = loop.clock()
        iface, port_range = request.settings.iface, request.settings.port_range
        self._launching = Launching(loop, request.starter, request.job, "probe", request.settings, None)
        self._launching.environ[report.PORTS] = f"{port_range.start}-{port_range.stop - 1}"
        if iface:
            self._launching.environ[report.IFACE] = ",".join(wish.text for wish in iface)
        self._launching.on_end = self._starter_ended
        self._processes = self._launching.processes
        self._own_port = f"this host's port {self._launching.sockets.port} (--iface, --port-range)"
        self._numbers = {host: number for number, host in enumerate(request.job.hosts)}
        self._ended: dict[str, str] = {}  # host -> why it is missing, by its starter's end
        self._links: dict[int, Link] = {}
        self.facts: dict[int, Body] = {}
        self.answers: dict[int, Body] = {}
        self.arrived_at: dict[int, float] = {}  # when each host's last answer did
        self.gone: dict[int, str] = {}
        self._reception = Reception(loop, self._introduced, MOST_STRANGERS + len(self._numbers))
        self._reception.on_end = self._link_ended
        self._reception.listen(self._launching.sockets.listeners, self._launching.secret)

    def start(self) -> None:
        """Start a probe on each host."""
        self._launching.start(self._request.job.hosts)
        self._poll_processes()

    def close(self) -> None:
        """End all probes, and close the sockets."""
        for link in self._links.values():
            link.send_record(Leave(0))
        wait_for(self._loop, lambda: not self._processes.running, _LEAVE_S)
        self._processes.kill(at_once=True)
        for process in self._processes.running:
            process.wait()
        self._processes.poll()
        self._reception.close()
        for link in self._links.values():
            link.close()
        self._launching.close()

    def report(self) -> Report:
        """Wait for the probes, send them their orders, and return the report of their answers."""
        wait_for(self._loop, self._is_complete, self._request.start_s)
        self._started = self._loop.clock()
        hosts = tuple(self._host(number, name) for name, number in self._numbers.items())
        here = [number for number, host in enumerate(hosts) if host.missing is None]
        shared = shared_networks([hosts[number] for number in here])
        orders, turns = probe_orders(hosts, here, shared)
        turn_s = min(self.turn_s, self.turns_s / max(turns, 1))
        limit_s = min(self._request.timeout_s * _PROBE_SHARE, _PROBE_S) + turns * turn_s
        most_s = max(limit_s, self._left_s() - 2 * _COUNT_S)
        times = {"limit_ms": int(limit_s * 1000), "most_ms": int(most_s * 1000), "turn_us": int(turn_s * 1_000_000)}
        wanted = {number: {"do": report.PROBE, **times, **order} for number, order in orders.items()}
        met = self.gather(wanted, most_s + _COUNT_S)
        asked_at = time.time()
        counted = self.gather({number: {"do": report.COUNT} for number in here}, max(self._left_s(), _COUNT_S))
        found = assemble_report(hosts, here, shared, met, counted, asked_at, self.arrived_at)
        found = found._replace(others=other_hosts(len(here)))
        if self._request.is_bandwidth and shared:
            found = found._replace(flows=self._flows(hosts, found.networks[0]))
        return judge(found._replace(took_s=round(self._loop.clock() - self._began, 3)))

    def gather(self, orders: Mapping[int, Body], limit_s: float) -> dict[int, Body]:
        """Send orders; return the answers that arrive in time."""
        self.answers.clear()
        for number in orders.keys() & self._links.keys():
            self._links[number].send_message(report.ORDER, orders[number])
        wait_for(self._loop, lambda: orders.keys() <= self.answers.keys() | self.gone.keys(), limit_s)
        return {number: self.answers[number] for number in orders if number in self.answers}

    def _left_s(self) -> float:
        """Return how much is left of the time after the start, in seconds."""
        return self._started + self._request.timeout_s - self._loop.clock()

    # --- Connections of probes, which send no heartbeats, and expect none.

    def _introduced(self, link: Link, kind: int, body: Body) -> None:
        """Accept a probe of this check. Raises WireError for any other caller."""
        self._reception.admit(link)
        number = self._numbers.get(parse(Join, body).host)
        if kind != JOIN or number is None or number in self._links:
            raise WireError("no host of this check")
        self._links[number] = link
        link.on_message = lambda kind, body: self._received(number, kind, body)
        link.send_record(Welcome(number, self._launching.sockets.port, _SILENCE_MS))

    def _received(self, number: int, kind: int, body: Body) -> None:
        if kind == report.FACTS:
            self.facts[number] = body
        elif kind != report.ANSWER:
            raise WireError("not a probe's message")
        elif number not in self.answers:
            self.answers[number], self.arrived_at[number] = body, time.time()

    def _link_ended(self, link: Link, why: str) -> None:
        for number, other in [*self._links.items()]:
            if other is link:
                del self._links[number]
                self.gone[number] = why

    # --- The hosts.

    def _poll_processes(self) -> None:
        self._processes.poll()
        self._loop.after(_POLL_S, self._poll_processes)

    def _starter_ended(self, hosts: tuple[str, ...], status: int, output: str) -> None:
        lines = output.strip().splitlines() or ["no output"]
        for name in hosts:
            line = next((line for line in reversed(lines) if name in re.split(r"[^\w.-]+", line)), lines[-1])
            has_started = self._numbers[name] in self.facts
            verb = "it started, then ended" if has_started else "did not start"
            why = f"{verb}: {printable(line, _LONGEST_WHY)} (status {status})"
            is_cut_off = status == report.GAVE_UP and not has_started
            self._ended[name] = f"it does not reach {self._own_port}" if is_cut_off else why

    def _is_complete(self) -> bool:
        return all(number in self.facts or name in self._ended for name, number in self._numbers.items())

    def _host(self, number: int, name: str) -> Host:
        if number in self.facts and number not in self.gone:
            try:
                return report.parse_report_host(name, self.facts[number])
            except WireError as wrong:
                return Host(name, missing=f"it sent what no probe of this version sends: {wrong}")
        if name in self._ended:
            return Host(name, self._ended[name])
        if number in self.gone:
            return Host(name, f"it started, then its connection ended: {self.gone[number]}")
        silent = f"no sign of it within {self._request.start_s:.1f} s: it has not started yet (--start)"
        return Host(name, f"{silent}, or does not reach {self._own_port}", is_late=True)

    # --- Transfers.

    def _flows(self, hosts: tuple[Host, ...], network: Network) -> tuple[Flow, ...]:
        """Have each host send to two others; slow transfers are tried again, alone."""
        ends = network_ends(hosts, network)
        there = [number for name, number in self._numbers.items() if name in ends and ends[name].port]
        found: dict[tuple[int, int], Flow] = {}

        def transfer(ways: list[tuple[int, int]]) -> None:
            """Have these hosts send at once; the best result of each way counts."""
            orders = {}
            for sender, receiver in ways:
                end = ends[hosts[receiver].name]
                order = report.SendOrder(receiver, end.address, end.port, int(_TRANSFER_S * 1000))
                orders[sender] = {"do": report.SEND, **order._asdict()}
            answers = self.gather(orders, _TRANSFER_S + _COUNT_S)
            for a, b in ways:
                flow = Flow(hosts[a].name, hosts[b].name, network.name, mbits(answers.get(a)))
                found[a, b] = max(found.get((a, b), flow), flow, key=lambda flow: flow.mbits or 0)

        for part in transfer_rounds(len(there)):
            transfer([(there[a], there[b]) for a, b in part])
        for _ in range(_AGAIN):
            slow = slow_flows(tuple(found.values()))[:_MOST_AGAIN]
            for way in [way for way, flow in found.items() if flow in slow]:
                transfer([way])
        return tuple(found.values())


# The search for one host, or two together, that make a command fail.
#
# It knows nothing of hosts and commands: it requests one run after the other, and gets whether that passed.

Hosts = tuple[str, ...]
# It passes on all hosts; the culprits are found; there are more of them; it fails on any hosts; it fails at times.
Outcome = Literal["passes", "found", "many", "everywhere", "unsteady"]

# Culprits that are searched for, one after the other, and runs in all.
_MOST_CULPRITS, MOST_RUNS = 8, 200
# Hosts on which is tried, one by one, whether the command passes anywhere; and hosts beside which a suspect is tried.
_MOST_TRIED = 3
_PAIR = 2


class Verdict(NamedTuple):
    """The result: each of `culprits` is one host that fails beside any others, or two that fail only together.

    `suspects` took part in every failed run of an unsteady command; `runs` and `failed` count the runs.
    """

    outcome: Outcome
    culprits: tuple[Hosts, ...] = ()
    suspects: Hosts = ()
    runs: int = 0
    failed: int = 0


class ExhaustedError(Exception):
    """The search needs more runs than are allowed."""


def bisect(hosts: Hosts, passes: Callable[[Hosts], bool]) -> Verdict:
    """Return which hosts make a command fail; `passes(some)` runs it on some of these hosts."""
    search = _Search(hosts, passes)
    try:
        verdict = search.verdict()
    except ExhaustedError:
        verdict = search.unsteady()
    failed = sum(not passed for _, passed in search.runs)
    return verdict._replace(runs=len(search.runs), failed=failed)


class _Search:
    """The runs of one search: one on each set of hosts, except where a failure is confirmed."""

    def __init__(self, hosts: Hosts, passes: Callable[[Hosts], bool]) -> None:
        self._hosts, self._passes = hosts, passes
        self._passes_alone: bool | None = None  # whether the command can pass on one host
        self.runs: list[tuple[Hosts, bool]] = []

    def verdict(self) -> Verdict:
        """Return the result, without the numbers of runs. Raises ExhaustedError."""
        left = self._hosts
        culprits: list[Hosts] = []
        while left and not self._run(left):
            if culprits and not any(passed for _, passed in self.runs):
                break
            smallest = self._smallest(left, ())
            if len(smallest) > _PAIR or self._run(smallest, again=True):
                return self.unsteady()
            if len(culprits) == _MOST_CULPRITS:
                return Verdict("many", tuple(culprits))
            found = self._separated(smallest, left)
            if self._is_contradicted(found):
                if self._passes_alone is False:  # and yet it was tried beside others only
                    return self.unsteady()
                self._passes_alone = False  # it fails on any single host
                return self.verdict()
            culprits += found
            excluded = {culprit[-1] for culprit in found}  # of two that fail together one may stay
            left = tuple(host for host in left if host not in excluded)
        if culprits and not any(passed for _, passed in self.runs):
            return Verdict("everywhere")
        return Verdict("found" if culprits else "passes", tuple(culprits))

    def unsteady(self) -> Verdict:
        """Return the hosts of every failed run, of these those that took part in the fewest runs that passed."""
        failed = [set(hosts) for hosts, passed in self.runs if not passed]
        counts = {
            host: sum(host in hosts for hosts, passed in self.runs if passed)
            for host in self._hosts
            if all(host in hosts for hosts in failed)
        }
        fewest = min(counts.values(), default=0)
        return Verdict("unsteady", suspects=tuple(host for host, count in counts.items() if count == fewest))

    def _run(self, hosts: Iterable[str], *, again: bool = False) -> bool:
        """Return whether it passes; True for one host if it passes on no single host, as that proves nothing."""
        wanted = {*hosts}
        some = tuple(host for host in self._hosts if host in wanted)
        if len(some) == 1 and not self._can_pass_alone(some[0]):
            return True
        if again or some not in dict(self.runs):
            if len(self.runs) == MOST_RUNS:
                raise ExhaustedError
            self.runs.append((some, self._passes(some)))
        return dict(self.runs)[some]

    def _can_pass_alone(self, host: str) -> bool:
        """Return whether the command can pass on one host; found out once, on hosts other than a suspect."""
        if self._passes_alone is None:
            self._passes_alone = True
            others = [other for other in reversed(self._hosts) if other != host]
            others = others[::2] + others[1::2]  # neighbours may share a fault
            for one in others[:_MOST_TRIED]:
                if self._run((one,)):
                    break
                company = [other for other in (*others, host) if other != one][:_MOST_TRIED]
                if any(self._run((one, other)) for other in company):
                    self._passes_alone = False
                    break
        return self._passes_alone

    def _smallest(self, part: Hosts, beside: Hosts) -> Hosts:
        """Return the fewest hosts of a part that still fail beside others, by Zeller's delta debugging.

        If neither half fails by itself, each has some of them: these are searched beside the whole other half.
        """
        if len(part) == 1:
            return part
        middle = len(part) // 2
        one, other = part[:middle], part[middle:]
        for half in (one, other):
            if not self._run((*half, *beside)):
                return self._smallest(half, beside)
        first = self._smallest(one, (*other, *beside))
        return first + self._smallest(other, (*first, *beside))

    def _separated(self, smallest: Hosts, among: Hosts) -> tuple[Hosts, ...]:
        """Distinguish two hosts that fail only together from one that fails beside any other, but passes alone."""
        if len(smallest) < _PAIR:
            return (smallest,)
        for witness in self._witnesses([host for host in among if host not in smallest]):
            fails = [host for host in smallest if not self._run((host, witness))]
            if len(fails) < _PAIR:
                return ((fails[0],),) if fails else (smallest,)
        return (smallest,) if len(among) == len(smallest) else tuple((host,) for host in smallest)

    def _is_contradicted(self, found: tuple[Hosts, ...]) -> bool:
        """Return whether a host that fails alone has passed beside others."""
        alone = {culprit[0] for culprit in found if len(culprit) == 1 and dict(self.runs).get(culprit) is False}
        return any(passed and len(hosts) > 1 and not alone.isdisjoint(hosts) for hosts, passed in self.runs)

    def _witnesses(self, others: list[str]) -> list[str]:
        """Return some hosts that are probably well: first those that passed beside the most others."""
        most = {
            host: max((len(hosts) for hosts, passed in self.runs if passed and host in hosts), default=0)
            for host in others
        }
        return sorted(others, key=lambda host: -most[host])[:_MOST_TRIED]


# The runs themselves.

_STDOUT, _STDERR = 1, 2
_SHOWN = 80


class Trials:
    """The runs of one command; `note(line)` gets a line for each."""

    def __init__(
        self, command: tuple[str, ...], options: Options, settings: Mapping[str, object], note: Callable[[str], None]
    ) -> None:
        """Plan the runs. Raises UsageError and FactsError."""
        self._request, self._note, self._count = plan_request(command, options, settings, ()), note, 0
        if self._request.is_of_job:
            raise UsageError(
                "a command that mingle starts on each host",
                f"{command[0]}, which reaches the hosts by itself",
                "what it starts there, such as the program after its options",
            )

    def findings(self, hosts: tuple[str, ...]) -> tuple[Finding, ...]:
        """Return which of these hosts make the command fail."""
        command = printable(" ".join(self._request.command), _SHOWN)
        return verdict_findings(bisect(hosts, self._passes), command)

    def _passes(self, hosts: tuple[str, ...]) -> bool:
        """Run it in a child, so that no run affects the next; its stdout goes to stderr."""
        request, began = self._request, time.monotonic()
        slots = dict(zip(request.plan.hosts, request.plan.slots, strict=True))
        plan = request.plan._replace(
            hosts=hosts, slots=tuple(slots[host] for host in hosts), least=len(hosts), most=len(hosts)
        )
        self._count += 1
        child = os.fork()
        if not child:
            _run_and_exit(request._replace(plan=plan, settings=request.settings._replace(quiet=True)))
        status = _wait(child)
        result = "passed" if not status else f"failed with status {status}"
        self._note(f"run {self._count} on {fold(hosts)}: {result} after {time.monotonic() - began:.1f} s")
        return not status


def _run_and_exit(request: Request) -> None:
    """Run it, and exit with its status."""
    status = 70  # a bug in mingle
    try:
        os.dup2(_STDERR, _STDOUT)
        status = run_command(request)
    except BaseException as error:  # noqa: BLE001 - the caller's handlers belong to another process
        os.write(_STDERR, f"mingle check: {printable(error)}\n".encode())
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    """Return a run's exit status; if this process is interrupted, the run ends first."""
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    return shell_status(status)


def verdict_findings(verdict: Verdict, command: str) -> tuple[Finding, ...]:
    """Return the findings of a search."""
    among = f"(in {verdict.failed} of {verdict.runs} runs)"
    if verdict.outcome == "everywhere":
        fails = f"`{command}` fails on whatever hosts it runs {among}"
        text = f"{fails}: the cause is the command, or something on all hosts"
        return (Finding("node", (), text, remedy="user: run it on one host, and read what it says"),)
    if verdict.outcome == "unsteady":
        suspects = f"; {fold(verdict.suspects)} took part in each of these" if verdict.suspects else ""
        text = f"`{command}` fails at times {among}{suspects}"
        remedy = "user: run it again, with a longer --limit"
        return (Finding("node", verdict.suspects, text, remedy=remedy, confidence="possible"),)
    if verdict.outcome == "many":
        hosts = tuple(culprit[-1] for culprit in verdict.culprits)
        text = f"{fold(hosts)}: `{command}` fails with each of these, and without them too {among}"
        return (Finding("node", hosts, text, remedy="user: leave them out, and check the others"),)
    found = []
    for hosts in verdict.culprits:
        where = "with it, and passes without it" if len(hosts) == 1 else "where both take part"
        text = f"{' and '.join(hosts)}: `{command}` fails {where} {among}"
        found.append(Finding("node", hosts, text, hosts[-1:], remedy="user: leave it out, and report it to an admin"))
    return tuple(found)
