"""Nobody without the key can disturb a world."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest
from cluster.hosts import Hosts
from support.members import REDUCE, ended, evaluating, members, one_world, program, stop

# What leaves a host: connections to node1's address, and datagrams.
COUNTED = """
add table inet count
add chain inet count out { type filter hook output priority 0; }
add rule inet count out ip daddr 10.77.0.1 tcp flags & (syn | ack) == syn counter
add rule inet count out meta l4proto udp counter
"""


@pytest.mark.parametrize("ranked", [False, True], ids=["elected", "ranks"])
def test_a_stranger_cannot_make_a_world_fail_or_differ(hosts: Callable[..., Hosts], *, ranked: bool) -> None:
    """It squats the open ports, floods, forges, replays and holds connections open while the others meet."""
    *four, fifth = hosts(5)
    squatter = program(four[0], "squatter.py", "job")
    stranger = program(fifth, "stranger.py", "job", ",".join(host.addr() for host in four))
    options = ("--id", "job", "--nodes", "4", "--timeout", "30", *(("--master", "node1") if ranked else ()))
    results = members(
        four,
        lambda number: evaluating(*options, *(["--rank", str(number)] if ranked else []), then=REDUCE),
        delays=[0, 0, 0.5, 2],
    )
    stop(squatter)
    stranger.terminate()
    did = json.loads(ended(stranger).stdout)
    assert one_world(results)[0]["MASTER_ADDR"] in [host.addr() for host in four[: 1 if ranked else 4]]
    assert all(did[what] > 0 for what in ("heard", "sent", "knocked", "answered")), did


@pytest.mark.parametrize("ranked", [False, True], ids=["elected", "ranks"])
def test_what_was_said_in_an_earlier_attempt_leads_nobody_astray(hosts: Callable[..., Hosts], *, ranked: bool) -> None:
    """Its beacons, questions and answers, recorded and replayed all the time, lead to no connection."""
    four = hosts(4, ipv6=False)
    recorder = program(four[3], "recorder.py", "job", four[3].addr(), stdin=subprocess.PIPE)
    assert recorder.stdin is not None
    assert recorder.stdout is not None

    def options(rank: int, *more: str) -> list[str]:
        rank_option = ["--rank", str(rank)] if ranked else []
        return evaluating("--id", "job", "--via", "multicast", *rank_option, *more, then=REDUCE)

    earlier = members(
        [four[0], four[1]], lambda number: options(number, "--nodes", "3", "--timeout", "4"), delays=[0, 1]
    )
    assert [done.returncode for done in earlier] == [69, 69], earlier
    recorder.stdin.write("play\n")
    recorder.stdin.flush()
    heard = json.loads(recorder.stdout.readline())
    assert all(heard[kind] for kind in ("answer", "beacon", "question"))
    for host in (four[1], four[2]):
        host.run(["nft", "-f", "-"], input=COUNTED, check=True)
    results = members([four[1], four[2]], lambda number: options(1 - number, "--nodes", "2"), delays=[0, 3])
    counts = [host.run(["nft", "list", "table", "inet", "count"], check=True).stdout for host in (four[1], four[2])]
    stop(recorder)
    one_world(results)
    connections, datagrams = zip(*(map(int, re.findall(r"packets (\d+)", text)) for text in counts), strict=True)
    assert connections == (0, 0)
    assert sum(datagrams) < 60
