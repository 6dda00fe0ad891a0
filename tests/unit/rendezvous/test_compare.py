from __future__ import annotations

import time

import pytest

from mingle_hooks.rendezvous.fingerprint import LONGEST
from mingle_hooks.rendezvous.fingerprint import dump_fingerprint as dumps
from mingle_hooks.rendezvous.fingerprint import load_fingerprint as loads
from mingle_hooks.rendezvous.report import MOST_LINES, Compared, Finding
from mingle_hooks.rendezvous.report import compare_members as compare
from mingle_hooks.rendezvous.report import finding_lines as lines
from mingle_hooks.values import FIELDS

HEALTHY = {
    "kernel": "5.15.0-1053",
    "kernel.machine": "x86_64",
    "driver": "570.86.15",
    "gpus": "8 H100",
    "rdma": "8x400G",
    "rdma.firmware": "28.39.1002",
    "rdma.link": "InfiniBand",
    "network": "25G mtu 9000",
    "limits.memlock": "unlimited",
    "limits.nofile": "4096+",
    "shm": "ok",
    "tmp": "ok",
    "torch": "2.5.1",
    "program": "9b74c989",
    "git": "57f6c79e",
    "NCCL_DEBUG": "WARN",
}


def names(count: int) -> list[str]:
    return [f"node{number:02}" for number in range(1, count + 1)]


def members(count: int, odd: dict[int, dict[str, str]] | None = None) -> list[Compared]:
    """Return so many members; some, by their number from 1, say something else: "" takes a part away."""
    found = []
    for number, host in enumerate(names(count), 1):
        parts = HEALTHY | (odd or {}).get(number, {})
        found.append(Compared(host, dumps({name: value for name, value in parts.items() if value})))
    return found


def said(count: int, odd: dict[int, dict[str, str]] | None = None, *, asks_rdma: bool = False) -> list[str]:
    return lines(compare(members(count, odd), asks_rdma=asks_rdma))


def test_equal_members_have_no_findings() -> None:
    assert said(32) == []
    assert compare([]) == []
    assert compare(members(1)) == []


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("driver", "550.54.15", "node07: driver 550.54.15, 31 others 570.86.15"),
        ("driver", "-", "node07: driver none, 31 others 570.86.15"),
        ("kernel", "6.1.0", "node07: kernel 6.1.0, 31 others 5.15.0-1053"),
        ("gpus", "7 H100", "node07: GPUs 7 H100, 31 others 8 H100"),
        ("rdma", "7x400G", "node07: RDMA 7x400G, 31 others 8x400G"),
        ("rdma", "down", "node07: no active RDMA port; RDMA on 31 others"),
        ("rdma", "silent", "node07: an RDMA device that does not answer; RDMA on 31 others"),
        ("rdma", "no-device", "node07: RDMA ports, but no /dev/infiniband; RDMA on 31 others"),
        ("rdma.firmware", "28.36.1010", "node07: RDMA firmware 28.36.1010, 31 others 28.39.1002"),
        ("network", "25G mtu 1500", "node07: network 25G mtu 1500, 31 others 25G mtu 9000"),
        ("limits.memlock", "64K", "node07: memlock 64K, too low for RDMA; RDMA on 31 others"),
        ("limits.nofile", "1024", "node07: nofile 1024, 31 others 4096+"),
        ("shm", "full", "node07: /dev/shm is full"),
        ("tmp", "full", "node07: /tmp is full"),
        ("shm", "64M", "node07: /dev/shm 64M, 31 others in order"),
        ("program", "57f6c79e", "node07: program 57f6c79e, 31 others 9b74c989"),
        ("git", "1b2c3d4e", "node07: git 1b2c3d4e, 31 others 57f6c79e"),
    ],
)
def test_a_deviating_node_is_named_with_its_value_and_the_others(part: str, value: str, told: str) -> None:
    assert said(32, {7: {part: value}}) == [told, "to leave out: --exclude=node07"]


def test_a_node_without_an_rdma_device_is_named_once_and_is_no_kind() -> None:
    gone = {"rdma": "-", "rdma.link": "-", "rdma.firmware": "-"}
    told = "node[07,09]: no RDMA device; RDMA on 30 others"
    assert said(32, {7: gone, 9: gone}) == [told, "to leave out: --exclude=node[07,09]"]


def test_no_rdma_anywhere_is_a_difference_only_if_it_is_required() -> None:
    gone = {"rdma": "-", "rdma.link": "-", "rdma.firmware": "-"}
    assert said(4, dict.fromkeys(range(1, 5), gone)) == []
    told = said(4, dict.fromkeys(range(1, 5), gone), asks_rdma=True)
    assert told[0] == "node[01-04]: no RDMA device; RDMA is asked for (rdma = true)"
    assert said(4, asks_rdma=True) == []


def test_without_rdma_on_most_a_small_memlock_is_in_order() -> None:
    laptop = {"rdma": "-", "rdma.link": "-", "rdma.firmware": "-", "limits.memlock": "8M"}
    assert said(4, dict.fromkeys(range(1, 5), laptop)) == []


def test_a_variable_is_environment_and_excludes_no_node() -> None:
    assert said(32, {7: {"NCCL_DEBUG": "INFO"}}) == ["node07: NCCL_DEBUG INFO, 31 others WARN"]
    assert said(32, {7: {"NCCL_DEBUG": ""}}) == ["node07: NCCL_DEBUG not set, 31 others WARN"]
    assert said(32, {7: {"NCCL_ALGO": "Ring"}}) == ["node07: NCCL_ALGO Ring, 31 others not set"]


def test_many_variables_of_one_node_are_one_line() -> None:
    odd = {f"NCCL_{name}": "1" for name in "ABCDE"}
    assert said(32, {7: odd}) == ["node07: other NCCL_A, NCCL_B, NCCL_C and 2 more"]


def test_a_variable_of_which_every_node_has_its_own_value_is_in_order() -> None:
    assert said(8, {number: {"NCCL_HOSTID": f"host{number}"} for number in range(1, 9)}) == []


def test_variables_that_did_not_fit_are_not_reported_as_unset() -> None:
    many = {f"NCCL_{number:03}": "x" * 20 for number in range(60)}
    odd = dict.fromkeys(range(1, 9), many) | {3: many | {"NCCL_000A": "1"}}
    assert said(8, odd) == ["node03: NCCL_000A 1, 7 others not set"]
    odd[3] = {**many, "NCCL_059": "y"}
    assert [line.partition(",")[0][:-9] for line in said(8, odd)] == ["node03: other variables"]


def test_three_of_four_name_the_fourth_and_two_of_three_no_host() -> None:
    assert said(4, {3: {"driver": "550"}})[0] == "node03: driver 550, 3 others 570.86.15"
    assert said(3, {3: {"driver": "550"}}) == ["no majority for driver: node[01-02] 570.86.15; node03 550"]
    assert said(2, {1: {"driver": "550"}}) == ["no majority for driver: node01 550; node02 570.86.15"]


def test_below_the_majority_no_host_is_named() -> None:
    halves = {number: {"git": "1b2c3d4e"} for number in range(17, 33)}
    told = compare(members(32, halves))
    assert [finding.text for finding in told] == ["no majority for git: node[17-32] 1b2c3d4e; node[01-16] 57f6c79e"]
    assert told[0].hosts == ()
    assert lines(told) == [told[0].text]


def test_a_heterogeneous_job_is_one_line() -> None:
    a100 = {"gpus": "8 A100", "driver": "550", "kernel": "5.4", "rdma": "8x200G", "torch": "2.4"}
    gb200 = {"gpus": "4 GB200", "kernel.machine": "aarch64", "kernel": "6.8", "torch": "2.6"}
    odd = dict.fromkeys(range(17, 25), a100) | dict.fromkeys(range(25, 33), gb200)
    assert said(32, odd) == ["3 kinds of node: 16 × 8 H100; 8 × 4 GB200; 8 × 8 A100"]


def test_within_a_kind_the_odd_one_is_named() -> None:
    a100 = {"gpus": "8 A100", "driver": "550"}
    odd = dict.fromkeys(range(17, 33), a100) | {20: {"gpus": "8 A100", "driver": "535"}}
    assert said(32, odd)[:2] == ["2 kinds of node: 16 × 8 A100; 16 × 8 H100", "node20: driver 535, 15 others 550"]


def test_nodes_without_gpus_need_no_rdma() -> None:
    loader = {"gpus": "-", "rdma": "-", "rdma.link": "-", "rdma.firmware": "-", "driver": "-"}
    assert said(24, dict.fromkeys(range(17, 25), loader)) == ["2 kinds of node: 16 × 8 H100; 8 × no GPUs"]


def test_kinds_with_the_same_gpus_are_distinguished_by_other_parts() -> None:
    roce = {"rdma.link": "RoCE"}
    assert said(8, dict.fromkeys(range(5, 9), roce)) == ["2 kinds of node: 4 × 8 H100 InfiniBand; 4 × 8 H100 RoCE"]


def clocked(*intervals: tuple[float, float] | None) -> list[str]:
    its = [its._replace(clock=at) for its, at in zip(members(len(intervals)), intervals, strict=True)]
    return lines(compare(its))


def test_a_clock_is_odd_only_with_its_whole_interval_beyond_a_second() -> None:
    assert clocked((0, 0), (5.0, 5.1), (0, 0.1), (-0.1, 0)) == [
        "node02: clock 5.0 s ahead of 3 others",
        "to leave out: --exclude=node02",
    ]
    assert clocked((0, 0), (-5.1, -5.0), (0, 0.1), (-0.1, 0))[0] == "node02: clock 5.0 s behind 3 others"
    assert clocked((0, 0), (0.9, 5.1), (0, 0.1), None) == []
    assert clocked((0, 0), (-6.0, 6.0), (0, 0.1), (0, 0)) == []
    assert clocked((0, 0), (5.0, 5.1), (0.5, 6), (0, 0), (0, 0))[0] == "node02: clock 5.0 s ahead of 4 others"


def test_the_leaders_own_clock_can_be_the_odd_one() -> None:
    assert clocked((0, 0), (5, 5.1), (5, 5.1), (5, 5.1))[0] == "node01: clock 5.0 s behind 3 others"


def test_two_clocks_have_no_majority() -> None:
    assert clocked((0, 0), (5, 5.2)) == ["no majority for clock: node02 is 5.0 s ahead of node01"]


def addressed(*lists: str) -> list[str]:
    return lines(compare([m._replace(addresses=its) for m, its in zip(members(len(lists)), lists, strict=True)]))


def test_an_address_on_two_hosts_is_reported_and_one_on_all_is_not() -> None:
    its = [f"10.0.0.{number} 192.168.100.1" for number in range(1, 5)]
    assert addressed(*its) == []
    assert addressed(*its[:3], its[1])[0] == "node[02,04]: 10.0.0.2 on each of them"
    most = [f"10.0.0.{number}" + " 172.17.0.1" * (number < 6) for number in range(1, 9)]
    assert addressed(*most) == []


def test_several_members_of_one_host_may_have_its_address() -> None:
    its = [member._replace(addresses="10.0.0.1", host="node01") for member in members(4)]
    assert compare(its[:2] + [m._replace(addresses="10.0.0.2", host="node02") for m in its[2:]]) == []


def test_there_are_at_most_ten_lines_and_hosts_are_folded() -> None:
    odd = {1: {name: "odd" for name in HEALTHY if name not in ("gpus", "rdma.link", "kernel.machine")}}
    told = said(32, odd)
    assert len(told) == MOST_LINES
    assert told[-1] == "to leave out: --exclude=node01"
    assert told[-2].startswith("and ")
    some = said(4096, {number: {"driver": "550"} for number in range(1, 1000, 3)})
    assert some[0].startswith("node[01,04,07,10] and 329 more: driver 550, 3763 others")
    assert len(some) == 1  # so long a list is of no use
    assert said(8, {2: {"driver": "1"}, 7: {"kernel": "1"}})[-1] == "to leave out: --exclude=node[02,07]"


def test_a_member_without_a_fingerprint_is_not_compared() -> None:
    its = members(4)
    assert compare([*its[:3], its[3]._replace(fingerprint="", clock=(9, 9))]) == []


def test_a_finding_is_one_printable_line_for_any_fingerprint() -> None:
    told = compare([*members(4)[:3], Compared("node04", "driver=%1b[2J%zz kernel == =x %% NCCL_X=%ff")])
    assert {finding.field for finding in told} <= set(FIELDS)
    assert all(isinstance(finding, Finding) for finding in told)


@pytest.mark.parametrize("count", [1024, 4096])
def test_thousands_of_members_are_grouped_first(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    its = members(count, {7: {"driver": "550"}, 9: {"git": "1"}})
    read = []
    monkeypatch.setattr(
        "mingle_hooks.rendezvous.fingerprint.load_fingerprint", lambda text: read.append(text) or loads(text)
    )
    began = time.process_time()
    assert len(compare(its)) == 2
    assert time.process_time() - began < 1
    assert len(read) == 3


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
