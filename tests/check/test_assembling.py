"""What two hosts say of the way between them, and when it says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from check.made import host

from mingle_hooks.check.session import Measured
from mingle_hooks.check.session import assemble_report as assembled
from mingle_hooks.check.session import datagram_rounds as datagrams
from mingle_hooks.check.session import shared_networks as shared

if TYPE_CHECKING:
    from mingle_hooks.check.report import Pair, Report
    from mingle_hooks.rendezvous.wire import Body

COUNT = datagrams(2)
HOSTS = (host(1, 2), host(2, 2))
GOOD = Measured(0, 0, COUNT, 100, 1500, "", had_no_room=False)


def found(met: Measured, late_ms: int = 0, came: int = COUNT, dropped: int = 0) -> Report:
    """Return the report of two hosts on their first network, of which one says this and heard so many datagrams."""
    networks = shared(HOSTS)[:1]
    said: dict[int, Body] = {number: {"names": [], "own": [], "late_ms": 0} for number in (0, 1)}
    said[0]["late_ms"] = late_ms
    counted: dict[int, Body] = {
        0: {
            "met": [dict(met._replace(number=1)._asdict())],
            "heard": [[1, 0, came]],
            "multicast": [],
            "dropped": dropped,
        },
        1: {"met": [dict(GOOD._asdict())], "heard": [[0, 0, met.sent]], "multicast": [], "dropped": 0},
    }
    return assembled(HOSTS, (0, 1), networks, said, counted, {})


def ends(pair: Pair) -> tuple[int, int, int, int]:
    """Return what went each way."""
    counts = (pair.sent, pair.there), (pair.sent_back, pair.back)
    return (*counts[0], *counts[1]) if pair.one == "node1" else (*counts[1], *counts[0])


def test_what_does_not_arrive_is_lost() -> None:
    """Where nobody was busy and each kernel had room."""
    its = found(GOOD._replace(closed="no answer"), came=3)
    assert ([ends(pair) for pair in its.pairs], its.unknown) == ([(COUNT, COUNT, COUNT, 3)], ())


@pytest.mark.parametrize(
    ("met", "late_ms", "came"),
    [
        (GOOD, 900, 3),
        (GOOD._replace(closed="no answer"), 900, COUNT),
        (GOOD._replace(sent=0), 900, COUNT),
        (GOOD._replace(had_no_room=True), 0, 3),
        (GOOD._replace(had_no_room=True, sent=0, closed="no answer"), 0, COUNT),
    ],
)
def test_what_does_not_arrive_says_nothing_where_an_end_is_doubtful(met: Measured, late_ms: int, came: int) -> None:
    """Too busy for all of its turns, or without room in its kernel."""
    its = found(met, late_ms, came)
    assert (its.pairs, len(its.unknown)) == ((), 1)
    assert its.hosts[0].is_doubtful


def test_what_a_host_drops_itself_is_not_lost_on_the_way() -> None:
    """As long as that is all of it."""
    its = found(GOOD, came=COUNT - 5, dropped=7)
    assert (its.pairs, len(its.unknown), its.hosts[0].dropped) == ((), 1, 7)
    its = found(GOOD, came=COUNT - 5, dropped=4)
    assert ([ends(pair) for pair in its.pairs], its.unknown) == ([(COUNT, COUNT, COUNT, COUNT - 5)], ())


@pytest.mark.parametrize(("met", "late_ms"), [(GOOD, 900), (GOOD._replace(had_no_room=True), 0)])
def test_what_arrives_is_known(met: Measured, late_ms: int) -> None:
    """However late, but the largest packet, which is not sent again for ever."""
    its = found(met, late_ms)
    assert ([ends(pair) for pair in its.pairs], its.unknown) == ([(COUNT,) * 4], ())
    assert its.pairs[0].mtu is None


def test_a_host_without_room_to_the_end_says_so() -> None:
    """One that had room in the end only is doubtful."""
    assert found(GOOD._replace(had_no_room=True, sent=COUNT - 1)).hosts[0].refused == 1
    assert found(GOOD._replace(had_no_room=True)).hosts[0].refused == 0
