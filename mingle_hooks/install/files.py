"""Files written whole or not at all, and looked at without following links."""

from __future__ import annotations

import glob
import os
import re
import stat
from typing import NamedTuple

from mingle_hooks.errors import PlaceError

# The start of a name that no glob in slurm.conf matches; left over only by a power cut.
TEMPORARY = ".mingle-new."
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # the kernel's own limit for one path


class Found(NamedTuple):
    """A regular file, or a link, as it is."""

    data: bytes  # of a link: where it leads
    mode: int
    uid: int
    gid: int = -1  # any
    is_link: bool = False

    @property
    def text(self) -> str:
        """Return the content for people and patterns; writing takes the octets."""
        return self.data.decode(errors="surrogateescape")


def owner() -> int:
    """Return the user who shall own installed files: root, or in a test or an image's build the caller."""
    return os.geteuid()


def below(root: str, path: str, *, follow: bool = False) -> str:
    """Return where a path is for a process whose root directory is `root`: no link leads out of there.

    The last part stays as it is, also where it is a link, unless `follow`. Raises PlaceError.
    """
    parts, done, links = path.split("/")[::-1], "", 0
    while parts:
        name = parts.pop()
        if name == "..":
            done = os.path.dirname(done).rstrip("/")
        elif name not in {"", "."}:
            place = f"{root}{done}/{name}"
            if (any(parts) or follow) and os.path.islink(place):
                links += 1
                if links > _MOST_LINKS:
                    raise PlaceError("symbolic links that end at a file", f"a loop: {root}{path}", "removing one")
                target = os.readlink(place)
                done = "" if target.startswith("/") else done
                parts += target.split("/")[::-1]
            else:
                done = f"{done}/{name}"
    return root + done


def at(root: str, path: str) -> str:
    """Return what a path leads to below root, all of its links followed. Raises PlaceError."""
    return below(root, path, follow=True)


def can_be_run(root: str, path: str) -> bool:
    """Tell whether a path leads to a program that its owner may run. Raises PlaceError."""
    its = at(root, path)
    return os.path.isfile(its) and bool(os.stat(its).st_mode & stat.S_IXUSR)


def is_glob(path: str) -> bool:
    """Tell whether slurm.conf means all files that match."""
    return re.search(r"[*?[]", path) is not None


def matches(root: str, pattern: str) -> list[str]:
    """Return the paths that a glob of slurm.conf's kind matches below root, as they are there."""
    place, name = os.path.split(pattern)
    if is_glob(place):  # which no scheduler's own configuration has
        place, name = "/", pattern.lstrip("/")
    return sorted(os.path.join(place, found) for found in glob.glob(name, root_dir=at(root, place) or "/"))


def look(path: str, *, links: bool = False) -> Found | None:
    """Return the file, None where there is none. Raises PlaceError for anything but a regular file, or a link."""
    try:
        found = os.lstat(path)
        its = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
        if links and stat.S_ISLNK(found.st_mode):
            return Found(os.fsencode(os.readlink(path)), *its, is_link=True)
        if not stat.S_ISREG(found.st_mode):
            raise PlaceError("a regular file", f"{path}, which is another kind of file", "moving it away")
        with open(path, "rb") as file:
            return Found(file.read(), *its)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as wrong:
        raise PlaceError("a readable file", f"{path}: {wrong.strerror}", "running it as root") from None


def write(path: str, data: bytes, mode: int) -> None:
    """Write a file of ours, as put() does. Raises PlaceError."""
    put(path, Found(data, mode, owner()))


def put(path: str, found: Found) -> None:
    """Write a file beside its place, on disk before it gets its name there; its directories are made, for all to enter.

    A power cut leaves the old file or the new one. Raises PlaceError.
    """
    directory = os.path.dirname(path)
    temporary = unfinished(path)
    try:
        _make(directory)
        if os.path.lexists(temporary):
            os.unlink(temporary)
        try:
            (_link if found.is_link else _fill)(temporary, found)
            os.rename(temporary, path)
        except BaseException:
            remove(temporary)
            raise
        settle(directory)
    except OSError as wrong:
        raise PlaceError("a place to write", f"{path}: {wrong.strerror}", "running it as root") from None


def _link(path: str, found: Found) -> None:
    """Make a new link."""
    os.symlink(os.fsdecode(found.data), path)
    os.chown(path, found.uid, found.gid, follow_symlinks=False)


def _fill(path: str, found: Found) -> None:
    """Write a new file and bring it to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(found.data)
        file.flush()
        os.fchown(descriptor, found.uid, found.gid)
        os.fchmod(descriptor, found.mode)
        os.fsync(file.fileno())


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
    except (FileNotFoundError, NotADirectoryError):
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
