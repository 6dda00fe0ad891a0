"""A directory on this node that only this user can enter, for what the tasks of one attempt share."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from mingle_hooks.errors import PlaceError

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_ROOT = "/run/mingle"  # where the Prolog makes a directory for each job
# Left free there before more is put into it: an answer of a large world takes about one. The Prolog bounds the whole.
_ROOM_BYTES, _ROOM_NAMES = 1 << 20, 16


def path(environ: Mapping[str, str], job_id: str | None, name: str, run_root: str = RUN_ROOT) -> str:
    """Return the directory's path, the same for every task of this user on this node; it may not be there yet.

    It lies in the Prolog's directory for the job unless that is full, the login session's, or /tmp. In /tmp
    anybody can make any name, so `name` must be one that others cannot guess.
    """
    if job_id is not None and "/" not in job_id and is_private(job := f"{run_root}/{job_id}") and _has_room(job):
        return f"{job}/{name}"
    session = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and is_private(session):
        return f"{session}/mingle-{name}"
    return f"/tmp/mingle-{os.getuid()}-{name}"  # noqa: S108 - mode 0700, and checked


def record(job_id: str | None, run_root: str = RUN_ROOT) -> None:
    """Write this process into the Prolog's list, where there is one: the Epilog ends what is left of it.

    A line is the pid and its start time (field 22 of /proc/PID/stat), for a pid is used again.
    """
    if job_id is None or "/" in job_id or not is_private(job := f"{run_root}/{job_id}"):
        return
    with open("/proc/self/stat") as stat:
        start = stat.read().rpartition(")")[2].split()[19]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{job}/processes", flags, 0o600)
        try:
            os.write(descriptor, f"{os.getpid()} {start}\n".encode())
        finally:
            os.close(descriptor)
    except OSError:  # a full file system: the job's own end ends its processes too
        return


def _has_room(directory: str) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _ROOM_BYTES and (found.f_favail >= _ROOM_NAMES or not found.f_files)


def make(directory: str) -> None:
    """Make the directory, unless it is there and private. Raises PlaceError."""
    if not made(directory):
        raise PlaceError(
            "a directory that only this user can enter",
            f"{directory}, which others can enter",
            "removing it, or another XDG_RUNTIME_DIR",
        )


def made(directory: str) -> bool:
    """Make the directory unless its name is taken, and tell whether it is private. Raises PlaceError."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise PlaceError(
            "to create a directory", f"{directory}: {error.strerror}", "another XDG_RUNTIME_DIR"
        ) from error
    return is_private(directory)


def is_taken(directory: str) -> bool:
    """Tell whether somebody has made something of this name that is not private."""
    return os.path.lexists(directory) and not is_private(directory)


def hold(directory: str) -> int | None:
    """Return a descriptor that keeps a directory for this process until it is closed; None where another has it.

    The kernel lets go of it when the process is killed. Raises PlaceError.
    """
    import fcntl

    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
    except BlockingIOError:
        return None
    except OSError as error:
        raise PlaceError("to lock a directory", f"{directory}: {error.strerror}", "another XDG_RUNTIME_DIR") from error
    return descriptor


def empty(directory: str) -> None:
    """Remove the files in a directory of ours. Raises OSError."""
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")


def remove(directory: str) -> None:
    """Remove a directory of ours with the files in it; what comes into it meanwhile keeps it."""
    try:
        empty(directory)
        os.rmdir(directory)
    except OSError:  # the job's end has removed it, or somebody has just come
        return


def is_private(directory: str) -> bool:
    """Tell whether this is a real directory of this user's that nobody else can enter and that can be written."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return is_own and os.access(directory, os.W_OK | os.X_OK)
