"""A member of an elastic world that is started again, while that world goes on and after its end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

from cluster.host import Host
from cluster.hosts import Hosts
from cluster.waiting import until
from support.members import KEYED, OTHER_KEY, SHARED, ended, members, parsed, stop

# Rank 0's agent listens until its world ends.
AGENT = """import os, socket, sys
with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as server:
    print("END", flush=True)
    while True: server.accept()[0].close()
"""


def line(*options: str, nodes: int = 2, command: tuple[str, ...] = ("env",)) -> list[str]:
    """Return what is typed on every node."""
    return ["mingle", "exec", "--id", "job", "--nodes", str(nodes), "--for", "torchrun-elastic", *options, *command]


@contextmanager
def world(places: list[Host], *, ranked: bool = False) -> Iterator[list[dict[str, str]]]:
    """Form a world whose rank 0, on the first of these hosts, goes on; give the other members' variables."""
    nodes = len(places)
    agent = places[0].popen(line("--rank", "0", nodes=nodes, command=("python3", "-c", AGENT)), env=KEYED)
    try:
        results = members(
            places[1:], lambda number: line(*(["--rank", str(number + 1)] if ranked else []), nodes=nodes)
        )
        assert [done.returncode for done in results] == [0] * (nodes - 1), results
        assert agent.stdout is not None
        assert agent.stdout.readline() == "END\n"
        yield [parsed(done.stdout) for done in results]
    finally:
        stop(agent)


def again(host: Host, *options: str, nodes: int = 2, **env: str) -> CompletedProcess[str]:
    """Start a member again."""
    return host.run(line("--timeout", "1", *options, nodes=nodes), env={**KEYED, **env})


def test_a_member_that_is_started_again_gets_its_place_back_until_the_world_has_ended(
    hosts: Callable[..., Hosts],
) -> None:
    """No other member calls mingle again; one that contradicts the others gets no place.

    The ended world's port has no listener: the same id forms a new world, when all are there again.
    """
    two = list(hosts(2))
    with world(two) as (before,):
        done = again(two[1])
        other = again(two[1], "--slots", "2")
    after = parsed(done.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"mingle: restarted: rank 1 of the running world at {before['MASTER_ADDR']}:")
    names = (*SHARED, "NODE_RANK", "PET_RDZV_ID")
    assert [after[name] for name in names] == [before[name] for name in names]
    assert (other.returncode, other.stdout, "1 slots on this node" in other.stderr) == (76, "", True)
    assert again(two[1]).returncode == 69
    with world(two) as (new,):
        assert new["MINGLE_WORLD"] != before["MINGLE_WORLD"]


def test_a_member_gets_its_own_place_back_where_nodes_share_a_directory(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """Each finds its own answer there, and not another node's."""
    three, shared = list(hosts(3)), tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for host in three:
        host.run(["mount", "--bind", shared, "/tmp"], check=True)
    with world(three) as before:
        ranks = [member["NODE_RANK"] for member in before]
        assert sorted(ranks) == ["1", "2"]
        after = [again(host, nodes=3) for host in three[1:]]
    assert [parsed(done.stdout).get("NODE_RANK") for done in after] == ranks, after


def test_a_leader_that_gathers_the_next_world_is_not_the_last_one(hosts: Callable[..., Hosts]) -> None:
    """It listens at the same port, once no connection of the last world is in TIME_WAIT there."""
    two = list(hosts(2))
    two[0].run(["sysctl", "-qw", "net.ipv4.tcp_max_tw_buckets=0"], check=True)
    with world(two) as (before,):
        pass
    leader = two[0].popen(line("--rank", "0", "--timeout", "9"), env=KEYED)
    until(lambda: two[0].run(["ss", "-Hltn", f"sport = :{before['MASTER_PORT']}"]).stdout)
    after, first = again(two[1]), ended(leader)
    assert (after.returncode, first.returncode) == (0, 0), (after, first)
    assert parsed(after.stdout)["MINGLE_WORLD"] == parsed(first.stdout)["MINGLE_WORLD"] != before["MINGLE_WORLD"]


def test_no_other_member_gets_the_place(hosts: Callable[..., Hosts]) -> None:
    """Another id, key, user, rank or framework gets none."""
    two = hosts(2)
    with world(list(two)):
        others = [
            again(two[0]),
            again(two[1], **OTHER_KEY),
            again(two[1], "--rank", "0"),
            two[1].run(["mingle", "exec", "--id", "job", "--nodes", "2", "--timeout", "1", "env"], env=KEYED),
            two[1].run(line("--timeout", "1"), env=KEYED, user="alice"),
            again(two[1], "--id", "job2"),
        ]
        assert [(done.returncode, done.stdout) for done in others] == [(69, "")] * len(others)
        assert again(two[1]).returncode == 0


def test_members_that_share_a_host_come_back_by_their_rank(hosts: Callable[..., Hosts]) -> None:
    one = hosts(1)[0]
    with world([one] * 3, ranked=True):
        assert parsed(again(one, "--rank", "2", nodes=3).stdout)["NODE_RANK"] == "2"
