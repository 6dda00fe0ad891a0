"""Nobody without the key can disturb a world."""

import json
from collections.abc import Callable

import pytest
from cluster.hosts import Hosts
from support.members import REDUCE, ended, evaluating, members, one_world, program, stop

from mingle_hooks.net.addresses import DEFAULT_RANGE
from mingle_hooks.rendezvous.wire import Attempt, Secret, check_in_ports


@pytest.mark.parametrize("ranked", [False, True], ids=["elected", "ranks"])
def test_a_stranger_cannot_make_a_world_fail_or_differ(hosts: Callable[..., Hosts], *, ranked: bool) -> None:
    """It squats the open ports, floods, forges, replays and holds connections open while the others meet."""
    *four, fifth = hosts(5)
    ports = check_in_ports(Attempt("job"), Secret(b"not the key"), DEFAULT_RANGE)[0]  # as whoever knows the id
    squatter = program(four[0], "holds.py", *map(str, ports))
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
