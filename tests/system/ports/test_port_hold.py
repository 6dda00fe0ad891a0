"""MASTER_PORT after the world has formed: held for the program that it is for, or free for all."""

import errno
import json
import sys

import pytest
from cluster.hosts import Hosts
from support.members import PROGRAMS, besides_waits, members

WORLDS, FEW = 12, 3


def after_each(
    four: Hosts, *options: str, worlds: int, holds: tuple[str, ...] = ()
) -> tuple[dict[str, int], dict[str, int]]:
    """Return what rank 0's host found after each of many two-node worlds, and what the other did (see binds.py)."""

    def argv(rank: int) -> list[str]:
        hold = ("--port-hold", holds[rank]) if holds else ()
        return [sys.executable, str(PROGRAMS / "binds.py"), str(rank), str(worlds), *options, *hold]

    done = members(list(four)[:2], argv, timeout=30 + 2.0 * worlds, check=True)
    assert besides_waits(*(one.stderr for one in done)) == []
    first, second = (json.loads(one.stdout) for one in done)
    assert first["formed"] == second["formed"] == worlds
    return first, second


def test_the_port_is_kept_from_a_plain_bind_after_every_world(four: Hosts) -> None:
    """Only a bind with SO_REUSEADDR, as torch's store does it, gets it, and it gets it always.

    Seen: after 50 of 426 worlds the port was free, for a fast member closed first and had its TIME_WAIT.
    """
    kept, others = after_each(four, "--via", "master", worlds=WORLDS)
    assert (kept["plain"], kept["own"], kept["reusing"]) == (0, 0, WORLDS)
    assert (kept["waiting"], others["waiting"]) == (WORLDS, 0)


@pytest.mark.parametrize(
    ("options", "holds", "worlds", "free"),
    [
        ((), ("off", "off"), FEW, FEW),
        (("--master", "node1:23457"), ("off", "off"), FEW, FEW),
        ((), ("on", "off"), FEW, 0),
        ((), ("off", "on"), FEW, FEW),
    ],
    ids=["off", "off, with a port that is named", "on for rank 0", "off for rank 0"],
)
def test_rank_0_alone_decides_whether_the_port_is_held(
    four: Hosts, options: tuple[str, ...], holds: tuple[str, ...], worlds: int, free: int
) -> None:
    """A port that is not held is free for a plain bind as soon as rank 0's command has ended.

    No two worlds of an id have one digest, also where address and port are the same: seen twice in a row.
    """
    counts, others = after_each(four, "--via", "master", *options, worlds=worlds, holds=holds)
    assert (counts["plain"], counts["own"], counts["reusing"]) == (free, free, worlds)
    assert (counts["digests"], others["digests"]) == (worlds, worlds)


@pytest.mark.parametrize(("hold", "free"), [("on", False), ("off", True)])
def test_the_port_of_a_world_of_one_is_held_or_not_alike(four: Hosts, hold: str, *, free: bool) -> None:
    """By the variable too."""
    line = "import os, socket; socket.socket().bind(('', int(os.environ['MASTER_PORT'])))"
    argv = ["mingle", "exec", "--id", "job", "--nodes", "1", sys.executable, "-c", line]
    done = four[0].run(argv, env={"MINGLE_PORT_HOLD": hold})
    assert (done.returncode == 0) is free, done.stderr


# Instead of becoming the command, it tries to bind the port as torch's store does, and tells the error's number.
BECOMES = """
import os, socket
from mingle_hooks.cli.main import main

def execve(_file, _command, environ):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", int(environ["MASTER_PORT"])))
        except OSError as error:
            print(error.errno)

os.execve = execve
main()
"""


def test_rank_0_has_the_port_until_it_becomes_the_command(four: Hosts) -> None:
    """Seen: another user worked out the port, and had it in the instant in which mingle let it go."""
    words = ["exec", "--id", "job", "--nodes", "2", "--quiet"]
    done = members(
        list(four)[:2], lambda rank: [sys.executable, "-c", BECOMES, *words, "--rank", str(rank), "true"], check=True
    )
    assert [one.stdout for one in done] == [f"{errno.EADDRINUSE}\n", ""]
