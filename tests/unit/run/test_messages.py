"""What the runner and its agents say: bounds of messages, heartbeats, ports, and connections of holders of a key."""

import json
import os
import socket
import struct
from contextlib import ExitStack, closing
from typing import Any
from unittest.mock import Mock

import pytest
from support.gathering import no_descriptor_left

from mingle_hooks.errors import LimitError, UsageError
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.messages import Assignment, View, World
from mingle_hooks.rendezvous.wire import Secret, WireError, body_of, decode, encode, frame, parse
from mingle_hooks.run import messages
from mingle_hooks.run.messages import AGENT, RUNNER, Heartbeat, Join, Link, Silence, Start, Welcome

KEY, OTHER = Secret(b"s" * 32), Secret(b"t" * 32)
MOST_MS = 604_800_000
START = Start(0, {}, (), ("true",), {"A": "b"}, "/", 0)
LONGEST = "x" * (128 * 1024 - 1)  # and a NUL, as execve(2) takes it
MANY = ["x"] * 70_000  # Linux starts that
ENDED = messages.Ended(0, 0, None, formed=False, is_oom=True, tail="", exception="")


@pytest.mark.parametrize(
    ("least", "most", "wrong"),
    [
        (
            Join("a", 0, 1, is_output=False),
            {"pid": 2**31 - 1, "output": True},
            {"pid": (0, 2**31), "local": (-1, True)},
        ),
        (
            Welcome(0, 1, 100, 100),
            {"number": 2**32 - 1, "port": 65535, "silence": MOST_MS, "pause": MOST_MS},
            {"number": (-1, 2**32), "port": (0, 65536), "silence": (99, MOST_MS + 1), "pause": (99, MOST_MS + 1)},
        ),
        (
            START,
            {
                "attempt": 10**6,
                "command": ["", LONGEST, *["x"] * 70_000],
                "environ": {"A": "", "B": "c=d"},
                "umask": 0o777,
            },
            {
                "attempt": (-1, 10**6 + 1, None),
                "umask": (-1, 0o1000),
                "facts": ([], None),
                "command": ([LONGEST + "x"], ["a\0"], ["\ud800"], [1], "true"),
                "environ": (
                    {"A": "b", "": "b"},
                    {"A": "b", "A=": "b"},
                    {"A": 1},
                    {"A": "\0"},
                    {"A\0": ""},
                    {"A": LONGEST + "x"},
                    [],
                ),
                "directory": ("", "a/b", "/\0", None),
            },
        ),
        (
            messages.Formed(0, 1, "::1", 1),
            {"attempt": 1, "port": 65535, "spent": [1, 2, 3, 4]},
            {"nodes": (0,), "port": (0,), "spent": ([1], [1, 2, 3, -1]), "addr": ("a\nb", "a" * 254)},
        ),
        (
            ENDED,
            {"status": 255, "signal": 64, "formed": True, "is_oom": False, "tail": "t" * 8192, "exception": "e" * 400},
            {"status": (-1, 256), "signal": (0, 65), "formed": (1,), "tail": ("t" * 8193,), "exception": ("e" * 401,)},
        ),
        (messages.Clean(0, 0), {"killed": 5}, {"killed": (-1,)}),
        (messages.Noticed(1), {"signal": 64}, {"signal": (0, 65, None)}),
        (messages.Signal(0, 1), {"id": 5}, {"id": (-1,), "signal": (0, 65)}),
        (messages.End(0, 0), {"grace_ms": MOST_MS}, {"grace_ms": (-1, MOST_MS + 1)}),
        (messages.Leave(0), {"status": 255}, {"status": (-1, 256)}),
        (messages.Dump(0, 0), {"within_ms": MOST_MS}, {"within_ms": (-1,)}),
        (messages.Stacks(0, ""), {"text": "s" * 65536}, {"text": ("s" * 65537, None)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_is_taken_within_its_bounds(least: Any, most: dict[str, Any], wrong: dict[str, Any]) -> None:
    body = decode(encode(body_of(least)))
    assert parse(type(least), body) == least
    assert decode(encode(body_of(parse(type(least), {**body, **most})))) == {**body, **most}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(WireError):
                parse(type(least), {**body, name: value})


def test_a_duration_is_a_finite_number_of_seconds_and_a_host_has_a_name_or_an_address() -> None:
    assert [messages._seconds({"a": value}, "a") for value in (0, 0.5, 2**40)] == [0.0, 0.5, 2.0**40]
    for value in (-0.1, 2.0**41, float("nan"), float("inf"), True, "1", None):
        with pytest.raises(WireError, match="a: not seconds"):
            messages._seconds({"a": value}, "a")
    assert [messages._host({"a": host}, "a") for host in ("n" * 63, "fd77::1")] == ["n" * 63, "fd77::1"]
    with pytest.raises(WireError, match="a: not a host"):
        messages._host({"a": "-n"}, "a")


def test_silences() -> None:
    """A runner of an earlier version says nothing of processes."""
    assert parse(Welcome, {"number": 1, "port": 2, "silence": 1500}).silence == Silence(1.5, 600.0)
    assert [Silence(seconds).quiet_s for seconds in (15.0, 5.0)] == [3.0, 2.5]
    assert [Silence(seconds).probe_s for seconds in (60.0, 15.0, 9.0, 6.5, 0.5)] == [5, 5, 3, 2, 1]
    for silent_s, unacknowledged_s, is_over in (
        (14.9, 15.0, False),
        (15.0, 15.0, True),
        *((15.0, 11.0, False), (599.9, 5.0, False), (600.0, 5.0, True)),  # a host that acknowledges has longer
    ):
        assert Silence().is_over(silent_s, unacknowledged_s) == is_over
    assert [messages.heartbeat_interval_s(seconds) for seconds in (15.0, 4.0, 2.0)] == [1.0, 1.0, 0.5]


def test_a_heartbeat_of_this_run_and_side_is_taken_and_nothing_else() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with closing(ours), closing(theirs):
        ours.setblocking(False)  # noqa: FBT003 - socket's own
        tag, rest = KEY.mac(b"run")[:8], struct.pack("!IQ", 7, 1 << 40)
        good = messages.pack_heartbeat(KEY, AGENT, Heartbeat(7, 1 << 40))
        assert (good[:20], len(good)) == (tag + rest, 36)
        for data in (
            *(good, b"", good[:-1], good + b"x", good[:-1] + bytes([good[-1] ^ 1])),
            messages.pack_heartbeat(KEY, RUNNER, Heartbeat(7, 1)),
            messages.pack_heartbeat(OTHER, AGENT, Heartbeat(7, 2)),
            # By a holder of the key, in another form.
            *(KEY.sealed(its, 16, b"life", AGENT) for its in (tag + rest + b"x", tag + rest[1:], b"otherrun" + rest)),
            messages.pack_heartbeat(KEY, AGENT, Heartbeat(8, 3)),
        ):
            theirs.send(data)
        found = [(heartbeat, control) for heartbeat, control, _ in messages.heartbeats(ours, KEY, AGENT)]
    assert found == [(Heartbeat(7, 1 << 40), []), (Heartbeat(8, 3), [])]


def test_datagrams_without_end_leave_a_turn_to_others() -> None:
    """The loop comes back for the rest."""
    flood = Mock()
    flood.recvmsg.return_value = (b"noise", [], 0, ("10.0.0.1", 1))
    assert list(messages.heartbeats(flood, KEY, AGENT)) == []
    assert flood.recvmsg.call_count == 256


def test_an_answer_that_nobody_listens_is_no_end_of_heartbeats() -> None:
    with ExitStack() as stack:
        ours, gone, back = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(3))
        gone.bind(("127.0.0.1", 0))
        ours.connect(there := gone.getsockname())
        ours.settimeout(0)
        gone.close()
        ours.send(b"")
        back.bind(there)
        back.sendto(messages.pack_heartbeat(KEY, AGENT, Heartbeat(7, 1)), ours.getsockname())
        assert [heartbeat for heartbeat, *_ in messages.heartbeats(ours, KEY, AGENT)] == [Heartbeat(7, 1)]


TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM


def test_one_port_is_opened_in_all_kinds_and_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port of which another program has a part is not it."""
    with ExitStack() as stack:

        def opened(*chosen: int, **how: Any) -> tuple[int, list[tuple[object, ...]]]:
            port, sockets = messages.open_listeners(chosen, **how)
            for sock in sockets:
                stack.callback(sock.close)
            return port, [(s.getsockname()[0], s.getsockname()[1] == port, s.type, s.gettimeout()) for s in sockets]

        taken, found = opened(0, kinds=(UDP,), is_local=True)
        assert found == [("127.0.0.1", True, UDP, 0.0)]
        assert opened(taken, kinds=(TCP, UDP), is_local=True) == (0, [])
        port, found = opened(taken, 0, kinds=(TCP, UDP), is_local=True)
        assert (port != taken, found) == (True, [("127.0.0.1", True, kind, 0.0) for kind in (TCP, UDP)])
        stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        families = ["0.0.0.0", "::"] if socket.has_dualstack_ipv6() else ["0.0.0.0"]
        assert opened(0, kinds=(TCP, UDP))[1] == [(its, True, kind, 0.0) for its in families for kind in (TCP, UDP)]
        monkeypatch.setattr(socket, "has_ipv6", False)
        assert opened(0)[1] == [("0.0.0.0", True, TCP, 0.0)]
        with no_descriptor_left(256), pytest.raises(LimitError):
            messages.open_listeners((0,))


def test_output_before_a_proof_of_the_key_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    said: list[object] = []
    with Loop() as loop, closing(theirs):
        link = Link(loop, ours, KEY, is_runner=True, on_end=said.append)
        link.on_output = lambda *output: said.append(output)
        theirs.send(frame(messages.HELLO, encode({"nonce": "00" * wire.NONCE_BYTES})) + frame(messages.OUT, b"line\n"))
        loop.turn(0)
    assert said == ["wrong MAC"]


def test_a_peer_is_asked_whether_it_is_alive_once_until_it_answers() -> None:
    """It may be stopped for days."""
    kinds: list[int] = []
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())
        links: list[Link] = []
        for sock, is_runner in zip(socket.socketpair(), (True, False), strict=True):
            sock.settimeout(0)
            links.append(Link(loop, sock, KEY, is_runner=is_runner, on_end=pytest.fail))
            stack.callback(links[-1].close)
        runner, agent = links
        agent.on_message = lambda kind, _body: kinds.append(kind)
        runner.on_message = lambda kind, _body: kinds.append(-kind) if runner.takes_ping(kind) else None

        def ask() -> None:
            for _ in range(3):
                loop.turn(0.01)
                runner.ping()

        ask()
        agent.send_message(messages.PONG, {})
        ask()
        loop.turn(0.01)
    assert kinds == [messages.PING, -messages.PONG, messages.PING]


def test_mingle_exec_reports_its_world_once() -> None:
    world = World("a", 2, 2, "10.0.0.1", 4711, "", ())
    reading, writing = os.pipe()
    view = View(world, Assignment(0, 1, 0, "10.0.0.1"), "node", {}, durations_ms=(1, 2, 3, 4))
    messages.report_formed(str(writing), view)
    with open(reading, "rb") as pipe:
        assert json.load(pipe) == {"nodes": 2, "addr": "10.0.0.1", "port": 4711, "spent": [1, 2, 3, 4]}
    for wrong in (str(writing), "x", ""):
        with pytest.raises(UsageError, match=f"saw none in MINGLE_RUN_FORMED={wrong}; try to unset it"):
            messages.report_formed(wrong, view)
