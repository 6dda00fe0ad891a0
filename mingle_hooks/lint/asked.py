"""What a fingerprint is taken of, and the one way to read a file of any size for it."""

from __future__ import annotations

import os
import stat
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Asked(NamedTuple):
    """The user's environment, the command to become, where it will run, and below which directory this node lies."""

    environ: Mapping[str, str]
    command: tuple[str, ...] = ()
    directory: str = "/"
    root: str = ""
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    limits: Mapping[str, int] = MappingProxyType({})  # the user's, by name, as getrlimit(2) tells them


def limits() -> dict[str, int]:
    """Return the limits of this process as they are now, by name."""
    import resource

    names = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    return {name: resource.getrlimit(number)[0] for name, number in names.items()}


def contents(path: str, most: int) -> bytes:
    """Return the beginning of a regular file; OSError for what is none, as a pipe would block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no file")
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def text(path: str, most: int = 4096) -> str:
    """Return the beginning of a text file, "" where it cannot be read."""
    try:
        return contents(path, most).decode("utf-8", "replace")
    except OSError:
        return ""
