"""Several tasks on one node, one member: the first checks in, the others get its answer.

They meet at a Unix socket in a directory that only the job's user can enter. The first task waits for all of
its siblings before it checks in, so a world of tasks is whole too.
"""

from __future__ import annotations

import os
import struct
import time

from mingle_hooks import jsontext, runtime
from mingle_hooks import sockets as socket
from mingle_hooks.errors import ConflictError, MingleError, MissingError, PlaceError, by_exit_code
from mingle_hooks.rendezvous.meeting import CLOSING_S, LINGER_S
from mingle_hooks.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.rendezvous.wire import Body

# The answer with a roster of 65,536 members; see wire.MOST_LEADER_BYTES.
MOST_BYTES = 8 * 1024 * 1024
MOST_GREETING_BYTES = 64
SOCKET = "siblings"
# Look for the first task's socket this often: it appears within milliseconds of its start.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.2
# A connection to this node's own socket that says nothing for this long is not a sibling's.
GREETING_S = 5.0
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def first(directory: str, count: int, timeout_s: float, meet: Callable[[float], Body]) -> Body:
    """Collect the node's other count - 1 tasks, call meet(seconds left), and hand its answer to them all.

    What meet raises is raised on every one of them. The directory is made, and removed again.
    """
    deadline = time.monotonic() + timeout_s
    siblings: dict[int, socket.socket] = {}
    path = f"{directory}/{SOCKET}"
    with socket.socket(socket.AF_UNIX) as listener:
        runtime.make(directory)
        _bind(listener, path)
        try:
            listener.listen(count)
            _gather(listener, siblings, count, deadline, timeout_s)
            answer = meet(max(deadline - time.monotonic(), 1.0))
        except MingleError as error:
            _tell(siblings, {"error": [error.exit_code, error.expected, error.seen, error.remedy]})
            raise
        else:
            _tell(siblings, {"answer": answer})
            return answer
        finally:
            for sibling in siblings.values():
                sibling.close()
            os.unlink(path)
            os.rmdir(directory)


def other(directory: str, local_rank: int, timeout_s: float) -> Body:
    """Return the answer that this node's first task got, or raise what it raised."""
    began = time.monotonic()
    with _connect(directory, began + timeout_s, timeout_s) as sock:
        # The first task may use all of its time, and then some for the world to close and to tell others.
        sock.settimeout(timeout_s + CLOSING_S + LINGER_S + 1.0)
        data = b""
        try:
            sock.sendall(str(local_rank).encode() + b"\n")
            while chunk := sock.recv(1 << 16):
                data += chunk
                if len(data) > MOST_BYTES:
                    break
        except OSError:  # a timeout, or the first task was killed
            data = b""
    if not data.endswith(b"\n"):
        raise MissingError(
            "an answer from this node's first task (local rank 0)", "it ended without one", "a look at its output"
        )
    body: dict[str, Any] = jsontext.loads(data)
    if "error" in body:
        code, expected, seen, remedy = body["error"]
        raise by_exit_code(code)(expected, seen, remedy)
    answer: Body = body["answer"]
    return answer


def _bind(listener: socket.socket, path: str) -> None:
    if _is_served(path):
        raise ConflictError(
            "one first task (local rank 0) on this node",
            "another one",
            "one `mingle env` per task at a time, and a local rank of its own for each",
        )
    try:
        os.unlink(path)  # of an earlier try that was killed
    except FileNotFoundError:
        pass
    try:
        listener.bind(path)
    except OSError as error:  # a path of more than 107 bytes, say
        raise PlaceError("to make a socket", f"{path}: {error}", "a shorter job id, or XDG_RUNTIME_DIR") from error


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(path)
        except OSError:
            return False
        return True


def _gather(
    listener: socket.socket, siblings: dict[int, socket.socket], count: int, deadline: float, timeout_s: float
) -> None:
    while len(siblings) < count - 1:
        listener.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            absent = [rank for rank in range(1, count) if rank not in siblings]
            raise MissingError(
                f"all {count} tasks of this node within {timeout_s:g} s",
                f"{len(siblings) + 1}; still missing: local rank {', '.join(map(str, absent[:16]))}",
                "`mingle env --scope task` in every task, or --scope node in one of them",
            ) from None
        rank = _greeting(sock)
        if rank is None:
            sock.close()
        elif rank in siblings or not 0 < rank < count:
            siblings[count] = sock  # to be told as well
            raise ConflictError(
                f"each local rank from 1 to {count - 1} once",
                f"local rank {rank} again or beyond",
                "one `mingle env` per task at a time",
            )
        else:
            siblings[rank] = sock


def _greeting(sock: socket.socket) -> int | None:
    """Return the local rank that a sibling greets with; None for anything else, and for other users."""
    peer = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if peer[1] != os.getuid():
        return None
    sock.settimeout(GREETING_S)
    try:
        greeting = sock.recv(MOST_GREETING_BYTES)
    except OSError:
        return None
    return int(greeting) if greeting.strip().isdigit() and len(greeting) < 8 else None  # noqa: PLR2004 - "65535\n"


def _tell(siblings: dict[int, socket.socket], body: dict[str, Any]) -> None:
    data = jsontext.dumps(body).encode() + b"\n"
    for sock in siblings.values():
        try:
            sock.sendall(data)
        except OSError:  # that task has ended; the others still get theirs
            continue


def _connect(directory: str, deadline: float, timeout_s: float) -> socket.socket:
    pause = FIRST_PAUSE_S
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            if not runtime.is_private(directory):  # not made yet, or not by this user
                raise FileNotFoundError(directory)  # noqa: TRY301
            sock.connect(f"{directory}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
        if time.monotonic() + pause > deadline:
            raise MissingError(
                f"this node's first task (local rank 0) within {timeout_s:g} s",
                "it does not ask",
                "`mingle env --scope task` in every task",
            )
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)
