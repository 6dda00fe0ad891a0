"""Reports on a world: which nodes differ from the others, and where the time of a start went."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.gathering import Room, request as any_request

from mingle_hooks.rendezvous import fingerprint, report
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.fingerprint import LONGEST, dump_fingerprint as dumps, load_fingerprint as loads
from mingle_hooks.rendezvous.messages import Durations, Outcome, process_age_s
from mingle_hooks.rendezvous.report import Compared, Finding, compare_members as compare, finding_lines as lines
from mingle_hooks.rendezvous.roster import AdvertisedAddress

HEALTHY = loads(
    "kernel=5.15.0-1053 kernel.machine=x86_64 driver=570.86.15 gpus=8%20H100 rdma=8x400G rdma.firmware=28.39.1002"
    " rdma.link=InfiniBand network=25G%20mtu%209000 limits.memlock=unlimited limits.nofile=4096+ shm=ok tmp=ok"
    " torch=2.5.1 program=9b74c989 git=57f6c79e NCCL_DEBUG=WARN"
)
GONE = dict.fromkeys(("rdma", "rdma.link", "rdma.firmware"), "-")


def members(count: int, odd: dict[int, dict[str, str]] | None = None) -> list[Compared]:
    """Return so many members; some, by their number from 1, say something else: "" takes a part away."""
    nodes = [HEALTHY | (odd or {}).get(number, {}) for number in range(1, count + 1)]
    texts = [dumps({name: value for name, value in parts.items() if value}) for parts in nodes]
    return [Compared(f"node{number:02}", text) for number, text in enumerate(texts, 1)]


def said(count: int, odd: dict[int, dict[str, str]] | None = None, *, asks_rdma: bool = False) -> list[str]:
    return lines(compare(members(count, odd), asks_rdma=asks_rdma))


def test_equal_members_have_no_findings() -> None:
    """Nor has a member without a fingerprint, or one alone."""
    its = members(32)
    assert compare(its) == compare([]) == compare(its[:1]) == []
    assert compare([*its[:3], its[3]._replace(fingerprint="", clock=(9, 9))]) == []


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("driver", "-", "node07: driver none, 31 others 570.86.15"),
        ("gpus", "7 H100", "node07: GPUs 7 H100, 31 others 8 H100"),
        ("rdma", "7x400G", "node07: RDMA 7x400G, 31 others 8x400G"),
        ("rdma", "down", "node07: no active RDMA port; RDMA on 31 others"),
        ("rdma", "silent", "node07: an RDMA device that does not answer; RDMA on 31 others"),
        ("rdma", "no-device", "node07: RDMA ports, but no /dev/infiniband; RDMA on 31 others"),
        ("rdma.firmware", "28.36.1010", "node07: RDMA firmware 28.36.1010, 31 others 28.39.1002"),
        ("limits.memlock", "64K", "node07: memlock 64K, too low for RDMA; RDMA on 31 others"),
        ("limits.nofile", "1024", "node07: nofile 1024, 31 others 4096+"),
        ("shm", "full", "node07: /dev/shm is full"),
        ("tmp", "full", "node07: /tmp is full"),
        ("shm", "64M", "node07: /dev/shm 64M, 31 others in order"),
    ],
)
def test_a_deviating_node_is_named_with_its_value_and_the_others(part: str, value: str, told: str) -> None:
    assert said(32, {7: {part: value}}) == [told, "to leave out: --exclude=node07"]


def test_no_rdma_anywhere_is_a_difference_only_if_it_is_required() -> None:
    """A small memlock is in order too without RDMA."""
    laptops = {number: {**GONE, "limits.memlock": "8M"} for number in range(1, 5)}
    assert said(4, laptops) == said(4, asks_rdma=True) == []
    assert said(4, laptops, asks_rdma=True)[0] == "node[01-04]: no RDMA device; RDMA is asked for (rdma = true)"
    told = ["node02: no RDMA device; RDMA on 1 other", "to leave out: --exclude=node02"]
    assert said(2, {2: GONE}, asks_rdma=True) == told
    assert compare(members(2, {1: GONE, 2: GONE})) == []


def test_a_variable_is_environment_and_excludes_no_node() -> None:
    """Many of one node are one line; a variable with another value on every node is in order."""
    assert said(32, {7: {"NCCL_DEBUG": "INFO"}}) == ["node07: NCCL_DEBUG INFO, 31 others WARN"]
    assert said(32, {7: {"NCCL_DEBUG": ""}}) == ["node07: NCCL_DEBUG not set, 31 others WARN"]
    assert said(32, {7: {"NCCL_ALGO": "Ring"}}) == ["node07: NCCL_ALGO Ring, 31 others not set"]
    many = {f"NCCL_{name}": "1" for name in "ABCDE"}
    assert said(32, {7: many}) == ["node07: other NCCL_A, NCCL_B, NCCL_C and 2 more"]
    assert said(8, {number: {"NCCL_HOSTID": f"host{number}"} for number in range(1, 9)}) == []
    long = {f"NCCL_{number:03}": "x" * 20 for number in range(60)}  # not all of them fit
    odd = dict.fromkeys(range(1, 9), long) | {3: long | {"NCCL_000A": "1"}}
    assert said(8, odd) == ["node03: NCCL_000A 1, 7 others not set"]
    odd[3] = {**long, "NCCL_059": "y"}
    assert [line.partition(",")[0][:-9] for line in said(8, odd)] == ["node03: other variables"]


def clocked(*intervals: tuple[float, float] | None) -> list[str]:
    its = [its._replace(clock=at) for its, at in zip(members(len(intervals)), intervals, strict=True)]
    return lines(compare(its))


def test_a_clock_is_odd_only_with_its_whole_interval_beyond_a_second() -> None:
    """It may be the leader's own, and two have no majority."""
    assert clocked((0, 0), (0.9, 5.1), (0, 0.1), None) == clocked((0, 0), (-6.0, 6.0), (0, 0.1), (0, 0)) == []
    for intervals, told in (
        (((0, 0), (5.0, 5.1), (0, 0.1), (-0.1, 0)), "node02: clock 5.0 s ahead of 3 others"),
        (((0, 0), (-5.1, -5.0), (0, 0.1), (-0.1, 0)), "node02: clock 5.0 s behind 3 others"),
        (((0, 0), (5.0, 5.1), (0.5, 6), (0, 0), (0, 0)), "node02: clock 5.0 s ahead of 4 others"),
        (((60, 60), (65, 65.1), (65, 65.1), (65, 65.1)), "node01: clock 5.0 s behind 3 others"),
        (((60, 60), (65, 65.1), (60, 60), (60, 60)), "node02: clock 5.0 s ahead of 3 others"),
        (((0, 0),) * 6 + ((2, 2), (5, 5)), "node[07-08]: clock 2.0 to 5.0 s ahead of 6 others"),
        (((0, 0), (5, 5.2)), "no majority for clock: node02 is 5.0 s ahead of node01"),
        (((0, 3), (1, 2), (9, 12), (10, 11)), "no majority for clock: node04 is 7.0 s ahead of node01"),
    ):
        assert clocked(*intervals)[0] == told


def addressed(*lists: str) -> list[str]:
    return lines(compare([m._replace(addresses=its) for m, its in zip(members(len(lists)), lists, strict=True)]))


def test_an_address_on_two_hosts_is_reported_and_one_on_all_is_not() -> None:
    """Several members of one host have its address; one that many hosts have is internal to each."""
    its = [f"10.0.0.{number} 192.168.100.1" for number in range(1, 5)]
    assert addressed(*its) == []
    assert addressed(*its[:3], its[1])[0] == "node[02,04]: 10.0.0.2 on each of them"
    most = [f"10.0.0.{number}" + " 172.17.0.1" * (number < 6) for number in range(1, 9)]
    assert addressed(*most) == addressed("a b", "a c", "a d", "e") == []
    assert addressed(*"aaabcdefghij")[0] == "node[01-03]: a on each of them"
    shared = [member._replace(addresses="10.0.0.1", host="node01") for member in members(4)]
    assert compare(shared[:2] + [m._replace(addresses="10.0.0.2", host="node02") for m in shared[2:]]) == []


ROCE = {"rdma.link": "RoCE"}
LOADER = {**GONE, "gpus": "-", "driver": "-"}
OLD = {"gpus": "8 A100", "driver": "550", "kernel": "5.4", "rdma": "8x200G", "torch": "2.4"}
GRACE = {"gpus": "4 GB200", "kernel.machine": "aarch64", "kernel": "6.8", "torch": "2.6"}
A100, RACE, ARM = {"gpus": "8 A100"}, {"kernel.machine": "aarch64", "rdma.link": "RoCE"}, {"kernel.machine": "aarch64"}


@pytest.mark.parametrize(
    ("count", "odd", "told"),
    [
        (4, {3: GONE, 4: GONE},
         ["no majority for RDMA: node[03-04] none; node[01-02] 8x400G",
          "no majority for RDMA firmware: node[03-04] none; node[01-02] 28.39.1002"]),
        # Two of forty are a kind, and one of a kind of its own has the values of the most similar one.
        (40, {39: A100, 40: A100}, ["2 kinds of node: 38 × 8 H100; 2 × 8 A100"]),
        (17, dict.fromkeys(range(9, 17), A100 | RACE) | {17: RACE | {"gpus": "7 H100"}},
         ["2 kinds of node: 9 × 8 A100; 8 × 8 H100", "node17: GPUs 7 H100, 8 others 8 A100",
          "to leave out: --exclude=node17"]),
        (32, {7: GONE, 9: GONE},
         ["node[07,09]: no RDMA device; RDMA on 30 others", "to leave out: --exclude=node[07,09]"]),
        (32, dict.fromkeys(range(17, 25), OLD) | dict.fromkeys(range(25, 33), GRACE),
         ["3 kinds of node: 16 × 8 H100; 8 × 4 GB200; 8 × 8 A100"]),
        (32, dict.fromkeys(range(17, 33), OLD) | {20: OLD | {"driver": "535"}},
         ["2 kinds of node: 16 × 8 A100; 16 × 8 H100", "node20: driver 535, 15 others 550",
          "to leave out: --exclude=node20"]),
        (24, dict.fromkeys(range(17, 25), LOADER), ["2 kinds of node: 16 × 8 H100; 8 × no GPUs"]),
        (8, dict.fromkeys(range(5, 9), ROCE), ["2 kinds of node: 4 × 8 H100 InfiniBand; 4 × 8 H100 RoCE"]),
        # Three of four name the fourth, and two of three name no host.
        (4, {3: {"driver": "550"}}, ["node03: driver 550, 3 others 570.86.15", "to leave out: --exclude=node03"]),
        (3, {3: {"driver": "550"}}, ["no majority for driver: node[01-02] 570.86.15; node03 550"]),
        (2, {1: {"driver": "550"}}, ["no majority for driver: node01 550; node02 570.86.15"]),
        (8, dict.fromkeys(range(5, 9), A100 | GONE), ["2 kinds of node: 4 × 8 A100; 4 × 8 H100"]),
        (8, dict.fromkeys(range(5, 9), ARM | GONE),
         ["2 kinds of node: 4 × 8 H100 no RDMA aarch64; 4 × 8 H100 InfiniBand x86_64"]),
        # Some values, many, and as many as there may be lines.
        (8, {1: {"NCCL_DEBUG": "A"}, 2: {"NCCL_DEBUG": "B"}},
         ["node01: NCCL_DEBUG A, 6 others WARN", "node02: NCCL_DEBUG B, 6 others WARN"]),
        (6, {n: {"driver": str(n)} for n in range(1, 7)},
         ["no majority for driver: node01 1; node02 2; node03 3; node04 4; 2 more values"]),
        (32, {3: {"NCCL_0": "1"}, 7: {f"NCCL_{name}": "1" for name in "ABC"}},
         ["node03: NCCL_0 1, 31 others not set", "node07: other NCCL_A, NCCL_B, NCCL_C"]),
        *((32, {1: {"limits.memlock": enough}},
           [f"node01: memlock {enough}, 31 others unlimited", "to leave out: --exclude=node01"])
          for enough in ("64M", "128M", "256M", "512M")),
        *((32, {1: {"limits.memlock": low}},
           [f"node01: memlock {low}, too low for RDMA; RDMA on 31 others", "to leave out: --exclude=node01"])
          for low in ("1M", "2M", "4M", "8M", "16M", "32M")),
    ],
)  # fmt: skip
def test_all_that_is_said_of_members(count: int, odd: dict[int, dict[str, str]], told: list[str]) -> None:
    assert said(count, odd) == told


def test_there_are_at_most_ten_lines_and_hosts_are_folded() -> None:
    """As many lines as there may be need no line that counts the others."""
    odd = {1: {name: "odd" for name in HEALTHY if name not in ("gpus", "rdma.link", "kernel.machine")}}
    told = said(32, odd)
    assert len(told) == report.MOST_LINES
    assert told[-1] == "to leave out: --exclude=node01"
    assert told[-2] == f"and {len(compare(members(32, odd))) - report.MOST_LINES + 2} more differences"
    findings = [Finding("driver", ("a",), str(number)) for number in range(report.MOST_LINES - 1)]
    assert lines(findings) == [*"012345678", "to leave out: --exclude=a"]
    some = said(1024, {number: {"driver": "550"} for number in range(1, 250, 3)})
    assert some[0].startswith("node[01,04,07,10] and 79 more: driver 550, 941 others")
    assert len(some) == 1  # so long a list is of no use
    assert said(8, {2: {"driver": "1"}, 7: {"kernel": "1"}})[-1] == "to leave out: --exclude=node[02,07]"


def test_thousands_of_members_are_grouped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    its = members(1024, {7: {"driver": "550"}, 9: {"git": "1"}})
    read = []
    monkeypatch.setattr(fingerprint, "load_fingerprint", lambda text: read.append(text) or loads(text))
    assert len(compare(its)) == 2
    assert len(read) == 3


def test_a_finding_is_one_printable_line_for_any_fingerprint() -> None:
    hostile = Compared("node04", "driver=%1b[2J git=%zz kernel == =x %% NCCL_X=%ff")
    assert all(line.isprintable() for line in lines(compare([*members(4)[:3], hostile])))


def test_a_fingerprint_round_trips_and_is_never_too_long() -> None:
    parts = {"kernel": "5 = 5%", "gpus": "8 ü", "driver": "a\x1b[2J\n\u202eb", "image": "", "NCCL_X": "\udcff"}
    text = dumps(parts)
    assert text.isascii()
    assert text.isprintable()
    assert loads(text) == {**parts, "NCCL_X": "�"}
    long = {f"NCCL_{number}": "é" * 40 for number in range(200)} | {"kernel": "x" * 10**6}
    assert len(dumps(long)) <= LONGEST
    assert dumps(long) != dumps({**long, "NCCL_99": "a"})
    assert loads(dumps(long))["kernel"].startswith("#")


# Who kept the others waiting at the start, by how much, and with what.


RANK_0 = ("node1", 100.0, Durations(100, 0, 100))


def timeline(formed: float, *members: tuple[str, float, Durations | None]) -> list[str]:
    """Return what is said of a world that formed then, by rank 0's clock."""
    return report.timeline_lines(report.phases([*members]), formed)


def test_the_last_member_is_named_with_the_causes() -> None:
    """Times are by rank 0's clock, as members report only durations."""
    others = ("node2", 100.03, Durations(110, 0, 130)), ("node3", 102.0, Durations(300, 500, 1020))
    *listed, last = timeline(102.5, RANK_0, *others)
    assert listed == [
        "node1 started at 0.00 s, searched from 0.10 s, checked in at 0.10 s",
        "node2 started at 0.00 s, searched from 0.11 s, checked in at 0.13 s",
        "node3 started at 1.08 s, searched from 1.38 s, checked in at 2.10 s",
        "the world formed at 2.60 s",
    ]
    assert last == (
        "last to be ready: node3, 2.00 s after node1: 1.08 s for a late start by the scheduler,"
        " 0.30 s for mingle's start (Python, imports, settings), 0.50 s for name look-ups, 0.22 s for the network"
    )


def test_a_member_that_waits_for_rank_0_is_not_late() -> None:
    """It came first, and could not be in before rank 0 was."""
    late = ("node1", 109.0, Durations(100, 0, 110))
    told = timeline(110.0, late, ("node2", 109.2, Durations(200, 10, 9100)))
    assert told[-1].startswith("last to be ready: node1, 8.49 s after node2: 8.79 s for a late start")


def test_no_member_is_late_if_all_come_together_or_have_no_durations() -> None:
    """A tick of the kernel is no delay, and earlier versions report no durations; of many only the last is listed."""
    together = timeline(100.1, RANK_0, ("node2", 100.03, Durations(100, 0, 120)))
    assert together[-1] == "all were ready within 0.05 s"
    assert timeline(106.0, RANK_0, ("node2", 105.0, None)) == timeline(0.0) == []
    told = timeline(101.5, RANK_0, *((f"n{n}", 100.0 + n / 1000, Durations(90, 0, 100)) for n in range(1000)))
    assert len(told) == 2
    assert told[1].startswith("last to be ready: n999, 1.01 s after n0: 1.00 s for")


def test_the_last_member_s_times_are_those_of_a_report() -> None:
    """A name service counts from rank 0's arrival at the earliest; a member without durations is left out."""
    came = [
        ("node1", 109.0, Durations(100, 0, 200)),
        ("node2", 108.0, None),
        ("node3", 109.5, Durations(20, 5000, 9100)),
    ]
    found = report.phases(came)
    assert [(its.host, round(its.names_s, 3), round(its.network_s, 3)) for its in found] == [
        *(("node1", 0.0, 0.0), ("node3", 0.5, 0.0)),
    ]
    assert report.last_to_arrive(report.phases([came[0], ("node4", 110.00012, Durations(100, 300, 1000))])) == {
        "host": "node4",
        "after": "node1",
        "late_s": 1.1,
        "began_s": 0.2,
        "start_s": 0.1,
        "names_s": 0.3,
        "network_s": 0.6,
    }
    assert report.last_to_arrive([]) is None


def test_durations_count_since_the_process_began() -> None:
    """They include Python's own start, and no other process's."""
    mine = process_age_s()
    code = "from mingle_hooks.rendezvous.messages import process_age_s as age; print(age())"
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) <= time.monotonic() - before + 0.02 < mine + 60
    clock = iter([10.0, 10.5])
    with Loop(lambda: next(clock)) as loop:
        loop.names_s = 0.25
        assert Outcome(loop, 60.0, 0.1).durations() == Durations(100, 250, 600)


# What members say of their nodes travels with the check-in, and the leader compares it.


TEXT = "driver=570 gpus=8%20H100"
STRICT: Any = SimpleNamespace(strict=("driver",), rdma=False)


@pytest.fixture
def room() -> Iterator[Room]:
    with Room(4) as made:
        mine = made.leader.roster.entry(made.me.member)
        mine.fingerprint, mine.addresses, mine.clock = TEXT, "10.0.0.1=25G,mtu9000", (0.0, 0.0)
        yield made


def come(room: Room, **odd: Any) -> None:
    """Have three members come, of which rank 3 has other values."""
    for rank in (1, 2, 3):
        said = {"fingerprint": TEXT, "addresses": f"127.0.0.{rank + 1}=25G,mtu9000"} | (odd if rank == 3 else {})
        room.member(rank=rank, host=f"node{rank}", **said).come()
    room.until(lambda: len(room.leader.roster) == 4)


def differences(room: Room) -> list[str]:
    return report.difference_lines(room.leader, "127.0.0.1", asks_rdma=False)


def test_a_deviating_node_is_named_and_refused_only_for_strict_fields(room: Room) -> None:
    come(room, fingerprint="driver=550 gpus=8%20H100")
    assert differences(room) == ["node3: driver 550, 3 others 570", "to leave out: --exclude=node3"]
    lenient: Any = SimpleNamespace(strict=("gpus",), rdma=False)
    assert report.refuse_different_nodes(room.leader, lenient, 0) is False
    assert report.refuse_different_nodes(room.leader, STRICT, 0) is True
    error = str(room.leader.failure.error())
    assert "expected 4 nodes that are alike" in error
    assert "saw node3: driver 550, 3 others 570; try --exclude=node3, or --no-strict" in error


def test_a_member_of_another_version_is_not_compared(room: Room) -> None:
    come(room, fingerprint="", addresses="")
    assert differences(room) == []
    assert report.refuse_different_nodes(room.leader, STRICT, 0) is False


def test_the_leader_knows_how_far_off_a_clock_is_at_least_and_most(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval contains the true offset after a handshake of any length."""
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
    assert differences(room)[0] == "node3: network 25G,mtu1500, 3 others 25G,mtu9000"


def test_the_one_host_that_does_not_reach_a_better_network_is_named(room: Room) -> None:
    come(room)
    better = (AdvertisedAddress("10.78.0.1"), AdvertisedAddress("fd78::1"), AdvertisedAddress("127.0.0.1"))
    room.leader.terms = room.terms._replace(advertised=better)
    for entry in room.leader.roster.entries():
        entry.reached = {1: "x", 2: "x"} if entry.join_request.rank == 3 else {0: "x", 1: "x", 2: "x"}
    assert differences(room)[0] == "node3: does not reach rank 0 at 10.78.0.1, 3 others do"
    *first, last = report.leader_report(room.leader, "127.0.0.1")
    why = (
        "10.78.0.1: not reached by node3",
        "fd78::1: reached too late",
        "127.0.0.1 (lo, loopback): chosen: the best that",
    )
    assert [line.removesuffix(" all members reached") for line in first] == [f"address {text}" for text in why]
    assert re.fullmatch(r"last of 4 members to check in: node3 \(127.0.0.1\), \d.\d\d s after the first, node0", last)
    assert report.leader_report(room.leader, "fd78::1")[2].endswith(": not needed: slower, or later in order")
    for entry in room.leader.roster.entries()[1:]:
        entry.reached = {2: "x"}
    assert differences(room) == []


def test_what_the_leader_knows_is_noted_and_explained(room: Room) -> None:
    """Nodes without a known switch are always noted, differences if nodes are compared, all else on request."""
    notes: list[str] = []
    room.leader.roster.by_switch = True
    come(room, fingerprint="driver=550 gpus=8%20H100", topology="s1.n3")
    is_told = SimpleNamespace(note=notes.append, explain=notes.append)
    lacking = "the switches of node[0-2] are unknown: these nodes get neighbouring ranks, in the usual order"
    odd = ["node3: driver 550, 3 others 570", "to leave out: --exclude=node3"]
    for its, facts, expected in (
        (SimpleNamespace(note=notes.append, explain=None), None, [lacking]),
        (SimpleNamespace(note=notes.append, explain=None), {}, [lacking, *odd]),
        (is_told, None, [lacking, *report.leader_report(room.leader, "127.0.0.1")]),
    ):
        notes.clear()
        report.note_by_leader(room.leader, any_request(node_facts=facts), its, "127.0.0.1")
        assert notes == expected
    assert notes[2:4] == [
        "ranks by switch: node0,node1,node2,node3",
        "ranks in the usual order: node0,node1,node2,node3",
    ]
    room.leader.roster.by_switch = False
    loopback = AdvertisedAddress("127.0.0.1", loopback=True)
    room.leader.terms = room.terms._replace(advertised=(loopback, AdvertisedAddress("fd78::1", why="given")))
    first = report.leader_report(room.leader, "fd78::1")[:2]
    assert first == [
        "address 127.0.0.1 (lo, loopback): not reached by node[1-3]",
        "address fd78::1: chosen: the best that all members reached",
    ]
    room.leader.roster.entry(room.me.member).join_request = room.me._replace(machine="there")
    assert report.leader_report(room.leader, "fd78::1")[0] == first[1]
