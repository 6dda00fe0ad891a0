"""A block of lines in /etc/hosts, put there and taken out again with every other octet as it was.

The block's marks hold the hash of a world's id, so that several jobs of a host have a block each, and nothing that a
user typed gets there. Whole or not at all: a new file takes the old one's place, with its owner, mode and labels. Where
the file itself is mounted, as it is in containers, nothing can take its place, and it is written as it lies there:
lines are added at its end, or cut off there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from mingle_hooks.errors import PlaceError

if TYPE_CHECKING:
    from io import FileIO


PATH = "/etc/hosts"
# More than a file of the largest cluster has; a wrong path does not fill the memory.
_MOST_BYTES = 64 << 20
_TEMPORARY = ".mingle-new."


def write(world: str, lines: str, path: str = PATH) -> None:
    """Put this world's block at the end of the file, in place of one that it has there. Raises PlaceError."""
    with _held(path) as place:
        before = _read(place)
        _put(place, before, _with(_without(before, world), world, lines))


def remove(world: str, path: str = PATH) -> bool:
    """Take this world's block out; tell whether there was one. Raises PlaceError."""
    with _held(path) as place:
        before = _read(place)
        after = _without(before, world)
        _put(place, before, after)
    return before != after


def _marks(world: str) -> tuple[bytes, bytes]:
    name = sha256(world.encode()).hexdigest()[:16]
    return f"# mingle hosts {name}: from here".encode(), f"# mingle hosts {name}: to here\n".encode()


def _with(text: bytes, world: str, lines: str) -> bytes:
    """Return a text with the block at its end; its first line tells whether a newline was missing there."""
    begin, end = _marks(world)
    if not lines:
        return text
    if text and not text.endswith(b"\n"):
        text, begin = text + b"\n", begin + b", after a newline of its own"
    return text + begin + b"\n" + lines.encode() + end


def _without(text: bytes, world: str) -> bytes:
    """Return a text without the block; one whose end is missing was edited, and stays as it is."""
    begin, end = _marks(world)
    at = 0 if text.startswith(begin) else text.find(b"\n" + begin) + 1
    if not text.startswith(begin, at):
        return text
    last = text.find(end, at)
    if last < 0:
        return text
    before, after = text[:at], text[last + len(end) :]
    is_added = text[at : text.find(b"\n", at)] != begin
    return before[:-1] if is_added and not after else before + after


@contextmanager
def _held(path: str) -> Iterator[str]:
    """Yield the file that the path leads to, with its directory locked: a lock on a file that is replaced is none."""
    import fcntl

    place = os.path.realpath(path)
    try:
        directory = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as wrong:
        raise _unwritable(place, wrong) from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield place
    finally:
        os.close(directory)


def _read(place: str) -> bytes:
    try:
        with open(place, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as wrong:
        raise _unwritable(place, wrong) from None
    if len(text) > _MOST_BYTES:
        raise PlaceError(
            f"a file of at most {_MOST_BYTES} bytes", f"{place}, which is larger", "removing what does not belong there"
        )
    return text


def _put(place: str, before: bytes, after: bytes) -> None:
    if before == after:
        return
    try:
        try:
            _replace(place, after)
        except OSError as wrong:
            if wrong.errno not in (errno.EBUSY, errno.EROFS, errno.EXDEV):
                raise
            _edit(place, before, after)
    except OSError as wrong:
        raise _unwritable(place, wrong) from None


def _replace(place: str, after: bytes) -> None:
    """Have a new file take the old one's place."""
    directory, name = os.path.split(place)
    draft = f"{directory}/{_TEMPORARY}{name}"
    if os.path.lexists(draft):  # of a power cut: whoever holds the lock is alone
        os.unlink(draft)
    its = os.stat(place)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(after)
            file.flush()
            os.fchown(descriptor, its.st_uid, its.st_gid)
            for label in os.listxattr(place):  # SELinux's, and access lists, which a new mode would change
                os.setxattr(descriptor, label, os.getxattr(place, label))
            os.fchmod(descriptor, its.st_mode & 0o7777)
            os.fsync(descriptor)
        os.rename(draft, place)
    except BaseException:
        os.unlink(draft)
        raise


def _edit(place: str, before: bytes, after: bytes) -> None:
    """Write what differs into the file as it lies there: lines at its end, or one cut there, where that is all."""
    pairs = enumerate(zip(before, after, strict=False))
    same = next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))
    with open(place, "r+b", buffering=0) as file:
        file.seek(same)
        try:
            _write(file, after[same:])
        except OSError:  # a full disk: what stood there comes back, for which there is room
            after = before
            file.seek(same)
            _write(file, before[same:])
            raise
        finally:
            file.truncate(len(after))
        os.fsync(file.fileno())


def _write(file: FileIO, rest: bytes) -> None:
    while rest:
        rest = rest[file.write(rest) :]


def _unwritable(place: str, wrong: OSError) -> PlaceError:
    return PlaceError("to write the hosts of a world", f"{place}: {wrong.strerror}", "running it as root")
