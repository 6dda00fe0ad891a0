"""Several tasks of one node, in processes of their own, get one answer or one error."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from needs import only_with
from support.gathering import PATIENCE_S

from mingle_hooks import files
from mingle_hooks.errors import ConflictError, MingleError, MissingError, NetworkError, PlaceError
from mingle_hooks.rendezvous import local_tasks
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.local_tasks import LocalPeers, follow_first_task, serve_local_tasks
from mingle_hooks.rendezvous.messages import Failure

ANSWER = {"rank": 3, "addr": "10.0.0.1", "roster": [[0, "n", "10.0.0.1", 1]] * 1000}
ROOT_ONLY = only_with("root")
# `told(f)` prints the answer that f() returns, or its error, and ends with that one's code.
BEGIN = """
import json, sys, time
from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous.connection import Loop
from mingle_hooks.rendezvous.local_tasks import follow_first_task, serve_local_tasks
directories, number, wait_s = sys.argv[1].split(":"), *map(float, sys.argv[2:])
def told(result):
    try:
        print(json.dumps(result()))
    except MingleError as error:
        print(error)
        sys.exit(error.exit_code)
"""
FOLLOWER = f"{BEGIN}told(lambda: follow_first_task(directories, int(number), wait_s))"
FIRST = f"""{BEGIN}
def meet(left_s, peers):
    print("meeting", flush=True)
    time.sleep(60)
serve_local_tasks(directories, "here", int(number), wait_s, meet)
"""
# The same with a meeting that takes a while, watches its local peers and heeds what befalls them.
WHOLE = f"""{BEGIN}
def meet(left_s, peers):
    over = []
    with Loop() as loop:
        peers.attend(loop, over.append)
        loop.after(0.05, lambda: over.append(None))
        loop.run(lambda: bool(over))
    return {{"rank": 0}}
told(lambda: serve_local_tasks(directories, "here", int(number), wait_s, meet))
"""
# Calls the first task, and then does as it is told: by Python that finds `s`, a connected socket.
RAW = """
import os, socket, sys, time
def call():
    while True:
        s = socket.socket(socket.AF_UNIX)
        if not s.connect_ex(sys.argv[1] + "/siblings"):
            return s
        s.close()
        time.sleep(0.01)
s = call()
"""


class Tasks:
    """Processes that end with the test."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def start(self, script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Start one."""
        command = [sys.executable, "-c", script, *map(str, arguments)]
        self.all.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options))
        return self.all[-1]

    def ends(self) -> list[tuple[int, str]]:
        """Return exit code and output of each, in order."""
        return [(p.wait(PATIENCE_S), p.stdout.read() if p.stdout else "") for p in self.all]

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in self.all:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    """Give processes that end with the test."""
    with Tasks() as its:
        yield its


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Name a directory that is not there yet."""
    return str(tmp_path / "shared")


@pytest.fixture
def listener(directory: str) -> Iterator[socket.socket]:
    """Stand for a first task: listen where the others look for it."""
    os.mkdir(directory, 0o700)
    with socket.socket(socket.AF_UNIX) as its:
        its.bind(f"{directory}/siblings")
        its.listen(8)
        its.settimeout(PATIENCE_S)
        yield its


def silent(_left_s: float, _local_peers: LocalPeers) -> dict[str, object]:
    """Stand for a meeting that must not take place."""
    raise AssertionError


def answering(_left_s: float, _local_peers: LocalPeers) -> dict[str, object]:
    """Stand for a meeting at which all is well."""
    return dict(ANSWER)


def watching(*then: Callable[[], object]) -> Callable[[float, LocalPeers], dict[str, object]]:
    """Stand for a meeting that does these things, and continues until a fault is reported."""

    def meet(_left_s: float, its: LocalPeers) -> dict[str, object]:
        faults: list[Failure] = []
        with Loop() as loop:
            its.attend(loop, faults.append)
            for thing in then:
                thing()
            loop.after(PATIENCE_S, lambda: pytest.fail("no fault was told"))
            loop.run(lambda: bool(faults))
            loop.after(0.05, faults.clear)
            loop.run(lambda: not faults)  # a fault is told once
        return dict(ANSWER)

    return meet


def said(caller: socket.socket, so_far: bytes = b"") -> bytes:
    """Return the next line of a task."""
    while not so_far.endswith(b"\n"):
        so_far += caller.recv(64)
    return so_far


def counted() -> tuple[Callable[[float, LocalPeers], Any], list[float]]:
    """Return what meets the other nodes, and for how long it was to wait, in seconds, each time."""
    waits_s: list[float] = []

    def meet(left_s: float, _local_peers: LocalPeers) -> dict[str, object]:
        waits_s.append(left_s)
        return dict(ANSWER)

    return meet, waits_s


def test_all_tasks_get_the_first_ones_answer_and_leave_no_files(directory: str, tasks: Tasks) -> None:
    """Whoever comes first."""
    tasks.start(FOLLOWER, directory, 1, 20)
    meet, asked = counted()
    tasks.start(FOLLOWER, directory, 2, 20)
    assert serve_local_tasks([directory], "here", 3, 20.0, meet) == ANSWER
    assert len(asked) == 1
    assert 0 < asked[0] <= 20
    assert [(code, json.loads(text)) for code, text in tasks.ends()] == [(0, ANSWER)] * 2
    assert not os.path.exists(directory)


def test_an_answer_larger_than_a_sockets_buffer_arrives_whole(directory: str, tasks: Tasks) -> None:
    """A roster is."""
    large = {**ANSWER, "roster": [[0, "n" * 100, "10.0.0.1", 1]] * 30_000}
    tasks.start(FOLLOWER, directory, 1, 20)
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(lambda: tasks.all[0].communicate(timeout=PATIENCE_S)[0])
        assert serve_local_tasks([directory], "here", 2, 20.0, lambda _left_s, _its: large) == large
        assert json.loads(ends.result()) == large


def test_an_error_is_everybodys(directory: str, tasks: Tasks) -> None:
    """With its exit code and its words."""

    def meet(_left_s: float, _local_peers: LocalPeers) -> dict[str, object]:
        raise NetworkError("a", "b'\"$(x)", "c")

    tasks.start(FOLLOWER, directory, 1, 20)
    with pytest.raises(NetworkError, match="expected a; saw b"):
        serve_local_tasks([directory], "here", 2, 20.0, meet)
    assert tasks.ends() == [(71, "expected a; saw b'\"$(x); try c\n")]
    assert not os.path.exists(directory)


def test_a_missing_task_fails_the_others(directory: str, tasks: Tasks) -> None:
    """At the earliest deadline of those that connected, and without a check-in."""
    tasks.start(FOLLOWER, directory, 2, 2)
    with pytest.raises(MissingError, match="missing local rank 1, 3"):
        serve_local_tasks([directory], "here", 4, 500.0, silent)
    ((code, text),) = tasks.ends()
    assert (code, "missing local rank 1, 3" in text) == (69, True)
    assert not os.path.exists(directory)


def test_the_earliest_deadline_of_all_tasks_is_theirs_together(directory: str, tasks: Tasks) -> None:
    """A task that was started long before the first one waits no longer for that."""
    tasks.start(FOLLOWER, directory, 1, 15)
    meet, asked = counted()
    serve_local_tasks([directory], "here", 2, 500.0, meet)
    assert 1.0 <= asked[0] <= 15
    assert tasks.ends()[0][0] == 0


@pytest.mark.parametrize("rank", [1, 3, 0])
def test_a_local_rank_twice_or_out_of_range_fails_all_tasks(directory: str, rank: int, tasks: Tasks) -> None:
    """Also the one that is too many, as far as it has come."""
    tasks.start(FOLLOWER, directory, 1, 2)
    tasks.start(FOLLOWER, directory, rank, 2)
    with pytest.raises(ConflictError, match="once"):
        serve_local_tasks([directory], "here", 3, 20.0, silent)
    codes = {code for code, _ in tasks.ends()}
    assert 76 in codes
    assert codes <= {76, 69}  # 69: it came after the first task had gone


def test_a_local_rank_that_appears_again_while_the_world_forms_fails_all_tasks(directory: str, tasks: Tasks) -> None:
    """They get the error at once, whatever the result of the meeting."""
    tasks.start(FOLLOWER, directory, 1, 20)
    with pytest.raises(ConflictError, match="local rank 1 twice"):
        serve_local_tasks([directory], "here", 2, 20.0, watching(lambda: tasks.start(FOLLOWER, directory, 1, 20)))
    assert [(code, "local rank 1 twice" in text) for code, text in tasks.ends()] == [(76, True)] * 2


def test_two_first_tasks_are_one_too_many_and_the_earlier_one_goes_on(directory: str, tasks: Tasks) -> None:
    """Its socket is not taken away, also where a better name has been given free since."""
    better = f"{directory}.better"
    os.mkdir(better, 0o755)
    its = tasks.start(FIRST, f"{better}:{directory}", 2, 60)
    while not os.path.exists(f"{directory}/siblings"):
        time.sleep(0.01)
    os.rmdir(better)
    for candidates in ([directory], [better, directory]):
        with pytest.raises(ConflictError, match="local rank 0"):
            serve_local_tasks(candidates, "here", 2, 5.0, silent)
    tasks.start(FOLLOWER, f"{better}:{directory}", 1, 20)
    assert its.stdout.readline() == "meeting\n"


def test_a_first_task_that_is_killed_ends_the_others_and_hinders_no_next_try(directory: str, tasks: Tasks) -> None:
    """What it left is taken over."""
    its = tasks.start(FIRST, directory, 2, 60)
    waiting = tasks.start(FOLLOWER, directory, 1, 20)
    assert its.stdout.readline() == "meeting\n"
    its.kill()
    assert waiting.wait(PATIENCE_S) == 69
    assert os.path.exists(f"{directory}/siblings")
    os.symlink("7", f"{directory}/word")
    tasks.start(FOLLOWER, directory, 1, 20)
    assert serve_local_tasks([directory], "here", 2, 20.0, answering) == ANSWER
    assert json.loads(tasks.all[-1].stdout.read()) == ANSWER
    assert not os.path.exists(directory)


GARBAGE = (b"", b"x", b"-1 1", b"99999999999 1", b"\xb2 1", b"1", b"1 2 3", b"1 1e9", b"\0" * 100, b"1 +5", b"\n")


def test_connections_that_are_no_local_tasks_are_passed_over(directory: str, tasks: Tasks) -> None:
    """Garbage, and more silent connections than are kept; they delay no task."""
    crowd = local_tasks.MOST_CALLERS + 20
    tasks.start(RAW + f"for said in {GARBAGE!r}:\n s.send(said); s = call()\n", directory)
    tasks.start(RAW + f"crowd = [call() for _ in range({crowd})]\nprint(1, flush=True)\ntime.sleep(60)\n", directory)

    def come() -> None:
        stdout = tasks.all[1].stdout
        stdout.readline()
        tasks.start(FOLLOWER, directory, 1, 20)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(come)
        assert serve_local_tasks([directory], "here", 2, 20.0, answering) == ANSWER
    assert tasks.all[2].wait(PATIENCE_S) == 0


def test_no_more_callers_are_kept_than_may_wait(directory: str) -> None:
    """The one that has been silent for longest is dropped."""
    assert files.try_make_private(directory)
    with local_tasks.listen_in_directory(directory, 2) as listener, Loop() as loop, ExitStack() as stack:
        peers = LocalPeers(listener, "here", 2, time.monotonic() + PATIENCE_S)
        stack.callback(peers.close)
        peers.attend(loop, lambda _failure: None)
        callers = []
        for _ in range(local_tasks.MOST_CALLERS + 3):
            callers.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
            callers[-1].connect(f"{directory}/siblings")
            loop.turn(0.0)
        assert len(peers._callers) == local_tasks.MOST_CALLERS
        assert [callers[place].recv(9, socket.MSG_DONTWAIT).strip() for place in (0, 2)] == [b"", b""]
        with pytest.raises(BlockingIOError):
            callers[3].recv(9, socket.MSG_DONTWAIT)


@given(st.binary(max_size=80))
@example(b"1 x")
@example(b"1 2 3")
def test_a_greeting_is_two_numbers_or_none(data: bytes) -> None:
    """Whatever the bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data or b"\n")
        greeting = local_tasks._greeting(ours)
    if greeting is not None:
        assert data.split() == [b"%d" % greeting[0], data.split()[1]]
        assert 0 <= greeting[0] < 10**10 > 1000 * greeting[1] >= 0


@ROOT_ONLY
def test_another_users_process_is_no_sibling_even_where_it_gets_in(tasks: Tasks) -> None:
    """The kernel reports the user of the peer."""
    become = "import os, socket, sys, time\nos.setuid(61001)\n"
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o711)
        directory = f"{place}/shared"
        say = "try: s.send(b'1 9000\\n'); print(s.recv(9))\nexcept OSError: print('refused')"
        tasks.start(become + RAW + say, directory)

        def come() -> None:
            while not os.path.exists(f"{directory}/siblings"):
                time.sleep(0.01)
            os.chmod(f"{directory}/siblings", 0o777)
            os.chmod(directory, 0o711)
            assert tasks.all[0].wait(PATIENCE_S) == 0
            os.chmod(directory, 0o700)
            tasks.start(FOLLOWER, directory, 1, 20)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(come)
            assert serve_local_tasks([directory], "here", 2, 20.0, answering) == ANSWER
            done.result()
    assert tasks.ends()[0] in [(0, "refused\n"), (0, "b''\n")]


HARMS = ["owner", "mode", "link", "file"]


def harm(directory: str, kind: str) -> None:
    """Take a name, as another user can in /tmp."""
    if kind == "link":
        os.mkdir(f"{directory}.real", 0o700)
        os.symlink(f"{directory}.real", directory)
    elif kind == "file":
        open(directory, "w").close()
    else:
        os.mkdir(directory, 0o700)
    if kind == "owner":
        os.chown(directory, 61001, 61001)
    elif kind == "mode":
        os.chmod(directory, 0o755)


@ROOT_ONLY
@pytest.mark.parametrize("kind", HARMS)
def test_names_that_other_users_took_are_passed_over_by_all(directory: str, kind: str, tasks: Tasks) -> None:
    """By the first task and by the others; what was made of the names stays as it is."""
    names = [f"{directory}.{number}" for number in range(local_tasks.NAMES)]
    for name in names[:-1]:
        harm(name, kind)
    tasks.start(FOLLOWER, ":".join(names), 1, 20)
    assert serve_local_tasks(names, "here", 2, 20.0, answering) == ANSWER
    assert tasks.ends()[0][0] == 0
    assert [os.path.lexists(name) for name in names] == [True] * (len(names) - 1) + [False]


@ROOT_ONLY
@pytest.mark.parametrize("kind", HARMS)
def test_all_tasks_fail_at_once_if_every_name_is_taken(directory: str, kind: str) -> None:
    """No task waits for a deadline, or uses another user's files."""
    harm(directory, kind)
    with pytest.raises(PlaceError, match=r"only this user can enter; saw .*shared"):
        serve_local_tasks([directory], "here", 2, 99.0, silent)
    with pytest.raises(PlaceError, match=r"only this user can enter; saw .*shared"):
        follow_first_task([directory], 1, 99.0)


def test_a_path_too_long_for_a_socket_is_reported(tmp_path: Path) -> None:
    """Job ids may be long."""
    directory = tmp_path / ("x" * 100)
    with pytest.raises(PlaceError, match="too long"):
        serve_local_tasks([str(directory)], "here", 2, 1.0, silent)
    assert list(tmp_path.iterdir()) == []
    directory.mkdir(mode=0o700)
    with pytest.raises(PlaceError, match="too long"):
        follow_first_task([str(directory)], 1, 99.0)


def test_a_task_that_is_killed_before_all_have_connected_fails_the_others_at_once(directory: str, tasks: Tasks) -> None:
    """Before the deadline, and without a check-in."""
    tasks.start(RAW + "s.send(b'2 60000\\n'); s.recv(1)", directory)  # ends once it hears that it is in
    tasks.start(FOLLOWER, directory, 1, 60)
    with pytest.raises(MissingError, match=r"all 4 tasks of here .*local rank 2 gone"):
        serve_local_tasks([directory], "here", 4, 60.0, silent)
    assert tasks.all[0].wait(PATIENCE_S) == 0


def test_a_task_that_is_killed_while_the_world_forms_fails_all_others(directory: str, tasks: Tasks) -> None:
    """They get the error at once, whatever the result of the meeting."""
    for rank in (1, 2, 3):
        tasks.start(FOLLOWER, directory, rank, 20)
    with pytest.raises(MissingError, match="local rank 2 gone"):
        serve_local_tasks([directory], "here", 4, 20.0, watching(tasks.all[1].kill))
    ends = tasks.ends()
    assert [code for code, _ in ends] == [69, -signal.SIGKILL, 69]
    assert all("local rank 2 gone" in ends[task][1] for task in (0, 2))
    assert not os.path.exists(directory)


# What a task does when it is given the answer, in RAW's words, and what the others say of it.
LAST_WORDS = {
    "ends": ("", "gone"),
    "says something else": ("s.send(b'hell\\n'); s.recv(9)", "gone"),
    "says nothing": ("time.sleep(60)", "silent"),
    "gives up": ("os.symlink('2', f'{sys.argv[1]}/{word}'); s.send(b'held\\n'); s.recv(9)", "gone"),
}


@pytest.mark.parametrize("does", LAST_WORDS)
def test_no_task_uses_an_answer_that_another_does_not_hold(directory: str, does: str, tasks: Tasks) -> None:
    """All hold it, or none goes by it."""
    script, how = LAST_WORDS[does]
    hear = "f = s.makefile()\nwhile not (line := f.readline().strip()): pass\n"
    hear += f"import json; word = json.loads(line)['word']\n{script}"
    tasks.start(RAW + f"s.send(b'2 2000\\n')\n{hear}", directory)
    tasks.start(FOLLOWER, directory, 1, 20)
    with pytest.raises(MissingError, match=f"local rank 2 {how}"):
        serve_local_tasks([directory], "here", 3, 20.0, answering)
    code, text = tasks.all[1].wait(PATIENCE_S), tasks.all[1].stdout
    assert code == 69
    assert f"local rank 2 {how}" in text.read()
    assert not os.path.exists(directory)


def stopping(task: subprocess.Popen[str], stopped: threading.Event) -> Callable[[float, LocalPeers], dict[str, object]]:
    """Return a meeting that gives the answer once it has stopped a task; all tasks have checked in by then."""

    def meet(_left_s: float, _local_peers: LocalPeers) -> dict[str, object]:
        os.kill(task.pid, signal.SIGSTOP)
        stopped.set()
        return dict(ANSWER)

    return meet


def test_a_deadline_of_years_is_none_too_long(directory: str, tasks: Tasks) -> None:
    """Some do not want to be stopped."""
    tasks.start(FOLLOWER, directory, 1, 1e9)
    assert serve_local_tasks([directory], "here", 2, 1e9, answering) == ANSWER
    assert tasks.ends()[0][0] == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_stopped_task_is_waited_for_and_one_that_ends_meanwhile_fails_all(
    directory: str, tasks: Tasks, *, is_killed: bool
) -> None:
    """The stopped one gets its answer where it goes on in time; that the killed one held it is not enough."""
    stopped, held = (tasks.start(FOLLOWER, directory, rank, 20) for rank in (1, 2))
    meet = stopping(stopped, is_stopped := threading.Event())
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve_local_tasks, [directory], "here", 3, 20.0, meet)
        assert is_stopped.wait(PATIENCE_S)
        with pytest.raises(subprocess.TimeoutExpired):
            held.wait(0.5)
        if is_killed:
            held.kill()
            held.wait()
        os.kill(stopped.pid, signal.SIGCONT)
        with pytest.raises(MissingError, match="local rank 2 gone") if is_killed else nullcontext():
            assert done.result() == ANSWER
    assert [code for code, _ in tasks.ends()] == ([69, -signal.SIGKILL] if is_killed else [0, 0])


@pytest.mark.parametrize("word", ["0", "2", ""], ids=["used", "given up", "not said"])
def test_all_other_tasks_do_the_same_when_the_first_is_killed_during_its_hand_over(
    directory: str, listener: socket.socket, word: str, tasks: Tasks
) -> None:
    """They go by the answer if it was to be gone by, and else none does."""
    for rank in (1, 3):
        tasks.start(FOLLOWER, directory, rank, 20)
    callers = [listener.accept()[0] for _ in tasks.all]
    for caller in callers:
        assert said(caller).split()[0] in {b"1", b"3"}
        caller.sendall(b"\n" + json.dumps({"answer": ANSWER, "word": "word"}).encode() + b"\n")
        assert said(caller) == b"held\n"
    if word:
        os.symlink(word, f"{directory}/word")
    for caller in callers:
        caller.close()
    ends = tasks.ends()
    assert {code for code, _ in ends} == {0 if word == "0" else 69}
    assert os.readlink(f"{directory}/word") == word or not word


def test_lines_that_have_arrived_are_read_past_the_deadline() -> None:
    """Otherwise a task that was stopped might give up an answer that the others use."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ear = local_tasks._Reader(ours, time.monotonic() - 99.0)
        assert ear.read_message() == {}
        theirs.sendall(b'\n\n{"go": true}\n{"a": 1}\n')
        theirs.close()
        assert [ear.read_message(), ear.read_message(), ear.read_message()] == [{"go": True}, {"a": 1}, {}]


def test_a_silent_first_task_is_left_at_the_deadline(
    directory: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has accepted the connection, and then it was stopped."""
    monkeypatch.setattr(local_tasks, "SILENCE_S", 0.2)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(follow_first_task, [directory], 1, 0.5)
        with listener.accept()[0], pytest.raises(MissingError, match="answer from this node's first task"):
            asked.result(PATIENCE_S)


def test_a_live_first_task_is_awaited_past_the_deadline(directory: str, listener: socket.socket) -> None:
    """A world that closes may take a little longer."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(follow_first_task, [directory], 1, 0.1)
        with listener.accept()[0] as caller:
            said(caller)
            for _ in range(7):
                time.sleep(0.5)
                caller.sendall(b"\n")
            caller.sendall(json.dumps({"answer": ANSWER, "word": "word"}).encode() + b"\n")
            assert said(caller) == b"held\n"
            caller.sendall(b'{"go": true}\n')
            assert asked.result(PATIENCE_S) == ANSWER


@pytest.mark.parametrize("data", [b"{\n", b'{"answer"', b"{}\n", b'{"go":true}\n', b"\n\n\n", b"\xff\n"])
def test_an_incomplete_line_of_the_first_task_does_not_count(
    directory: str, listener: socket.socket, data: bytes
) -> None:
    """Half an answer is none."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(follow_first_task, [directory], 1, 20.0)
        with listener.accept()[0] as caller:
            said(caller)
            caller.sendall(data)
        with pytest.raises(MissingError, match="without one"):
            asked.result(PATIENCE_S)


def test_a_first_task_whose_queue_is_full_is_called_again(tmp_path: Path) -> None:
    """It is there, and has a place as soon as it has answered another."""
    tmp_path.chmod(0o700)
    directory = str(tmp_path)
    with local_tasks.listen_in_directory(directory, 1) as listener, ExitStack() as callers:
        while (sock := local_tasks._dialled(directory)) is not None:
            callers.enter_context(sock)
        listener.accept()[0].close()
        again = local_tasks._dialled(directory)
        again.close()


def test_the_decision_on_an_answer_is_made_once(tmp_path: Path) -> None:
    """However many tasks decide at the same moment, all get the same decision."""
    for number in range(50):
        with ThreadPoolExecutor(8) as pool:
            heard = list(pool.map(partial(local_tasks.decide_hand_over, f"{tmp_path}/{number}"), range(8)))
        assert len(set(heard)) == 1
    assert local_tasks.decide_hand_over(f"{tmp_path}/none/word", 3) is None


def test_a_private_directory_is_held_by_one_process(directory: str) -> None:
    """Until its holder lets go of it, or ends."""
    assert files.try_make_private(directory)
    held = files.hold_private(directory)
    assert held is not None
    assert files.hold_private(directory) is None
    os.close(held)
    again = files.hold_private(directory)
    assert again is not None
    os.close(again)
    files.remove_private(directory)
    with pytest.raises(MingleError, match="to lock"):
        files.hold_private(directory)


@pytest.mark.parametrize("seed", range(int(os.environ.get("MINGLE_TEST_SEEDS", "8"))))
def test_all_other_tasks_end_alike_when_one_is_killed_or_stopped(directory: str, seed: int, tasks: Tasks) -> None:
    """One of four is killed, or stopped for a while, at some moment: the others all have the answer, or none has."""
    chance = random.Random(seed)
    victim, is_killed = chance.randrange(4), chance.random() < 0.5
    script = [WHOLE, FOLLOWER, FOLLOWER, FOLLOWER]
    for rank in chance.sample(range(4), 4):
        tasks.start(script[rank], directory, rank or 4, 1.0)
        if rank == victim:
            hit = tasks.all[-1]
    time.sleep(chance.uniform(0.05, 0.4))
    os.kill(hit.pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
    if not is_killed:
        time.sleep(chance.choice((0.1, 1.0, 5.0)))
        os.kill(hit.pid, signal.SIGCONT)
    ends = tasks.ends()
    codes = {code for process, (code, _) in zip(tasks.all, ends, strict=True) if process is not hit or not is_killed}
    assert codes in ({0}, {69}), ends
