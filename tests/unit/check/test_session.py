"""What two hosts say of the way between them, and when it says nothing."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import combinations
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from support.check_reports import host

from mingle_hooks.check import report, session
from mingle_hooks.check.report import Address, Host, Measured, Network, Pair, parse_report_host
from mingle_hooks.check.session import CheckRequest, Session, Trials, Verdict, bisect
from mingle_hooks.errors import UsageError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Body, WireError, body_of, parse
from mingle_hooks.run import starters
from mingle_hooks.run.messages import JOIN, Join, Leave, Welcome
from mingle_hooks.run.start import Options, Request
from mingle_hooks.run.starters import Allocation
from mingle_hooks.settings import load

COUNT = session.datagram_rounds(2)
HOSTS = (host(1, 2), host(2, 2))
COMPLETE = Measured(0, 0, COUNT, 100, 1500, "", had_no_room=False)
COUNTED = {"multicast": [], "dropped": 0, "time_ms": 0}
CLOSED, NO_ROOM = COMPLETE._replace(closed="no answer"), COMPLETE._replace(had_no_room=True)


@pytest.mark.parametrize(
    ("met", "late_ms", "came", "dropped", "is_known"),
    [
        (CLOSED, 0, 3, 0, True),
        # Its probe was too busy for all of its turns, or its kernel had no room.
        (COMPLETE, 900, 3, 0, False),
        (CLOSED, 900, COUNT, 0, False),
        (COMPLETE._replace(sent=0), 900, COUNT, 0, False),
        (NO_ROOM, 0, 3, 0, False),
        (NO_ROOM._replace(sent=0, closed="no answer"), 0, COUNT, 0, False),
        # What its kernel dropped was not lost on the way, as long as that is all of it.
        (COMPLETE, 0, COUNT - 5, 5, False),
        (COMPLETE, 0, COUNT - 5, 4, True),
        # What arrived is known, however late.
        (COMPLETE, 900, COUNT, 0, True),
        (NO_ROOM, 0, COUNT, 0, True),
    ],
)
def test_losses_prove_nothing_if_an_end_is_doubtful(
    met: Measured, late_ms: int, came: int, dropped: int, *, is_known: bool
) -> None:
    """The first of two hosts says this and heard so many datagrams; of a busy one the largest packet is not known."""
    answers: dict[int, Body] = {n: {"names": [], "own": [], "late_ms": late_ms * (not n)} for n in (0, 1)}
    counted: dict[int, Body] = {
        0: {**COUNTED, "met": [met._replace(number=1)._asdict()], "heard": [[1, 0, came]], "dropped": dropped},
        1: {**COUNTED, "met": [COMPLETE._asdict()], "heard": [[0, 0, met.sent]]},
    }
    networks = session.shared_networks(HOSTS)[:1]
    its = session.assemble_report(HOSTS, (0, 1), networks, answers, counted, 0.0, {0: 0.0, 1: 0.0})
    assert [len(its.pairs), len(its.unknown)] == [is_known, not is_known]
    for pair in its.pairs:
        counts = (pair.sent, pair.there), (pair.sent_back, pair.back)
        assert (counts if pair.one == "node1" else counts[::-1]) == ((COUNT, COUNT), (COUNT, came))
        assert (pair.mtu is None) == (late_ms > 0 or met.had_no_room)
    assert its.hosts[0].is_doubtful == (late_ms > 0 or met.had_no_room)
    assert its.hosts[0].dropped == (dropped if dropped == COUNT - came else 0)
    assert its.hosts[0].refused == (met.had_no_room and not met.sent)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 16, 33, 64])
def test_each_pair_meets_once_and_no_host_is_in_two_probes_at_once(count: int) -> None:
    """Each host begins about half of its probes."""
    made = session.probe_rounds(count)
    assert session.other_hosts(count) is None
    pairs = [tuple(sorted(pair)) for its in made for pair in its]
    assert sorted(pairs) == sorted(combinations(range(count), 2))
    assert all(len({host for pair in its for host in pair}) == 2 * len(its) for its in made)
    begun = Counter(one for its in made for one, _ in its)
    assert all(abs(begun[host] - (count - 1) / 2) <= 1 for host in range(count))


GOOD: Body = {
    "hostname": "node1",
    "identity": "0" * 16,
    "gpus": 8,
    "fingerprint": "kernel=6.1",
    "addresses": [Address("eth0", "ethernet", "10.0.0.1", 24, 1500, None, 20_001)._asdict()],
    "every": ["10.0.0.1", "172.17.0.1"],
    "guests": [["docker0", "172.17.0.1"]],
    "spaces": [{"path": "/dev/shm", "free_mb": 1, "total_mb": None}],  # noqa: S108 - what is looked at
    "faults": ["GPU"],
}
ADDRESS, SPACE = GOOD["addresses"][0], GOOD["spaces"][0]


def without(row: Body, field: str) -> Body:
    return {name: value for name, value in row.items() if name != field}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hostname", "a\x1b[31m"),
        ("gpus", True),
        ("fingerprint", "x" * 1025),
        ("addresses", [{**ADDRESS, "address": "node1"}]),
        ("addresses", [{**ADDRESS, "prefix": 33}]),  # one of IPv6
        ("addresses", [{**ADDRESS, "port": 65_536}]),
        ("addresses", [without(ADDRESS, "mtu")]),
        ("every", ["node1"]),
        ("guests", [["docker0"]]),
        ("spaces", [{**SPACE, "path": "x" * 1000}]),
        ("spaces", [without(SPACE, "free_mb")]),  # None would be that the file system does not answer
        ("faults", ["f"] * 33),
    ],
)
def test_facts_of_a_wrong_type_or_without_a_field_are_refused(field: str, value: object) -> None:
    """Text is printable and short; what is missing is not taken for what a host could not find out."""
    for body in ({**GOOD, field: value}, without({**GOOD, field: 1}, field)):
        with pytest.raises(WireError, match=field):
            parse_report_host("node1", body)


class Answered(Session):
    """A check whose hosts have all reported, and whose probes' answers are made up; `orders` are those it has sent."""

    def __init__(self, loop: Loop, count: int, **request: Any) -> None:
        names = tuple(f"node{number}" for number in range(1, count + 1))
        job = Allocation(names, (1,) * count)
        super().__init__(loop, CheckRequest(starters.TABLE[0], job, load({}, {}), **{"timeout_s": 60.0, **request}))
        self.orders: list[tuple[dict[int, Body], float]] = []
        self.speeds: Iterator[int] = iter(())
        for number, name in enumerate(names):
            address = Address("eth0", "ethernet", f"10.0.0.{number + 1}", 24, 1500, None, 20_001)._asdict()
            its = {"hostname": name, "identity": f"{number:016}", "addresses": [address], "every": [address["address"]]}
            self.facts[number] = {**GOOD, **its, "faults": [], "guests": []}

    def gather(self, orders: Mapping[int, Body], limit_s: float) -> dict[int, Body]:
        """Answer for probes that are well, with so many Mbit/s."""
        self.orders.append(({**orders}, limit_s))
        numbers, sent = range(len(self._numbers)), session.datagram_rounds(len(self._numbers))
        self.arrived_at |= dict.fromkeys(orders, time.time())
        met = [COMPLETE._replace(number=number, sent=sent)._asdict() for number in numbers]
        answer = {"names": [], "own": [], "late_ms": 0, **COUNTED, "time_ms": int(time.time() * 1000)}
        answer |= {"met": met, "heard": [[number, 0, sent] for number in numbers]}
        return {number: answer if order["do"] != "send" else self._sent() for number, order in orders.items()}

    def _sent(self) -> Body:
        return {"octets": speed * 125, "ns": 1_000_000} if (speed := next(self.speeds)) else {}


@pytest.fixture
def answered() -> Iterator[Callable[..., Answered]]:
    """Make checks with a clock that stands still: `answered(3, timeout_s=60.0)`."""
    with ExitStack() as stack:

        def make(count: int, **request: Any) -> Answered:
            loop = stack.enter_context(Loop(lambda: 100.0))
            return stack.enter_context(closing(Answered(loop, count, **request)))

        yield make


@pytest.mark.parametrize(
    ("count", "timeout_s", "probe_ms", "most_ms", "turn_us"),
    [
        (2, 60.0, 3540, 58_000, 40_000),
        (3, 4.0, 1120, 2000, 40_000),
        (3, 1.0, 370, 370, 40_000),
        (33, 604_800.0, 4500, 604_798_000, 30_303),  # the longest --timeout
    ],
)
def test_probes_are_told_whom_to_probe_and_how_long(
    answered: Callable[..., Answered], count: int, timeout_s: float, probe_ms: int, most_ms: int, turn_us: int
) -> None:
    checked = answered(count, timeout_s=timeout_s)
    its = checked.report()
    (probe, probe_s), (count_order, count_s) = checked.orders
    times = {"limit_ms": probe_ms, "most_ms": most_ms, "turn_us": turn_us}
    expected = {"do": "probe", "count": session.datagram_rounds(count), "multicast": True, **times}
    assert {name: probe[0][name] for name in expected} == expected
    assert parse(report.ProbeOrder, probe[0]).most_ms == most_ms
    assert (probe_s, count_s) == (pytest.approx(most_ms / 1000 + 1, abs=0.001), max(timeout_s, 1.0))
    assert count_order == {key: {"do": "count"} for key in range(count)}
    assert len(its.pairs) == count * (count - 1) // 2
    assert {(pair.sent, pair.there, pair.back) for pair in its.pairs} == {(session.datagram_rounds(count),) * 3}
    assert (its.others, its.unknown, its.took_s) == (None, (), 0.0)


def test_slow_transfers_are_tried_twice_more_alone_and_the_best_counts(answered: Callable[..., Answered]) -> None:
    checked = answered(4, is_bandwidth=True)
    checked.speeds = iter([900, 900, 900, 900, 100, 900, 900, 0, 200, 0, 150, 800])
    flows = checked.report().flows
    assert sorted(flow.mbits or 0 for flow in flows) == [200, 800, *[900] * 6]
    sent = [order for order, _ in checked.orders[2:]]
    assert [len(order) for order in sent] == [2, 2, 2, 2, 1, 1, 1, 1]
    assert sent[0][0] == {"do": "send", "number": 1, "theirs": "10.0.0.2", "port": 20_001, "limit_ms": 2000}
    assert {limit_s for _, limit_s in checked.orders[2:]} == {3.0}


def test_a_host_is_looked_up_by_its_name_in_the_job_unless_that_is_none() -> None:
    own, none = Host("node2", hostname="own"), ("fd00::2", "10.0.0.2", "localhost", "a b")
    assert [session._name_to_look_up(own._replace(name=name)) for name in ("node2", *none)] == ["node2"] + ["own"] * 4


OWN_PORT = "this host's port"


@pytest.mark.parametrize(
    ("facts", "end", "missing"),
    [
        ({}, (), f"no sign of it within 0.0 s: it has not started yet (--start), or does not reach {OWN_PORT}"),
        ({"hostname": 5}, (), "it sent what no probe of this version sends: hostname"),
        ({}, (255, "a\nnode2: no route\nb: no node22\n"), "did not start: node2: no route (status 255)"),
        ({}, (255, "a\nb \x1b\n"), "did not start: b \\x1b (status 255)"),
        ({}, (75, ""), f"it does not reach {OWN_PORT}"),
        ({"gone": 1}, (137, "Killed"), "it started, then ended: Killed (status 137)"),
        ({"gone": 1}, (), "it started, then its connection ended: reset"),
    ],
)
def test_why_a_host_is_missing(
    answered: Callable[..., Answered], facts: dict[str, Any], end: tuple[Any, ...], missing: str
) -> None:
    """The others are checked all the same, without waiting for what has failed."""
    is_late = missing.startswith("no sign")
    checked = answered(3, start_s=0.0 if is_late else 60.0)  # no time passes: who waits, waits for ever
    known = checked.facts.pop(1)
    if facts:
        checked.facts[1] = known | facts
    if "gone" in facts:
        checked.gone[1] = "reset"
    if end:
        checked._starter_ended(("node2",), *end)
    its = checked.report()
    assert (its.hosts[1].missing or "").startswith(missing)
    assert (its.hosts[1].is_late, [*checked.orders[0][0]], len(its.pairs)) == (is_late, [0, 2], 1)


def test_no_transfer_goes_where_no_port_is_open(answered: Callable[..., Answered]) -> None:
    """A probe refuses such an order, and would end."""
    checked = answered(3, is_bandwidth=True)
    checked.facts[1]["addresses"][0]["port"] = 0
    checked.speeds = iter([900, 900])
    assert [(flow.sender, flow.receiver) for flow in checked.report().flows] == [("node1", "node3"), ("node3", "node1")]


def test_there_is_one_probe_of_each_host_and_no_other(answered: Callable[..., Answered]) -> None:
    """The first answer counts, with its time; a connection that ended has its reason."""
    checked = answered(2)
    probe: Any = SimpleNamespace(sent=[], close=lambda: None)
    probe.send_record = probe.sent.append
    probe.send_message = lambda kind, body: probe.sent.append((kind, body))
    join = Join("node2", 0, 1, is_output=False)
    checked._introduced(probe, JOIN, body_of(join))
    for kind, name in ((JOIN, "node2"), (JOIN, "node3"), (report.FACTS, "node1")):
        with pytest.raises(WireError, match="no host of this check"):
            checked._introduced(probe, kind, body_of(join._replace(host=name)))
    assert Session.gather(checked, {number: {"to": number} for number in (0, 1)}, 0.0) == {}
    began = time.time()
    for number in (1, 2):
        probe.on_message(report.FACTS, {"f": number})
        probe.on_message(report.ANSWER, {"a": number})
    with pytest.raises(WireError, match="not a probe's message"):
        probe.on_message(report.ORDER, {})
    assert (checked.facts[1], checked.answers, checked.gone) == ({"f": 2}, {1: {"a": 1}}, {})
    assert 0 <= checked.arrived_at[1] - began < 60
    checked.close()
    (welcome, port), *others = [(probe.sent[0], probe.sent[0].port), *probe.sent[1:]]
    assert (welcome, others) == (Welcome(1, port, 60_000), [(report.ORDER, {"to": 1}), Leave(0)])
    checked._link_ended(probe, "reset")
    assert checked.gone == {1: "reset"}


@pytest.mark.parametrize(
    ("verdict", "text", "hosts", "exclude"),
    [
        (Verdict("passes", runs=1), None, (), ()),
        (Verdict("everywhere", runs=4, failed=4), "`x` fails on whatever hosts it runs (in 4 of 4 runs): ", (), ()),
        (Verdict("unsteady", (), ("a",), 4, 1), "`x` fails at times (in 1 of 4 runs); a took part", ("a",), ()),
        (Verdict("unsteady", runs=4, failed=1), "`x` fails at times (in 1 of 4 runs)", (), ()),
        (
            Verdict("many", (("n1",), ("n7", "n2")), (), 4, 3),
            "n[1-2]: `x` fails with each of these, and without them too ",
            ("n1", "n2"),
            (),
        ),
        (Verdict("found", (("a",),), runs=4, failed=2), "a: `x` fails with it, and passes without it", ("a",), ("a",)),
        (Verdict("found", (("a", "b"),), (), 4, 2), "a and b: `x` fails where both take part", ("a", "b"), ("b",)),
    ],
)
def test_the_findings_of_a_search(
    verdict: Verdict, text: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    found = session.verdict_findings(verdict, "x")
    assert len(found) == (text is not None)
    for finding in found:
        assert finding.text.startswith(text or "-")
        assert (finding.hosts, finding.exclude, finding.is_note) == (hosts, exclude, False)


@pytest.mark.parametrize(("count", "timeout_s"), [(2, 5.0), (16, 5.0), (256, 15.0), (1000, 46.0)])
def test_a_check_of_more_hosts_has_more_time(count: int, timeout_s: float) -> None:
    """--timeout sets another."""
    hosts = f"n[1-{count}]"
    assert session.check_request({}, hosts, None, None, is_bandwidth=False).timeout_s == timeout_s
    its = session.check_request({}, hosts, "7", "9", is_bandwidth=True)
    assert (its.timeout_s, its.start_s, its.is_bandwidth) == (7.0, 9.0, True)


def test_of_few_hosts_each_counts_more_datagrams() -> None:
    """More hosts notice a loss together."""
    assert [session.datagram_rounds(count) for count in (8, 9)] == [20, 10]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 16])
def test_each_host_sends_to_both_neighbours_in_a_ring_one_at_a_time(count: int) -> None:
    """Of two hosts, each sends once; a round is never empty."""
    made = session.transfer_rounds(count)
    steps = (1, -1) if count > 1 else ()
    ring = {(one, (one + step) % count) for one in range(count) for step in steps}
    assert sorted(way for its in made for way in its) == sorted(ring)
    assert all(max(Counter(host for way in its for host in way).values()) == 1 for its in made)


def test_each_probe_is_told_the_ways_to_its_peers() -> None:
    """A peer needs a port and an address of its own; the last turn of five leaves out the kernel's port."""

    def its(number: int, mtu: int | None = 1500, port: int = 20_000) -> Host:
        ends = (f"10.0.0.{number}", mtu, port, number), ("10.1.0.1", 1500, 20_000, 0)
        made = (Address("e", "ethernet", ip, 24, mtu, None, port, free) for ip, mtu, port, free in ends)
        return Host(f"node{number}", hostname="own", addresses=tuple(made))

    hosts = Host("node0"), its(1, 9000), its(2, None), its(3, 70_000), its(4, port=0), its(5), its(6, 70_000)
    names, one = (tuple(f"{of}{n}" for n in (1, 2, 3, 4, 6)) for of in ("node", "10.0.0."))
    shared_by_all = Network("same", names, ("10.1.0.1",) * 5), Network("one", names, one)
    orders, turns = session.probe_orders(hosts, range(1, 7), shared_by_all)
    found = {
        (of, peer["number"]): [
            peer[name] for name in ("turn", "begins", "network", "mine", "theirs", "mtu", "free_port")
        ]
        for of, order in orders.items()
        for peer in order["peers"]
    }
    pairs = {(1, 6): (0, 9000), (1, 2): (1, 1500), (3, 1): (2, 9000), (6, 2): (2, 1500), (2, 3): (3, 1500)}
    assert (turns, found) == (
        5,
        {
            (a, b): [turn, begins, 1, f"10.0.0.{a}", f"10.0.0.{b}", mtu, b if turn < 4 else 0]
            for (one, other), (turn, mtu) in {**pairs, (3, 6): (4, 65_535)}.items()
            for begins, a, b in ((True, one, other), (False, other, one))
        },
    )
    assert [row["number"] for row in orders[4]["names"]] == [3, 6, 5, 1, 2]


def test_of_many_hosts_every_second_sends_multicast_and_the_first_turn_alone_tries_the_kernels_port() -> None:
    hosts = tuple(
        Host(f"n{n}", addresses=(Address("e", "ethernet", f"10.0.0.{n}", 24, 1500, None, 1, 2),)) for n in range(65)
    )
    orders, _ = session.probe_orders(hosts, range(65), session.shared_networks(hosts))
    assert [number for number, order in orders.items() if order["multicast"]] == [*range(0, 65, 2)]
    turns = sorted((peer["turn"], peer["begins"], peer["free_port"]) for peer in orders[7]["peers"])
    assert turns == [(turn, begins, 0 if turn else 2) for turn in range(4) for begins in (False, True)]


def test_answers_become_hosts_and_pairs() -> None:
    """Both measured on the second network only; no more datagrams count than were sent."""
    hosts = tuple(host(number, 5) for number in range(1, 6))
    met = COMPLETE._replace(number=1, network=1, sent=5), COMPLETE._replace(network=1, sent=7, closed="late")
    heard = [[[1, 1, 9]], [[0, 1, 2], [9, 9, 1]], []]
    rows = [{"iface": "e", "hosts": [3, 0, 3], "fault": "f"}], [], [{"iface": "e", "hosts": [5], "fault": ""}]
    counted: dict[int, Body] = {
        n: {"time_ms": 5000, "met": [m._asdict() for m in met[n : n + 1]], "heard": heard[n], "dropped": 1 + n}
        | {"multicast": rows[n]}
        for n in range(3)
    }
    counted[3] = {"names": [], "own": None, "late_ms": 0}  # the answer to PROBE, which came too late
    names = [[1, ["10.0.0.9"]], [5, None]]
    answers: dict[int, Body] = {n: {"names": names, "own": None, "late_ms": 0} for n in (0, 1, 2)}
    here = range(4)
    its = session.assemble_report(hosts, here, session.shared_networks(hosts), answers, counted, 4.0, {0: 4.5, 1: 4.25})
    heard_of = report.Heard("e", ("node1", "node4"), "f")
    known = {"own_name": None, "names": (report.Name("node2", ("10.0.0.9",)),)}
    missing, end = "it started, then did not answer in time", pytest.approx(1.001)
    assert its.hosts == (
        hosts[0]._replace(**known, multicast=(heard_of,), clock=(0.5, end), dropped=1),
        hosts[1]._replace(**known, multicast=(), clock=(0.75, end)),
        hosts[2]._replace(missing=f"{missing}: hosts: no host of this check"),
        hosts[3]._replace(missing=missing, is_late=True),
        hosts[4],
    )
    pair = Pair("node1", "node2", "10.77.0.0/24", 5, 2, 7, 7, 100, None, "", "late")
    assert (its.pairs, its.unknown) == ((), (pair,))
    assert [network.hosts for network in its.networks] == [("node1", "node2")] * 2
    counted[0]["dropped"] = counted[0]["met"][0]["sent"] = 0
    answers[0]["late_ms"] = 2500
    late = session.assemble_report(
        hosts, here, session.shared_networks(hosts), answers, counted, 4.0, {0: 4.5, 1: 4.25}
    )
    assert (late.hosts[0].late_s, late.pairs, [its.sent for its in late.unknown]) == (2.5, (), [0])


@pytest.mark.parametrize(
    ("answer", "speed"),
    [(None, None), ({"octets": 9_000_000, "ns": 0}, None), ({"octets": -1, "ns": 1}, None),
     ({"octets": 9_000_001, "ns": 72_000}, 1_000_000), ({"octets": 0, "ns": 1}, 0)],
)  # fmt: skip
def test_the_speed_of_a_transfer(answer: Body | None, speed: int | None) -> None:
    assert session.mbits(answer) == speed


# The search for hosts that make a command fail, by failures that are made up.

Passes = Callable[[tuple[str, ...]], bool]


def failing(*nodes: str, pairs: tuple[tuple[str, ...], ...] = (), in_company: bool = False) -> Passes:
    """Return what fails with any of these hosts, alone too or in company only, and with both of any of these pairs."""

    def passes(some: tuple[str, ...]) -> bool:
        is_bad = any(node in some for node in nodes) and (len(some) > 1 or not in_company)
        return not is_bad and not any({*pair} <= {*some} for pair in pairs)

    return passes


def needs_two(passes: Passes) -> Passes:
    """Return what cannot run on one host at all."""
    return lambda some: len(some) > 1 and passes(some)


@pytest.mark.parametrize("pair", [*combinations("abcdef", 2)], ids="".join)
def test_two_bad_hosts_are_found(pair: tuple[str, str]) -> None:
    """They fail together only, or each by itself; what is found is left out, and the rest is searched on."""
    for passes in (failing(pairs=(pair,)), needs_two(failing(pairs=(pair,)))):
        assert bisect(tuple("abcdef"), passes).culprits == (pair,)
    for passes in (failing(*pair), needs_two(failing(*pair)), failing(*pair, in_company=True)):
        found = bisect(tuple("abcdef"), passes)
        assert (found.outcome, sorted(found.culprits)) == ("found", [(host,) for host in pair])
    assert sorted(bisect(tuple("abcdefghijk"), failing("i", pairs=(pair,))).culprits) == [pair, ("i",)]


@pytest.mark.parametrize(
    ("some", "passes", "runs", "outcome", "culprits"),
    [
        ("abcdefgh", failing("c"), "abcdefgh abcd ab cd h c c abdefgh", "found", "c"),
        ("abcdefgh", needs_two(failing("c")), "abcdefgh abcd ab cd h fh cd ac ad abdefgh", "found", "c"),
        ("abcde", failing("d", in_company=True), "abcde ab cde e c de d de ad ae abce", "found", "d"),
        ("abcdef", failing(pairs=(("b", "e"),)), "abcdef abc def adef bcdef bdef bd bef be be ab ae abcdf",
         "found", "be"),
        ("abcdef", failing("a", "f"), "abcdef abc f df bf ef d a a bcdef bc def e f bcde", "found", "a f"),
        ("abcdef", lambda some: not {*"abf"} <= {*some},
         "abcdef abc def adef bcdef abdef abd abef abe abf", "unsteady", "f"),
        ("abc", lambda _some: False, "abc c bc ac b ab a a", "everywhere", ""),
        ("ab", lambda _some: True, "ab", "passes", ""),
        ("a", lambda _some: False, "a a", "everywhere", ""),
    ],
)  # fmt: skip
def test_which_runs_a_search_makes(some: str, passes: Passes, runs: str, outcome: str, culprits: str) -> None:
    """It halves the hosts, then tries them beside others; a failure is confirmed, and the rest is run without it."""
    made: list[str] = []

    def run(on: tuple[str, ...]) -> bool:
        made.append("".join(on))
        return passes(on)

    found = bisect(tuple(some), run)
    named = ["".join(culprit) for culprit in found.culprits] or ["".join(found.suspects)]
    assert (" ".join(made), found.outcome, " ".join(named)) == (runs, outcome, culprits)
    assert (found.runs, found.failed) == (len(made), sum(not passes(tuple(on)) for on in made))


def test_a_search_is_bounded_and_names_the_hosts_of_every_failed_run() -> None:
    """Up to eight hosts are found one after another; a ninth does not make the command one that fails at times."""
    some = tuple("abcdefghijklmnopqrst")
    few, more = (bisect(some, failing(*some[:count])) for count in (8, 9))
    assert (few.outcome, more.outcome, few.culprits) == ("found", "many", more.culprits)
    once = iter([False] + [True] * session.MOST_RUNS)
    assert bisect(("a", "b"), lambda _some: next(once)) == Verdict("unsteady", (), ("a", "b"), 4, 1)
    many, turns = tuple(f"node{number}" for number in range(256)), iter(range(10**6))
    assert bisect(many, lambda some: next(turns) % 3 > 0 and len(some) < 200).runs <= session.MOST_RUNS
    # Whatever fails where: no run is made again and again.
    some_fail = failing(pairs=(("c", "d"), ("a", "d"), ("a", "b", "c")))
    assert bisect(tuple("abcd"), needs_two(some_fail)).runs < 20
    found = bisect(many, failing("node200"))
    assert (found.culprits, found.runs <= 20) == ((("node200",),), True)


@pytest.mark.parametrize(("end", "status"), [(lambda: os.kill(os.getpid(), signal.SIGKILL), 137), (lambda: 3, 3)])
def test_a_run_that_a_signal_ends_has_failed_with_the_status_of_a_shell(
    end: Callable[[], int], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 128 and the signal's number."""
    monkeypatch.setattr(session, "run_command", lambda _request: end())
    notes: list[str] = []
    options = Options(hosts="node1,node2", limit="10m")
    found = Trials(("true",), options, {}, notes.append).findings(("node1", "node2"))
    assert notes[0].startswith(f"run 1 on node[1-2]: failed with status {status} after ")
    assert [(finding.exclude, finding.remedy[:6]) for finding in found] == [((), "user: ")]


def test_a_run_has_its_hosts_alone_and_its_output_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run that mingle itself cannot make has failed."""

    def run(request: Request) -> int:
        plan = request.plan
        os.write(1, f"{plan.hosts} {plan.slots} {plan.least} {plan.most} {request.settings.quiet}\n".encode())
        raise ValueError("a\nbug")

    monkeypatch.setattr(session, "run_command", run)
    notes: list[str] = []
    trials = Trials(("false", "x"), Options(hosts="node1,node2", limit="10m"), {}, notes.append)
    (finding,) = trials.findings(("node2",))
    assert capfd.readouterr() == ("", "('node2',) (1,) 1 1 True\nmingle check: a\\nbug\n" * len(notes))
    assert re.fullmatch(r"run 2 on node2: failed with status 70 after \d\.\d s", notes[1])
    assert (finding.text[:43], finding.remedy) == (
        "`false x` fails on whatever hosts it runs (",
        "user: run it on one host, and read what it says",
    )


def test_an_interrupted_run_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, kill = mock.Mock(side_effect=[KeyboardInterrupt, (7, 0)]), mock.Mock()
    monkeypatch.setattr(os, "waitpid", wait)
    monkeypatch.setattr(os, "kill", kill)
    with pytest.raises(KeyboardInterrupt):
        session._wait(7)
    assert (wait.call_args_list, kill.call_args_list) == ([mock.call(7, 0)] * 2, [mock.call(7, signal.SIGTERM)])


def test_a_command_that_reaches_the_hosts_by_itself_is_not_tried() -> None:
    with pytest.raises(UsageError, match="mpirun, which reaches the hosts by itself"):
        Trials(("mpirun", "true"), Options(hosts="node1,node2"), {}, print)


@pytest.mark.parametrize("count", [65, 4096])
def test_of_many_each_meets_eight_and_all_hang_together(count: int) -> None:
    """Any two are a few steps apart, so that a network in two parts shows."""
    made = session.probe_rounds(count)
    pairs = {tuple(sorted(pair)) for its in made for pair in its}
    assert {*Counter(host for pair in pairs for host in pair).values()} == {8} == {session.other_hosts(count)}
    assert all({one for one, _ in its} == {*range(count)} for its in made), "each begins as many as begin with it"
    steps = {(other - one) % count for its in made for one, other in its}
    assert (1 in steps, max(steps) >= count / 8) == (True, True), "a ring, and steps far across it"
