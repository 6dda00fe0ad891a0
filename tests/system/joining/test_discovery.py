"""Machines without a scheduler find one another, by every discovery backend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster.hosts import Hosts
from support.members import (
    KEYED,
    REDUCE,
    besides_waits,
    evaluating,
    is_on,
    members,
    one_world,
    program,
    stop,
    variables,
)

from mingle_hooks.rendezvous.wire import Attempt, multicast_port

FOUR = ("--id", "job 1", "--nodes", "4")
# Two ids with the same IPv4 group and the same port.
SAME_GROUP = ("run11897", "run16130")


@pytest.mark.parametrize(
    ("family", "network", "delays"),
    [
        ({}, "10.77.0.0/24", [0, 0.4, 0.1, 0.6]),
        ({"ipv4": False}, "fd77::/64", [0.6, 0, 0.3, 0]),
    ],
    ids=["both", "only IPv6"],
)
def test_four_machines_that_know_nothing_of_each_other_find_one_world_by_multicast(
    hosts: Callable[..., Hosts], family: dict[str, Any], network: str, delays: list[float]
) -> None:
    """They start in any order and get ranks 0 to 3; all reach a listener at MASTER_ADDR, which is rank 0's address."""
    four = hosts(4, **family)
    results = four.run_all(evaluating(*FOUR, "--via", "multicast", then=REDUCE), env=KEYED, delays=delays)
    address = one_world(results)[0]["MASTER_ADDR"]
    leader = next(host for host, done in zip(four, results, strict=True) if variables(done)["NODE_RANK"] == "0")
    assert address == leader.addr(ipv6=not four.ipv4)
    assert is_on(address, network)
    assert besides_waits(*(done.stderr for done in results)) == []
    assert all(host.files() == set() for host in four)


def test_a_network_that_one_member_requires_is_used_though_another_is_faster(four: Hosts) -> None:
    """Without --iface it is eth0, as in the tests above."""
    line = ["mingle", "exec", "--id", "job", "--nodes", "3", "--via", "master", "--master", "node1", "--rank"]

    def asks(rank: int) -> list[str]:
        return [*line, str(rank), *(["--iface", "ib0"] if rank == 1 else []), "bash", "-ec", REDUCE]

    assert is_on(one_world(members(list(four)[:3], asks))[0]["MASTER_ADDR"], "10.78.0.0/24")


def test_worlds_that_share_hosts_and_a_multicast_group_never_mix(hosts: Callable[..., Hosts]) -> None:
    """Each receives the other's beacons."""
    attempts = [Attempt(name) for name in SAME_GROUP]
    assert len({(attempt.group4, multicast_port(attempt)) for attempt in attempts}) == 1
    two = hosts(2, ipv6=False)
    results = members(
        [two[0], two[0], two[1], two[1]],
        lambda number: evaluating("--id", SAME_GROUP[number % 2], "--nodes", "2", "--via", "multicast", then=REDUCE),
    )
    first, second = (one_world(results[number::2])[0] for number in range(2))
    assert (first["MINGLE_ID"], second["MINGLE_ID"]) == SAME_GROUP
    assert first["MINGLE_WORLD"] != second["MINGLE_WORLD"]


def test_the_directory_may_come_from_the_environment_and_all_backends_may_be_used_at_once(
    four: Hosts, tmp_path: Path
) -> None:
    """With MINGLE_DIRECTORY, --master and multicast together there is still one world."""
    env = {**KEYED, "MINGLE_DIRECTORY": str(tmp_path), "MINGLE_ID": "job", "MINGLE_NODES": "2"}
    one_world(members(list(four)[:2], evaluating("--master", "node1", then=REDUCE), env=lambda _: env))
    assert list(tmp_path.iterdir()) == []


def test_all_members_are_sent_the_same_roster_and_say_hello_once(hosts: Callable[..., Hosts]) -> None:
    """One packed roster for all, and, where one port is named, one handshake a member, however many there are."""
    three, others = hosts(3, ipv6=False), 12
    tap = program(three[0], "tap.py", "HELLO", "ROSTER")
    options = ("--id", "job", "--nodes", str(1 + others), "--via", "master", "--master", "node1:23456")
    places = [three[0], *[three[1], three[2]] * (others // 2)]
    one_world(members(places, lambda number: evaluating(*options, "--for", "deepspeed", "--rank", str(number))))
    sent = [line.split() for line in stop(tap).splitlines()]
    # Rank 0 looks for a rival, and finds itself.
    assert [kind for kind, sender, *_ in sent if sender != three[0].addr()].count("HELLO") == others
    assert [kind for kind, *_ in sent].count("ROSTER") == others
    assert len({payload for kind, *_, payload in sent if kind == "ROSTER"}) == 1


def test_three_packets_of_ten_lost_in_both_directions_change_nothing(four: Hosts) -> None:
    """Beacons, check-in and barrier survive a bad network."""
    four.lose(0.3)
    one_world(four.run_all(evaluating(*FOUR, "--timeout", "120"), env=KEYED, timeout=170))
