"""The status of runs: their files in the user's home, `mingle kill` over the network, what the state machine tells."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from served import CAUSE, KEY, OTHER_KEY, Served, status_of
from support.running import open_files

from mingle_hooks import values
from mingle_hooks.errors import (
    LimitError,
    NetworkError,
    PlaceError,
    SecretError,
    SettingsError,
    Shortage,
    UsageError,
)
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Connection, Loop
from mingle_hooks.rendezvous.wire import Secret, WireError, encode, frame, parse
from mingle_hooks.run import messages, output, processes, status
from mingle_hooks.run.attempt import Plan
from mingle_hooks.run.machine import Action, Event, Exit, Hurry, Joined, Lost, Noticed, Report, Swept
from mingle_hooks.run.status import KILL, RunnerProcess, Runs, RunStatus, StatusWriter

from .test_machine import Run, clean, ended, formed

TERM, INT = 15, 2
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

    def look(self, *events: Event) -> RunStatus:
        """Return what it looks like after these events, as a file has it."""
        self.take(*events)
        return parse(RunStatus, self.status_of.status(status_of()).body())


def nodes(state: RunStatus) -> list[tuple[object, ...]]:
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
        assert (state.state, state.here, state.since) == (phase, here, since)
        assert node in nodes(state)
        assert (state.failure is None) == (since < 105)  # it stays the last one
    assert state.attempt == 1
    assert state.failure is not None
    assert (state.failure.attempt, state.failure.at) == (0, 105)
    cause = state.failure.cause
    assert (cause["host"], cause["status"], cause["tail"]) == ("b", 7, "why\n")


def test_the_members_of_a_run_that_is_over_have_ended_with_their_ranks() -> None:
    """A spare has none."""
    run = Watched(Plan(hosts=("a", "b", "c"), slots=(1, 1, 1), least=2, most=2))
    state = run.look(*map(Joined, range(3)), formed(0), formed(1), ended(0, 0), ended(1, 0), clean(0, 0), clean(1, 0))
    assert run.machine.phase == "over"
    assert [node[:3] for node in nodes(state)] == [("a", "ended", 0), ("b", "ended", 1), ("c", "waiting", None)]


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


@pytest.mark.parametrize(("before", "code"), [((), 130), ((Noticed(TERM),), 143), ((Noticed(INT),), 130)])
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


def kill(run: RunStatus, *keys: bytes, is_now: bool = False, limit_s: float = 60.0) -> status.Ending:
    """End a run as a holder of these keys, or of the usual one."""
    return status.kill_run(run, keys or (OTHER_KEY, KEY), is_now=is_now, limit_s=limit_s)


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


def stranger(run: RunStatus, key: int = 0) -> socket.socket:
    """Return a connection to the port for holders of one of a run's keys."""
    sock = socket.create_connection(("127.0.0.1", run.listeners[key].port))
    sock.settimeout(20)
    return sock


@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
def test_a_run_ends_on_request_of_each_of_its_keys_and_returns_its_status(served: Served, key: bytes) -> None:
    run, other = served.run(keys=(KEY, OTHER_KEY)), served.run("4712", "0011")
    assert KEY not in (served.path / f"{run.run}.json").read_bytes()
    with served:
        assert kill(run, key, is_now=True) == (True, 130)
        assert kill(run) == (False, None)
        assert kill(other, limit_s=0.05) == (True, None)
    assert served.kills == [("00112233aabbccdd", True), ("0011", False)]


def test_with_another_key_nothing_dies(served: Served) -> None:
    run = served.run()
    for keys in ([OTHER_KEY], []):
        with pytest.raises(SecretError, match="a key that run 4711 takes"):
            status.kill_run(run, keys, is_now=True, limit_s=60)
    tag = status.kill_tag(status.kill_secret(OTHER_KEY, run.run))
    forced = run._replace(listeners=(run.listeners[0]._replace(tag=tag),))
    with served:
        assert kill(forced, OTHER_KEY, is_now=True) == (False, None)
    assert served.kills == []


def test_a_stranger_gets_a_random_number_and_nothing_else(served: Served) -> None:
    run = served.run()
    hello = frame(wire.HELLO, encode({"nonce": "00" * 16}))
    with served:
        for said in (
            hello + frame(KILL, b"\0" * wire.MAC_BYTES + b'{"now":true}'),
            frame(KILL, b"{}"),
            b"GET / HTTP/1.0\n\n",
        ):
            with stranger(run) as sock:
                sock.sendall(said)
                assert frames(sock) in ([wire.CHALLENGE], [])
    assert served.kills == []


def test_what_is_said_to_one_run_is_of_no_use_for_another_nor_for_a_world() -> None:
    nonces = (b"m" * 16, b"l" * 16)
    secrets = [
        status.kill_secret(KEY, "a"),
        status.kill_secret(KEY, "b"),
        status.kill_secret(OTHER_KEY, "a"),
        Secret.derive(wire.Material(KEY), wire.Attempt("a")),
        Secret(KEY),
    ]
    assert len({secret.mac(b"session", *nonces) for secret in secrets}) == len(secrets)
    assert KEY.hex() not in status.kill_tag(secrets[0])


def test_strangers_neither_keep_nor_crowd_anybody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has as many callers at most, whichever of its keys they are for; who waits for its end is none of them."""
    monkeypatch.setattr(messages, "STRANGER_S", 3600.0)
    run = served.run(keys=(KEY, OTHER_KEY))
    endings: list[status.Ending] = []
    asker = threading.Thread(target=lambda: endings.append(kill(run)))
    with served:
        asker.start()
        while not served.kills:
            served.call(lambda: None)
        strangers = [stranger(run, number % 2) for number in range(status.MOST_CALLERS + 8)]
        assert kill(run, limit_s=0.05).is_accepted
        assert frames(strangers[0]) == []
        for sock in strangers:
            sock.close()
        served.call(lambda: served.end(run, 143))
        asker.join()
    assert endings == [(True, 143)]


def answering(answer: bytes, heard: Callable[[], None] = lambda: None) -> int:
    """Return the port of a listener that says one thing to the first who calls, and hears what comes then."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(ConnectionResetError), listener, listener.accept()[0] as caller:
            caller.recv(4096)
            caller.sendall(answer)
            while caller.recv(4096):
                heard()

    threading.Thread(target=serve).start()
    return int(listener.getsockname()[1])


CHALLENGE_FRAME = frame(wire.CHALLENGE, encode({"nonce": "00" * 16}))


@pytest.mark.parametrize("said", [b"HTTP/1.0 200\n\n", CHALLENGE_FRAME + frame(status.ENDING, b"\0" * 32 + b"{}"), b""])
def test_who_answers_in_the_place_of_a_runner_is_not_believed(served: Served, said: bytes) -> None:
    run = served.run()
    elsewhere = run._replace(listeners=(run.listeners[0]._replace(port=answering(said)),))
    assert status.kill_run(elsewhere, [KEY], is_now=True, limit_s=60, answer_s=0.3) == (False, None)


def test_a_stranger_who_greets_first_keeps_no_request_from_the_run(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, dial, has_greeted = served.run(), status.dial, threading.Event()
    endings: list[status.Ending] = []
    ports = {"10.0.0.1": answering(CHALLENGE_FRAME, has_greeted.set)}
    monkeypatch.setattr(status, "dial", lambda address, port: dial("127.0.0.1", ports.get(address, port)))
    elsewhere = run._replace(process=run.process._replace(machine="another"), addresses=("10.0.0.2", "10.0.0.1"))

    def ask() -> None:
        endings.append(status.kill_run(elsewhere, [KEY], is_now=True, limit_s=60, answer_s=20))

    asker = threading.Thread(target=ask)
    asker.start()
    has_greeted.wait(20)
    with served:
        asker.join()
    assert (endings, served.kills) == ([(True, 130)], [(run.run, True)])


@pytest.mark.parametrize("shortage", [None, Shortage("files", "none left")])
def test_without_a_port_for_each_key_none_is_kept(monkeypatch: pytest.MonkeyPatch, shortage: Shortage | None) -> None:
    before = open_files()
    answers = [messages.open_listeners((0,)), (0, []) if shortage is None else LimitError(shortage)]
    monkeypatch.setattr(messages, "open_listeners", Mock(side_effect=answers))
    with Loop() as loop, pytest.raises(NetworkError):
        status.KillListener(loop, "a", (KEY, OTHER_KEY), pytest.fail)
    assert open_files() == before


def test_a_request_on_several_connections_counts_once(served: Served) -> None:
    """Version 1.0 made it on one connection, without an id."""
    run = served.run()
    for body in ({"id": "00" * 16}, {"id": "00" * 16}, {"id": "11" * 16}, {}, {}):
        served.killers[run.run]._take(Mock(), KILL, body)
    assert served.kills == [(run.run, False)] * 4


def test_a_request_that_was_heard_is_of_no_use_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    run, heard, send = served.run(), bytearray(), Connection.send

    def record(connection: Connection, *parts: bytes | memoryview) -> None:
        if threading.current_thread() is threading.main_thread():  # the other answers
            heard.extend(b"".join(parts))
        send(connection, *parts)

    monkeypatch.setattr(Connection, "send", record)
    with served:
        kill(run, limit_s=0.05)
        assert served.kills == [("00112233aabbccdd", False)]
        with stranger(run) as sock:
            sock.sendall(heard)
            assert frames(sock) == [wire.CHALLENGE]
    assert len(served.kills) == 1
    assert KEY not in heard


def path(tmp_path: Path) -> str:
    """Return the directory of a user whose state is below tmp_path."""
    found = status.registry_directory({"XDG_STATE_HOME": str(tmp_path)})
    assert found is not None
    return found


def write(tmp_path: Path, *runs: RunStatus, age_s: float = 0.0) -> None:
    """Write the files of runs, as old as this."""
    for run in runs:
        status.write_status(path(tmp_path), run)
        os.utime(f"{path(tmp_path)}/{run.run}.json", (time.time() - age_s,) * 2)


def dead() -> RunnerProcess:
    """Return a process of this machine that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return RunnerProcess(status.runs_here(), done.pid, 1)


def runs(tmp_path: Path, notes: list[str]) -> Runs:
    return Runs({"XDG_STATE_HOME": str(tmp_path)}, notes.append)


def test_a_run_has_a_file_that_its_user_alone_reads_until_a_week_after_its_end(tmp_path: Path) -> None:
    notes: list[str] = []
    write(tmp_path, status_of("1", "old"), age_s=8 * 86_400)
    write(tmp_path, status_of("2", "ended"), age_s=6 * 86_400)
    now = [status_of()]
    with Loop() as loop:
        writer = StatusWriter(loop, path(tmp_path), lambda: now[0], notes.append)
        for phase in ("running", "ending"):
            now[0] = now[0]._replace(state=phase)
            writer.changed()
            loop.run(lambda: phase in [run.state for run in runs(tmp_path, notes).all()])  # noqa: B023 - it ends here
        writer.close(7)
    where = tmp_path / "mingle" / "runs"
    assert sorted(os.listdir(where)) == ["00112233aabbccdd.json", "ended.json"]
    assert (where.stat().st_mode & 0o777, (where / "ended.json").stat().st_mode & 0o777) == (0o700, 0o600)
    last = runs(tmp_path, notes).one("4711")
    assert (last.state, last.status, last.is_live, last.nodes, notes) == ("ended", 7, False, now[0].nodes, [])


def test_nothing_but_the_files_of_old_runs_is_removed(tmp_path: Path) -> None:
    where = Path(path(tmp_path))
    where.mkdir(mode=0o700, parents=True)
    for name in ("old.json", ".draft", "thesis.tex"):
        (where / name).touch()
    (where / "link.json").symlink_to("elsewhere")
    os.mkfifo(where / "fifo.json")
    for entry in where.iterdir():
        os.utime(entry, (1, 1), follow_symlinks=False)
    for others, may_remove in ((0o020, False), (0, True)):
        where.chmod(0o700 | others)
        status.remove_old(str(where))
        assert (where / "old.json").exists() != may_remove
    assert sorted(os.listdir(where)) == ["fifo.json", "link.json", "thesis.tex"]
    (where / "old.json").touch()
    os.utime(where / "old.json", (1, 1))
    (tmp_path / "runs").symlink_to(where)
    status.remove_old(str(tmp_path / "runs"))
    assert (where / "old.json").exists()


def test_the_users_state_directory_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        write(tmp_path, status_of())
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("mingle", "mingle/runs")] == [0o700, 0o700]


def test_a_run_is_renewed_though_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "RENEW_S", 0.01)
    file = Path(f"{path(tmp_path)}/00112233aabbccdd.json")
    with Loop() as loop:
        writer = StatusWriter(loop, path(tmp_path), status_of, pytest.fail)
        loop.run(file.exists)
        os.utime(file, (1, 1))
        loop.run(lambda: file.stat().st_mtime > 1)
        writer.close(None)


def test_the_list_of_runs_is_in_the_users_state_directory() -> None:
    """XDG_STATE_HOME where it is absolute, else below the home."""
    home = "/h/.local/state/mingle/runs"
    for state_home, expected in ((None, home), ("s", home), ("/s", "/s/mingle/runs")):
        environ = {"HOME": "/h", **({"XDG_STATE_HOME": state_home} if state_home else {})}
        assert status.registry_directory(environ) == expected
    assert status.registry_directory({}) is None


def test_a_home_that_cannot_be_written_is_one_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "RENEW_S", 0.01)
    (tmp_path / "mingle").write_text("a file where the directory would be")
    notes: list[str] = []
    with Loop() as loop:
        writer = StatusWriter(loop, path(tmp_path), status_of, notes.append)
        loop.run(lambda: bool(notes))
        writer.close(0)
    assert len(notes) == 1
    assert notes[0].startswith("`mingle ls` does not show this run as it is: expected to record this run in")


def test_a_full_home_leaves_nothing_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(*_paths: str) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(PlaceError, match="No space left"):
        status.write_status(path(tmp_path), status_of())
    assert os.listdir(path(tmp_path)) == []


def test_a_home_that_does_not_answer_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it answers, the last status is written, and none of those before."""
    home, asked = threading.Event(), threading.Event()
    written: list[int | None] = []

    def write_once_it_answers(_path: str, its: RunStatus) -> None:
        asked.set()
        home.wait()
        written.append(its.status)

    monkeypatch.setattr(status, "write_status", write_once_it_answers)
    monkeypatch.setattr(output, "_CLOSE_S", 0.01)
    with Loop() as loop:
        writer = StatusWriter(loop, path(tmp_path), status_of, pytest.fail)
        loop.turn(0)
        assert asked.wait(30)
        for _ in range(3):
            writer._write()
        writer.close(7)
        home.set()
        monkeypatch.setattr(output, "_CLOSE_S", 20)
        writer._files.close()  # what is left is freed
    assert written == [None, 7]


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "\x1b[2J"},
        {"command": "a\nb"},
        {"host": "-rf"},
        {"here": -1},
        {"addresses": ["$(reboot)"]},
        {"listeners": [["00", 70000]]},
        {"process": ["elsewhere", -1, 1]},
        {"nodes": [["node1", 0, "running", 0]]},
        {"nodes": [["no de", 0, "running", 0, None]]},
        {"failure": {"attempt": 0, "at": 1, "cause": {**CAUSE, "host": "a b"}}},
        {"failure": {"attempt": 0, "at": 1, "cause": {**CAUSE, "after_s": float("inf")}}},
        {"failure": {"attempt": 0, "at": 1, "cause": {**CAUSE, "tail": 1}}},
    ],
    ids=str,
)
def test_a_file_is_read_strictly(wrong: dict[str, object]) -> None:
    status = status_of()
    body = status.body()
    assert parse(RunStatus, body) == status
    with pytest.raises(WireError):
        parse(RunStatus, {**body, **wrong})


def test_what_no_runner_writes_is_left_out_with_a_note(tmp_path: Path) -> None:
    write(tmp_path, run := status_of())
    where = tmp_path / "mingle" / "runs"
    text = values.to_json(run.body())
    files = {
        "large": text + " " * (17 << 20),
        "text": "no JSON",
        "list": "[]",
        "deep": "[" * 5000,
        "open": text,
        "control": text.replace("torchrun", "\\u001b[2J"),
        "binary": "\udcff\udcfe",
        "other": text,
        "link": "",
    }
    for name, said in files.items():
        (where / f"{name}.json").write_text(said, errors="surrogateescape")
        (where / f"{name}.json").chmod(0o644 if name == "open" else 0o600)
    if os.getuid() == 0:
        os.chown(where / "other.json", 4711, 4711)
    else:
        (where / "other.json").unlink()
    (where / "directory.json").mkdir()
    (where / "link.json").unlink()
    (where / "link.json").symlink_to(where / f"{run.run}.json")
    (where / ".draft.json").touch(0o600)  # which is not looked at
    os.mkfifo(where / "fifo.json", 0o600)
    notes: list[str] = []
    assert status.read_runs(str(where), notes.append) == [run]
    assert len(notes) == len([*where.glob("[!.]*.json")]) - 1
    assert not [note for note in notes if not note.startswith(f"left out: {where}/")]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702], ids=oct)
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    write(tmp_path, status_of())
    os.chmod(path(tmp_path), mode)
    with pytest.raises(SettingsError, match="only this user can write"):
        runs(tmp_path, []).all()
    with pytest.raises(PlaceError, match="only this user can write"):
        status.write_status(path(tmp_path), status_of())


def test_a_run_s_state_follows_from_its_process_and_from_the_age_of_its_file(tmp_path: Path) -> None:
    """A pid that another process has by now is no runner."""
    own = RunnerProcess.own()
    for process, age_s, expected in (
        *((own, 0, "running"), (own, 60, "silent"), (own, 3700, "lost")),
        *((own._replace(start=own.start - 1), 0, "killed"), (own._replace(start=0), 0, "running")),
        *((dead(), 0, "killed"), (dead()._replace(machine="elsewhere"), 0, "running")),
    ):
        write(tmp_path, status_of()._replace(process=process), age_s=age_s)
        write(tmp_path, status_of("2", "ended")._replace(state="ended"), age_s=age_s)
        assert {run.id: run.state for run in runs(tmp_path, []).all()} == {"4711": expected, "2": "ended"}


def test_a_run_that_ends_while_its_file_is_read_was_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = status_of()
    write(tmp_path, run)
    monkeypatch.setattr(processes, "began", lambda _pid: write(tmp_path, run._replace(state="ended", status=7)))
    assert runs(tmp_path, []).one("4711").status == 7


def test_a_run_is_named_by_either_id_or_a_beginning_that_no_other_has(tmp_path: Path) -> None:
    """A live run comes before those that have ended, of which the latest counts; a beginning is said in full."""
    for name, run in (("4711", "aa11"), ("4711", "aa22"), ("47", "bb11"), ("48[1]", "bb22")):
        write(tmp_path, status_of(name, run))
    for began, (name, run) in enumerate([("4711", "cc1"), ("5000", "cc2"), ("5000", "cc3"), ("4800", "cc4")]):
        write(tmp_path, status_of(name, run)._replace(state="ended", began=began))
    notes: list[str] = []
    known = runs(tmp_path, notes)
    meant = {"aa1": "aa11", "aa22": "aa22", "47": "bb11", "48": "bb22", "bb1": "bb11", "5000": "cc3", "4800": "cc4"}
    assert {name: known.one(name).run for name in meant} == meant
    assert notes == ["aa1: run 4711 (aa11)", "48: run 48[1] (bb22)", "bb1: run 47 (bb11)"]
    with pytest.raises(UsageError, match=r"4711, which 2 have: aa\d\d \(4711\), aa\d\d \(4711\)"):
        known.one("4711")
    with pytest.raises(UsageError, match="which 2 have"):
        known.one("aa")
    for name, seen in (("49", "49"), ("", "an empty one")):  # as of a variable that is not set
        with pytest.raises(UsageError, match=f"saw {seen}; try"):
            known.one(name)
