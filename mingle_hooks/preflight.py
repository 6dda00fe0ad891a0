"""What keeps this node from starting the command: checked before check-in, so that ready means able to start.

The command is resolved as execve(2) will resolve it. Where the meaning of a word is not certain nothing is checked, so
that no command is refused that could start.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mingle_hooks.errors import printable
from mingle_hooks.export import launchers
from mingle_hooks.export.launchers import Launcher
from mingle_hooks.rendezvous.request import MemberSpec

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.messages import Failure, Kind


# Linux's fs/exec.c and binfmt_script.c: what is read of a `#!` line, and how many interpreters one command may have.
_HEAD_BYTES, _MOST_INTERPRETERS = 256, 5
_ELF = b"\x7fELF"
# What a message shows of a name and of PATH, in characters.
_LONGEST_NAME, _LONGEST_PATH = 100, 160
# Interpreters' options that take no value and leave the next word alone. Any other makes the script uncertain.
_PYTHON_FLAGS, _PYTHON_WITH_VALUE = frozenset("bBdEiIOPqsSuvx"), ("-W", "-X")
_SHELLS, _SHELL_FLAGS = ("sh", "bash", "dash", "ksh", "zsh"), frozenset("aefhkmnuvxBCEHPT")
# With these in its environment torchrun may take its first argument for something else than a script.
_NO_SCRIPT = ("PET_MODULE", "PET_NO_PYTHON")


class _UnableError(Exception):
    """This node cannot start the command: a kind of failure, and what was seen."""

    def __init__(self, kind: Kind, seen: str) -> None:
        super().__init__(seen)
        self.kind, self.seen = kind, seen


class _InterpreterError(OSError):
    """A `#!` line names an interpreter that cannot be run."""


def obstacle(command: Sequence[str], spec: MemberSpec, *, verbatim: bool = False) -> Failure | None:
    """Return why this node cannot start the command, None where it can; without a command only stdout is checked."""
    launcher, end = (None, 0) if verbatim or not command else launchers.find(command) or (None, 0)
    if launcher is not None and launcher.starts == "job" and not _is_first(spec):
        return None  # rank 0 starts it for this node too
    try:
        _check_output()
        if command:
            _check_directory()
            _check_command(command, launcher, end, spec.user_environ)
            if launcher is None or launcher.starts != "job":
                _check_writable()
    except _UnableError as unable:
        return _failure(unable)
    return None


def check_runner() -> None:
    """Raise PlaceError where `mingle run` could not show its command's output, or has no directory to start it in."""
    try:
        _check_output()
        _check_directory()
    except _UnableError as unable:
        raise _failure(unable).error() from None


def _failure(unable: _UnableError) -> Failure:
    from mingle_hooks.net.addresses import hostname
    from mingle_hooks.rendezvous.messages import Failure

    return Failure(unable.kind, (hostname(), unable.seen))


def _is_first(spec: MemberSpec) -> bool:
    """Tell whether this is certain to be rank 0's node."""
    return spec.nodes == 1 or (spec.rank == 0 and spec.settings.order == "scheduler")


def _check_output() -> None:
    """Raise where stdout is closed, which mingle has filled with a read-only /dev/null, or read-only."""
    import fcntl

    if fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR) == os.O_RDONLY:
        raise _UnableError("output", "a closed or read-only one")


def _check_directory() -> None:
    try:
        directory = os.getcwd()
    except OSError as error:
        raise _UnableError("directory", f"the working directory: {error.strerror}") from None
    if not os.access(".", os.X_OK, effective_ids=True):
        raise _UnableError("directory", f"{directory}: {os.strerror(errno.EACCES)}")


def _check_writable() -> None:
    """Raise where the working directory cannot be written: its file system may have become read-only here."""
    if not os.access(".", os.W_OK, effective_ids=True):
        is_read_only = os.statvfs(".").f_flag & os.ST_RDONLY
        seen = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise _UnableError("unwritable", f"{os.getcwd()}: {seen}")


def _check_command(words: Sequence[str], launcher: Launcher | None, end: int, environ: Mapping[str, str]) -> None:
    """Check the program, and the script that an interpreter or a Python launcher behind it is certain to run."""
    path = environ.get("PATH", os.defpath)
    try:
        program = _found(words[0], path)
    except _InterpreterError as error:
        raise _UnableError("permission", str(error)) from None
    except OSError as error:
        _refuse(words[0], error, "" if "/" in words[0] else f" (PATH={printable(path, _LONGEST_PATH)})")
    if launchers.words_before(words):
        return
    interpreter = os.path.basename(program)
    if launcher is not None and _is_python(interpreter):
        if not any(environ.get(name) for name in _NO_SCRIPT):
            _check_script(launchers.script_of(launcher, words[end:]), "")
    elif launcher is None and _is_python(interpreter) and _is_python(os.path.basename(words[0])):
        _check_script(_python_script(words[1:]), "")
    elif launcher is None and interpreter in _SHELLS and os.path.basename(words[0]) in _SHELLS:
        _check_script(_shell_script(words[1:]), path)


def _check_script(script: str | None, path: str) -> None:
    """Raise where a script is missing or unreadable; a shell looks for it along PATH as well."""
    if script is None:
        return
    try:
        os.stat(script)
        if not os.access(script, os.R_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if "/" in script or not any(os.path.exists(f"{directory}/{script}") for directory in path.split(":") if path):
            _refuse(script, error, "" if script.startswith("/") else f" (in {os.getcwd()})")


def _refuse(name: str, error: OSError, where: str) -> None:
    """Raise what this failure to find or to run a file means."""
    kind: Kind = "command" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else "permission"
    raise _UnableError(kind, f"{printable(name, _LONGEST_NAME)}: {error.strerror}{where}") from None


def _found(name: str, path: str) -> str:
    """Return what runs in the end: the program, or its `#!` interpreter. Raises OSError as execvp(3) would fail."""
    refusal = None
    for directory in [""] if "/" in name else path.split(":"):
        try:
            return _runs(os.path.join(directory, name), path, 0)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # another of this name may be run
            refusal = refusal or error
    raise refusal or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _runs(file: str, path: str, depth: int) -> str:
    """Return what runs in the end where execve(2) is given this file. Raises OSError where it would fail."""
    if depth > _MOST_INTERPRETERS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(os.stat(file).st_mode) or not os.access(file, os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    head = _head(file)
    if not head.startswith(b"#!"):
        if head.startswith(_ELF) or b"\0" in head:  # binfmt_misc may know it
            return file
        raise OSError(errno.ENOEXEC, f"{os.strerror(errno.ENOEXEC)} (a script without `#!`)")
    words = os.fsdecode(head[2:].partition(b"\n")[0]).strip(" \t").replace("\t", " ").split(" ", 1)
    try:
        found = _runs(words[0], path, depth + 1)
        name = words[1].strip() if len(words) > 1 and os.path.basename(words[0]) == "env" else ""
        return _found(name, path) if name and name[0] != "-" and "=" not in name else found
    except _InterpreterError:
        raise
    except OSError as error:
        if error.errno == errno.ENOEXEC and os.path.basename(words[0]) == "env":
            return file  # env(1) has a shell run it
        script, line = (printable(text, _LONGEST_NAME) for text in (file, " ".join(words)))
        raise _InterpreterError(f"{script}: bad interpreter: {line}: {error.strerror}") from None


def _head(file: str) -> bytes:
    """Return how a file begins; like a program's where this user may run and not read it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _ELF
    try:
        return os.read(descriptor, _HEAD_BYTES)
    finally:
        os.close(descriptor)


def _is_python(name: str) -> bool:
    return name.startswith("python") and not name[len("python") :].strip("0123456789.")


def _python_script(words: Sequence[str]) -> str | None:
    """Return the script that `python words…` runs; None where there is none, or it is not certain."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word
        if word in _PYTHON_WITH_VALUE:
            next(rest, None)
        elif word == "-" or not _PYTHON_FLAGS.issuperset(word[1:]):
            return None
    return None


def _shell_script(words: Sequence[str]) -> str | None:
    """Return the script that `sh words…` runs; None where there is none, or it is not certain."""
    for word in words:
        if not word.startswith(("-", "+")):
            return word
        if word == "-" or not _SHELL_FLAGS.issuperset(word[1:]):
            return None
    return None
