"""Nobody without the key can disturb a world, and nobody with it can make a member run or print anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster.host import kill_group
from cluster.hosts import Hosts
from cluster.waiting import until
from forked import Forked
from support.members import (
    KEY,
    KEYED,
    OTHER_KEY,
    PROGRAMS,
    REDUCE,
    all_evaluated,
    ended,
    evaluating,
    members,
    one_world,
    program,
    stop,
)

from mingle_hooks.rendezvous import wire

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
COMMIT = [wire.COMMIT, {"epoch": 1}]
# What leaves a host: connections to node1's address, and datagrams.
COUNTED = """
add table inet count
add chain inet count out { type filter hook output priority 0; }
add rule inet count out ip daddr 10.77.0.1 tcp flags & (syn | ack) == syn counter
add rule inet count out meta l4proto udp counter
"""
# An address at which nobody answers, as of a host that has been switched off.
UNUSED = """
add table inet unused
add chain inet unused in { type filter hook input priority 0; }
add rule inet unused in ip daddr 10.77.0.99 counter drop
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


def test_a_stranger_hears_the_same_octets_whatever_the_key(hosts: Callable[..., Hosts]) -> None:
    """Seen: a proof of the key for anyone who said HELLO, with which guesses could be compared."""
    two = hosts(2, ipv6=False)

    def hears(key: Mapping[str, str]) -> list[str]:
        options = ("--id", "job", "--nodes", "2", "--rank", "0", "--via", "master", "--master", "node1:23456")
        leader = two[0].popen(["mingle", "env", *options], env=key)
        until(lambda: two[1].run(["bash", "-c", "exec 3<>/dev/tcp/node1/23456"]).returncode == 0)
        done = two[1].run([sys.executable, PROGRAMS / "asker.py", "job", "node1", "23456"], check=True)
        leader.terminate()
        ended(leader)
        return done.stdout.splitlines()

    heard = hears(KEYED)
    assert heard == hears(OTHER_KEY)
    assert any(heard), "a leader that says nothing at all would tell nobody why it is refused"


def test_recorded_beacons_keep_no_member_from_the_real_leader(hosts: Callable[..., Hosts]) -> None:
    """Seen: 200 leaders of earlier attempts were called, some at a time, for 11 s; now not one is."""
    three = hosts(3, ipv6=False)
    three[2].run(["ip", "addr", "add", "10.77.0.99/24", "dev", "eth0"], check=True)
    three[2].run(["nft", "-f", "-"], input=UNUSED, check=True)
    replayer = program(three[2], "yesterday.py", "job", three[2].addr(), "10.77.0.99", KEY)
    options = ("--id", "job", "--nodes", "2", "--via", "multicast", "--timeout", "6")
    results = members([three[0], three[1]], lambda rank: evaluating(*options, "--rank", str(rank)), delays=[1.5, 0])
    stop(replayer)
    one_world(results)
    calls = three[2].run(["nft", "list", "table", "inet", "unused"], check=True).stdout
    assert "counter packets 0 bytes 0" in calls


# What a lying leader says -> the whole of it that a member must refuse.
LIES: dict[str, dict[str, Any]] = {
    **{
        f"address {addr!r}": {"frames": [[wire.ANSWER, {**ANSWER, "addr": addr}], COMMIT]}
        for addr in (RUN, "`touch x`", "a;touch x", "a b", "'", "-oProxy", "a\nb", ESCAPE, "", "a" * 254, 7, None)
    },
    **{
        f"{name} {value!r}"[:60]: {"frames": [[wire.ANSWER, {**ANSWER, name: value}], COMMIT]}
        for name, value in [
            *(("port", 0), ("port", f"1{RUN}"), ("digest", RUN), ("digest", "0123"), ("rank", 2), ("rank", "1;x")),
            *(("nodes", 10**9), ("nodes", True), ("size", 1.5), ("offset", -1), ("own", RUN), ("epoch", 0)),
        ]
    },
    **{
        f"roster {rows!r}"[:60]: {"roster": rows, "frames": [[wire.ANSWER, {**ANSWER, "roster": "packed"}], COMMIT]}
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
    "word without an answer": {"frames": [COMMIT]},
    "roster's digest": {"frames": [[wire.ANSWER, {**ANSWER, "roster": "0" * 64}], COMMIT]},
    "host": {"host": ESCAPE, "frames": []},
}
UNREADABLE = ("not JSON", "deep JSON", "long number", "roster's digest", "host")


def test_a_member_refuses_whatever_a_lying_leader_says(four: Hosts, forked: Forked, tmp_path: Path) -> None:
    """Each lie ends in one clean error; nothing runs, and nothing is printed raw."""
    liars = {23_100 + number: {"id": f"lie {number}", "says": says} for number, says in enumerate(LIES.values())}
    (tmp_path / "lies").write_text(json.dumps(liars))
    impostor = program(four[0], "impostor.py", KEY, tmp_path / "lies")
    options = ("--nodes", "2", "--rank", "1", "--via", "master", "--timeout", "2")
    calls = [(["--id", str(lie["id"]), *options, "--master", f"node1:{port}"], KEYED) for port, lie in liars.items()]
    results = all_evaluated(forked, four[1], tmp_path, calls)
    kill_group(impostor)
    impostor.communicate(timeout=30)  # each of them has its output
    for lie, done in zip(LIES, results, strict=True):
        assert (done.returncode, done.stdout) == (69 if lie in UNREADABLE else 76, ""), (lie, done)
        assert all(line.isprintable() for line in done.stderr.splitlines()), (lie, done)
        assert "Traceback" not in done.stderr, (lie, done)


def test_a_leader_outlives_whatever_a_lying_member_says(four: Hosts, tmp_path: Path) -> None:
    """It hangs up on the liar, and forms the world with the honest member that comes later."""
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
    frames: list[list[Any]] = [
        [wire.REACHED, {"offer": 0, "own": RUN}],
        [wire.REACHED, {"offer": -1, "own": "10.77.0.3"}],
        [wire.READY, {"epoch": "1"}],
        [wire.RIVAL, {"host": ESCAPE, "member": "ab" * 16}],
        [99, {}],
    ]
    lies = [*([{**honest, **change}, []] for change in changes), *([honest, [frame]] for frame in frames)]
    options = ("--id", "job", "--nodes", "2", "--master", "node1:23456", "--for", "deepspeed", "--rank")
    leader = four[0].popen(evaluating(*options, "0", then=REDUCE), env=KEYED, cwd=tmp_path)
    intruder = (sys.executable, PROGRAMS / "intruder.py")
    intrude = ["bash", "-c", 'until "$@"; do sleep 0.1; done', "bash", *intruder]
    done = four[2].run([*intrude, "job", "node1", "23456", KEY, json.dumps(lies)])
    assert done.stdout == "done\n", done
    late = four[1].run(evaluating(*options, "1", then=REDUCE), env=KEYED, cwd=tmp_path)
    first = ended(leader)
    one_world([first, late])
    assert all(line.isprintable() for line in first.stderr.splitlines())
    assert list(tmp_path.iterdir()) == []
