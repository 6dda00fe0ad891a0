"""Machines without a scheduler find one another, by every discovery backend."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from members import KEYED, REDUCE, evaluating, is_on, members, one_world, variables

from mingle_hooks.rendezvous.wire import Attempt, multicast_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

FOUR = ("--id", "job 1", "--nodes", "4")
# Two ids with the same IPv4 group and the same port.
SAME_GROUP = ("run11897", "run16130")


def check_reduced(worlds: list[dict[str, str]]) -> None:
    """Check that rank 0 could listen where the world says, and that everybody reached it there."""
    total = sum(range(len(worlds)))
    assert [world["SUM"] for world in worlds] == [str(total)] * len(worlds)


@pytest.mark.parametrize(
    ("family", "network"),
    [({}, "10.77.0.0/24"), ({"ipv4": False}, "fd77::/64"), ({"ipv6": False}, "10.77.0.0/24")],
    ids=["both", "only IPv6", "only IPv4"],
)
def test_four_machines_that_know_nothing_of_each_other_find_one_world_by_multicast(
    hosts: Callable[..., Hosts], family: dict[str, Any], network: str
) -> None:
    """Ranks 0 to 3 each once, MASTER_ADDR is rank 0's address, and a listener there is reached by all."""
    four = hosts(4, **family)
    results = four.run_all(evaluating(*FOUR, "--via", "multicast", then=f"hostname\n{REDUCE}"), env=KEYED)
    worlds = one_world(results)
    check_reduced(worlds)
    leader = next(host for host, done in zip(four, results, strict=True) if variables(done)["NODE_RANK"] == "0")
    assert worlds[0]["MASTER_ADDR"] == leader.addr(ipv6=not four.ipv4)
    assert is_on(worlds[0]["MASTER_ADDR"], network)
    assert [done.stderr for done in results] == [""] * 4
    assert all(host.files() == set() for host in four)


def test_ranks_that_are_given_are_kept(hosts: Callable[..., Hosts]) -> None:
    """With --rank the leader is rank 0, whoever comes first."""
    four = hosts(4)
    results = four.run_all(
        lambda host: evaluating(*FOUR, "--via", "multicast", "--rank", str(4 - host.number), then=REDUCE), env=KEYED
    )
    assert [variables(done)["NODE_RANK"] for done in results] == ["3", "2", "1", "0"]
    worlds = one_world(results)
    check_reduced(worlds)
    assert worlds[0]["MASTER_ADDR"] == "10.77.0.4"


@pytest.mark.parametrize("who", [0, 1], ids=["rank 0 asks", "another member asks"])
def test_a_network_that_one_member_asks_for_is_the_worlds_though_another_is_better(
    hosts: Callable[..., Hosts], who: int
) -> None:
    """Without --iface it is eth0; --iface ib0 excludes that, on whichever member it is said."""
    three = hosts(3)
    asks = ["mingle", "exec", "--id", "job", "--nodes", "3", "--via", "master", "--master", "node1"]
    for iface, network in (((), "10.77.0.0/24"), (("--iface", "ib0"), "10.78.0.0/24")):
        results = three.run_all(
            lambda host, iface=iface: [
                *(*asks, "--rank", str(host.number - 1), *(iface if host.number == who + 1 else ())),
                *("bash", "-ec", REDUCE),
            ],
            env=KEYED,
        )
        worlds = one_world(results)
        check_reduced(worlds)
        assert is_on(worlds[0]["MASTER_ADDR"], network)


@pytest.mark.parametrize(
    ("count", "places", "slots"),
    [(2, [0, 0, 1, 1], 1), (1, [0, 0, 0], 2), (16, list(range(16)), 1)],
    ids=["two on each of two hosts", "three on one host", "sixteen hosts"],
)
def test_members_may_share_a_host_and_may_be_many(
    hosts: Callable[..., Hosts], count: int, places: list[int], slots: int
) -> None:
    """However members are spread over hosts, there is one world."""
    its = hosts(count)
    options = ("--id", "job", "--nodes", str(len(places)), "--slots", str(slots))
    worlds = one_world(members([its[place] for place in places], lambda _: evaluating(*options, then=REDUCE)))
    check_reduced(worlds)
    assert worlds[0]["WORLD_SIZE"] == str(slots * len(places))
    assert [world["MINGLE_RANK_OFFSET"] for world in worlds] == [str(slots * r) for r in range(len(places))]


def test_several_worlds_share_hosts_a_network_and_a_multicast_group(hosts: Callable[..., Hosts]) -> None:
    """Members of two worlds on the same hosts never mix, although each hears the other's beacons."""
    attempts = [Attempt(name) for name in SAME_GROUP]
    assert len({(attempt.group4, multicast_port(attempt)) for attempt in attempts}) == 1
    two = hosts(2, ipv6=False)
    names = [SAME_GROUP[number % 2] for number in range(4)]
    results = members(
        [two[0], two[0], two[1], two[1]],
        lambda number: evaluating("--id", names[number], "--nodes", "2", "--via", "multicast", then=REDUCE),
    )
    pairs = [one_world(results[0::2]), one_world(results[1::2])]
    for name, pair in zip(SAME_GROUP, pairs, strict=True):
        check_reduced(pair)
        assert pair[0]["MINGLE_ID"] == name
    assert pairs[0][0]["MINGLE_WORLD"] != pairs[1][0]["MINGLE_WORLD"]


@pytest.mark.parametrize("ranked", [False, True], ids=["no ranks", "ranks"])
@pytest.mark.parametrize("backend", ["directory", "master", "master with port"])
def test_each_other_way_alone_finds_the_world(
    hosts: Callable[..., Hosts], tmp_path: Path, backend: str, *, ranked: bool
) -> None:
    """A shared directory, or --master with or without a port, is enough where multicast does not pass."""
    four = hosts(4)
    four.drop_multicast()
    options = {
        "directory": ("--via", "directory", "--directory", str(tmp_path)),
        "master": ("--via", "master", "--master", "node2"),
        "master with port": ("--master", "node2:23456"),
    }[backend]
    numbers = [1, 0, 2, 3]  # rank 0 is on node2
    results = members(
        list(four),
        lambda number: evaluating(*FOUR, *options, *(["--rank", str(numbers[number])] if ranked else []), then=REDUCE),
    )
    worlds = one_world(results)
    check_reduced(worlds)
    if ranked or backend != "directory":
        assert worlds[0]["MASTER_ADDR"] == "10.77.0.2"
    if backend == "master with port":
        assert worlds[0]["MASTER_PORT"] == "23456"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_may_come_from_the_environment_and_all_ways_may_be_used_at_once(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """With MINGLE_DIRECTORY, --master and multicast together there is still one world."""
    two = hosts(2)
    env = {**KEYED, "MINGLE_DIRECTORY": str(tmp_path), "MINGLE_ID": "job", "MINGLE_NODES": "2"}
    check_reduced(one_world(two.run_all(evaluating("--master", "node1", then=REDUCE), env=env)))
    assert list(tmp_path.iterdir()) == []


def test_all_who_ask_for_the_roster_are_sent_the_same_octets_and_each_greets_once(hosts: Callable[..., Hosts]) -> None:
    """One packed roster for all, and, where one port is named, one handshake a member, however many there are."""
    three, others = hosts(3, ipv6=False), 12
    tap = three[0].popen([sys.executable, Path(__file__).with_name("tap.py"), "HELLO", "ROSTER"])
    assert tap.stdout is not None
    assert tap.stdout.readline() == "ready\n", tap.communicate()
    asks = ("--id", "job", "--nodes", str(1 + others), "--via", "master", "--master", "node1:23456")
    options = (*asks, "--for", "deepspeed", "--timeout", "20", "--rank")
    places = [three[0], *[three[1], three[2]] * (others // 2)]
    one_world(members(places, lambda number: evaluating(*options, str(number))))
    tap.kill()
    sent = [line.split() for line in tap.communicate()[0].splitlines()]
    # Rank 0 looks for a rival, and finds itself.
    assert [kind for kind, sender, *_ in sent if sender != three[0].addr()].count("HELLO") == others
    assert [kind for kind, *_ in sent].count("ROSTER") == others
    assert len({payload for kind, *_, payload in sent if kind == "ROSTER"}) == 1


def test_rank_0_may_come_ten_seconds_before_or_after_all_others(hosts: Callable[..., Hosts]) -> None:
    """Members in any order of arrival form one world; here two, at the same time on the same hosts."""
    four = hosts(4)
    names = ["first"] * 4 + ["last"] * 4

    def argv(number: int) -> list[str]:
        rank = ["--rank", "0"] if number % 4 == 0 else []
        return evaluating("--id", names[number], "--nodes", "4", "--via", "multicast", *rank, then=REDUCE)

    results = members([*four, *four], argv, delays=[0, 10, 10.3, 9, 10, 0, 0.2, 1])
    for its in (results[:4], results[4:]):
        worlds = one_world(its)
        check_reduced(worlds)
        assert worlds[0]["MASTER_ADDR"] == "10.77.0.1"


@pytest.mark.parametrize("delays", [[0, 0.4, 0.1, 1.5], [2, 0, 1, 0]], ids=["first leads", "last leads"])
def test_without_ranks_any_order_of_arrival_gives_one_world(hosts: Callable[..., Hosts], delays: list[float]) -> None:
    """Candidates that come and go in any order agree on one of them."""
    check_reduced(one_world(hosts(4).run_all(evaluating(*FOUR, then=REDUCE), env=KEYED, delays=delays)))


def test_three_packets_of_ten_lost_in_both_directions_change_nothing(hosts: Callable[..., Hosts]) -> None:
    """Beacons, check-in and barrier survive a bad network."""
    four = hosts(4)
    four.lose(0.3)
    one_world(four.run_all(evaluating(*FOUR, "--timeout", "120"), env=KEYED, timeout=170))
