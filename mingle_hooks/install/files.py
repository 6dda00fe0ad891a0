"""Files written whole or not at all, and looked at without following links."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from mingle_hooks.errors import PlaceError

# The start of a name that no glob in slurm.conf matches; left over only by a power cut.
TEMPORARY = ".mingle-new."
_MOST_BYTES = 1 << 20


class Found(NamedTuple):
    """A regular file as it is."""

    text: str
    mode: int
    uid: int


def owner() -> int:
    """Return the user who shall own installed files: root, or in a test or an image's build the caller."""
    return os.geteuid()


def look(path: str) -> Found | None:
    """Return the file, None where there is none. Raises PlaceError for anything but a regular file."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise PlaceError("a regular file", f"{path}, which is not one", "moving it away")
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return Found(file.read(_MOST_BYTES), stat.S_IMODE(found.st_mode), found.st_uid)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as wrong:
        raise PlaceError("a readable file", f"{path}: {wrong.strerror}", "running it as root") from None


def write(path: str, text: str, mode: int) -> None:
    """Write a file beside its place, on disk before it gets its name there; its directories are made, for all to enter.

    A power cut leaves the old file or the new one. Raises PlaceError.
    """
    directory = os.path.dirname(path)
    temporary = unfinished(path)
    try:
        _make(directory)
        if os.path.lexists(temporary):
            os.unlink(temporary)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
                file.flush()
                os.fchown(descriptor, owner(), -1)
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        settle(directory)
    except OSError as wrong:
        raise PlaceError("a place to write", f"{path}: {wrong.strerror}", "running it as root") from None


def unfinished(path: str) -> str:
    """Return the name that a file has until it is whole."""
    directory, name = os.path.split(path)
    return f"{directory}/{TEMPORARY}{name}"


def _make(directory: str) -> None:
    """Make a directory and what is missing above it, each on disk before anything is put into it."""
    if os.path.isdir(directory):
        return
    _make(os.path.dirname(directory))
    # Every job's user goes through it to the TaskProlog, so the umask of root's shell must not close it.
    before = os.umask(0o022)
    try:
        os.mkdir(directory)
    finally:
        os.umask(before)
    settle(os.path.dirname(directory))


def remove(path: str) -> None:
    """Remove a file, if it is there. Raises PlaceError."""
    try:
        os.unlink(path)
        settle(os.path.dirname(path))
    except FileNotFoundError:
        return
    except OSError as wrong:
        raise PlaceError("a file to remove", f"{path}: {wrong.strerror}", "running it as root") from None


def settle(directory: str) -> None:
    """Have a directory's names on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
