"""Host lists in the formats of other programs: one function and one row in FORMATS for each."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import ConflictError, FactsError, PlaceError
from mingle_hooks.files import write_new
from mingle_hooks.net.addresses import is_hostname, is_loopback
from mingle_hooks.rendezvous.messages import Member

if TYPE_CHECKING:
    from io import FileIO


Addresses = Literal["needed", "shown", "unused"]


class Format(NamedTuple):
    """A function that writes a format, and whether the format has the members' addresses."""

    text: Callable[[Sequence[Member]], str]
    addresses: Addresses = "unused"


def text(name: str, members: Sequence[Member]) -> str:
    """Return the members, in rank order, in the format of this name. Raises ConflictError."""
    return FORMATS[name].text(members)


def slots(members: Sequence[Member]) -> dict[str, int]:
    """Return host -> slots in rank order, summed over members that share a host."""
    found: dict[str, int] = {}
    for member in members:
        found[member.host] = found.get(member.host, 0) + member.slots
    return found


def _hosts(entry: str, between: str = "\n") -> Callable[[Sequence[Member]], str]:
    """Return a function that writes an entry with its slots for each host."""
    return lambda members: between.join(entry.format(*row) for row in slots(members).items()) + "\n" * bool(members)


# A node file such as PBS_NODEFILE: each host on as many lines as it has slots.
def _nodefile(members: Sequence[Member]) -> str:
    """Return a line for each slot, in rank order."""
    return "".join(f"{member.host}\n" * member.slots for member in members)


# JSON, with all fields of each member.
def _json(members: Sequence[Member]) -> str:
    """Return a list with an object for each member; an unknown address is null."""
    rows = [
        {"rank": rank, "host": host, "address": address or None, "slots": slots}
        for rank, host, address, slots in members
    ]
    return f"{values.to_json(rows)}\n"


# Lines of /etc/hosts, for hosts without a name service.
def _etc(members: Sequence[Member]) -> str:
    """Return a line for each address; a member may be listed several times, once with each of its names.

    A name of several hosts is left out, and so are localhost and addresses that other hosts cannot use. Raises
    ConflictError for a host without a unique name, and FactsError for an invalid name, as every program of the host
    reads these lines.
    """
    named: dict[str, dict[str, None]] = {}
    addresses: dict[str, dict[str, None]] = {}
    for member in members:
        if not is_hostname(member.host):
            raise FactsError("a host name", member.host, "--hosts NAMES, or correcting the scheduler's list")
        # Other hosts cannot use a loopback address, or one with an interface's scope.
        is_of_one_host = not member.address or is_loopback(member.address) or "%" in member.address
        if not is_of_one_host and member.host.partition(".")[0] != "localhost":
            named.setdefault(member.address, {})[member.host] = None
            addresses.setdefault(member.host, {})[member.address] = None
    lines = []
    for address, names in named.items():
        own = [name for name in names if len(addresses[name]) == 1]
        if not own:
            host = next(iter(names))
            seen = f"{host} at {' and '.join(addresses[host])}"
            raise ConflictError("a different name for each host", seen, "renaming one of them")
        lines.append(f"{address} {' '.join(own)}\n")
    return "".join(lines)


FORMATS = {
    "etc": Format(_etc, "needed"),
    "mpi": Format(_hosts("{} slots={}")),  # Open MPI's hostfile (mpirun(1), --hostfile)
    "mpich": Format(_hosts("{}:{}")),  # the machine file of Hydra, the launcher of MPICH, MVAPICH and Intel MPI
    "deepspeed": Format(_hosts("{} slots={}")),  # each host once (read in deepspeed 0.19, launcher/runner.py)
    "horovod": Format(_hosts("{}:{}", ",")),  # horovodrun's -H (read in horovod 0.28, runner/common/util/hosts.py)
    "nodefile": Format(_nodefile),
    "json": Format(_json, "shown"),
}


# A marked block in /etc/hosts, added and removed without changing any other byte.


PATH = "/etc/hosts"
# More than the file of the largest cluster; it keeps a wrong path from filling the memory.
_MOST_BYTES = 64 << 20
_TEMPORARY = ".mingle-new."
# Others of this host write within milliseconds each; but any user can lock /etc, which all can read, for ever.
_LOCK_S = 10.0


def write_etc_hosts(world: str, lines: str, path: str = PATH) -> bool:
    """Put this world's block at the end of the file, in place of an earlier one; without lines, only remove that one.

    Returns whether the file has changed. Raises PlaceError.
    """
    with _locked(path) as place:
        before = _read(place)
        after = _with(_without(before, world), world, lines)
        if before != after:
            try:
                _replace(place, after)
            except OSError as wrong:
                if wrong.errno not in (errno.EBUSY, errno.EROFS, errno.EXDEV):
                    raise
                _edit(place, before, after)
    return before != after


def _marks(world: str) -> tuple[bytes, bytes]:
    name = sha256(world.encode()).hexdigest()[:16]
    return f"# mingle hosts {name}: from here".encode(), f"# mingle hosts {name}: to here\n".encode()


def _with(text: bytes, world: str, lines: str) -> bytes:
    """Return a text with the block appended; the block's first line records whether a newline was missing."""
    begin, end = _marks(world)
    if not lines:
        return text
    if text and not text.endswith(b"\n"):
        text, begin = text + b"\n", begin + b", after a newline of its own"
    return text + begin + b"\n" + lines.encode() + end


def _without(text: bytes, world: str) -> bytes:
    """Return a text without the block; a block without its end was edited, and is kept."""
    begin, end = (b"\n" + mark for mark in _marks(world))
    pieces = (b"\n" + text).split(begin)
    for index in range(len(pieces) - 1, 0, -1):
        inside, is_whole, after = pieces[index].partition(end)
        if is_whole:
            before, after = begin.join(pieces[:index]), begin.join([after, *pieces[index + 1 :]])
            is_added = not inside.startswith(b"\n")
            return before[1:] if is_added and not after else (before + b"\n" + after)[1:]
    return text


@contextmanager
def _locked(path: str) -> Iterator[str]:
    """Yield the resolved path with its directory locked: the file itself is replaced, so its lock would be lost.

    An OSError inside, too, becomes a PlaceError.
    """
    place = os.path.realpath(path)
    try:
        directory = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(directory, place)
            yield place
        finally:
            os.close(directory)
    except OSError as wrong:
        raise PlaceError("to write the hosts of a world", f"{place}: {wrong.strerror}", "running it as root") from None


def _lock(directory: int, place: str) -> None:
    """Lock the open directory of the file. Raises PlaceError if another process holds the lock for too long."""
    import fcntl

    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                expected = f"to lock {os.path.dirname(place)} within {_LOCK_S:g} s"
                raise PlaceError(expected, "a lock of another process", "ending that process (see `lslocks`)") from None
            time.sleep(0.02)
        else:
            return


def _read(place: str) -> bytes:
    with open(place, "rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        seen = f"{place}, which is larger"
        raise PlaceError(f"a file of at most {_MOST_BYTES} bytes", seen, "removing what does not belong there")
    return text


def _replace(place: str, after: bytes) -> None:
    """Replace the file atomically, with the same owner, mode and extended attributes."""
    directory, name = os.path.split(place)
    draft = f"{directory}/{_TEMPORARY}{name}"
    if os.path.lexists(draft):  # left by a power cut: no other process holds the lock
        os.unlink(draft)
    old = os.stat(place)
    write_new(draft, after, mode=old.st_mode & 0o7777, uid=old.st_uid, gid=old.st_gid)
    try:
        for label in _labels(place):  # SELinux's, and access lists, which a new mode would change
            os.setxattr(draft, label, os.getxattr(place, label))
        os.rename(draft, place)
    except BaseException:
        os.unlink(draft)
        raise


def _labels(place: str) -> list[str]:
    try:
        return os.listxattr(place)
    except OSError as wrong:
        if wrong.errno == errno.ENOTSUP:  # NFS of version 3 has none
            return []
        raise


def _edit(place: str, before: bytes, after: bytes) -> None:
    """Write the file in place from the first different byte, as a mounted file cannot be replaced."""
    pairs = enumerate(zip(before, after, strict=False))
    same = next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))
    with open(place, "r+b", buffering=0) as file:
        file.seek(same)
        try:
            _write(file, after[same:])
        except OSError:  # a full disk: restore the old contents, for which there is room
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
