"""What two hosts say of the way between them, and when it says nothing."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from support.check_reports import host

from mingle_hooks.check import report
from mingle_hooks.check.report import Address, Host, Measured, Network, Pair, Report, parse_report_host
from mingle_hooks.check.session import (
    CheckRequest,
    ProbeListener,
    Session,
    Verdict,
    _name_to_look_up,
    assemble_report as assembled,
    check_request,
    datagram_rounds as datagrams,
    mbits,
    other_hosts,
    probe_orders,
    probe_rounds,
    shared_networks as shared,
    transfer_rounds,
    verdict_findings,
)
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.wire import Body, Secret, WireError, body_of
from mingle_hooks.run import starters
from mingle_hooks.run.launching import Sockets
from mingle_hooks.run.messages import JOIN, Join, Leave, Welcome
from mingle_hooks.run.starters import Allocation
from mingle_hooks.settings import load

COUNT = datagrams(2)
HOSTS = (host(1, 2), host(2, 2))
COMPLETE = Measured(0, 0, COUNT, 100, 1500, "", had_no_room=False)


def found(met: Measured, late_ms: int = 0, came: int = COUNT, dropped: int = 0) -> Report:
    """Return the report of two hosts on their first network, of which one says this and heard so many datagrams."""
    networks = shared(HOSTS)[:1]
    answers: dict[int, Body] = {number: {"names": [], "own": [], "late_ms": 0} for number in (0, 1)}
    answers[0]["late_ms"] = late_ms
    counted: dict[int, Body] = {
        0: {
            "met": [dict(met._replace(number=1)._asdict())],
            "heard": [[1, 0, came]],
            "multicast": [],
            "dropped": dropped,
        },
        1: {"met": [dict(COMPLETE._asdict())], "heard": [[0, 0, met.sent]], "multicast": [], "dropped": 0},
    }
    counted = {number: {**body, "time_ms": 0} for number, body in counted.items()}
    return assembled(HOSTS, (0, 1), networks, answers, counted, 0.0, {0: 0.0, 1: 0.0})


def ends(pair: Pair) -> tuple[int, int, int, int]:
    """Return what went each way."""
    counts = (pair.sent, pair.there), (pair.sent_back, pair.back)
    return (*counts[0], *counts[1]) if pair.one == "node1" else (*counts[1], *counts[0])


def test_what_does_not_arrive_is_lost() -> None:
    """Where nobody was busy and each kernel had room."""
    its = found(COMPLETE._replace(closed="no answer"), came=3)
    assert ([ends(pair) for pair in its.pairs], its.unknown) == ([(COUNT, COUNT, COUNT, 3)], ())


@pytest.mark.parametrize(
    ("met", "late_ms", "came"),
    [
        (COMPLETE, 900, 3),
        (COMPLETE._replace(closed="no answer"), 900, COUNT),
        (COMPLETE._replace(sent=0), 900, COUNT),
        (COMPLETE._replace(had_no_room=True), 0, 3),
        (COMPLETE._replace(had_no_room=True, sent=0, closed="no answer"), 0, COUNT),
    ],
)
def test_losses_prove_nothing_if_an_end_is_doubtful(met: Measured, late_ms: int, came: int) -> None:
    """Too busy for all of its turns, or without room in its kernel."""
    its = found(met, late_ms, came)
    assert (its.pairs, len(its.unknown)) == ((), 1)
    assert its.hosts[0].is_doubtful


def test_what_a_host_drops_itself_is_not_lost_on_the_way() -> None:
    """As long as that is all of it."""
    its = found(COMPLETE, came=COUNT - 5, dropped=5)
    assert (its.pairs, len(its.unknown), its.hosts[0].dropped) == ((), 1, 5)
    its = found(COMPLETE, came=COUNT - 5, dropped=4)
    assert ([ends(pair) for pair in its.pairs], its.unknown) == ([(COUNT, COUNT, COUNT, COUNT - 5)], ())


@pytest.mark.parametrize(("met", "late_ms"), [(COMPLETE, 900), (COMPLETE._replace(had_no_room=True), 0)])
def test_what_arrives_is_known(met: Measured, late_ms: int) -> None:
    """However late, but the largest packet, which is not sent again for ever."""
    its = found(met, late_ms)
    assert ([ends(pair) for pair in its.pairs], its.unknown) == ([(COUNT,) * 4], ())
    assert its.pairs[0].mtu is None


def test_a_host_without_room_to_the_end_is_counted() -> None:
    """One that had room in the end only is doubtful."""
    assert found(COMPLETE._replace(had_no_room=True, sent=COUNT - 1)).hosts[0].refused == 1
    assert found(COMPLETE._replace(had_no_room=True)).hosts[0].refused == 0


@pytest.mark.parametrize("count", [2, 3, 4, 16, 33, 64])
def test_each_pair_meets_once_and_no_host_is_in_two_probes_at_once(count: int) -> None:
    """Each begins about as often as not."""
    made = probe_rounds(count)
    pairs = [tuple(sorted(pair)) for its in made for pair in its]
    assert sorted(pairs) == sorted(combinations(range(count), 2))
    assert all(max(Counter(host for pair in its for host in pair).values()) == 1 for its in made)
    begun = Counter(one for its in made for one, _ in its)
    assert all(abs(begun[host] - (count - 1) / 2) <= 1 for host in range(count))


@pytest.mark.parametrize("count", [65, 256, 1000, 4096])
def test_of_many_each_meets_eight_and_all_hang_together(count: int) -> None:
    """Any two are a few steps apart, so that a network in two parts shows."""
    made = probe_rounds(count)
    pairs = {tuple(sorted(pair)) for its in made for pair in its}
    degrees = Counter(host for pair in pairs for host in pair)
    assert set(degrees.values()) == {8} == {other_hosts(count)}
    near: dict[int, set[int]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    reached, edge = {0}, {0}
    while edge:
        edge = {other for host in edge for other in near[host]} - reached
        reached |= edge
    assert len(reached) == count


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 17])
def test_each_sends_to_two_others_and_receives_from_two_one_at_a_time(count: int) -> None:
    """So that a slow host is told from its neighbours."""
    made = transfer_rounds(count)
    pairs = [pair for its in made for pair in its]
    assert len(set(pairs)) == len(pairs)
    assert (
        set(Counter(a for a, _ in pairs).values()) == set(Counter(b for _, b in pairs).values()) == {min(2, count - 1)}
    )
    assert all(max(Counter(host for pair in its for host in pair).values()) == 1 for its in made)


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
        ("gpus", "8"),
        ("gpus", True),
        ("fingerprint", "x" * 1025),
        ("addresses", [{**ADDRESS, "address": "node1"}]),
        ("addresses", [{**ADDRESS, "prefix": 33}]),  # one of IPv6
        ("addresses", [{**ADDRESS, "mtu": "1500"}]),
        ("addresses", [without(ADDRESS, "mtu")]),
        ("every", ["node1"]),
        ("guests", [["docker0"]]),
        ("spaces", [{**SPACE, "path": "x" * 1000}]),
        ("spaces", [{**SPACE, "free_mb": 1.5}]),
        ("spaces", [without(SPACE, "free_mb")]),  # None would be that the file system does not answer
        ("faults", ["f"] * 33),
        ("addresses", [{**ADDRESS, "mac": "\x1b[31m"}]),
        ("amounts", [["cores", -1]]),
        ("amounts", [["\x1b[31m", 1]]),
    ],
)
def test_facts_of_a_wrong_type_or_without_a_field_are_refused(field: str, value: object) -> None:
    """Text is printable and short; what is missing is not taken for what a host could not find out."""
    with pytest.raises(WireError, match=field):
        parse_report_host("node1", {**GOOD, field: value})


@pytest.mark.parametrize("field", GOOD)
def test_each_fact_has_to_be_there(field: str) -> None:
    """Also one that may be None."""
    with pytest.raises(WireError, match=field):
        parse_report_host("node1", without(GOOD, field))


def test_fields_that_this_version_does_not_know_are_ignored() -> None:
    """A later mingle on one host may report more, and is still checked by all that this one knows."""
    more = {**GOOD, "addresses": [{**ADDRESS, "rail": 3}], "spaces": [{**SPACE, "inodes": None}], "uptime_s": "long"}
    assert parse_report_host("node1", more) == parse_report_host("node1", GOOD)
    assert parse_report_host("node1", GOOD).addresses[0].address == "10.0.0.1"


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
            self.listener.facts[number] = {**GOOD, **its, "faults": [], "guests": []}

    def gather(self, orders: Mapping[int, Body], limit_s: float) -> dict[int, Body]:
        """Answer for probes that are well, with so many Mbit/s."""
        self.orders.append(({**orders}, limit_s))
        count = len(self._names)
        counted = {"heard": [[n, 0, datagrams(count)] for n in range(count)], "multicast": [], "dropped": 0}
        counted["time_ms"] = int(time.time() * 1000)
        answers: dict[int, Body] = {}
        for number, order in orders.items():
            self.listener.arrived_at[number] = time.time()
            rows = [dict(COMPLETE._replace(number=n, sent=datagrams(count))._asdict()) for n in range(count)]
            answers[number] = {"names": [], "own": [], "late_ms": 0} | counted | {"met": rows}
            if order["do"] == "send" and (speed := next(self.speeds)):
                answers[number] = {"octets": speed * 125, "ns": 1_000_000}
        return answers


@pytest.fixture
def answered() -> Iterator[Callable[..., Answered]]:
    """Make checks at a moment that does not pass: `answered(3, timeout_s=60.0)`."""
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
        (64, 60.0, 4500, 58_000, 15_873),
    ],
)
def test_probes_are_told_whom_to_probe_and_how_long(
    answered: Callable[..., Answered], count: int, timeout_s: float, probe_ms: int, most_ms: int, turn_us: int
) -> None:
    session = answered(count, timeout_s=timeout_s)
    its = session.report()
    (probe, probe_s), (count_order, count_s) = session.orders
    first = probe[0]
    assert (first["do"], first["limit_ms"], first["most_ms"], first["turn_us"]) == ("probe", probe_ms, most_ms, turn_us)
    assert (first["count"], first["multicast"]) == (datagrams(count), True)
    assert (probe_s, count_s) == (pytest.approx(most_ms / 1000 + 1, abs=0.001), max(timeout_s, 1.0))
    assert count_order == {key: {"do": "count"} for key in range(count)}
    peers = {peer["number"]: peer for peer in first["peers"]}
    assert (sorted(peers), sorted(name["name"] for name in first["names"])) == (
        [*range(1, count)],
        sorted(f"node{n + 1}" for n in range(1, count)),
    )
    one = {"mine": "10.0.0.1", "theirs": "10.0.0.2", "port": 20_001, "mtu": 1500, "network": 0}
    assert {name: peers[1][name] for name in one} == one
    assert len(its.pairs) == count * (count - 1) // 2
    assert {(pair.sent, pair.there, pair.back) for pair in its.pairs} == {(datagrams(count),) * 3}
    assert (its.others, its.unknown, its.took_s) == (None, (), 0.0)
    least_s, most_s = its.hosts[0].clock or (1.0, -1.0)
    assert -60 < least_s <= 0 <= most_s < 60


def test_slow_transfers_are_tried_twice_more_alone_and_the_best_counts(answered: Callable[..., Answered]) -> None:
    session = answered(4, is_bandwidth=True)
    session.speeds = iter([900, 900, 900, 900, 100, 900, 900, 0, 200, 0, 150, 800])
    flows = session.report().flows
    assert sorted(flow.mbits or 0 for flow in flows) == [200, 800, *[900] * 6]
    sent = [order for order, _ in session.orders[2:]]
    assert [len(order) for order in sent] == [2, 2, 2, 2, 1, 1, 1, 1]
    assert sent[0][0] == {"do": "send", "number": 1, "theirs": "10.0.0.2", "port": 20_001, "limit_ms": 2000}
    assert {limit_s for _, limit_s in session.orders[2:]} == {3.0}


def test_a_host_is_looked_up_by_its_name_in_the_job_unless_that_is_none() -> None:
    own, none = Host("node2", hostname="own"), ("fd00::2", "10.0.0.2", "localhost", "a b")
    assert [_name_to_look_up(own._replace(name=name)) for name in ("node2", *none)] == ["node2"] + ["own"] * 4


@pytest.mark.parametrize(
    ("facts", "output", "missing", "is_late"),
    [
        (
            {},
            None,
            "no sign of it within 0.0 s: it has not started yet (--start), or does not reach this host's port",
            True,
        ),
        ({"hostname": 5}, None, "it sent what no probe of this version sends: hostname", False),
        ({}, "a\nnode2: no route\nb\n", "did not start: node2: no route (status 255)", False),
        ({}, "a\nb \x1b\n", "did not start: b \\x1b (status 255)", False),
        ({}, "", "did not start: no output (status 255)", False),
        ({"gone": 1}, "", "did not start: no output (status 255)", False),
    ],
)
def test_why_a_host_is_missing(
    answered: Callable[..., Answered], facts: dict[str, Any], output: str | None, missing: str, *, is_late: bool
) -> None:
    """The others are checked all the same, without waiting for what has failed."""
    session = answered(3, start_s=0.0 if is_late else 60.0)  # no time passes: who waits, waits for ever
    known = session.listener.facts.pop(1)
    if facts:
        session.listener.facts[1] = known | facts
    if "gone" in facts:
        session.listener.gone[1] = "it has ended"
    if output is not None:
        session._starter_ended(("node2",), 255, output)
    its = session.report()
    assert (its.hosts[1].missing or "").startswith(missing)
    assert (its.hosts[1].is_late, [*session.orders[0][0]], len(its.pairs)) == (is_late, [0, 2], 1)


def test_a_listener_has_one_probe_of_each_host_and_refuses_others() -> None:
    """The first answer counts, with its time; what ended has its reason."""
    with Loop() as loop, closing(Sockets(is_local=True)) as sockets:
        listener = ProbeListener(loop, sockets, Secret(b"s" * 32), ["node1", "node2"])
        probe: Any = SimpleNamespace(sent=[], close=lambda: None)
        probe.send_record = probe.sent.append
        probe.send_message = lambda kind, body: probe.sent.append((kind, body))
        join = Join("node2", 0, 1, is_output=False)
        listener._introduced(probe, JOIN, body_of(join))
        for kind, host in ((JOIN, "node2"), (JOIN, "node3"), (report.FACTS, "node1")):
            with pytest.raises(WireError, match="no host of this check"):
                listener._introduced(probe, kind, body_of(join._replace(host=host)))
        began = time.time()
        for number in (1, 2):
            probe.on_message(report.FACTS, {"f": number})
            probe.on_message(report.ANSWER, {"a": number})
        with pytest.raises(WireError, match="not a probe's message"):
            probe.on_message(report.ORDER, {})
        for number in (0, 1):
            listener.order(number, {"to": number})
        listener.dismiss()
        assert probe.sent == [Welcome(1, sockets.port, 60_000), (report.ORDER, {"to": 1}), Leave(0)]
        assert (listener.facts, listener.answers[1], listener.gone) == ({1: {"f": 2}}, {"a": 1}, {})
        assert 0 <= listener.arrived_at[1] - began < 60
        listener.arrived_at[1] = began
        probe.on_message(report.ANSWER, {"a": 3})  # only the first counts
        assert (listener.answers[1], listener.arrived_at[1]) == ({"a": 1}, began)
        listener._ended(probe, "reset")
        assert listener.gone == {1: "reset"}
        listener.close()


@pytest.mark.parametrize(
    ("verdict", "text", "hosts", "exclude"),
    [
        (Verdict("passes", runs=1), None, (), ()),
        (Verdict("everywhere", runs=4, failed=4), "`x` fails on whatever hosts it runs (in 4 of 4 runs): ", (), ()),
        (Verdict("unsteady", (), ("a",), 4, 1), "`x` fails at times (in 1 of 4 runs); a took part", ("a",), ()),
        (Verdict("unsteady", runs=4, failed=1), "`x` fails at times (in 1 of 4 runs)", (), ()),
        (Verdict("found", (("a",),), runs=4, failed=2), "a: `x` fails with it, and passes without it", ("a",), ("a",)),
        (Verdict("found", (("a", "b"),), (), 4, 2), "a and b: `x` fails where both take part", ("a", "b"), ("b",)),
    ],
)
def test_the_findings_of_a_search(
    verdict: Verdict, text: str | None, hosts: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    found = verdict_findings(verdict, "x")
    assert len(found) == (text is not None)
    for finding in found:
        assert finding.text.startswith(text or "-")
        assert (finding.hosts, finding.exclude, finding.is_note) == (hosts, exclude, False)


@pytest.mark.parametrize(("count", "timeout_s"), [(2, 5.0), (16, 5.0), (256, 15.0), (1000, 46.0)])
def test_a_check_of_more_hosts_has_more_time(count: int, timeout_s: float) -> None:
    """Unless --timeout gives it."""
    hosts = f"n[1-{count}]"
    assert check_request({}, hosts, None, None, is_bandwidth=False).timeout_s == timeout_s
    its = check_request({}, hosts, "7", "9", is_bandwidth=True)
    assert (its.timeout_s, its.start_s, its.is_bandwidth) == (7.0, 9.0, True)


def test_who_meets_whom_and_when() -> None:
    """All in a tournament, or the next host and some farther ones; transfers go along a ring."""
    assert (probe_rounds(1), probe_rounds(2), [datagrams(count) for count in (8, 9)]) == (((),), (((0, 1),),), [20, 10])
    assert probe_rounds(4) == (((1, 2), (0, 3)), ((0, 1), (2, 3)), ((2, 0), (3, 1)))
    ends = [(turn[0], turn[-1], len(turn)) for turn in probe_rounds(65)]
    assert ends == [((0, step), (64, step - 1), 65) for step in (1, 3, 8, 23)]
    assert (other_hosts(64), transfer_rounds(2)) == (None, (((0, 1),), ((1, 0),)))
    four = ((0, 1), (2, 3)), ((1, 0), (3, 2)), ((1, 2), (3, 0)), ((2, 1), (0, 3))
    five = (*four[:2], ((1, 2), (3, 4)), ((2, 1), (4, 3)), ((4, 0),), ((0, 4),))
    assert (transfer_rounds(4), transfer_rounds(5)) == (four, five)


def test_each_probe_is_told_the_ways_to_its_peers() -> None:
    """Not to one without a port or an address of its own there; the last turn of five leaves out the kernel's port."""

    def its(number: int, mtu: int | None = 1500, port: int = 20_000) -> Host:
        ends = (f"10.0.0.{number}", mtu, port, number), ("10.1.0.1", 1500, 20_000, 0)
        made = (Address("e", "ethernet", ip, 24, mtu, None, port, free) for ip, mtu, port, free in ends)
        return Host(f"node{number}", hostname="own", addresses=tuple(made))

    hosts = Host("node0"), its(1, 9000), its(2, None), its(3, 70_000), its(4, port=0), its(5), its(6, 70_000)
    names, one = (tuple(f"{of}{n}" for n in (1, 2, 3, 4, 6)) for of in ("node", "10.0.0."))
    shared_by_all = Network("same", names, ("10.1.0.1",) * 5), Network("one", names, one)
    orders, turns = probe_orders(hosts, range(1, 7), shared_by_all)
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
    orders, _ = probe_orders(hosts, range(65), shared(hosts))
    assert [number for number, order in orders.items() if order["multicast"]] == [*range(0, 65, 2)]
    turns = sorted((peer["turn"], peer["begins"], peer["free_port"]) for peer in orders[7]["peers"])
    assert turns == [(turn, begins, 0 if turn else 2) for turn in range(4) for begins in (False, True)]


def test_answers_become_hosts_and_pairs() -> None:
    """By the second network, the only one on which both measured; more than was sent has not arrived."""
    hosts = tuple(host(number, 5) for number in range(1, 6))
    met = COMPLETE._replace(number=1, network=1, sent=5), COMPLETE._replace(network=1, sent=7, closed="late")
    heard = [[[1, 1, 9]], [[0, 1, 2], [9, 9, 1]], []]
    rows = [{"iface": "e", "hosts": [3, 0, 3], "fault": "f"}], [], [{"iface": "e", "hosts": [5], "fault": ""}]
    counted: dict[int, Body] = {
        n: {"time_ms": 5000, "met": [m._asdict() for m in met[n : n + 1]], "heard": heard[n], "dropped": 1 + n}
        | {"multicast": rows[n]}
        for n in range(3)
    }
    names = [[1, ["10.0.0.9"]], [5, None]]
    answers: dict[int, Body] = {n: {"names": names, "own": None, "late_ms": 0} for n in (0, 1, 2)}
    here = range(4)
    its = assembled(hosts, here, shared(hosts), answers, counted, 4.0, {0: 4.5, 1: 4.25})
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
    late = assembled(hosts, here, shared(hosts), answers, counted, 4.0, {0: 4.5, 1: 4.25})
    assert (late.hosts[0].late_s, late.pairs, [its.sent for its in late.unknown]) == (2.5, (), [0])


@pytest.mark.parametrize(
    ("answer", "speed"),
    [(None, None), ({"octets": 9_000_000, "ns": 0}, None), ({"octets": -1, "ns": 1}, None),
     ({"octets": 9_000_001, "ns": 72_000}, 1_000_000), ({"octets": 0, "ns": 1}, 0)],
)  # fmt: skip
def test_the_speed_of_a_transfer(answer: Body | None, speed: int | None) -> None:
    assert mbits(answer) == speed
