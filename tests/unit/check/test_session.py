"""What two hosts say of the way between them, and when it says nothing."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from support.check_reports import host

from mingle_hooks.check.report import Address, Measured, parse_report_host
from mingle_hooks.check.session import assemble_report as assembled
from mingle_hooks.check.session import datagram_rounds as datagrams
from mingle_hooks.check.session import other_hosts, probe_rounds, transfer_rounds
from mingle_hooks.check.session import shared_networks as shared
from mingle_hooks.rendezvous.wire import Body, WireError

if TYPE_CHECKING:
    from mingle_hooks.check.report import Pair, Report

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
    its = found(COMPLETE, came=COUNT - 5, dropped=7)
    assert (its.pairs, len(its.unknown), its.hosts[0].dropped) == ((), 1, 7)
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
        ("addresses", [{**ADDRESS, "mtu": "1500"}]),
        ("addresses", [without(ADDRESS, "mtu")]),
        ("every", ["node1"]),
        ("guests", [["docker0"]]),
        ("spaces", [{**SPACE, "path": "x" * 1000}]),
        ("spaces", [{**SPACE, "free_mb": 1.5}]),
        ("spaces", [without(SPACE, "free_mb")]),  # None would be that the file system does not answer
        ("faults", ["f"] * 33),
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
