"""Nobody without the key can disturb a world, and nobody with it can make a member run or print anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cluster.host import kill_group
from members import KEY, KEYED, REDUCE, all_evaluated, evaluating, members, one_world

from mingle_hooks.rendezvous import wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess, Popen

    from cluster.host import Host
    from cluster.hosts import Hosts
    from forked import Forked

HERE = Path(__file__).parent
ESCAPE = "\x1b]0;$(touch x)\x07"
RUN = "$(touch x)"
ANSWER = {
    "epoch": 1,
    "nodes": 2,
    "size": 2,
    "addr": "10.77.0.1",
    "port": 23000,
    "digest": "0123456789abcdef",
    "rank": 1,
    "offset": 1,
    "own": "10.77.0.2",
    "slots": 1,
}
ROW = [0, "node1", "10.77.0.1", 1]


def program(host: Host, name: str, *arguments: str) -> Popen[str]:
    """Start one of this folder's hostile programs on a host, and wait until it is ready."""
    started = host.popen([sys.executable, HERE / name, *arguments])
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", started.communicate()
    return started


@pytest.mark.parametrize("ranked", [False, True], ids=["elected", "ranks"])
def test_a_stranger_cannot_make_a_world_fail_or_differ(hosts: Callable[..., Hosts], *, ranked: bool) -> None:
    """It squats the open ports, floods, forges, replays and holds connections open while the others meet."""
    five = hosts(5)
    squatter = program(five[0], "squatter.py", "job")
    stranger = program(five[4], "stranger.py", "job", ",".join(host.addr() for host in list(five)[:4]))
    backend = ("--master", "node1") if ranked else ()
    results = members(
        list(five)[:4],
        lambda number: evaluating(
            *("--id", "job", "--nodes", "4", "--timeout", "30", *backend),
            *(["--rank", str(number)] if ranked else []),
            then=REDUCE,
        ),
        delays=[0, 0, 0.5, 2],
    )
    for process in (squatter, stranger):
        process.terminate()
    did = json.loads(stranger.communicate(timeout=30)[0])
    squatter.communicate(timeout=30)
    worlds = one_world(results)
    assert [world["SUM"] for world in worlds] == ["6"] * 4
    assert worlds[0]["MASTER_ADDR"] in [host.addr() for host in list(five)[: 1 if ranked else 4]]
    assert all(did[what] > 0 for what in ("heard", "sent", "knocked", "answered")), did


# What leaves a host: connections to node1's address, and datagrams.
COUNTED = """
add table inet count
add chain inet count out { type filter hook output priority 0; }
add rule inet count out ip daddr 10.77.0.1 tcp flags & (syn | ack) == syn counter
add rule inet count out meta l4proto udp counter
"""


@pytest.mark.parametrize("ranked", [False, True], ids=["elected", "ranks"])
def test_what_was_said_in_an_earlier_try_leads_nobody_astray(hosts: Callable[..., Hosts], *, ranked: bool) -> None:
    """Its beacons, questions and answers, recorded and said again all the time, lead to no connection."""
    four = hosts(4, ipv6=False)
    recorder = four[3].popen([sys.executable, HERE / "recorder.py", "job", four[3].addr()], stdin=subprocess.PIPE)
    assert recorder.stdin is not None
    assert recorder.stdout is not None
    assert recorder.stdout.readline() == "ready\n"
    options = ("--id", "job", "--via", "multicast", *(("--rank",) if ranked else ()))
    earlier = members(
        [four[0], four[1]],
        lambda number: evaluating(*options, *([str(number)] if ranked else []), "--nodes", "3", "--timeout", "4"),
        delays=[0, 1],
    )
    assert [done.returncode for done in earlier] == [69, 69], earlier
    recorder.stdin.write("play\n")
    recorder.stdin.flush()
    heard = json.loads(recorder.stdout.readline())
    assert all(heard[kind] for kind in ("answer", "beacon", "question"))
    for host in (four[1], four[2]):
        host.run(["nft", "-f", "-"], input=COUNTED, check=True)
    results = members(
        [four[1], four[2]],
        lambda number: evaluating(*options, *([str(1 - number)] if ranked else []), "--nodes", "2", then=REDUCE),
        delays=[0, 3],
    )
    counts = [host.run(["nft", "list", "table", "inet", "count"], check=True).stdout for host in (four[1], four[2])]
    recorder.terminate()
    recorder.communicate(timeout=30)
    assert [world["SUM"] for world in one_world(results)] == ["1", "1"]
    connections, datagrams = zip(*(map(int, re.findall(r"packets (\d+)", text)) for text in counts), strict=True)
    assert connections == (0, 0)
    assert sum(datagrams) < 60


# What a lying leader says -> the whole of it that a member must refuse.
LIES: dict[str, dict[str, Any]] = {
    **{
        f"address {addr!r}": {"frames": [[wire.ANSWER, {**ANSWER, "addr": addr}], [wire.COMMIT, {"epoch": 1}]]}
        for addr in (RUN, "`touch x`", "a;touch x", "a b", "'", "-oProxy", "a\nb", ESCAPE, "", "a" * 254, 7, None)
    },
    **{
        f"{name} {value!r}"[:60]: {"frames": [[wire.ANSWER, {**ANSWER, name: value}], [wire.COMMIT, {"epoch": 1}]]}
        for name, value in [
            *(("port", 0), ("port", f"1{RUN}"), ("digest", RUN), ("digest", "0123"), ("rank", 2), ("rank", "1;x")),
            *(("nodes", 10**9), ("nodes", True), ("size", 1.5), ("offset", -1), ("own", RUN), ("epoch", 0)),
        ]
    },
    **{
        f"roster {rows!r}"[:60]: {
            "roster": rows,
            "frames": [[wire.ANSWER, {**ANSWER, "roster": "packed"}], [wire.COMMIT, {"epoch": 1}]],
        }
        for rows in (
            *([ROW], [ROW, ROW], [ROW, [1, "a;b", "10.77.0.2", 1]], [ROW, [1, RUN, "10.77.0.2", 1]]),
            *([ROW, [1, "-oProxy", "10.77.0.2", 1]], [ROW, [1, "a", RUN, 1]], {"x": ROW}),
        )
    },
    "offer": {"frames": [[wire.WELCOME, {"offers": [[0, RUN]], "port": 23000}]]},
    "zone": {"frames": [[wire.WELCOME, {"offers": [[0, "fe80::1%eth0"]], "port": 23000}]]},
    "move": {"frames": [[wire.MOVED, {"to": [["a" * 64, 23000]]}]]},
    "progress": {"frames": [[wire.PROGRESS, {"in": 1, "of": 2, "missing": ESCAPE, "knocks": []}]]},
    "knock": {"frames": [[wire.PROGRESS, {"in": 1, "of": 2, "missing": "", "knocks": [ESCAPE]}]]},
    "failure": {"frames": [[wire.FAILED, {"kind": "leaders", "parts": [ESCAPE, "b"]}]]},
    "failure's kind": {"frames": [[wire.FAILED, {"kind": RUN, "parts": []}]]},
    "failure's format": {"frames": [[wire.FAILED, {"kind": "leaders", "parts": ["{0.__class__}", RUN]}]]},
    # These might come from a broken connection, so the member tries again until its deadline.
    "not JSON": {"frames": [[wire.ANSWER, "{'"]]},
    "deep JSON": {"frames": [[wire.ANSWER, "[" * 100_000]]},
    "long number": {"frames": [[wire.ANSWER, '{"epoch":' + "1" * 10_000 + "}"]]},
    "frame": {"frames": [[99, {}]]},
    "word without an answer": {"frames": [[wire.COMMIT, {"epoch": 1}]]},
    "roster's digest": {"frames": [[wire.ANSWER, {**ANSWER, "roster": "0" * 64}], [wire.COMMIT, {"epoch": 1}]]},
    "host": {"host": ESCAPE, "frames": []},
}
UNREADABLE = ("not JSON", "deep JSON", "long number", "roster's digest", "host")


def check_harmless(done: CompletedProcess[str], codes: tuple[int, ...]) -> None:
    """Check that a member failed cleanly: nothing on stdout, and only plain text on stderr."""
    assert done.returncode in codes, done
    assert done.stdout == "", done
    assert all(line.isprintable() for line in done.stderr.splitlines()), done
    assert "Traceback" not in done.stderr, done


def test_a_member_refuses_whatever_a_lying_leader_says(
    hosts: Callable[..., Hosts], forked: Forked, tmp_path: Path
) -> None:
    """Each lie ends in one clean error; nothing runs, and nothing is printed raw."""
    two = hosts(2)
    liars = {23_100 + number: {"id": f"lie {number}", "says": says} for number, says in enumerate(LIES.values())}
    (tmp_path / "lies").write_text(json.dumps(liars))
    impostor = program(two[0], "impostor.py", KEY, str(tmp_path / "lies"))
    options = ("--nodes", "2", "--rank", "1", "--via", "master", "--timeout", "2")
    asked = [(["--id", str(its["id"]), *options, "--master", f"node1:{port}"], KEYED) for port, its in liars.items()]
    results = all_evaluated(forked, two[1], tmp_path, asked)
    kill_group(impostor)
    impostor.communicate(timeout=30)  # each of them has its output
    for lie, done in zip(LIES, results, strict=True):
        check_harmless(done, (69,) if lie in UNREADABLE else (76,))


def test_a_leader_outlives_whatever_a_lying_member_says(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """It hangs up on the liar, and forms the world with the honest member that comes later."""
    three = hosts(3)
    honest = {
        "member": "ab" * 16,
        "host": "node3",
        "rank": 1,
        "nodes": 2,
        "slots": 1,
        "machine": "m",
        "given": {},
        "roster": False,
    }
    changes: list[dict[str, Any]] = [
        *({"host": host} for host in (RUN, ESCAPE, "", "-a", "a" * 300, 5)),
        *({"rank": rank} for rank in (-1, 10**9, "0", True, 1.0)),
        *({"slots": 0}, {"slots": 10**9}, {"nodes": 0}, {"member": "zz"}, {"member": ""}, {"machine": ESCAPE}),
        *({"given": pinned} for pinned in ({"PATH": "x"}, {"WORLD_SIZE": ESCAPE}, {"WORLD_SIZE": 2}, [], "x")),
    ]
    lies: list[list[Any]] = [[{**honest, **change}, []] for change in changes]
    lies += [
        [honest, [[kind, body]]]
        for kind, body in [
            (wire.REACHED, {"offer": 0, "own": RUN}),
            (wire.REACHED, {"offer": -1, "own": "10.77.0.3"}),
            (wire.READY, {"epoch": "1"}),
            (wire.RIVAL, {"host": ESCAPE, "member": "ab" * 16}),
            (99, {}),
        ]
    ]
    options = ("--id", "job", "--nodes", "2", "--master", "node1:23456", "--for", "deepspeed")
    leader = three[0].popen(evaluating(*options, "--rank", "0", then=REDUCE), env=KEYED, cwd=tmp_path)
    intrude = ["bash", "-c", 'until "$@"; do sleep 0.1; done', "bash", sys.executable, os.fspath(HERE / "intruder.py")]
    done = three[2].run([*intrude, "job", "node1", "23456", KEY, json.dumps(lies)])
    assert done.stdout == "done\n", done
    late = three[1].run(evaluating(*options, "--rank", "1", then=REDUCE), env=KEYED, cwd=tmp_path)
    out, err = leader.communicate(timeout=30)
    worlds = one_world([type(late)([], leader.returncode, out, err), late])
    assert [world["SUM"] for world in worlds] == ["1", "1"]
    assert all(line.isprintable() for line in err.splitlines())
    assert list(tmp_path.iterdir()) == []


# As recorded (openpbs-23.06.06): all follow from the second in which pbs_server started.
COOKIES = [
    "36A8E3141C32183E0A696B100289B68F",
    "3512A97B223EF5805F9ADE5D04D5F498",
    "2A90BEFF37ECC905142D3ADD146630F2",
    "4D22081A015894294FF4862A4EA003F8",
    "716AF9610864CE202E104A0956B4C327",
    "23562761514E71C110A7AF8144D0C81A",
]


def of_pbs(host: Host, number: int, cookie: str) -> dict[str, str]:
    """Return a task's environment on one of two hosts, without a key: the home, which the hosts share, gets one."""
    host.write("/root/nodes", "node1\nnode2\n")
    return {
        "PBS_JOBID": "7.ctl",
        "PBS_NODEFILE": "/root/nodes",
        "PBS_NODENUM": str(number),
        "PBS_TASKNUM": f"{0x20000001 if number else 2:08X}",
        "PBS_JOBCOOKIE": cookie,
    }


@pytest.mark.parametrize("form", ["text", "octets"])
def test_who_knows_the_cookie_of_pbs_and_no_key_gets_into_no_world(hosts: Callable[..., Hosts], form: str) -> None:
    """Seen: rank 1 of another user's world, with a cookie found in half a second from one answer."""
    three = hosts(3)
    stranger = three[2].popen([sys.executable, HERE / "cookie_thief.py", "7.ctl", "node1", form, *COOKIES])
    home = {"MINGLE_KEY_FILE": "/root/key"}
    for host in list(three)[:2]:
        host.write("/root/key", KEY + "\n", mode=0o600)
    results = members(
        list(three)[:2],
        lambda _: evaluating("--timeout", "30", then=REDUCE),
        env=lambda number: {**of_pbs(three[number], number, COOKIES[0]), **home},
        delays=[0, 3],
    )
    stranger.terminate()
    told = json.loads(stranger.communicate(timeout=30)[0])
    assert [world["SUM"] for world in one_world(results)] == ["1", "1"]
    assert told["tried"] >= len(COOKIES)
    assert told["said"] == ["refused: key"]


def test_two_runs_of_one_pbs_job_never_meet_and_say_so(hosts: Callable[..., Hosts]) -> None:
    """A rerun has the same variables but for the cookie; what an earlier run left is told from a member."""
    two = hosts(2)
    results = members(
        list(two),
        lambda _: evaluating("--timeout", "4"),
        env=lambda number: {**of_pbs(two[number], number, COOKIES[number]), **KEYED},
    )
    assert all("PBS_JOBCOOKIE" in done.stderr for done in results), results
    assert [(done.returncode in (69, 77), done.stdout) for done in results] == [(True, "")] * 2


def test_a_shell_of_pbs_without_the_cookie_is_told_plainly(hosts: Callable[..., Hosts]) -> None:
    """It cannot know its run, so it does not meet tasks that do; several such shells meet each other."""
    two = hosts(2)

    def env(number: int, without: tuple[int, ...]) -> dict[str, str]:
        found = {**of_pbs(two[number], number, COOKIES[0]), **KEYED}
        return {name: value for name, value in found.items() if number not in without or name != "PBS_JOBCOOKIE"}

    def run(*without: int) -> list[CompletedProcess[str]]:
        return members(list(two), lambda _: evaluating("--timeout", "5"), env=lambda number: env(number, without))

    for done in run(1):
        assert "PBS_JOBCOOKIE" in done.stderr, done
        assert (done.returncode in (69, 77), done.stdout) == (True, "")
    one_world(run(0, 1))
