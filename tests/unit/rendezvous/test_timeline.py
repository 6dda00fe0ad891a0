"""Where the time of a start went, and how nodes differ."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import Room, join_request

from mingle_hooks.rendezvous import report
from mingle_hooks.rendezvous.connection import Lookup, Loop
from mingle_hooks.rendezvous.messages import LONGEST_FINGERPRINT, Durations, JoinRequest, Stopwatch, process_age_s
from mingle_hooks.rendezvous.report import phases, timeline_lines
from mingle_hooks.rendezvous.roster import AdvertisedAddress
from mingle_hooks.rendezvous.wire import WireError, decode, encode, parse

# Who kept the others waiting at the start, by how much, and with what.


RANK_0 = ("node1", 100.0, Durations(100, 0, 100))
CAUSES = (
    "for a late start by the scheduler",
    "for mingle's start (Python, imports, settings)",
    "for name look-ups",
    "for the network",
)


def because(*seconds: str) -> str:
    """Return how it is told what kept a member."""
    return ", ".join(f"{its} s {cause}" for its, cause in zip(seconds, CAUSES, strict=True))


@pytest.mark.parametrize(
    ("spent", "why"),
    [
        (Durations(100, 0, 120), because("1.98", "0.10", "0.00", "0.02")),
        (Durations(2000, 0, 2020), because("0.08", "2.00", "0.00", "0.02")),
        (Durations(100, 1900, 2020), because("0.08", "0.10", "1.90", "0.02")),
        (Durations(100, 0, 2020), because("0.08", "0.10", "0.00", "1.92")),
    ],
    ids=CAUSES,
)
def test_the_last_member_is_named_with_the_cause(spent: Durations, why: str) -> None:
    """By rank 0's clock: members only tell how long something took."""
    told = timeline_lines(phases([RANK_0, ("node2", 100.03, Durations(110, 0, 130)), ("node3", 102.0, spent)]), 102.5)
    assert told[-1] == f"last to be ready: node3, 2.00 s after node1: {why}"
    assert told[-2] == "the world formed at 2.60 s"
    assert told[0] == "node1 started at 0.00 s, searched from 0.10 s, checked in at 0.10 s"
    assert len(told) == 5


def test_a_member_that_waits_for_rank_0_is_not_late() -> None:
    """It came first, and could not be in before rank 0 was."""
    late = ("node1", 109.0, Durations(100, 0, 110))
    told = timeline_lines(phases([late, ("node2", 109.2, Durations(200, 10, 9100))]), 110.0)
    assert told[-1].startswith("last to be ready: node1, 8.49 s after node2: 8.79 s for a late start")


def test_of_many_members_only_the_last_is_listed() -> None:
    """A log has room for one line of a thousand nodes."""
    told = timeline_lines(
        phases([RANK_0, *((f"n{n}", 100.0 + n / 1000, Durations(90, 0, 100)) for n in range(1000))]), 101.5
    )
    assert len(told) == 2
    assert told[1].startswith("last to be ready: n999, 1.01 s after n0: 1.00 s for")


def test_no_member_is_late_if_all_come_together_or_have_no_durations() -> None:
    """A tick of the kernel is no delay; a member of yesterday tells no times."""
    assert (
        timeline_lines(phases([RANK_0, ("node2", 100.03, Durations(100, 0, 120))]), 100.1)[-1]
        == "all were ready within 0.05 s"
    )
    assert timeline_lines(phases([RANK_0, ("node2", 105.0, None)]), 106.0) == []
    assert timeline_lines(phases([]), 0.0) == []


def test_durations_round_trip_and_are_bounded() -> None:
    """Three numbers of milliseconds, and nothing else."""
    said = join_request(spent=Durations(1, 2, 3, 4))
    assert parse(JoinRequest, decode(encode(said.body()))) == said
    assert "spent" not in join_request().body()
    for wrong in ([1, 2, 3], [1, 2, 3, -1], [1, 2, 3, 1 << 40], [1, 2, 3, True], [1, 2, 3, 4.5], "1234", None):
        with pytest.raises(WireError, match="spent"):
            parse(JoinRequest, {**join_request().body(), "spent": wrong})


def test_a_stopwatch_runs_since_the_process_began() -> None:
    """Python's own start is in it, and nothing of another process's."""
    mine = process_age_s()
    code = "from mingle_hooks.rendezvous.messages import process_age_s as age; print(age())"
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) <= time.monotonic() - before + 0.02 < mine + 60
    clock = iter([10.0, 10.5])
    assert Stopwatch(lambda: next(clock), 0.1).durations(0.25) == Durations(100, 250, 600)


def test_the_name_services_time_ends_with_its_last_answer() -> None:
    """A look-up that is still under way counts for nothing yet."""
    with Loop() as loop:
        answers: list[list[str]] = []
        Lookup(loop, "localhost", lambda _host, found: answers.append(found))
        assert loop.names_s == 0.0
        loop.after(30.0, lambda: answers.append([]))
        loop.run(lambda: bool(answers))
        assert loop.names_s > 0.0


# What members say of their nodes travels with the check-in, and the leader compares it.


TEXT = "driver=570 gpus=8%20H100"
STRICT: Any = SimpleNamespace(strict=("driver",), asks_rdma=False)


@pytest.fixture
def room() -> Iterator[Room]:
    with Room(4) as made:
        mine = made.leader.roster.entry(made.me.member)
        mine.fingerprint, mine.addresses, mine.clock = TEXT, "10.0.0.1=25G,mtu9000", (0.0, 0.0)
        yield made


def come(room: Room, **odd: Any) -> None:
    """Have three members come, of which rank 3's says something else."""
    for rank in (1, 2, 3):
        said = {"fingerprint": TEXT, "addresses": f"127.0.0.{rank + 1}=25G,mtu9000"} | (odd if rank == 3 else {})
        room.member(rank=rank, host=f"node{rank}", **said).come()
    room.until(lambda: len(room.leader.roster) == 4)


def lines(room: Room) -> list[str]:
    return report.difference_lines(room.leader, "127.0.0.1", asks_rdma=False)


def test_a_fingerprint_travels_with_the_check_in_and_equal_ones_are_one_object() -> None:
    """A leader of thousands keeps one text; a member without one says nothing of its clock either."""
    me = join_request(fingerprint=TEXT, addresses="10.0.0.1=25G")
    assert parse(JoinRequest, me.body(17)) == me._replace(clock_ms=17)
    one, other = (parse(JoinRequest, me.body(17) | {"fingerprint": "".join([*TEXT])}) for _ in range(2))
    assert one.fingerprint is other.fingerprint
    assert not {"fingerprint", "addresses", "clock_ms"} & join_request().body(17).keys()
    assert parse(JoinRequest, join_request().body()).fingerprint == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"fingerprint": "x" * (LONGEST_FINGERPRINT + 1)},
        {"fingerprint": "a\nb"},
        {"fingerprint": 7},
        {"addresses": "\x1b"},
        {"clock_ms": -1},
        {"clock_ms": 1.5},
    ],
)
def test_an_invalid_fingerprint_address_or_clock_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(WireError):
        parse(JoinRequest, join_request(fingerprint=TEXT).body(1) | wrong)


def test_equal_members_have_no_findings(room: Room) -> None:
    come(room)
    assert lines(room) == []
    assert report.refuse_different_nodes(room.leader, STRICT, 0) is False


def test_a_deviating_node_is_named_and_refused_only_for_strict_fields(room: Room) -> None:
    come(room, fingerprint="driver=550 gpus=8%20H100")
    assert lines(room) == ["node3: driver 550, 3 others 570", "to leave out: --exclude=node3"]
    lenient: Any = SimpleNamespace(strict=("gpus",), asks_rdma=False)
    assert report.refuse_different_nodes(room.leader, lenient, 0) is False
    assert report.refuse_different_nodes(room.leader, STRICT, 0) is True
    error = str(room.leader.failure.error())
    assert "expected 4 nodes that are alike" in error
    assert "saw node3: driver 550, 3 others 570; try --exclude=node3, or --no-strict" in error


def test_a_member_of_another_version_is_not_compared(room: Room) -> None:
    come(room, fingerprint="", addresses="")
    assert lines(room) == []


def test_the_leader_knows_how_far_a_clock_may_be_off_at_least_and_at_most(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval holds the truth, however long the handshake took."""
    come(room)
    intervals = [entry.clock for entry in room.leader.roster.entries()]
    assert all(its is not None and its[0] <= 0 <= its[1] for its in intervals)
    now = time.time
    ahead = SimpleNamespace(time=lambda: now() + 5)
    monkeypatch.setattr("mingle_hooks.rendezvous.member.time", ahead)
    last = room.members.pop()
    last.leave()
    room.until(lambda: len(room.leader.roster) == 3)
    room.member(rank=3, host="node3", fingerprint=TEXT, addresses="127.0.0.4=25G,mtu9000").come()
    room.until(lambda: len(room.leader.roster) == 4)
    low, high = room.leader.roster.entries()[-1].clock or (0, 0)
    assert low <= 5 <= high
    assert high - low < 5


def test_the_interface_is_that_of_the_network_that_is_used(room: Room) -> None:
    come(room, addresses="127.0.0.4=25G,mtu1500 10.9.0.4=25G,mtu9000")
    for number, entry in enumerate(room.leader.roster.entries(), 1):
        entry.reached = {0: f"127.0.0.{number}"}
    mine = room.leader.roster.entry(room.me.member)
    mine.addresses = "127.0.0.1=25G,mtu9000"
    assert lines(room)[0] == "node3: network 25G,mtu1500, 3 others 25G,mtu9000"


def test_the_one_host_that_does_not_reach_a_better_network_is_named(room: Room) -> None:
    come(room)
    better = (AdvertisedAddress("10.78.0.1"), AdvertisedAddress("fd78::1"), AdvertisedAddress("127.0.0.1"))
    room.leader.terms = room.terms._replace(advertised=better)
    for entry in room.leader.roster.entries():
        entry.reached = {2: "x"} if entry.join_request.rank == 3 else {0: "x", 1: "x", 2: "x"}
    assert lines(room)[0] == "node3: does not reach rank 0 at 10.78.0.1, 3 others do"
    for entry in room.leader.roster.entries()[1:]:
        entry.reached = {2: "x"}
    assert lines(room) == []
