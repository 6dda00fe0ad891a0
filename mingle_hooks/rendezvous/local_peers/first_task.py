"""Several tasks on one node, one member: the first checks in, the others get its answer. All have it, or none.

The first task waits for all of its local peers before it checks in, and watches them until the world is formed, so a
world of tasks is whole too. What they say to each other, each a line:

::

    other                                  first
      local rank, milliseconds it waits,
      why it cannot start, if it cannot →
                                        ←  nothing, each second while it is at work
                                        ←  the answer, and a name for the word
      held                              →
                                        ←  go

An error may come in place of the answer or of go. Once all hold the answer the first task says the word: whoever gives
up by then says it before, and no task goes by the answer. See meeting_point.decide(); the other side is follower.py.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

from mingle_hooks import jsontext, runtime
from mingle_hooks.errors import LIMITS, MingleError, MissingError
from mingle_hooks.rendezvous.local_peers import meeting_point
from mingle_hooks.rendezvous.local_peers.meeting_point import HAND_OVER_S, HELD, left, say
from mingle_hooks.rendezvous.loop import Loop, boottime
from mingle_hooks.rendezvous.poller import READ
from mingle_hooks.rendezvous.protocol.failure import Failure
from mingle_hooks.rendezvous.protocol.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    from mingle_hooks.rendezvous.local_peers.meeting_point import Said
    from mingle_hooks.rendezvous.protocol.answer import Answer

    Lack = Literal["gone", "silent"]

# The first task says this often that it is at work.
BEAT_S = 1.0
MOST_GREETING_BYTES = 8192
MOST_DIGITS = 10  # of a local rank, and of milliseconds: 115 days
# So many connections may have said nothing yet, a quarter of the usual descriptors; then the oldest goes.
MOST_CALLERS = 256
# Where descriptors are short, look this much later, in seconds, whether there is one for who calls.
ROOM_S = 0.2
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def first(
    directories: Sequence[str], host: str, count: int, timeout_s: float, meet: Callable[[float, LocalPeers], Answer]
) -> Answer:
    """Collect the node's other count - 1 tasks, call meet(seconds left, local peers), and hand its answer to them all.

    What meet raises is raised on every one of them. One of the directories is made, and removed again.
    Raises PlaceError and ConflictError.
    """
    deadline = boottime() + timeout_s
    directory, held = meeting_point.claim(directories)
    try:
        with meeting_point.listen(directory, count) as listener:
            local_peers = LocalPeers(listener, host, count, deadline)
            try:
                local_peers.gather(timeout_s)
                answer = meet(max(local_peers.deadline - boottime(), 1.0), local_peers)
                local_peers.hand_over(answer, directory)
            except MingleError as error:
                why = local_peers.fault.error() if local_peers.fault is not None else error
                local_peers.tell(why)
                raise why from None
            finally:
                local_peers.close()  # before the directory goes: who finds no directory has all that was said
        return answer
    finally:
        runtime.remove(directory)
        os.close(held)


class LocalPeers:
    """This node's other tasks as the first one sees them: whichever loop runs watches them.

    `deadline` is the earliest of all tasks'. `obstacle` is why one of them cannot start the command. `fault` is why
    there must be no world, once one is gone or one too many.
    """

    def __init__(self, listener: socket.socket, host: str, count: int, deadline: float) -> None:
        self.deadline = deadline
        self.fault: Failure | None = None
        self.obstacle: Failure | None = None
        self._listener, self._host, self._count = listener, host, count
        self._tasks: dict[int, socket.socket] = {}  # by local rank
        self._callers: dict[socket.socket, None] = {}  # who have not said what they are, the oldest first

    def gather(self, timeout_s: float) -> None:
        """Wait until all have come. Raises what happens instead."""
        with Loop(boottime) as loop:
            self.attend(loop, lambda _failure: None)
            loop.after(self.deadline - loop.clock(), _wake)
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
        """Watch them as long as this loop runs; on_fault comes once at most."""
        self._loop, self._on_fault = loop, on_fault
        self._listen()
        for caller in self._callers:
            self._watch_caller(caller)
        for rank, task in self._tasks.items():
            self._watch_task(rank, task)
        self._beat()

    def hand_over(self, answer: Answer, directory: str) -> None:
        """Give all of them the answer, and then the word to go by it. Raises the fault where one is not there."""
        if self.fault is not None:  # it came too late for the others
            raise self.fault.error()
        deadline = max(self.deadline, boottime() + HAND_OVER_S)
        word = os.urandom(8).hex()
        for task in self._tasks.values():
            task.settimeout(left(deadline))
            say(task, _line({"answer": answer, "word": word}))
        for rank, task in self._tasks.items():
            task.settimeout(left(deadline))
            if lack := _lack(task):
                raise self._without(rank, lack).error()
        for rank, task in self._tasks.items():  # some may have waited long for the last
            if _has_ended(task):
                raise self._without(rank, "gone").error()
        if said := meeting_point.decide(f"{directory}/{word}", 0):
            raise self._without(said, "gone").error()
        self._tell(_line({"go": True}))

    def tell(self, error: MingleError) -> None:
        """Tell all who have come why there is no world."""
        self._tell(_line({"error": [error.exit_code, error.expected, error.seen, error.remedy]}))

    def close(self) -> None:
        """Let go of them."""
        for sock in (*self._tasks.values(), *self._callers):
            sock.close()

    def _absent(self) -> list[int]:
        return [rank for rank in range(1, self._count) if rank not in self._tasks]

    def _without(self, rank: int, lack: Lack) -> Failure:
        self.fault = Failure("task", (self._host, str(self._count), str(rank), lack))
        return self.fault

    def _tell(self, data: bytes) -> None:
        """Say something short to all, and wait for nobody: whoever has been stopped reads it later."""
        for sock in (*self._tasks.values(), *self._callers):
            sock.settimeout(0)
            say(sock, data)

    def _beat(self) -> None:
        if self.fault is None:
            self._tell(b"\n")
            self._loop.after(BEAT_S, self._beat)

    def _watch(self, sock: socket.socket, call: Callable[[], None]) -> None:
        """Call when there is something to read, but no more after a fault, or once somebody has been let go."""
        sock.settimeout(0)
        self._loop.watch(sock, READ, lambda _events: call() if self.fault is None else None)

    def _listen(self) -> None:
        if self.fault is None:
            self._watch(self._listener, self._accept)

    def _watch_caller(self, caller: socket.socket) -> None:
        self._watch(caller, lambda: self._greeted(caller))

    def _watch_task(self, rank: int, task: socket.socket) -> None:
        # It says nothing more until it gets the answer: what there is to read is its end.
        self._watch(task, lambda: self._fail(self._without(rank, "gone")))

    def _fail(self, failure: Failure) -> None:
        """Tell all at once, and the owner of the loop."""
        self.fault = failure
        self.tell(failure.error())
        for sock in (self._listener, *self._tasks.values(), *self._callers):
            self._loop.unwatch(sock)
        self._on_fault(failure)

    def _accept(self) -> None:
        try:
            caller, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._loop.missed(error)
            self._loop.unwatch(self._listener)
            self._loop.after(ROOM_S, self._listen)
            return
        if not _is_ours(caller):
            caller.close()
            return
        self._callers[caller] = None
        self._watch_caller(caller)
        if len(self._callers) > MOST_CALLERS:
            self._release(next(iter(self._callers))).close()

    def _release(self, caller: socket.socket) -> socket.socket:
        del self._callers[caller]
        self._loop.unwatch(caller)
        return caller

    def _greeted(self, caller: socket.socket) -> None:
        """Take in a task by what it says; whatever says anything else is no task."""
        if caller not in self._callers:  # it was let go in this very turn
            return
        self._release(caller)
        greeting = _greeting(caller)
        if greeting is None:
            caller.close()
            return
        rank, waits_s, obstacle = greeting
        if rank in self._tasks or not 0 < rank < self._count:
            self._callers[caller] = None  # to be told as well
            self._fail(Failure("tasks", (self._host, str(self._count - 1), str(rank))))
            return
        self._tasks[rank] = caller
        if self.obstacle is None or not self.obstacle.is_certain:
            self.obstacle = obstacle or self.obstacle
        self._watch_task(rank, caller)
        self.deadline = min(self.deadline, self._loop.clock() + waits_s)
        self._loop.after(waits_s, _wake)


def _wake() -> None:
    """Have a loop look whether it is finished."""


def _line(body: Said) -> bytes:
    return jsontext.dumps(body).encode() + b"\n"


def _lack(task: socket.socket) -> Lack | None:
    """Return what is wrong with a task that has been given the answer; None where it holds it."""
    try:
        return None if task.recv(len(HELD)) == HELD else "gone"
    except TimeoutError:
        return "silent"
    except OSError:
        return "gone"


def _has_ended(task: socket.socket) -> bool:
    task.settimeout(0)
    try:
        task.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_ours(caller: socket.socket) -> bool:
    _pid, user, _group = _CREDENTIALS.unpack(
        caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return bool(user == os.getuid())


def _greeting(caller: socket.socket) -> tuple[int, float, Failure | None] | None:
    """Return the local rank that a task greets with, for how many seconds it waits, and why it cannot start.

    None for anything else.
    """
    try:
        words = caller.recv(MOST_GREETING_BYTES).split(maxsplit=2)
    except OSError:
        return None
    numbers = [int(word) for word in words[:2] if word.isdigit() and len(word) <= MOST_DIGITS]
    if len(numbers) != 2:  # noqa: PLR2004 - a pair
        return None
    try:
        obstacle = Failure.parse(jsontext.loads(words[2])) if words[2:] else None
    except (ValueError, WireError, AttributeError):
        return None
    return numbers[0], numbers[1] / 1000, obstacle
