"""Runs are asked, many at once; who does not hold the key learns nothing, and holds nothing up."""

from __future__ import annotations

import select
import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest
from supervise.worlds.served import CAUSE, KEY, OTHER_KEY, Served, state

from mingle_hooks.rendezvous.wire import (
    CHALLENGE,
    HELLO,
    MAC_BYTES,
    Attempt,
    Material,
    Secret,
    WireError,
    encode,
    frame,
)
from mingle_hooks.run import status as asking
from mingle_hooks.run import status as door
from mingle_hooks.run import status as words
from mingle_hooks.run.status import KILL, State

if TYPE_CHECKING:
    from mingle_hooks.run.status import StatusServer
    from mingle_hooks.run.status import WayToRunner as Way

HEADER = struct.Struct("!IB")
CHALLENGE_FRAME = frame(CHALLENGE, encode({"nonce": "00" * 16}))


def way(world: StatusServer, key: bytes = KEY) -> Way:
    """Return how to ask a run."""
    assert world.entry is not None
    found = asking.way_to_runner(world.entry, [OTHER_KEY, key])
    assert found is not None
    return found


def frames(sock: socket.socket) -> list[int]:
    """Return the kinds of all frames that come, until the other side ends it."""
    data = b""
    try:
        while some := sock.recv(4096):
            data += some
    except ConnectionResetError:
        pass
    found = []
    while data:
        length, kind = HEADER.unpack_from(data)
        found.append(kind)
        data = data[HEADER.size + length :]
    return found


def stranger(world: StatusServer) -> socket.socket:
    """Return a connection to a run's door."""
    assert world.entry is not None
    sock = socket.create_connection(("127.0.0.1", world.entry.doors[0].port))
    sock.settimeout(20)
    return sock


def test_a_run_tells_who_holds_the_key_how_it_does(served: Served) -> None:
    """All of it, or what a table needs."""
    world = served.world()
    with served:
        assert asking.ask_runs([way(world)], is_whole=True) == [state(world.entry)]
        assert asking.ask_runs([way(world)]) == [state(world.entry, is_whole=False)]


def test_fifty_runs_are_asked_at_once(served: Served) -> None:
    """Each answers for itself."""
    worlds = [served.world(str(number), f"{number:016x}") for number in range(50)]
    with served:
        found = asking.ask_runs([way(world) for world in worlds])
    assert [its.id for its in found if its is not None] == [str(number) for number in range(50)]


def test_a_run_answers_to_each_of_its_keys(served: Served) -> None:
    """The job's, and the user's own."""
    world = served.world(keys=(KEY, OTHER_KEY))
    with served:
        for key in (KEY, OTHER_KEY):
            assert asking.ask_runs([asking.way_to_runner(world.entry, [key])]) == [state(world.entry, is_whole=False)]


def test_with_another_key_nothing_is_shown_and_nothing_dies(served: Served) -> None:
    """The entry tells that the key does not fit; who tries all the same is hung up on."""
    world = served.world()
    assert asking.way_to_runner(world.entry, [OTHER_KEY]) is None
    assert asking.way_to_runner(world.entry, []) is None
    forced = way(world)._replace(secret=words.status_secret(OTHER_KEY, world.entry.run))
    with served:
        assert asking.ask_runs([forced]) == [None]
        ending = asking.kill_run(forced, is_now=True, limit_s=60)
        assert (ending.is_accepted, ending.status) == (False, None)
        assert asking.ask_runs([way(world)]) == [state(world.entry, is_whole=False)]
    assert served.kills == []


def test_a_stranger_gets_a_random_number_and_nothing_else(served: Served) -> None:
    """Nothing that the key was needed for, whatever it says."""
    world = served.world()
    hello = frame(HELLO, encode({"nonce": "00" * 16}))
    with served:
        for said in (
            hello + frame(KILL, b"\0" * MAC_BYTES + b'{"now":true}'),
            frame(KILL, b"{}"),
            b"GET / HTTP/1.0\n\n",
        ):
            with stranger(world) as sock:
                sock.sendall(said)
                assert frames(sock) in ([CHALLENGE], [])
    assert served.kills == []


def test_what_is_said_to_one_run_is_of_no_use_for_another_nor_for_a_world() -> None:
    """The run's id and the purpose are part of the secret."""
    nonces = (b"m" * 16, b"l" * 16)
    secrets = [
        words.status_secret(KEY, "a"),
        words.status_secret(KEY, "b"),
        words.status_secret(OTHER_KEY, "a"),
        Secret.derive(Material(KEY), Attempt("a")),
        Secret(KEY),
    ]
    assert len({its.mac(b"session", *nonces) for its in secrets}) == len(secrets)
    assert KEY.hex() not in words.status_tag(secrets[0])


def test_many_strangers_keep_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one more than there is room for, the first of them goes."""
    monkeypatch.setattr(door, "CALLER_S", 3600.0)
    world = served.world()
    with served:
        strangers = [stranger(world) for _ in range(door.MOST_CALLERS + 8)]
        assert asking.ask_runs([way(world)]) == [state(world.entry, is_whole=False)]
        assert frames(strangers[0]) == []
        for sock in strangers:
            sock.close()


def test_a_stranger_who_says_nothing_goes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while."""
    monkeypatch.setattr(door, "CALLER_S", 0.01)
    world = served.world()
    with served, stranger(world) as sock:
        assert frames(sock) == []


def test_a_run_ends_when_it_is_asked_to_and_says_with_which_status(served: Served) -> None:
    """The one who asks waits until its process is gone."""
    world, other = served.world(), served.world("4712", "0011")
    with served:
        its = way(world)
        ending = asking.kill_run(its, is_now=True, limit_s=60)
        assert asking.ask_runs([its, way(other)]) == [None, state(other.entry, is_whole=False)]
    assert (ending.is_accepted, ending.status, ending.has_hung_up) == (True, 130, True)
    assert served.kills == [("00112233aabbccdd", True)]


def test_who_waits_for_the_end_is_told_where_it_does_not_come(served: Served) -> None:
    """And may wait for longer than other callers."""
    world = served.world()
    with served:
        ending = asking.kill_run(way(world), is_now=False, limit_s=0.05)
        assert asking.ask_runs([way(world)]) == [state(world.entry, is_whole=False)]
    assert (ending.is_accepted, ending.status, ending.has_hung_up) == (True, None, False)
    assert served.kills == [("00112233aabbccdd", False)]


def test_who_waits_for_the_end_is_not_crowded_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has proved that it holds the key; however many come after it."""
    world = served.world()
    endings: list[asking.Ending] = []
    asker = threading.Thread(target=lambda: endings.append(asking.kill_run(way(world), is_now=False, limit_s=60)))
    with served:
        asker.start()
        while not served.kills:
            served.call(lambda: None)
        monkeypatch.setattr(door, "MOST_CALLERS", 0)
        with stranger(world) as sock:
            assert frames(sock) == []
        served.call(lambda: world.close(143))
        served.call(lambda: [link.close() for link in world.waiting])  # its process ends
        asker.join()
    assert [(ending.status, ending.has_hung_up) for ending in endings] == [(143, True)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "\x1b[2J"},
        {"command": "a\nb"},
        {"host": "-rf"},
        {"here": -1},
        {"nodes": [["node1", 0, "running", 0]]},
        {"nodes": [["no de", 0, "running", 0, None]]},
        {"failure": {"attempt": 0, "at": 1, "cause": {**CAUSE, "host": "a b"}}},
        {"failure": {"attempt": 0, "at": 1, "cause": {**CAUSE, "after_s": float("inf")}}},
        {"failure": {"attempt": 0, "at": 1, "cause": {**CAUSE, "tail": 1}}},
    ],
    ids=str,
)
def test_an_answer_is_read_strictly(served: Served, wrong: dict[str, object]) -> None:
    """It ends up on a terminal."""
    body = state(served.world().entry).body()
    assert State.parse(body) == state(served.worlds[0].entry)
    with pytest.raises(WireError):
        State.parse({**body, **wrong})


def listening(answer: bytes) -> tuple[socket.socket, list[bytes], threading.Thread]:
    """Return a listener that says one thing to the first who calls, what it has heard, and its thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        with listener.accept()[0] as caller:
            heard.append(caller.recv(4096))
            caller.sendall(answer)
            try:
                while some := caller.recv(4096):
                    heard.append(some)
            except ConnectionResetError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    return listener, heard, thread


def test_who_answers_in_the_place_of_a_runner_is_not_believed(served: Served) -> None:
    """It proves nothing by what it says, and gets nothing that it could use elsewhere."""
    its = way(served.world())
    lie = encode({**state(its.entry).body(), "command": "\x1b[2J"})
    for said in (b"HTTP/1.0 200 OK\n\n", CHALLENGE_FRAME + frame(words.STATE, b"\0" * MAC_BYTES + lie)):
        listener, heard, thread = listening(said)
        with listener:
            assert asking.ask_runs([its._replace(port=listener.getsockname()[1])]) == [None]
            thread.join()
        assert KEY not in b"".join(heard)


def test_who_says_nothing_is_waited_for_only_so_long(served: Served) -> None:
    """The others' answers are there all the same."""
    silent, answering = served.world(), served.world("4712", "0011")
    listener = socket.create_server(("127.0.0.1", 0))
    with served, listener:
        port = listener.getsockname()[1]
        found = asking.ask_runs([way(silent)._replace(port=port), way(answering)], limit_s=0.3)
    assert found == [None, state(answering.entry, is_whole=False)]


def test_a_question_that_was_heard_is_of_no_use_again(served: Served) -> None:
    """Each connection has a random number of both sides in its proofs."""
    world = served.world()
    its = way(world)
    listener = socket.create_server(("127.0.0.1", 0))
    heard = bytearray()

    def relay() -> None:
        with listener.accept()[0] as caller, stranger(world) as door_:
            while True:
                for sock in select.select([caller, door_], [], [])[0]:
                    if not (some := sock.recv(4096)):
                        return
                    if sock is caller:
                        heard.extend(some)
                    (door_ if sock is caller else caller).sendall(some)

    thread = threading.Thread(target=relay)
    with served, listener:
        thread.start()
        asking.kill_run(its._replace(port=listener.getsockname()[1]), is_now=False, limit_s=0.05)
        thread.join()
        assert served.kills == [("00112233aabbccdd", False)]
        with stranger(world) as sock:
            sock.sendall(heard)
            assert frames(sock) == [CHALLENGE]
    assert len(served.kills) == 1
