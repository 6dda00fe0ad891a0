"""Where the tasks of one node meet: a socket in a directory of their own, and a word by which all of them abide."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from mingle_hooks import runtime
from mingle_hooks.errors import ConflictError, MissingError, PlaceError
from mingle_hooks.rendezvous.loop import boottime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypedDict

    from mingle_hooks.rendezvous.protocol.answer import Answer
    from mingle_hooks.rendezvous.protocol.attempt import Secret

    class Said(TypedDict, total=False):
        """What the first task says in one line: the answer with the word's name, that it is said, or an error."""

        answer: Answer
        word: str
        go: bool
        error: list[Any]  # exit code, expected, seen, remedy


SOCKET = "siblings"
# A name that others saw in an earlier run may be taken by them: then there is another.
NAMES = 4
# Look for the first task's socket this often: it appears within milliseconds of its start.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.2
# The first task gives the others this long to say that they hold the answer, where the deadline is that near.
HAND_OVER_S = 2.0
HELD = b"held\n"


def names(secret: Secret, node: str) -> list[str]:
    """Return the names that the directory may have, the best first; only holders of the key can work them out.

    No two nodes have one in common, as they may share the file system.
    """
    return [secret.mac(b"siblings", node.encode(), bytes([number])).hex()[:16] for number in range(NAMES)]


def claim(directories: Sequence[str]) -> tuple[str, int]:
    """Return the first directory that is private, made if need be, and the descriptor that keeps it for this task.

    Raises PlaceError where others have taken every name, and ConflictError where this node has a first task already,
    in whichever directory it is.
    """
    held: dict[str, int] = {}
    try:
        for directory in directories:
            # One is enough; what is private beyond it is of an earlier try, or another first task's.
            if runtime.is_private(directory) if held else runtime.made(directory):
                descriptor = runtime.hold(directory)
                if descriptor is None:
                    raise ConflictError(
                        "one first task (local rank 0) on this node",
                        "another one",
                        "one `mingle` per task at a time, each with its own local rank",
                    )
                held[directory] = descriptor
        if not held:
            raise _all_taken(directories)
        chosen = next(iter(held))
        return chosen, held.pop(chosen)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def listen(directory: str, backlog: int) -> socket.socket:
    """Return the socket that local peers call; what an earlier task left in the directory goes. Raises PlaceError."""
    path = f"{directory}/{SOCKET}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        runtime.empty(directory)
        listener.bind(path)
        listener.listen(backlog)
        listener.settimeout(0)
    except OSError as error:  # a path of more than 107 bytes, say
        listener.close()
        raise PlaceError("to create a socket", f"{path}: {error}", "a shorter job id or XDG_RUNTIME_DIR") from error
    return listener


def call(directories: Sequence[str], deadline: float, timeout_s: float) -> tuple[str, socket.socket]:
    """Return the directory where the first task is, and a connection to it.

    Looks into every directory that is private until the deadline. Raises MissingError, and PlaceError where others have
    taken every name.
    """
    pause = FIRST_PAUSE_S
    while True:
        for directory in directories:
            sock = _dialled(directory)
            if sock is not None:
                return directory, sock
        if all(runtime.is_taken(directory) for directory in directories):
            raise _all_taken(directories)
        if boottime() + pause > deadline:
            raise MissingError(
                f"this node's first task (local rank 0) within {timeout_s:g} s",
                "no sign of it",
                "`mingle env --scope task` in every task",
            )
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def decide(word: str, rank: int) -> int | None:
    """Say the word, and return the local rank of the task that said it first; None: the first task has ended.

    It is a name that is made once, whoever tries, so there is no moment at which one task goes by the answer and
    another gives it up. Raises PlaceError.
    """
    try:
        try:
            os.symlink(str(rank), word)
        except FileExistsError:
            return int(os.readlink(word))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PlaceError("to create a symbolic link", f"{word}: {error.strerror}", "another XDG_RUNTIME_DIR") from error
    return rank


def left(deadline: float) -> float:
    """Return the seconds left, and a moment where there are none: what has been said is heard."""
    return max(deadline - boottime(), 0.001)


def say(sock: socket.socket, data: bytes) -> None:
    """Send; whoever does not hear it does not answer either."""
    try:
        sock.sendall(data)
    except OSError:
        return


def _dialled(directory: str) -> socket.socket | None:
    """Return a connection to the first task where it listens here; one whose queue is full is called again."""
    if not runtime.is_private(directory):  # not made yet, or not by this user
        return None
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(0)
        sock.connect(f"{directory}/{SOCKET}")
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        sock.close()
        return None
    except OSError as error:
        sock.close()
        raise PlaceError(
            "to call this node's first task", f"{directory}: {error}", "another XDG_RUNTIME_DIR"
        ) from error
    return sock


def _all_taken(directories: Sequence[str]) -> PlaceError:
    return PlaceError(
        "a directory that only this user can enter",
        f"{', '.join(directories)}, which others made or can enter",
        "another XDG_RUNTIME_DIR, or removing them",
    )
