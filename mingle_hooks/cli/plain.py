"""Parsing and output without click, which takes 30 ms to import.

A plain command line has only known options of `mingle env` and `mingle exec`, with values that do not look like
options. click, which knows the same options, parses all others, help and mistakes included.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from mingle_hooks import values
from mingle_hooks.errors import PlaceError
from mingle_hooks.settings import TABLE

# Set by completion scripts to an instruction such as bash_complete.
COMPLETE = "_MINGLE_COMPLETE"
# Options of `mingle exec` only.
ONLY_STARTED = ("together", "verbatim", "keep_key")
FLAGS = {f"--{name.replace('_', '-')}": name for name in ("explain", "no_wait", "no_strict", *ONLY_STARTED)}
_SWITCHES = (values.switch, values.differences)  # the readers of options without a value
FLAGS |= {setting.option: setting.name for setting in TABLE if setting.option and setting.read in _SWITCHES}
OPTIONS = {setting.option: setting.name for setting in TABLE if setting.option and setting.option not in FLAGS}


class Flags(NamedTuple):
    """The flags of one call, which are no settings: see cli/commands.py."""

    explain: bool = False
    no_wait: bool = False
    together: bool = False
    verbatim: bool = False
    keep_key: bool = False


class Call(NamedTuple):
    """A call of `env` or `exec`: its options by name, its flags, and for `exec` the command."""

    command: Literal["env", "exec"]
    options: dict[str, object]
    flags: Flags = Flags()
    rest: tuple[str, ...] = ()


def read_call(arguments: Sequence[str]) -> Call | None:
    """Return the call, or None if click must parse it.

    The options of `exec` end at `--` or at the first argument that is no option: the command follows.
    """
    if not arguments or arguments[0] not in ("env", "exec"):
        return None
    found = split_call(arguments[1:])
    if found is None:
        return None
    is_exec, (options, rest) = arguments[0] == "exec", found
    rest = rest[1:] if is_exec and rest[:1] == ("--",) else rest
    if is_exec != bool(rest) or not (is_exec or options.keys().isdisjoint(ONLY_STARTED)):
        return None
    flags = Flags(*(options.pop(flag, False) is True for flag in Flags._fields))
    return Call("exec" if is_exec else "env", options, flags, rest)


def split_call(
    arguments: Sequence[str], flags: Mapping[str, str] = FLAGS, texts: Mapping[str, str] = OPTIONS
) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """Return the options, and the rest from the first argument that is none; None for an option that is not plain.

    `flags` and `texts` map the options without and with a value to their names.
    """
    options: dict[str, object] = {}
    position = 0
    while position < len(arguments):
        name, is_joined, value = arguments[position].partition("=")
        if name in flags and not is_joined:
            options[flags[name]] = True
        elif name in texts:
            if not is_joined:
                position += 1
                if position == len(arguments) or arguments[position].startswith("-"):
                    return None
                value = arguments[position]
            options[texts[name]] = value
        elif name == "--" or not name.startswith("-"):
            break
        else:
            return None
        position += 1
    return options, tuple(arguments[position:])


def option_arguments(options: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as arguments of `mingle exec`."""
    known = {name: option for option, name in {**OPTIONS, **FLAGS}.items()}
    given = {known[name]: value for name, value in options.items() if value not in (None, False)}
    return tuple(option if value is True else f"{option}={value}" for option, value in given.items())


UNHEALTHY = 1  # the exit status of `mingle hooks verify` with findings


def read_health_check(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return the scheduler and the root of `hooks verify SCHEDULER --quiet [--root DIR]`; None for anything else."""
    if arguments[:2] != ["hooks", "verify"] or "--quiet" not in arguments:
        return None
    rest = [argument for argument in arguments[2:] if argument != "--quiet"]
    root = ""
    if "--root" in rest[:-1]:
        position = rest.index("--root")
        root = rest[position + 1]
        del rest[position : position + 2]
    is_plain = len(rest) == 1 and not rest[0].startswith("-") and not root.startswith("-")
    return (rest[0], root.rstrip("/")) if is_plain else None


# Standard error; failures to write are ignored, as there is nowhere else to report them.


def write_stderr(text: str) -> None:
    """Write text to stderr as far as possible."""
    send_stderr(text.encode(sys.stderr.encoding, "backslashreplace"))


def send_stderr(data: bytes) -> None:
    """Write bytes to stderr as far as possible."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # closed, full, or without a reader
        return


def is_of_step() -> bool:
    """Tell whether all tasks of a Slurm step share this stderr: slurmstepd reads it from a pipe and srun shows it.

    A file (`srun --error=%t`), a terminal (`srun --pty`) or a redirection is this task's own.
    """
    return "SLURM_STEP_ID" in os.environ and "SLURM_LOCALID" in os.environ and stat.S_ISFIFO(os.fstat(2).st_mode)


# Values of bash's variable `_` if no bash of this task started the process.
_STARTERS = ("", "srun", "salloc", "sbatch")


def repeats_task_0() -> bool:
    """Tell whether srun gave the same arguments to task 0 of this step, which prints the error about them.

    If slurmstepd did not start this process itself, a script may have chosen arguments for each task; `_` shows that
    `bash -c` became this process. Each component of a heterogeneous job has its own command. `srun --multi-prog` and
    `exec` in a script cannot be detected.
    """
    if os.environ.get("SLURM_PROCID", "0") == "0" or "SLURM_HET_SIZE" in os.environ or not is_of_step():
        return False
    try:
        with open(f"/proc/{os.getppid()}/comm") as parent:
            is_direct = parent.read() == "slurmstepd\n"
    except OSError:  # hidden, as in a container
        return False
    return is_direct and os.path.basename(os.environ.get("_", "")) in _STARTERS


# Standard output: the whole text, or an error and no partial text in a file.


def write_stdout(text: str) -> None:
    """Write the whole text to stdout. Raises PlaceError."""
    send_stdout(os.fsencode(text))


def send_stdout(data: bytes) -> None:
    """Write bytes to stdout, waiting if it is a full non-blocking pipe. Raises PlaceError."""
    written = 0
    while written < len(data):
        try:
            written += os.write(1, data[written:])
        except BlockingIOError:
            import select

            select.select([], [1], [])
        except OSError as error:
            _take_back(written)
            raise _unwritable(error) from None


def _take_back(written: int) -> None:
    """Truncate a partial text from the file, unless another process has written after it."""
    try:
        end = os.lseek(1, 0, os.SEEK_CUR)
        if written and os.fstat(1).st_size == end:
            os.ftruncate(1, end - written)
            os.lseek(1, end - written, os.SEEK_SET)
    except OSError:  # a pipe
        return


def _unwritable(error: OSError) -> PlaceError:
    if error.errno == errno.EPIPE:
        return PlaceError("a reader of the output", "a closed pipe", "a command that reads all of it")
    if error.errno == errno.EBADF:
        return PlaceError("an open standard output", "a closed one", "leaving out `>&-`")
    return PlaceError("to write the output", str(error.strerror), "another file or file system")
