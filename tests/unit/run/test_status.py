"""The status of runs: the list in the user's home, requests over the network, and what the state machine tells."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from served import CAUSE, KEY, OTHER_KEY, Served, state

from mingle_hooks import values
from mingle_hooks.errors import PlaceError, SettingsError, UsageError
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Connection
from mingle_hooks.rendezvous.wire import Secret, WireError, body_of, encode, frame, parse
from mingle_hooks.run import messages, status
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.machine import Action, Event, Exit, Hurry, Joined, Lost, Noticed, Report, Swept
from mingle_hooks.run.status import KILL, Contact, Entry, Listener, RunnerProcess, Runs, State, StatusServer

from .test_machine import Run, clean, ended, formed

TERM, INT = 15, 2
WATCHED_ENTRY = Entry("4711", "0011", "login", (), (), RunnerProcess("", 1, 1), 100, 2, "train")
PLAN = Plan(hosts=("a", "b"), slots=(1, 1), least=2, most=2, restarts=1)


class Watched(Run):
    """A state machine with its status; each event takes a second."""

    def __init__(self, plan: Plan = PLAN) -> None:
        super().__init__(plan)
        self.status_of = status.RunState(self.machine, lambda: self.now)

    def take(self, *events: Event, after_s: float = 1.0) -> list[Action]:
        """Hand events over, and what follows to the status."""
        new = []
        for event in events:
            new += super().take(event, after_s=after_s)
            self.status_of.take(event)
        for action in new:
            if isinstance(action, Report):
                self.status_of.report(action.name, action.fields)
        return new

    def look(self, *events: Event) -> State:
        """Return what it looks like after these events, as it travels."""
        self.take(*events)
        entry = WATCHED_ENTRY._replace(wanted=self.machine.plan.most)
        return parse(State, self.status_of.state(entry, is_whole=True).body())


def nodes(state: State) -> list[tuple[object, ...]]:
    """Return each node's state, rank and time."""
    return [(node.host, node.state, node.rank, node.since) for node in state.nodes]


def test_each_phase_has_its_name_and_each_node_its_state() -> None:
    run = Watched()
    missing, a_waits, b_forms = ("b", "missing", None, None), ("a", "waiting", None, 101), ("b", "forming", 1, 102)
    for events, phase, here, since, node in (
        ([], "gathering", 0, 100, missing),
        ([Joined(0)], "gathering", 1, 100, a_waits),
        ([Joined(1)], "forming", 2, 102, b_forms),
        ([formed(1)], "forming", 2, 102, ("b", "running", 1, 102)),
        ([formed(0)], "running", 2, 104, ("a", "running", 0, 101)),
        ([ended(1, 7, tail="why\n")], "ending", 2, 105, ("b", "ended", 1, 102)),
        ([clean(0), clean(1)], "forming", 2, 107, b_forms),
    ):
        state = run.look(*events)
        assert (state.state, state.here, state.wanted, state.since) == (phase, here, 2, since)
        assert node in nodes(state)
        assert (state.failure is None) == (since < 105)  # it stays the last one
    assert state.attempt == 1
    assert state.failure is not None
    assert (state.failure.attempt, state.failure.at) == (0, 105)
    cause = state.failure.cause
    assert (cause["host"], cause["status"], cause["tail"]) == ("b", 7, "why\n")


def test_a_lost_node_is_missing_until_it_comes_again() -> None:
    run = Watched()
    state = run.look(Joined(0), Joined(1), formed(0), formed(1), Lost(1, 15.0))
    assert (state.state, state.here, nodes(state)[1][:2]) == ("ending", 1, ("b", "lost"))
    run.take(clean(0, 0))
    assert run.machine.phase == "sweeping"
    state = run.look(Swept("b", is_clean=True))
    assert (state.state, state.attempt, nodes(state)[1]) == ("waiting to restart", 0, ("b", "missing", None, None))
    assert state.failure is not None
    assert state.failure.cause["silent_s"] == 15.0


def test_the_status_of_many_places_fits_into_an_answer() -> None:
    hosts = tuple(f"node{number}" for number in range(1024))
    state = Watched(Plan(hosts=hosts, slots=(8,) * 1024, least=1024, most=1024)).look()
    assert (len(state.nodes), state.wanted) == (8192, 1024)


@pytest.mark.parametrize(("before", "code"), [((), 130), ((Noticed(None, TERM),), 143), ((Noticed(None, INT),), 130)])
def test_the_end_at_once_comes_whoever_has_requested_the_end_before(before: tuple[Noticed, ...], code: int) -> None:
    run = Watched()
    run.take(Joined(0), Joined(1), formed(0), formed(1), *before)
    run.take(Hurry(), Hurry(), Hurry())
    assert [end.message for end in run.sent(messages.End)] == [(0, 0), (0, 0)]
    run.take(clean(0, 0), clean(1, 0))
    assert run.of(Exit) == [Exit(code)]


def test_the_end_at_once_of_a_run_that_gathers() -> None:
    run = Watched()
    assert run.look(Hurry()).state == "ending"
    run.take(Hurry())  # nobody reads its last output
    assert run.of(Exit) == [Exit(130), Exit(130, at_once=True)]


CHALLENGE_FRAME = frame(wire.CHALLENGE, encode({"nonce": "00" * 16}))


def contact(world: StatusServer) -> Contact:
    """Return how to ask a run."""
    assert world.entry is not None
    found = status.contact_of(world.entry, [OTHER_KEY, KEY])
    assert found is not None
    return found


def brief(world: StatusServer) -> State:
    """Return a run's answer without its nodes."""
    return state(world.entry, is_whole=False)


def frames(sock: socket.socket) -> list[int]:
    """Return the kinds of all frames that come, until the other side ends it."""
    data = b""
    with suppress(ConnectionResetError):
        while some := sock.recv(4096):
            data += some
    found = []
    while data:
        length, kind = wire.HEADER.unpack_from(data)
        found.append(kind)
        data = data[wire.HEADER.size + length :]
    return found


def stranger(world: StatusServer, key: int = 0) -> socket.socket:
    """Return a connection to a run's status, for holders of one of its keys."""
    assert world.entry is not None
    sock = socket.create_connection(("127.0.0.1", world.entry.listeners[key].port))
    sock.settimeout(20)
    return sock


def test_a_run_answers_to_each_of_its_keys(served: Served) -> None:
    world = served.world(keys=(KEY, OTHER_KEY))
    with served:
        assert status.fetch_states([contact(world)], is_whole=True) == [state(world.entry)]
        for key in (KEY, OTHER_KEY):
            assert status.fetch_states([status.contact_of(world.entry, [key])]) == [brief(world)]


def test_with_another_key_nothing_is_shown_and_nothing_dies(served: Served) -> None:
    world = served.world()
    assert status.contact_of(world.entry, [OTHER_KEY]) is None
    assert status.contact_of(world.entry, []) is None
    forced = contact(world)._replace(secret=status.status_secret(OTHER_KEY, world.entry.run))
    with served:
        assert status.fetch_states([forced]) == [None]
        ending = status.kill_run(forced, is_now=True, limit_s=60)
        assert (ending.is_accepted, ending.status) == (False, None)
        assert status.fetch_states([contact(world)]) == [brief(world)]
    assert served.kills == []


def test_a_stranger_gets_a_random_number_and_nothing_else(served: Served) -> None:
    world = served.world()
    hello = frame(wire.HELLO, encode({"nonce": "00" * 16}))
    with served:
        for said in (
            hello + frame(KILL, b"\0" * wire.MAC_BYTES + b'{"now":true}'),
            frame(KILL, b"{}"),
            b"GET / HTTP/1.0\n\n",
        ):
            with stranger(world) as sock:
                sock.sendall(said)
                assert frames(sock) in ([wire.CHALLENGE], [])
    assert served.kills == []


def test_what_is_said_to_one_run_is_of_no_use_for_another_nor_for_a_world() -> None:
    nonces = (b"m" * 16, b"l" * 16)
    secrets = [
        status.status_secret(KEY, "a"),
        status.status_secret(KEY, "b"),
        status.status_secret(OTHER_KEY, "a"),
        Secret.derive(wire.Material(KEY), wire.Attempt("a")),
        Secret(KEY),
    ]
    assert len({secret.mac(b"session", *nonces) for secret in secrets}) == len(secrets)
    assert KEY.hex() not in status.status_tag(secrets[0])


def test_many_strangers_keep_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has as many callers at most, whichever of its keys they are for."""
    monkeypatch.setattr(messages, "STRANGER_S", 3600.0)
    world = served.world(keys=(KEY, OTHER_KEY))
    with served:
        strangers = [stranger(world, number % 2) for number in range(status.MOST_CALLERS + 8)]
        assert status.fetch_states([contact(world)]) == [brief(world)]
        assert frames(strangers[0]) == []
        for sock in strangers:
            sock.close()


def test_a_stranger_who_says_nothing_goes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "STRANGER_S", 0.01)
    world = served.world()
    with served, stranger(world) as sock:
        assert frames(sock) == []


def test_a_run_ends_on_request_and_returns_its_status(served: Served) -> None:
    world, other = served.world(), served.world("4712", "0011")
    with served:
        found = contact(world)
        ending = status.kill_run(found, is_now=True, limit_s=60)
        assert status.fetch_states([found, contact(other)]) == [None, brief(other)]
    assert (ending.is_accepted, ending.status, ending.has_hung_up) == (True, 130, True)
    assert served.kills == [("00112233aabbccdd", True)]


def test_a_request_to_end_returns_where_the_end_does_not_come(served: Served) -> None:
    world = served.world()
    with served:
        ending = status.kill_run(contact(world), is_now=False, limit_s=0.05)
        assert status.fetch_states([contact(world)]) == [brief(world)]
    assert (ending.is_accepted, ending.status, ending.has_hung_up) == (True, None, False)
    assert served.kills == [("00112233aabbccdd", False)]


def test_who_waits_for_the_end_is_not_crowded_out(served: Served) -> None:
    world = served.world()
    endings: list[status.Ending] = []
    asker = threading.Thread(target=lambda: endings.append(status.kill_run(contact(world), is_now=False, limit_s=60)))
    with served:
        asker.start()
        while not served.kills:
            served.call(lambda: None)
        strangers = [stranger(world) for _ in range(status.MOST_CALLERS + 1)]
        assert frames(strangers[0]) == []
        for sock in strangers:
            sock.close()
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
    body = state(served.world().entry).body()
    assert parse(State, body) == state(served.worlds[0].entry)
    with pytest.raises(WireError):
        parse(State, {**body, **wrong})


def answering(answer: bytes) -> int:
    """Return the port of a listener that says one thing to the first who calls."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(ConnectionResetError), listener, listener.accept()[0] as caller:
            caller.recv(4096)
            caller.sendall(answer)
            while caller.recv(4096):
                pass

    threading.Thread(target=serve).start()
    return int(listener.getsockname()[1])


def test_who_answers_in_the_place_of_a_runner_is_not_believed(served: Served) -> None:
    found = contact(served.world())
    lie = encode({**state(found.entry).body(), "command": "\x1b[2J"})
    for said in (b"HTTP/1.0 200 OK\n\n", CHALLENGE_FRAME + frame(status.STATE, b"\0" * wire.MAC_BYTES + lie)):
        assert status.fetch_states([found._replace(port=answering(said))]) == [None]


def test_who_says_nothing_is_waited_for_only_so_long(served: Served) -> None:
    silent, answering = served.world(), served.world("4712", "0011")
    listener = socket.create_server(("127.0.0.1", 0))
    with served, listener:
        port = listener.getsockname()[1]
        found = status.fetch_states([contact(silent)._replace(port=port), contact(answering)], limit_s=0.3)
    assert found == [None, brief(answering)]


def test_a_question_that_was_heard_is_of_no_use_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    world, heard, send = served.world(), bytearray(), Connection.send

    def record(connection: Connection, *parts: bytes | memoryview) -> None:
        if threading.current_thread() is threading.main_thread():  # the other answers
            heard.extend(b"".join(parts))
        send(connection, *parts)

    monkeypatch.setattr(Connection, "send", record)
    with served:
        status.kill_run(contact(world), is_now=False, limit_s=0.05)
        assert served.kills == [("00112233aabbccdd", False)]
        with stranger(world) as sock:
            sock.sendall(heard)
            assert frames(sock) == [wire.CHALLENGE]
    assert len(served.kills) == 1
    assert KEY not in heard


ENTRY = Entry(
    id="4711",
    run="0011",
    host="node1",
    addresses=("127.0.0.1", "fd00::1"),
    listeners=(Listener("00" * 8, 1),),
    process=RunnerProcess("elsewhere", 1, 1),
    began=1_700_000_000,
    wanted=2,
    command="torchrun train.py",
)


def path(tmp_path: Path) -> str:
    """Return the directory of a user whose state is below tmp_path."""
    found = status.registry_directory({"XDG_STATE_HOME": str(tmp_path)})
    assert found is not None
    return found


def dead() -> RunnerProcess:
    """Return a process of this machine that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return RunnerProcess(status.runs_here(), done.pid, 1)


def runs(tmp_path: Path, notes: list[str], key: bytes = KEY) -> Runs:
    """Return what is found with a key."""
    return Runs({"XDG_STATE_HOME": str(tmp_path)}, [key], notes.append)


def test_a_run_is_written_down_for_its_user_alone_and_no_key_is(tmp_path: Path, served: Served) -> None:
    world = served.world(directory=path(tmp_path))
    where = tmp_path / "mingle" / "runs"
    file = where / "00112233aabbccdd.json"
    assert (where.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert status.read_entries(str(where), print) == [world.entry]
    assert KEY not in file.read_bytes()
    world.close(0)
    assert [*where.iterdir()] == []


def test_the_list_of_runs_is_in_the_users_state_directory() -> None:
    """XDG_STATE_HOME where it is absolute, else below the home."""
    home = "/h/.local/state/mingle/runs"
    for state_home, expected in ((None, home), ("s", home), ("/s", "/s/mingle/runs")):
        environ = {"HOME": "/h", **({"XDG_STATE_HOME": state_home} if state_home else {})}
        assert status.registry_directory(environ) == expected
    assert status.registry_directory({}) is None


def test_a_home_that_cannot_be_written_is_one_note(tmp_path: Path, served: Served) -> None:
    (tmp_path / "mingle").write_text("a file where the directory would be")
    world = served.world(directory=path(tmp_path))
    assert world.entry is None
    assert len(served.notes) == 1
    assert served.notes[0].startswith("`mingle ls` does not show this run: expected to record this run in")
    world.close(0)


def test_a_full_home_leaves_nothing_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(*_paths: str) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(PlaceError, match="No space left"):
        status.write_entry(path(tmp_path), ENTRY)
    assert os.listdir(path(tmp_path)) == []


def test_a_home_that_does_not_answer_holds_nothing_up() -> None:
    home = threading.Event()
    assert not status.in_time(home.wait, 0.01)
    home.set()
    assert status.in_time(home.wait, 60)


@pytest.mark.parametrize("options", [{"keys": ()}, {"directory": None}], ids=["no key", "no home"])
def test_without_a_key_or_a_home_nothing_is_written(tmp_path: Path, served: Served, options: dict[str, object]) -> None:
    world = served.world(**{"directory": path(tmp_path), **options})
    assert (world.entry, served.notes, [*tmp_path.iterdir()]) == (None, [], [])


def hostile(where: Path) -> None:
    """Put into a directory what no runner writes."""
    text = values.to_json(body_of(ENTRY))
    files = {
        "large": text + " " * 10_000,
        "text": "no JSON",
        "list": "[]",
        "deep": "[" * 5000,
        "control": text.replace("torchrun", "\\u001b[2J"),
        "address": text.replace("fd00::1", "$(reboot)"),
        "port": text.replace(",1]", ",70000]"),
        "pid": text.replace('["elsewhere",1,1]', '["elsewhere",-1,1]'),
        "binary": "\udcff\udcfe",
    }
    for name, said in files.items():
        (where / f"{name}.json").write_text(said, errors="surrogateescape")
        (where / f"{name}.json").chmod(0o600)
    for name, mode in (("open.json", 0o644), ("elsewhere", 0o600), ("other.json", 0o600)):
        (where / name).write_text(text)
        (where / name).chmod(mode)
    (where / "link.json").symlink_to(where / "elsewhere")
    (where / "directory.json").mkdir()
    os.mkfifo(where / "fifo.json", 0o600)
    if os.getuid() == 0:
        os.chown(where / "other.json", 4711, 4711)
    else:
        (where / "other.json").unlink()


def test_what_no_runner_writes_is_left_out_with_a_note(tmp_path: Path) -> None:
    status.write_entry(path(tmp_path), ENTRY)
    where = tmp_path / "mingle" / "runs"
    hostile(where)
    notes: list[str] = []
    assert status.read_entries(str(where), notes.append) == [ENTRY]
    assert len(notes) == len([*where.glob("*.json")]) - 1
    assert not [note for note in notes if not note.startswith(f"left out: {where}/")]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702], ids=oct)
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    status.write_entry(path(tmp_path), ENTRY)
    os.chmod(path(tmp_path), mode)
    with pytest.raises(SettingsError, match="only this user can write"):
        runs(tmp_path, []).contacts()
    with pytest.raises(PlaceError, match="only this user can write"):
        status.write_entry(path(tmp_path), ENTRY)


def test_what_a_killed_runner_left_is_removed_where_that_is_certain(tmp_path: Path, served: Served) -> None:
    here, there = served.world(directory=path(tmp_path)), served.world("9", "9", directory=path(tmp_path))
    for world in (here, there):
        world._reception.close()  # it was killed
    status.write_entry(path(tmp_path), here.entry._replace(process=dead()))
    status.write_entry(path(tmp_path), there.entry._replace(process=RunnerProcess("elsewhere", 1, 1)))
    known = runs(tmp_path, [])
    ways = known.contacts()
    assert [way.entry.id for way in ways] == ["9"]
    assert [(seen.entry.id, seen.state) for seen in known.look(ways)] == [("9", None)]
    assert os.listdir(path(tmp_path)) == ["9.json"]


def test_a_pid_that_another_process_has_by_now_is_no_runner() -> None:
    own = RunnerProcess.own()
    assert not own.has_ended
    assert own._replace(start=own.start - 1).has_ended
    assert not own._replace(start=0).has_ended
    assert not own._replace(machine="elsewhere", pid=dead().pid).has_ended


def test_a_run_that_ends_meanwhile_is_not_shown(tmp_path: Path, served: Served) -> None:
    world = served.world(directory=path(tmp_path))
    known = runs(tmp_path, [])
    ways = known.contacts()
    world.close(0)
    assert known.look(ways) == []


def test_runs_of_another_key_are_counted_and_no_more(tmp_path: Path, served: Served) -> None:
    served.world(directory=path(tmp_path))
    notes: list[str] = []
    known = runs(tmp_path, notes, OTHER_KEY)
    assert known.contacts() == []
    assert notes == ["1 run has another key than those found here (MINGLE_KEY, --key-file)"]
    with pytest.raises(UsageError, match="the id of a run"):
        known.one("4711")


def test_a_run_is_named_by_either_id_or_a_beginning_that_no_other_has(tmp_path: Path, served: Served) -> None:
    for name, run in (("4711", "aa11"), ("4711", "aa22"), ("47", "bb11"), ("48[1]", "bb22")):
        served.world(name, run, directory=path(tmp_path))
    known = runs(tmp_path, [])
    meant = {"aa1": "aa11", "aa22": "aa22", "47": "bb11", "48": "bb22", "bb1": "bb11"}
    assert {name: known.one(name).entry.run for name in meant} == meant
    with pytest.raises(UsageError, match=r"4711, which 2 have: aa\d\d \(4711\), aa\d\d \(4711\)"):
        known.one("4711")
    with pytest.raises(UsageError, match="which 2 have"):
        known.one("aa")
    with pytest.raises(UsageError, match="saw 49; try"):
        known.one("49")
