"""The tasks of one node, of which the first one checks in and hands its answer to the others."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from mingle_hooks import files, values
from mingle_hooks.errors import LIMITS, ConflictError, MingleError, MissingError, PlaceError, by_exit_code
from mingle_hooks.rendezvous.connection import READ, Callers, Loop, boottime
from mingle_hooks.rendezvous.messages import CLOSING_S, LINGER_S, Answer, Failure
from mingle_hooks.rendezvous.wire import MOST_LEADER_BYTES, Body, Secret, WireError, decode

# The tasks of one node meet at a socket in a private directory, and decide by a symbolic link to use the answer or not.

SOCKET = "siblings"
# Other users may occupy a name that they saw in an earlier run: then the next one serves.
NAMES = 4
# Seconds between two attempts to find the first task's socket, which appears within milliseconds of its start.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.2
# The first task gives the others at least so many seconds to confirm that they hold the answer.
HAND_OVER_S = 2.0
HELD = b"held\n"


def directory_names(secret: Secret, node: str) -> list[str]:
    """Return the possible names of the directory, the best first; only holders of the key can compute them.

    No two nodes have a name in common, as they may share the file system.
    """
    return [secret.mac(b"siblings", node.encode(), bytes([number])).hex()[:16] for number in range(NAMES)]


def claim_directory(directories: Sequence[str]) -> tuple[str, int]:
    """Return the first directory that is private, created if need be, and the descriptor that locks it for this task.

    Raises PlaceError if other users have taken every name, and ConflictError if this node has a first task already, in
    any of the directories.
    """
    held: dict[str, int] = {}
    try:
        for directory in directories:
            # One is enough; another private one is an earlier attempt's, or another first task's.
            if files.is_private(directory) if held else files.try_make_private(directory):
                descriptor = files.hold_private(directory)
                if descriptor is None:
                    remedy = "one `mingle` per task at a time, each with its own local rank"
                    raise ConflictError("one first task (local rank 0) on this node", "another one", remedy)
                held[directory] = descriptor
        if not held:
            raise _all_taken(directories)
        chosen = next(iter(held))
        return chosen, held.pop(chosen)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def listen_in_directory(directory: str, backlog: int) -> socket.socket:
    """Return the socket to which local peers connect, in an emptied directory. Raises PlaceError."""
    path = f"{directory}/{SOCKET}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        files.empty_private(directory)
        listener.bind(path)
        listener.listen(backlog)
        listener.settimeout(0)
    except OSError as error:  # such as a path of more than 107 bytes
        listener.close()
        raise PlaceError("to create a socket", f"{path}: {error}", "a shorter job id or XDG_RUNTIME_DIR") from error
    return listener


def call_first_task(directories: Sequence[str], deadline: float, timeout_s: float) -> tuple[str, socket.socket]:
    """Return the first task's directory, and a connection to it.

    Checks every private directory until the deadline. Raises MissingError, and PlaceError if other users have taken
    every name.
    """
    pause = FIRST_PAUSE_S
    while True:
        for directory in directories:
            sock = _dialled(directory)
            if sock is not None:
                return directory, sock
        if all(files.is_taken_by_others(directory) for directory in directories):
            raise _all_taken(directories)
        if boottime() + pause > deadline:
            expected = f"this node's first task (local rank 0) within {timeout_s:g} s"
            raise MissingError(expected, "no sign of it", "`mingle env --scope task` in every task")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def decide_hand_over(path: str, rank: int) -> int | None:
    """Decide on the answer, and return the local rank of the task that decided first; None: the first task has ended.

    The decision is a symbolic link, which only one task can create: 0 uses the answer, any other rank gives it up. So
    no task uses an answer that another one gives up. Raises PlaceError.
    """
    try:
        try:
            os.symlink(str(rank), path)
        except FileExistsError:
            return int(os.readlink(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PlaceError("to create a symbolic link", f"{path}: {error.strerror}", "another XDG_RUNTIME_DIR") from error
    return rank


def hand_over_left_s(deadline: float) -> float:
    """Return the seconds left, at least a moment: lines that have arrived are still read."""
    return max(deadline - boottime(), 0.001)


def send_line(sock: socket.socket, data: bytes) -> None:
    """Send, and ignore errors: a peer that is gone does not answer either."""
    try:
        sock.sendall(data)
    except OSError:
        return


def _dialled(directory: str) -> socket.socket | None:
    """Return a connection to the first task, None if it does not listen here, or its queue is full."""
    if not files.is_private(directory):  # not created yet, or not by this user
        return None
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(0)
        sock.connect(f"{directory}/{SOCKET}")
    except OSError as error:
        sock.close()
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError, BlockingIOError)):
            return None
        seen = f"{directory}: {error}"
        raise PlaceError("to call this node's first task", seen, "another XDG_RUNTIME_DIR") from error
    return sock


def _all_taken(directories: Sequence[str]) -> PlaceError:
    return PlaceError(
        "a directory that only this user can enter",
        f"{', '.join(directories)}, which others made or can enter",
        "another XDG_RUNTIME_DIR, or removing them",
    )


# The first task. It waits for all of its local peers before it checks in, and watches them until the world has formed,
# so that a world of tasks is whole too. Each message is a line:
#
# ::
#
#     other                                  first
#       local rank, milliseconds it waits,
#       why it cannot start, if it cannot →
#                                         ←  an empty line, each second
#                                         ←  the answer, and the name of the link
#       held                              →
#                                         ←  go
#
# The answer and the name are `answer` and `word` of a JSON object, and `go` is true in another one. `error`, which may
# replace either, is a list: exit code, expected, seen, remedy. Once all hold the answer, the first task decides to use
# it, unless a task that has given up decided before (decide_hand_over).

# Seconds between two empty lines of the first task.
BEAT_S = 1.0
MOST_GREETING_BYTES = 8192
MOST_DIGITS = 10  # of a local rank, and of milliseconds: 115 days
# So many connections may be without a greeting, a quarter of the usual descriptors; then the oldest is dropped.
MOST_CALLERS = 256
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def serve_local_tasks(
    directories: Sequence[str], host: str, count: int, timeout_s: float, meet: Callable[[float, LocalPeers], Answer]
) -> Answer:
    """Wait for the node's other count - 1 tasks, call meet(seconds left, local peers), and hand its answer to all.

    An error of meet is raised in every task. One of the directories is created, and removed again. Raises PlaceError
    and ConflictError.
    """
    deadline = boottime() + timeout_s
    directory, held = claim_directory(directories)
    try:
        with listen_in_directory(directory, count) as listener:
            local_peers = LocalPeers(listener, host, count, deadline)
            try:
                local_peers.gather(timeout_s)
                answer = meet(max(local_peers.deadline - boottime(), 1.0), local_peers)
                local_peers.hand_over(answer, directory)
            except MingleError as error:
                why = local_peers.fault.error() if local_peers.fault is not None else error
                local_peers.send_error(why)
                raise why from None
            finally:
                local_peers.close()  # before the directory: a task that finds none has received all lines
        return answer
    finally:
        files.remove_private(directory)
        os.close(held)


class LocalPeers:
    """This node's other tasks, which the first one watches in any loop.

    `deadline` is the earliest of all tasks'. `obstacle` is why one of them cannot start the command. `fault` is why
    no world may form, once a task is gone or there is one too many.
    """

    def __init__(self, listener: socket.socket, host: str, count: int, deadline: float) -> None:
        self.deadline = deadline
        self.fault: Failure | None = None
        self.obstacle: Failure | None = None
        self._listener, self._host, self._count = listener, host, count
        self._tasks: dict[int, socket.socket] = {}  # by local rank
        self._callers: dict[socket.socket, None] = {}  # connections without a greeting, the oldest first

    def gather(self, timeout_s: float) -> None:
        """Wait until all have connected. Raises MissingError, or the fault's error."""
        with Loop(boottime) as loop:
            self.attend(loop, lambda _failure: None)
            loop.after(self.deadline - loop.clock(), lambda: None)  # the loop looks whether it is finished
            loop.run(lambda: self.fault is not None or not self._absent() or loop.clock() >= self.deadline)
            shortage = loop.shortage
        if self.fault is not None:
            raise self.fault.error()
        if absent := self._absent():
            seen = f"{len(self._tasks) + 1}, missing local rank {', '.join(map(str, absent[:16]))}"
            remedy = "`mingle env --scope task` in every task, or --scope node in one of them"
            if shortage is not None:
                seen, remedy = f"{seen}; here {shortage.seen}", LIMITS[shortage.kind][1]
            raise MissingError(f"all {self._count} tasks of this node within {timeout_s:g} s", seen, remedy)

    def attend(self, loop: Loop, on_fault: Callable[[Failure], None]) -> None:
        """Watch them as long as this loop runs; on_fault is called once at most."""
        self._loop, self._on_fault = loop, on_fault
        # Not closed: the listener is this object's, and the next loop watches it again.
        Callers(loop, [self._listener], self._accept)
        for caller in self._callers:
            self._watch(caller, partial(self._greeted, caller))
        for rank, task in self._tasks.items():
            self._watch_task(rank, task)
        self._beat()

    def hand_over(self, answer: Answer, directory: str) -> None:
        """Send all of them the answer, and then the order to use it. Raises the fault's error if one is gone."""
        if self.fault is not None:  # it came too late for the other nodes
            raise self.fault.error()
        deadline = max(self.deadline, boottime() + HAND_OVER_S)
        token = os.urandom(8).hex()
        for task in self._tasks.values():
            task.settimeout(hand_over_left_s(deadline))
            send_line(task, _line({"answer": answer, "word": token}))
        for rank, task in self._tasks.items():
            if (confirmed := _received(task, hand_over_left_s(deadline))) != HELD:
                raise self._without(rank, "silent" if confirmed is None else "gone").error()
        for rank, task in self._tasks.items():  # some may have waited long for the last one
            if _received(task, 0.0) is not None:
                raise self._without(rank, "gone").error()
        if first := decide_hand_over(f"{directory}/{token}", 0):
            raise self._without(first, "gone").error()
        self._broadcast(_line({"go": True}))

    def send_error(self, error: MingleError) -> None:
        """Send the error to all tasks that have connected."""
        self._broadcast(_line({"error": [error.exit_code, error.expected, error.seen, error.remedy]}))

    def close(self) -> None:
        """Close all connections."""
        for sock in (*self._tasks.values(), *self._callers):
            sock.close()

    def _absent(self) -> list[int]:
        return [rank for rank in range(1, self._count) if rank not in self._tasks]

    def _without(self, rank: int, lack: Literal["gone", "silent"]) -> Failure:
        self.fault = Failure("task", (self._host, str(self._count), str(rank), lack))
        return self.fault

    def _broadcast(self, data: bytes) -> None:
        """Send a short line to all without waiting: a task that is stopped reads it later."""
        for sock in (*self._tasks.values(), *self._callers):
            sock.settimeout(0)
            send_line(sock, data)

    def _beat(self) -> None:
        if self.fault is None:
            self._broadcast(b"\n")
            self._loop.after(BEAT_S, self._beat)

    def _watch(self, sock: socket.socket, call: Callable[[], None]) -> None:
        """Call when there is something to read, but not after a fault."""
        sock.settimeout(0)
        self._loop.watch(sock, READ, lambda _events: call() if self.fault is None else None)

    def _watch_task(self, rank: int, task: socket.socket) -> None:
        # It sends nothing more until it gets the answer: it is readable only at its end.
        self._watch(task, lambda: self._fail(self._without(rank, "gone")))

    def _fail(self, failure: Failure) -> None:
        """Record the fault, and report it to all tasks and the owner of the loop."""
        self.fault = failure
        self.send_error(failure.error())
        for sock in (self._listener, *self._tasks.values(), *self._callers):
            self._loop.unwatch(sock)
        self._on_fault(failure)

    def _accept(self, caller: socket.socket, _where: str) -> None:
        if self.fault is not None or not _is_same_user(caller):
            caller.close()
            return
        self._callers[caller] = None
        self._watch(caller, partial(self._greeted, caller))
        if len(self._callers) > MOST_CALLERS:
            self._release(next(iter(self._callers))).close()

    def _release(self, caller: socket.socket) -> socket.socket:
        del self._callers[caller]
        self._loop.unwatch(caller)
        return caller

    def _greeted(self, caller: socket.socket) -> None:
        """Add a task by its greeting; a connection without a valid one is closed."""
        if caller not in self._callers:  # it was dropped in this very turn
            return
        self._release(caller)
        greeting = _greeting(caller)
        if greeting is None:
            caller.close()
            return
        rank, waits_s, obstacle = greeting
        if rank in self._tasks or not 0 < rank < self._count:
            self._callers[caller] = None  # it gets the error as well
            self._fail(Failure("tasks", (self._host, str(self._count - 1), str(rank))))
            return
        self._tasks[rank] = caller
        if self.obstacle is None or not self.obstacle.is_certain:
            self.obstacle = obstacle or self.obstacle
        self._watch_task(rank, caller)
        self.deadline = min(self.deadline, self._loop.clock() + waits_s)
        self._loop.after(waits_s, lambda: None)


def _line(body: Body) -> bytes:
    return values.to_json(body).encode() + b"\n"


def _received(task: socket.socket, within_s: float) -> bytes | None:
    """Return what a task has sent, nothing if it has ended, None if it sends nothing in this time."""
    task.settimeout(within_s)
    try:
        return task.recv(len(HELD))
    except (BlockingIOError, TimeoutError):
        return None
    except OSError:
        return b""


def _is_same_user(caller: socket.socket) -> bool:
    peer = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(peer)[1] == os.getuid())


def _greeting(caller: socket.socket) -> tuple[int, float, Failure | None] | None:
    """Return a greeting's local rank, how many seconds the task waits, and why it cannot start, if it is valid."""
    try:
        fields = caller.recv(MOST_GREETING_BYTES).split(maxsplit=2)
    except OSError:
        return None
    numbers = [int(field) for field in fields[:2] if field.isdigit() and len(field) <= MOST_DIGITS]
    if len(numbers) != 2:  # noqa: PLR2004 - a pair
        return None
    try:
        obstacle = Failure.parse(decode(fields[2])) if fields[2:] else None
    except WireError:
        return None
    return numbers[0], numbers[1] / 1000, obstacle


# The other tasks. Seconds for which the first task may be silent before one that is past its deadline gives up.
SILENCE_S = 3.0
# The longest time past its deadline: a world that closes, and its hand-over to late tasks.
OVERTIME_S = CLOSING_S + LINGER_S + HAND_OVER_S + SILENCE_S
# A greeting's milliseconds have ten digits at most.
MOST_WAIT_S = 1e6


def follow_first_task(
    directories: Sequence[str], local_rank: int, timeout_s: float, obstacle: Failure | None = None
) -> Answer:
    """Return the answer of this node's first task, or raise its error.

    An `obstacle` to this task's command is reported as the node's.
    """
    deadline = boottime() + timeout_s
    directory, sock = call_first_task(directories, deadline, timeout_s)
    with sock:
        reader = _Reader(sock, deadline)
        greeting = b"%d %d" % (local_rank, min(hand_over_left_s(deadline), MOST_WAIT_S) * 1000)
        suffix = b" " + values.to_json(obstacle.body()).encode() if obstacle is not None else b""
        send_line(sock, greeting + suffix + b"\n")
        body = reader.read_message()
        if "answer" not in body:
            raise _reason(body, timeout_s)
        send_line(sock, HELD)
        commit = reader.read_message()
        if not commit:
            first = decide_hand_over(f"{directory}/{body['word']}", local_rank)
            commit = {"go": True} if first == 0 else reader.read_message() if first is None else {}
    if "go" not in commit:
        raise _reason(commit, timeout_s)
    answer: Answer = body["answer"]
    return answer


def _reason(message: Body, timeout_s: float) -> MingleError:
    """Return the error that the first task sent, or a MissingError without one."""
    if "error" in message:
        code, expected, seen, remedy = message["error"]
        error = by_exit_code(code)(expected, seen, remedy)
        error.repeats_rank_0 = True  # or of the first task, which prints it where rank 0 does not
        return error
    expected = f"an answer from this node's first task (local rank 0) within {timeout_s:g} s"
    return MissingError(expected, "it ended or stopped without one", "checking its output")


class _Reader:
    """Reads the lines of the first task, as long as this task waits."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self._last_read = boottime()
        self._data = bytearray()

    def read_message(self) -> Body:
        """Return the next message, empty if the first task has ended, or is silent past this task's deadline."""
        looked = 0
        while (end := self._data.find(b"\n", looked)) <= 0:
            if end == 0:  # an empty line: it is alive
                del self._data[0]
                continue
            looked = len(self._data)
            if looked > MOST_LEADER_BYTES or not self._read():
                return {}
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        try:
            return decode(line)
        except WireError:  # it was interrupted
            return {}

    def _read(self) -> bool:
        until = max(self._deadline, min(self._last_read + SILENCE_S, self._deadline + OVERTIME_S))
        self._sock.settimeout(hand_over_left_s(until))
        try:
            data = self._sock.recv(1 << 16)
        except OSError:
            return False
        self._last_read = boottime()
        self._data += data
        return bool(data)
