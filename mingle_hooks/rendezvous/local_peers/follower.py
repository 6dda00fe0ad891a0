"""A task that gets its node's answer from the first task there, or gives up at a deadline of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks import jsontext
from mingle_hooks.errors import MingleError, MissingError, by_exit_code
from mingle_hooks.rendezvous.local_peers import meeting_point
from mingle_hooks.rendezvous.local_peers.meeting_point import HAND_OVER_S, HELD, left, say
from mingle_hooks.rendezvous.loop import boottime
from mingle_hooks.rendezvous.protocol.leases import CLOSING_S, LINGER_S
from mingle_hooks.rendezvous.protocol.wire import MOST_LEADER_BYTES

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from mingle_hooks.rendezvous.local_peers.meeting_point import Said
    from mingle_hooks.rendezvous.protocol.answer import Answer
    from mingle_hooks.rendezvous.protocol.failure import Failure

# Past its deadline a task stays only while it hears the first one, which says each second that it is at work.
SILENCE_S = 3.0
# The longest that one goes on past its deadline: a world that closes, and is told to those who come late.
OVERTIME_S = CLOSING_S + LINGER_S + HAND_OVER_S + SILENCE_S
# What it says that it waits has ten digits at most, in milliseconds.
MOST_WAIT_S = 1e6


def follow(directories: Sequence[str], local_rank: int, timeout_s: float, obstacle: Failure | None = None) -> Answer:
    """Return the answer that this node's first task got, or raise what it raised.

    An `obstacle` to this task's command is that of the node.
    """
    deadline = boottime() + timeout_s
    directory, sock = meeting_point.call(directories, deadline, timeout_s)
    with sock:
        ear = _Ear(sock, deadline)
        greeting = b"%d %d" % (local_rank, min(left(deadline), MOST_WAIT_S) * 1000)
        said = b" " + jsontext.dumps(obstacle.body()).encode() if obstacle is not None else b""
        say(sock, greeting + said + b"\n")
        body = ear.hear()
        if "answer" not in body:
            raise _reason(body, timeout_s)
        say(sock, HELD)
        word = ear.hear()
        if not word:
            first = meeting_point.decide(f"{directory}/{body['word']}", local_rank)
            word = {"go": True} if first == 0 else ear.hear() if first is None else {}
    if "go" not in word:
        raise _reason(word, timeout_s)
    return body["answer"]


def _reason(body: Said, timeout_s: float) -> MingleError:
    """Return the error that the first task told, or that it told nothing."""
    if "error" in body:
        code, expected, seen, remedy = body["error"]
        error = by_exit_code(code)(expected, seen, remedy)
        error.is_of_rank_0 = True  # or of the first task, which prints it where rank 0 does not
        return error
    expected = f"an answer from this node's first task (local rank 0) within {timeout_s:g} s"
    return MissingError(expected, "it ended or stopped without one", "checking its output")


class _Ear:
    """What the first task says to another, line by line, as long as that one waits."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self._heard = boottime()
        self._data = bytearray()

    def hear(self) -> Said:
        """Return the next line; nothing where the first task has ended, or is silent past this task's deadline."""
        looked = 0
        while (end := self._data.find(b"\n", looked)) <= 0:
            if end == 0:  # it is at work
                del self._data[0]
                continue
            looked = len(self._data)
            if looked > MOST_LEADER_BYTES or not self._read():
                return {}
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        try:
            body: Said = jsontext.loads(line)
        except ValueError:  # it was interrupted
            return {}
        return body

    def _read(self) -> bool:
        until = max(self._deadline, min(self._heard + SILENCE_S, self._deadline + OVERTIME_S))
        self._sock.settimeout(left(until))
        try:
            data = self._sock.recv(1 << 16)
        except OSError:
            return False
        self._heard = boottime()
        self._data += data
        return bool(data)
