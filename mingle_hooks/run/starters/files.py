"""The environment of a run as octets, and as a file that only this user can read, for what hands on none.

It holds the run's key, so it is never a word on a command line. Every host has to see the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mingle_hooks.errors import PlaceError
from mingle_hooks.keys import on_network
from mingle_hooks.run.starters.plain import is_plain

_PREFIX = ".mingle."
_RANDOM_BYTES = 8
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def packed(environ: Mapping[str, str]) -> bytes:
    """Return an environment as ``NAME=VALUE`` with a NUL after each, as /proc/PID/environ has it."""
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items())


def directories(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where all hosts may see a file, best first: here or at home.

    A network file system comes first, then a path that any shell reads as it is.
    """
    places = [place for place in (_here(), environ.get("HOME", "")) if os.path.isabs(place)]
    return tuple(sorted(dict.fromkeys(places), key=lambda place: (not on_network(place), not is_plain(place))))


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return ""


def write(environ: Mapping[str, str], within: tuple[str, ...]) -> str:
    """Write the environment to a new file in the first of these directories that takes it, and return its path.

    Raises PlaceError.
    """
    wrong = "no directory that all hosts see"
    for directory in within:
        path = os.path.join(directory, f"{_PREFIX}{os.urandom(_RANDOM_BYTES).hex()}")
        try:
            _write(path, packed(environ))
        except OSError as error:
            wrong = f"{directory}: {error.strerror}"
        else:
            return path
    raise PlaceError(
        "to write a file that all hosts of the job see",
        wrong,
        "`mingle run` in a directory of your own that they share",
    )


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # whatever the umask
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(descriptor)  # before another host reads it; and NFS tells of a full disk only here
    except BaseException:
        remove(path)
        raise
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove the file, if it is still there."""
    try:
        os.unlink(path)
    except OSError:  # somebody else has removed it, or the directory is gone
        return
