"""Several tasks of one node, in processes of their own, get one answer or one error."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from needs import only_with
from support.gathering import PATIENCE_S

from mingle_hooks import files
from mingle_hooks.errors import ConflictError, MingleError, MissingError, NetworkError, PlaceError
from mingle_hooks.rendezvous import local_tasks
from mingle_hooks.rendezvous.connection import Loop, boottime
from mingle_hooks.rendezvous.local_tasks import LocalPeers, follow_first_task, serve_local_tasks

FORK = multiprocessing.get_context("fork")
ANSWER = {"rank": 3, "addr": "10.0.0.1", "roster": [[0, "n", "10.0.0.1", 1]] * 1000}
ROOT_ONLY = only_with("root")


def tell(pipe: Any, act: Callable[[], object]) -> None:
    """Send what an act returns, or its error, whose code is then that of the process."""
    code = 0
    try:
        pipe.send(act())
    except MingleError as error:
        pipe.send(str(error))
        code = error.exit_code
    os._exit(code)  # what else ends with a process is the test's


class Tasks:
    """Processes that end with the test."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._pipes: list[Any] = []

    def start(self, act: Callable[..., object], *arguments: object) -> Any:
        """Start one."""
        here, there = FORK.Pipe(duplex=False)
        process = FORK.Process(target=tell, args=(there, partial(act, *arguments)), daemon=True)
        process.start()
        there.close()
        self.all.append(process)
        self._pipes.append(here)
        return process

    def ends(self) -> list[tuple[int, Any]]:
        """Return exit code, and answer or error, of each, in order; None of one that was killed."""
        said = []
        for pipe in self._pipes:
            try:
                said.append(pipe.recv() if pipe.poll(PATIENCE_S) else "nothing")
            except EOFError:
                said.append(None)
        for process in self.all:
            process.join(PATIENCE_S)
        return [(process.exitcode, text) for process, text in zip(self.all, said, strict=True)]

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in self.all:
            process.kill()
            process.join()


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


def serve(directory: str | list[str], count: int, timeout_s: float = 20.0, meet: Any = None) -> Any:
    """Be the first task of so many; its meeting gives ANSWER at once."""
    names = [directory] if isinstance(directory, str) else directory
    return serve_local_tasks(names, "here", count, timeout_s, meet or (lambda _left_s, _peers: dict(ANSWER)))


def follow(directory: str, rank: int, timeout_s: float = 20.0) -> Any:
    """Be another task."""
    return follow_first_task([directory], rank, timeout_s)


def silent(_left_s: float, _local_peers: LocalPeers) -> Any:
    """Stand for a meeting that must not take place."""
    raise AssertionError


def call(directory: str) -> socket.socket:
    """Connect to the first task, once it is there."""
    while True:
        sock = socket.socket(socket.AF_UNIX)
        if not sock.connect_ex(f"{directory}/siblings"):
            return sock
        sock.close()
        time.sleep(0.01)


def line(caller: socket.socket) -> bytes:
    """Return the next line of a task that is not empty."""
    said = b""
    while not said.endswith(b"\n"):
        said = (said + caller.recv(1)).lstrip()
    return said


def message(**body: object) -> bytes:
    """Return a line of the first task."""
    return json.dumps(body).encode() + b"\n"


def test_all_tasks_get_the_first_ones_answer_and_leave_no_files(directory: str, tasks: Tasks) -> None:
    """Any may come first; a roster is larger than a socket's buffer, and a deadline may be years away."""
    large = {**ANSWER, "roster": [[0, "n" * 100, "10.0.0.1", 1]] * 30_000}
    waits_s: list[float] = []

    def meet(left_s: float, _local_peers: LocalPeers) -> Any:
        waits_s.append(left_s)
        return large

    for rank, wait_s in ((1, 15.0), (2, 1e9)):
        tasks.start(follow, directory, rank, wait_s)
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(tasks.ends)
        assert serve(directory, 3, 500.0, meet) == large
        assert ends.result() == [(0, large)] * 2
    assert len(waits_s) == 1
    assert 1.0 <= waits_s[0] <= 15  # the earliest deadline of all tasks is theirs together
    assert not os.path.exists(directory)


def test_an_error_is_everybodys(directory: str, tasks: Tasks) -> None:
    """Each task fails with its exit code and its text."""

    def meet(_left_s: float, _local_peers: LocalPeers) -> Any:
        raise NetworkError("a", "b'\"$(x)", "c")

    tasks.start(follow, directory, 1)
    with pytest.raises(NetworkError, match="expected a; saw b"):
        serve(directory, 2, meet=meet)
    assert tasks.ends() == [(71, "expected a; saw b'\"$(x); try c")]
    assert not os.path.exists(directory)


def test_a_missing_task_fails_the_others(directory: str, tasks: Tasks) -> None:
    """They fail at their earliest deadline, and without a check-in."""
    tasks.start(follow, directory, 2, 0.5)
    with pytest.raises(MissingError, match="missing local rank 1, 3"):
        serve(directory, 4, 500.0, silent)
    ((code, text),) = tasks.ends()
    assert (code, "missing local rank 1, 3" in text) == (69, True)
    assert not os.path.exists(directory)


@pytest.mark.parametrize("rank", [1, 3, 0])
def test_a_local_rank_twice_or_out_of_range_fails_all_tasks(directory: str, rank: int, tasks: Tasks) -> None:
    """The surplus one fails too, if it has connected."""
    for number in (1, rank):
        tasks.start(follow, directory, number, 1.5)
    with pytest.raises(ConflictError, match="once"):
        serve(directory, 3, meet=silent)
    codes = {code for code, _ in tasks.ends()}
    assert 76 in codes
    assert codes <= {76, 69}  # 69: it came after the first task had gone


@pytest.fixture
def first(directory: str, tasks: Tasks) -> tuple[Any, Any]:
    """Give the event of a meeting that has begun, and the first task that holds it; a better name is taken at first."""
    met, better = FORK.Event(), f"{directory}.better"

    def meet(_left_s: float, _local_peers: LocalPeers) -> None:
        met.set()
        time.sleep(60)

    os.mkdir(better, 0o755)
    process = tasks.start(serve, [better, directory], 2, 60.0, meet)
    call(directory).close()
    os.rmdir(better)
    return met, process


def test_two_first_tasks_are_one_too_many_and_the_earlier_one_goes_on(directory: str, first: Any, tasks: Tasks) -> None:
    """Its socket stays, even if a better name has become free since."""
    for candidates in ([directory], [f"{directory}.better", directory]):
        with pytest.raises(ConflictError, match="local rank 0"):
            serve(candidates, 2, 5.0, silent)
    tasks.start(follow_first_task, [f"{directory}.better", directory], 1, 20.0)
    assert first[0].wait(PATIENCE_S)


def test_a_killed_first_task_ends_the_others_and_hinders_no_next_try(directory: str, first: Any, tasks: Tasks) -> None:
    """The next first task takes over what it left."""
    tasks.start(follow, directory, 1)
    assert first[0].wait(PATIENCE_S)
    first[1].kill()
    assert [code for code, _ in tasks.ends()] == [-signal.SIGKILL, 69]
    assert os.path.exists(f"{directory}/siblings")
    os.symlink("7", f"{directory}/word")
    with Tasks() as again:
        again.start(follow, directory, 1)
        assert serve(directory, 2) == ANSWER
        assert again.ends() == [(0, ANSWER)]
    assert not os.path.exists(directory)


GARBAGE = (b"", b"x", b"-1 1", b"99999999999 1", b"\xb2 1", b"1", b"1 2 3", b"1 1e9", b"\0" * 100, b"1 +5", b"\n")


def test_connections_that_are_no_local_tasks_are_passed_over(directory: str, tasks: Tasks) -> None:
    """Neither garbage nor more silent connections than are kept delay a task."""

    def disturb() -> None:
        crowd = [call(directory) for _ in range(local_tasks.MOST_CALLERS + 20)]
        for said in GARBAGE:
            with call(directory) as caller:
                caller.send(said)
        tasks.start(follow, directory, 1)
        for caller in crowd:
            caller.close()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(disturb)
        assert serve(directory, 2) == ANSWER
        done.result()
    assert tasks.ends() == [(0, ANSWER)]


@ROOT_ONLY
def test_another_users_process_is_no_sibling_even_where_it_gets_in(tasks: Tasks) -> None:
    """The kernel reports the user of the peer."""

    def intrude() -> object:
        os.setuid(61001)
        with call(directory) as caller:
            try:
                caller.send(b"1 9000\n")
                return caller.recv(9)
            except OSError:
                return b""

    def come() -> None:
        while not os.path.exists(f"{directory}/siblings"):
            time.sleep(0.01)
        os.chmod(f"{directory}/siblings", 0o777)
        os.chmod(directory, 0o711)
        assert tasks.ends() == [(0, b"")]
        os.chmod(directory, 0o700)
        tasks.start(follow, directory, 1)

    with tempfile.TemporaryDirectory(dir="/tmp") as place, ThreadPoolExecutor(1) as pool:
        os.chmod(place, 0o711)
        directory = f"{place}/shared"
        tasks.start(intrude)
        done = pool.submit(come)
        assert serve(directory, 2) == ANSWER
        done.result()


HARMS = ["owner", "mode", "link", "file"]


def harm(directory: str, kind: str) -> None:
    """Take a name, as another user can in /tmp."""
    if kind == "link":
        os.mkdir(f"{directory}.real", 0o700)
        os.symlink(f"{directory}.real", directory)
    elif kind == "file":
        open(directory, "w").close()
    else:
        os.mkdir(directory, 0o755 if kind == "mode" else 0o700)
    if kind == "owner":
        os.chown(directory, 61001, 61001)


@ROOT_ONLY
@pytest.mark.parametrize("kind", HARMS)
def test_names_that_other_users_took_are_passed_over_by_all(directory: str, kind: str, tasks: Tasks) -> None:
    """All tasks pass them over, and leave them as they are."""
    names = [f"{directory}.{number}" for number in range(local_tasks.NAMES)]
    for name in names[:-1]:
        harm(name, kind)
    tasks.start(follow_first_task, names, 1, 20.0)
    assert serve(names, 2) == ANSWER
    assert tasks.ends() == [(0, ANSWER)]
    assert [os.path.lexists(name) for name in names] == [True] * (len(names) - 1) + [False]


def test_one_task_too_many_fails_the_others_though_all_are_there(directory: str, listener: socket.socket) -> None:
    """It comes in the same moment as the last one."""
    with call(directory) as one, call(directory) as same:
        one.sendall(b"1 60000\n")
        same.sendall(b"1 60000\n")
        local_peers = LocalPeers(listener, "here", 2, boottime() + PATIENCE_S)
        with pytest.raises(ConflictError, match="once"):
            local_peers.gather(PATIENCE_S)
        local_peers.close()


@ROOT_ONLY
@pytest.mark.parametrize("kind", HARMS)
def test_all_tasks_fail_at_once_if_every_name_is_taken(directory: str, kind: str) -> None:
    """No task waits for a deadline, or uses another user's files."""
    harm(directory, kind)
    for act in (partial(serve, directory, 2, 99.0, silent), partial(follow, directory, 1, 99.0)):
        with pytest.raises(PlaceError, match=r"only this user can enter; saw .*shared"):
            act()


def test_a_path_too_long_for_a_socket_is_reported(tmp_path: Path) -> None:
    """Job ids may be long."""
    directory = tmp_path / ("x" * 100)
    with pytest.raises(PlaceError, match="too long"):
        serve(str(directory), 2, 1.0, silent)
    assert list(tmp_path.iterdir()) == []
    directory.mkdir(mode=0o700)
    with pytest.raises(PlaceError, match="too long"):
        follow(str(directory), 1, 99.0)


def test_a_task_that_is_killed_before_all_have_connected_fails_the_others_at_once(directory: str, tasks: Tasks) -> None:
    """They fail before the deadline, and without a check-in."""

    def leave() -> None:
        with call(directory) as caller:
            caller.send(b"2 60000\n")
            caller.recv(1)  # it is in

    tasks.start(leave)
    tasks.start(follow, directory, 1, 60.0)
    with pytest.raises(MissingError, match=r"all 4 tasks of here .*local rank 2 gone"):
        serve(directory, 4, 60.0, silent)


# What a task does when it is given the answer, by its connection and the link's path, and what the others say of it.
LAST_WORDS: dict[str, tuple[Callable[[socket.socket, str], object], str]] = {
    "ends": (lambda _caller, _path: None, "gone"),
    "says something else": (lambda caller, _path: (caller.send(b"hell\n"), caller.recv(9)), "gone"),
    "says nothing": (lambda _caller, _path: time.sleep(60), "silent"),
    "gives up": (lambda caller, path: (os.symlink("2", path), caller.send(b"held\n"), caller.recv(9)), "gone"),
}


@pytest.mark.parametrize("does", LAST_WORDS)
def test_no_task_uses_an_answer_that_another_does_not_hold(
    directory: str, does: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hold it, or none uses it."""
    monkeypatch.setattr(local_tasks, "HAND_OVER_S", 0.3)
    act, how = LAST_WORDS[does]

    def last() -> None:
        with call(directory) as caller:
            caller.send(b"2 1500\n")
            act(caller, f"{directory}/{json.loads(line(caller))['word']}")

    tasks.start(follow, directory, 1)
    tasks.start(last)
    with pytest.raises(MissingError, match=f"local rank 2 {how}"):
        serve(directory, 3)
    tasks.all[1].kill()
    code, text = tasks.ends()[0]
    assert (code, f"local rank 2 {how}" in text) == (69, True)
    assert not os.path.exists(directory)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_stopped_task_is_waited_for_and_one_that_ends_meanwhile_fails_all(
    directory: str, tasks: Tasks, *, is_killed: bool
) -> None:
    """The stopped one gets its answer if it continues in time; a killed one fails all, even if it held the answer."""
    stopped, held = (tasks.start(follow, directory, rank) for rank in (1, 2))
    is_stopped = FORK.Event()

    def meet(_left_s: float, _local_peers: LocalPeers) -> Any:
        os.kill(stopped.pid, signal.SIGSTOP)
        is_stopped.set()
        return dict(ANSWER)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve, directory, 3, meet=meet)
        assert is_stopped.wait(PATIENCE_S)
        held.join(0.3)
        assert held.is_alive()
        if is_killed:
            held.kill()
            held.join()
        os.kill(stopped.pid, signal.SIGCONT)
        with pytest.raises(MissingError, match="local rank 2 gone") if is_killed else nullcontext():
            assert done.result() == ANSWER
    assert [code for code, _ in tasks.ends()] == ([69, -signal.SIGKILL] if is_killed else [0, 0])


@pytest.mark.parametrize("word", ["0", "2", ""], ids=["used", "given up", "not said"])
def test_all_other_tasks_do_the_same_when_the_first_is_killed_during_its_hand_over(
    directory: str, listener: socket.socket, word: str, tasks: Tasks
) -> None:
    """They use the answer if the first had decided so, and else none does."""
    for rank in (1, 3):
        tasks.start(follow, directory, rank)
    callers = [listener.accept()[0] for _ in tasks.all]
    for caller in callers:
        assert line(caller).split()[0] in {b"1", b"3"}
        caller.sendall(b"\n" + message(answer=ANSWER, word="word"))
        assert line(caller) == b"held\n"
    if word:
        os.symlink(word, f"{directory}/word")
    for caller in callers:
        caller.close()
    assert {code for code, _ in tasks.ends()} == {0 if word == "0" else 69}
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
    """It was stopped after it had accepted the connection."""
    monkeypatch.setattr(local_tasks, "SILENCE_S", 0.2)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(follow, directory, 1, 0.5)
        with listener.accept()[0], pytest.raises(MissingError, match="answer from this node's first task"):
            asked.result(PATIENCE_S)


def test_a_live_first_task_is_awaited_past_the_deadline(
    directory: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world that closes may take a little longer."""
    monkeypatch.setattr(local_tasks, "SILENCE_S", 0.6)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(follow, directory, 1, 0.1)
        with listener.accept()[0] as caller:
            line(caller)
            for _ in range(10):
                time.sleep(0.1)
                caller.sendall(b"\n")
            caller.sendall(message(answer=ANSWER, word="word"))
            assert line(caller) == b"held\n"
            caller.sendall(message(go=True))
            assert asked.result(PATIENCE_S) == ANSWER


@pytest.mark.parametrize("data", [b"{\n", b'{"answer"', b"{}\n", b'{"go":true}\n', b"\n\n\n", b"\xff\n"])
def test_an_incomplete_line_of_the_first_task_is_none(directory: str, listener: socket.socket, data: bytes) -> None:
    """A part of an answer is never used."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(follow, directory, 1)
        with listener.accept()[0] as caller:
            line(caller)
            caller.sendall(data)
        with pytest.raises(MissingError, match="without one"):
            asked.result(PATIENCE_S)


def test_a_first_task_whose_queue_is_full_is_called_again(tmp_path: Path) -> None:
    """It has a place again as soon as it has accepted another connection."""
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


def brief(_left_s: float, peers: LocalPeers) -> Any:
    """Stand for a meeting that takes a while, watches its local peers and heeds what befalls them."""
    over: list[object] = []
    with Loop() as loop:
        peers.attend(loop, over.append)
        loop.after(0.05, lambda: over.append(None))
        loop.run(lambda: bool(over))
    return {"rank": 0}


@pytest.mark.parametrize("seed", range(int(os.environ.get("MINGLE_TEST_SEEDS", "5"))))
def test_all_other_tasks_end_alike_when_one_is_killed_or_stopped(directory: str, seed: int, tasks: Tasks) -> None:
    """One of four is killed, or stopped for a while, at some moment: the others all have the answer, or none has."""
    chance = random.Random(seed)
    victim, is_killed, order = chance.randrange(4), chance.random() < 0.5, chance.sample(range(4), 4)
    acts = [partial(serve, directory, 4, 1.0, brief), *(partial(follow, directory, rank, 1.0) for rank in (1, 2, 3))]
    started = {rank: tasks.start(acts[rank]) for rank in order}
    time.sleep(chance.uniform(0.0, 0.1))
    hit = started[victim]
    os.kill(hit.pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
    if not is_killed:
        time.sleep(chance.choice((0.1, 1.0, 5.0)))
        os.kill(hit.pid, signal.SIGCONT)
    ends = tasks.ends()
    codes = {code for process, (code, _) in zip(tasks.all, ends, strict=True) if process is not hit or not is_killed}
    assert codes in ({0}, {69}), ends


def test_no_more_callers_are_kept_than_may_wait(directory: str) -> None:
    """The one that has been silent for longest is dropped."""
    assert files.try_make_private(directory)
    with local_tasks.listen_in_directory(directory, 2) as listener, Loop() as loop, ExitStack() as stack:
        peers = LocalPeers(listener, "here", 2, time.monotonic() + PATIENCE_S)
        stack.callback(peers.close)
        peers.attend(loop, lambda _failure: None)
        callers = []
        for _ in range(local_tasks.MOST_CALLERS + 3):
            callers.append(stack.enter_context(call(directory)))
            loop.turn(0.0)
        assert len(peers._callers) == local_tasks.MOST_CALLERS
        assert [callers[place].recv(9, socket.MSG_DONTWAIT).strip() for place in (0, 2)] == [b"", b""]
        with pytest.raises(BlockingIOError):
            callers[3].recv(9, socket.MSG_DONTWAIT)
