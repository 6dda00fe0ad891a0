"""A member of an elastic world that is started again, while that world goes on and after its end."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from members import KEYED, OTHER_KEY, SHARED, members, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

    from cluster.host import Host
    from cluster.hosts import Hosts

# Rank 0's agent listens until its world ends.
AGENT = """import os, socket, sys
with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as server:
    print("\\n".join(f"{name}={value}" for name, value in os.environ.items()), flush=True)
    print("END", flush=True)
    while True: server.accept()[0].close()
"""


def line(*options: str, nodes: int = 2, command: tuple[str, ...] = ("env",)) -> list[str]:
    """Return what is typed on every node."""
    return ["mingle", "exec", "--id", "job", "--nodes", str(nodes), "--for", "torchrun-elastic", *options, *command]


@contextmanager
def world(two: Hosts, *, rank: tuple[str, ...] = ("--rank", "0")) -> Iterator[dict[str, str]]:
    """Form a world whose rank 0, on the first host, goes on; give the second member's variables."""
    agent = two[0].popen(line(*rank, command=("python3", "-c", AGENT)), env=KEYED)
    try:
        second = two[1].run(line(), env=KEYED, check=True)
        assert agent.stdout is not None
        for text in agent.stdout:
            if text == "END\n":
                break
        yield parsed(second.stdout)
    finally:
        agent.kill()
        agent.wait()


def again(host: Host, *options: str, **env: str) -> CompletedProcess[str]:
    """Start a member again."""
    return host.run(line("--timeout", "2", *options), env={**KEYED, **env})


def test_a_member_that_is_started_again_gets_its_place_back(hosts: Callable[..., Hosts]) -> None:
    """Nobody else comes to mingle a second time, and nobody has to."""
    two = hosts(2)
    with world(two) as before:
        done = again(two[1])
    after = parsed(done.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"mingle: restarted: rank 1 of the running world at {before['MASTER_ADDR']}:")
    assert {name: after[name] for name in (*SHARED, "NODE_RANK")} == {n: before[n] for n in (*SHARED, "NODE_RANK")}
    assert after["PET_RDZV_ID"] == before["PET_RDZV_ID"]


def test_a_member_gets_its_own_place_back_where_nodes_share_a_directory(
    hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """Each finds its own answer there, and not another node's."""
    three, shared = hosts(3), tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for host in three:
        host.run(["mount", "--bind", shared, "/tmp"], check=True)
    agent = three[0].popen(line("--rank", "0", nodes=3, command=("python3", "-c", AGENT)), env=KEYED)
    try:
        others = [host.popen(line(nodes=3), env=KEYED) for host in three[1:]]
        before = [parsed(other.communicate(timeout=60)[0])["NODE_RANK"] for other in others]
        assert sorted(before) == ["1", "2"]
        after = [host.run(line("--timeout", "2", nodes=3), env=KEYED) for host in three[1:]]
        assert [parsed(done.stdout).get("NODE_RANK") for done in after] == before, after
    finally:
        agent.kill()
        agent.communicate()


def test_a_world_that_has_ended_takes_nobody_back(hosts: Callable[..., Hosts]) -> None:
    """Nobody listens at its port: the same id makes a new world, when all are there again."""
    two = hosts(2)
    with world(two) as before:
        pass
    assert again(two[1]).returncode == 69
    with world(two) as after:
        assert after["MINGLE_WORLD"] != before["MINGLE_WORLD"]


@pytest.mark.parametrize(
    ("options", "env", "says"),
    [
        (("--slots", "2"), {}, "1 slots on this node"),
        ((), {"MASTER_ADDR": "10.77.0.9"}, "as MASTER_ADDR"),
    ],
)
def test_another_place_than_in_the_world_that_goes_on_is_refused(
    hosts: Callable[..., Hosts], options: tuple[str, ...], env: dict[str, str], says: str
) -> None:
    """It would contradict the others."""
    two = hosts(2)
    with world(two):
        done = again(two[1], *options, **env)
    assert (done.returncode, done.stdout) == (76, "")
    assert says in done.stderr


def test_nobody_else_gets_the_place(hosts: Callable[..., Hosts]) -> None:
    """Another id, key, user, rank or framework gets none, and a file that was changed or is old gives none."""
    two = hosts(2)
    with world(two):
        (saved,) = [path for path in two[1].files() if "/mingle-0-" in path and path.endswith("/1")]
        file = Path(two[1].outside(saved))
        others = [
            two[0].run(line("--timeout", "1"), env=KEYED),
            two[1].run(line("--timeout", "1"), env=OTHER_KEY),
            two[1].run(line("--timeout", "1", "--rank", "0"), env=KEYED),
            two[1].run(["mingle", "exec", "--id", "job", "--nodes", "2", "--timeout", "1", "env"], env=KEYED),
            two[1].run(line("--timeout", "1"), env=KEYED, user="alice"),
            two[1].run(line("--timeout", "1", "--id", "job2"), env=KEYED),
        ]
        text = file.read_text()
        assert '"rank":1' in text
        file.write_text(text.replace('"rank":1', '"rank":0'))
        others.append(again(two[1]))
        file.write_text(text)
        month = time.time() - 31 * 24 * 3600
        os.utime(file, (month, month))
        others.append(again(two[1]))
        assert [(done.returncode, done.stdout) for done in others] == [(69, "")] * len(others)
        os.utime(file)
        assert again(two[1]).returncode == 0


def test_members_that_share_a_host_come_back_by_their_rank(hosts: Callable[..., Hosts]) -> None:
    """Without one it cannot be told which of them was started again."""
    one = hosts(1)[0]
    agent = one.popen(
        [
            "mingle",
            "exec",
            "--id",
            "job",
            "--nodes",
            "3",
            "--for",
            "torchrun-elastic",
            "--rank",
            "0",
            "python3",
            "-c",
            AGENT,
        ],
        env=KEYED,
    )
    typed = ["mingle", "exec", "--id", "job", "--nodes", "3", "--for", "torchrun-elastic"]
    try:
        results = members([one, one], lambda number: [*typed, "--rank", str(number + 1), "env"])
        assert [done.returncode for done in results] == [0, 0]
        assert agent.stdout is not None
        for text in agent.stdout:
            if text == "END\n":
                break
        assert parsed(one.run([*typed, "--rank", "2", "env"], env=KEYED, check=True).stdout)["NODE_RANK"] == "2"
        done = one.run([*typed, "env"], env=KEYED)
        assert done.returncode == 76
        assert "--rank" in done.stderr
    finally:
        agent.kill()
        agent.wait()
