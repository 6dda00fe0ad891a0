"""All errors, each with its exit code.

::

    MingleError                       70  a bug: please report it
    ├── UsageError                    64  an option, id, number of nodes or rank is not valid
    ├── FactsError                    65  the scheduler's variables, node file or host list are not valid
    ├── MissingError                  69  a member was still missing at the deadline
    ├── NetworkError                  71  no interface, shared network, free port or way to the others
    │   └── LimitError                71  no descriptor, memory, thread or local port left
    ├── PlaceError                    73  a directory, a file or the output cannot be written
    ├── ConflictError                 76  members contradict each other: ranks, sizes, leaders, values
    ├── SecretError                   77  a key is unreadable, not private, missing or not the leader's
    ├── SettingsError                 78  a settings file or MINGLE_* variable is not valid
    ├── NotExecutableError           126  a command cannot be executed, or its script cannot be read
    └── NotFoundError                127  a command or its script does not exist

The numbers are those of sysexits.h where it has one that fits, and for a command those of every shell.
Two codes have no class: 75 (os.EX_TEMPFAIL) if a run's infrastructure failed, and 128 + n after signal n.
"""

from __future__ import annotations

import errno
import os
from typing import Literal, NamedTuple

Limit = Literal["files", "memory", "threads", "check-in ports", "ports"]

# A message is one line for a person. Bounds in characters: each part, the whole line, and a reason among several.
LONGEST_PART = 400
LONGEST = 1600
LONGEST_REASON = 150
# A resource that can run out -> what was expected, and the remedy.
LIMITS: dict[Limit, tuple[str, str]] = {
    "files": ("a free file descriptor", "a higher `ulimit -n`"),
    "memory": ("free memory", "a higher `ulimit -v`, or more memory"),
    "threads": ("a thread for a name look-up", "a higher `ulimit -u`"),
    "check-in ports": ("a free port for check-in", "ending what listens there (see `ss -ltnp`), or another --id"),
    "ports": ("a free local port for a connection", "a wider net.ipv4.ip_local_port_range, or fewer connections"),
}


def printable(text: object, longest: int = LONGEST_PART) -> str:
    """Return text that a terminal can show: one line, control characters escaped, at most `longest` long."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


class MingleError(Exception):
    """An error message in one line: what was expected, what was seen, and what to try."""

    exit_code = 70
    # repeats_rank_0: rank 0 prints the same text. is_about_arguments: the arguments are wrong, so every process fails
    # alike. is_printed: this process has printed the message.
    repeats_rank_0 = is_about_arguments = is_printed = False

    def __init__(self, expected: str, seen: str, remedy: str) -> None:
        self.expected = printable(expected)
        self.seen = printable(seen)
        self.remedy = printable(remedy)
        super().__init__(f"expected {self.expected}; saw {self.seen}; try {self.remedy}")


class UsageError(MingleError):
    """An option, an id, a number of nodes or a rank is not valid."""

    exit_code = 64


class FactsError(MingleError):
    """The scheduler's variables, node file or host list are not valid."""

    exit_code = 65


class MissingError(MingleError):
    """A member was still missing at the deadline."""

    exit_code = 69


class NetworkError(MingleError):
    """No interface, shared network, free port, way to find the others, file descriptor or memory was left."""

    exit_code = 71


class Shortage(NamedTuple):
    """A resource that has run out: its name in LIMITS, and the limit that was reached."""

    kind: Limit
    seen: str


class LimitError(NetworkError):
    """This process, or its host, has run out of a resource."""

    def __init__(self, shortage: Shortage) -> None:
        self.shortage = shortage
        expected, remedy = LIMITS[shortage.kind]
        super().__init__(expected, shortage.seen, remedy)


class NoPortError(OSError):
    """No local port is left for another connection; the text says how many there are."""


class PlaceError(MingleError):
    """A directory, a file or the output cannot be written."""

    exit_code = 73


class ConflictError(MingleError):
    """Two members contradict each other."""

    exit_code = 76


class SecretError(MingleError):
    """A key is unreadable, not private, missing, or not the leader's."""

    exit_code = 77


class SettingsError(MingleError):
    """A settings file or a MINGLE_* variable is not valid."""

    exit_code = 78


class NotExecutableError(MingleError):
    """A command cannot be executed, or its script cannot be read."""

    exit_code = 126


class NotFoundError(MingleError):
    """A command or its script does not exist."""

    exit_code = 127


def by_exit_code(code: int) -> type[MingleError]:
    """Return the error class with this exit code, or MingleError."""
    return next((kind for kind in MingleError.__subclasses__() if kind.exit_code == code), MingleError)


def reason(error: Exception) -> str:
    """Return a short reason for a failure, for the middle of a message."""
    if (short := shortage(error)) is not None:
        return short.seen
    if isinstance(error, MingleError):
        return printable(f"expected {error.expected}, saw {error.seen}", LONGEST_REASON)
    if isinstance(error, OSError) and error.strerror:
        return printable(error.strerror + (f": {error.filename}" if error.filename else ""), LONGEST_REASON)
    kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
    return printable(f"{kind}{error}", LONGEST_REASON)


def shortage(error: Exception) -> Shortage | None:
    """Return the resource that has run out and the limit that was reached, or None for another error.

    Opens no file, as no descriptor may be left. ImportError of a shared library has the errno in its text only.
    """
    if isinstance(error, LimitError):
        return error.shortage
    if isinstance(error, NoPortError):
        return Shortage("ports", str(error.strerror))
    if _has_errno(error, errno.ENFILE):  # its text begins with that of EMFILE
        return Shortage("files", "all file descriptors of this host are in use (sysctl fs.file-max)")
    if _has_errno(error, errno.EMFILE):
        used_up = f"all {os.sysconf('SC_OPEN_MAX')} file descriptors that `ulimit -n` allows are in use"
        return Shortage("files", used_up)
    return _of_memory(error)


def _of_memory(error: Exception) -> Shortage | None:
    if isinstance(error, MemoryError) or _has_errno(error, errno.ENOMEM) or _has_errno(error, errno.ENOBUFS):
        return Shortage("memory", f"no memory is left ({_allowed('RLIMIT_AS', '`ulimit -v` allows {} bytes')})")
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        allowed = _allowed("RLIMIT_NPROC", "`ulimit -u` allows {} in all")
        return Shortage("threads", f"no thread could be started ({allowed})")
    return None


def _allowed(name: str, text: str) -> str:
    """Return the soft limit of this process, formatted into `text`, or say that host or job set it."""
    import resource

    soft, _ = resource.getrlimit(getattr(resource, name))
    return "a limit of this host or job" if soft == resource.RLIM_INFINITY else text.format(soft)


def _has_errno(error: Exception, number: int) -> bool:
    if isinstance(error, OSError):
        return error.errno == number
    return isinstance(error, ImportError) and os.strerror(number) in str(error)


def limit(error: Exception) -> LimitError | None:
    """Return the LimitError for a resource that has run out, or None for another error."""
    short = shortage(error)
    return None if short is None else LimitError(short)
