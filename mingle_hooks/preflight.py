"""The checks before check-in: a member that is ready can start its command.

The command is resolved as execve(2) will resolve it. An argument whose meaning is uncertain is not checked, so that no
command is refused that could start.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence

from mingle_hooks.errors import printable
from mingle_hooks.export import launchers
from mingle_hooks.export.launchers import Launcher
from mingle_hooks.net.addresses import hostname
from mingle_hooks.rendezvous.member import MemberSpec
from mingle_hooks.rendezvous.messages import Failure, Kind

# Linux's fs/exec.c and binfmt_script.c: the bytes read of a `#!` line, and the interpreters that may follow each other.
_HEAD_BYTES, _MOST_INTERPRETERS = 256, 5
_ELF = b"\x7fELF"
# The longest name and PATH in a message, in characters.
_LONGEST_NAME, _LONGEST_PATH = 100, 160
# Interpreters' options without a value. With any other option the script is uncertain.
_PYTHON_FLAGS, _PYTHON_WITH_VALUE = frozenset("bBdEiIOPqsSuvx"), ("-W", "-X")
_SHELLS, _SHELL_FLAGS = ("sh", "bash", "dash", "ksh", "zsh"), frozenset("aefhkmnuvxBCEHPT")
# With one of these variables torchrun's first argument need not be a script.
_NO_SCRIPT = ("PET_MODULE", "PET_NO_PYTHON")


class _ObstacleError(Exception):
    """This node cannot start the command: the kind of failure, and what was seen."""

    def __init__(self, kind: Kind, seen: str) -> None:
        super().__init__(seen)
        self.kind, self.seen = kind, seen


class _InterpreterError(OSError):
    """A `#!` line names an interpreter that cannot be run."""


def obstacle_to(command: Sequence[str], spec: MemberSpec, *, verbatim: bool = False) -> Failure | None:
    """Return why this node cannot start the command, or None; without a command only stdout is checked."""
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
    except _ObstacleError as obstacle:
        return _failure(obstacle)
    return None


def check_runner() -> None:
    """Raise PlaceError if `mingle run` cannot show its command's output or has no working directory."""
    try:
        _check_output()
        _check_directory()
    except _ObstacleError as obstacle:
        raise _failure(obstacle).error() from None


def _failure(obstacle: _ObstacleError) -> Failure:
    return Failure(obstacle.kind, (hostname(), obstacle.seen))


def _is_first(spec: MemberSpec) -> bool:
    """Tell whether this is certain to be rank 0's node."""
    return spec.nodes == 1 or (spec.rank == 0 and spec.settings.order == "scheduler")


def _check_output() -> None:
    """Raise if stdout is read-only: main() has replaced a closed one by a read-only /dev/null."""
    import fcntl

    if fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR) == os.O_RDONLY:
        raise _ObstacleError("output", "a closed or read-only one")


def _check_directory() -> None:
    try:
        directory = os.getcwd()
    except OSError as error:
        raise _ObstacleError("directory", f"the working directory: {error.strerror}") from None
    if not os.access(".", os.X_OK, effective_ids=True):
        raise _ObstacleError("directory", f"{directory}: {os.strerror(errno.EACCES)}")


def _check_writable() -> None:
    """Raise if the working directory cannot be written, as after an I/O error made its file system read-only."""
    if not os.access(".", os.W_OK, effective_ids=True):
        is_read_only = os.statvfs(".").f_flag & os.ST_RDONLY
        seen = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise _ObstacleError("unwritable", f"{os.getcwd()}: {seen}")


def _check_command(command: Sequence[str], launcher: Launcher | None, end: int, environ: Mapping[str, str]) -> None:
    """Check the program, and the script if an interpreter or a Python launcher is certain to run it."""
    path = environ.get("PATH", os.defpath)
    try:
        program = _found(command[0], path)
    except _InterpreterError as error:
        raise _ObstacleError("permission", str(error)) from None
    except OSError as error:
        _refuse(command[0], error, "" if "/" in command[0] else f" (PATH={printable(path, _LONGEST_PATH)})")
    if launchers.prefix_length(command):
        return
    interpreter = os.path.basename(program)
    if launcher is not None and _is_python(interpreter):
        if not any(environ.get(name) for name in _NO_SCRIPT):
            _check_script(launchers.script_of(launcher, command[end:]), "")
    elif launcher is None and _is_python(interpreter) and _is_python(os.path.basename(command[0])):
        _check_script(_python_script(command[1:]), "")
    elif launcher is None and interpreter in _SHELLS and os.path.basename(command[0]) in _SHELLS:
        _check_script(_shell_script(command[1:]), path)


def _check_script(script: str | None, path: str) -> None:
    """Raise if a script is missing or unreadable; a shell looks for it in PATH too."""
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
    """Raise the error for a file that cannot be found or run."""
    kind: Kind = "command" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else "permission"
    raise _ObstacleError(kind, f"{printable(name, _LONGEST_NAME)}: {error.strerror}{where}") from None


def _found(name: str, path: str) -> str:
    """Return the program that runs: the file in PATH, or its `#!` interpreter. Raises OSError as execvp(3) fails."""
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
    """Return the program that execve(2) runs for this file. Raises OSError as execve(2) fails."""
    if depth > _MOST_INTERPRETERS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(os.stat(file).st_mode) or not os.access(file, os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    head = _head(file)
    if not head.startswith(b"#!"):
        if head.startswith(_ELF) or b"\0" in head:  # binfmt_misc may know it
            return file
        raise OSError(errno.ENOEXEC, f"{os.strerror(errno.ENOEXEC)} (a script without `#!`)")
    interpreter = os.fsdecode(head[2:].partition(b"\n")[0]).strip(" \t").replace("\t", " ").split(" ", 1)
    try:
        found = _runs(interpreter[0], path, depth + 1)
        name = interpreter[1].strip() if len(interpreter) > 1 and os.path.basename(interpreter[0]) == "env" else ""
        return _found(name, path) if name and name[0] != "-" and "=" not in name else found
    except _InterpreterError:
        raise
    except OSError as error:
        if error.errno == errno.ENOEXEC and os.path.basename(interpreter[0]) == "env":
            return file  # env(1) runs it by a shell
        script, line = (printable(text, _LONGEST_NAME) for text in (file, " ".join(interpreter)))
        raise _InterpreterError(f"{script}: bad interpreter: {line}: {error.strerror}") from None


def _head(file: str) -> bytes:
    """Return a file's first bytes; those of a program if this user may run the file but not read it."""
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


def _python_script(arguments: Sequence[str]) -> str | None:
    """Return the script that `python ARG…` runs, or None if there is none or it is uncertain."""
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            return argument
        if argument in _PYTHON_WITH_VALUE:
            next(rest, None)
        elif argument == "-" or not _PYTHON_FLAGS.issuperset(argument[1:]):
            return None
    return None


def _shell_script(arguments: Sequence[str]) -> str | None:
    """Return the script that `sh ARG…` runs, or None if there is none or it is uncertain."""
    for argument in arguments:
        if not argument.startswith(("-", "+")):
            return argument
        if argument == "-" or not _SHELL_FLAGS.issuperset(argument[1:]):
            return None
    return None
