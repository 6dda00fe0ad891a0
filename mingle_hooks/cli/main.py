"""`mingle`: run a command line, and turn whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Literal, NamedTuple, NoReturn

from mingle_hooks import values
from mingle_hooks.errors import LONGEST, MingleError, PlaceError, UsageError, limit, printable
from mingle_hooks.export import shells
from mingle_hooks.export.variables import leftovers
from mingle_hooks.settings import NO_STRICT, TABLE

_STDERR = 2
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """A signal asked this process to end; what it has open is closed on the way out."""

    def __init__(self, number: int) -> None:
        from signal import Signals

        super().__init__(f"stopped by {Signals(number).name}")
        self.exit_code = 128 + number


def _stop(number: int, _frame: FrameType | None) -> None:
    raise StoppedError(number)


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    for number in _ENDS:
        # What was ignored stays ignored: that is how nohup(1) works.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    _fill_standard_descriptors()
    sys.exit(run(sys.argv[1:]))


def _fill_standard_descriptors() -> None:
    """Put something in the place of a standard stream that is closed, so that no socket of ours gets its number.

    Nothing can be written there, so output is not lost unnoticed; a command that `mingle exec` becomes finds it closed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= _STDERR:
        pass
    os.close(descriptor)
    # Python has None for what was closed.
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w", closefd=False)


def run(arguments: list[str]) -> int:
    """Return the exit code of one command line."""
    try:
        return _run(arguments)
    except MingleError as error:
        return _fail(arguments, None if _is_printed(error) else str(error), error.exit_code)
    except StoppedError as error:
        return _fail(arguments, str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - a bug: eval has to fail too, and the report needs the trace
        if (short := limit(error)) is not None:
            return _fail(arguments, str(short), short.exit_code)
        import traceback

        write_stderr(traceback.format_exc())
        return _fail(arguments, "this is a bug in mingle; please report it with the lines above", MingleError.exit_code)


def _is_printed(error: MingleError) -> bool:
    """Tell whether this line is in the job's output already: one line for all nodes that end for the same reason."""
    if error.is_printed or not error.is_of_rank_0:
        return error.is_printed

    return is_of_step()


def _run(arguments: list[str]) -> int:

    call = read_call(arguments)
    if arguments[:2] == ["hooks", "verify"] and (code := _checked(arguments)) is not None:
        return code
    if arguments[:1] == ["run"] and (code := _ran(arguments[1:])) is not None:
        return code
    if call is None:
        from mingle_hooks.cli import commands

        code = commands.run_click(arguments)
        return _fail(arguments, None, code) if code else 0
    from mingle_hooks.cli import answer

    if call.command == "exec":
        how = answer.How(call.explain, call.no_wait, call.verbatim, call.keep_key)
        if call.together:
            return answer.run_together(call.rest, call.options, how)
        answer.become_command(call.rest, call.options, how)
    else:
        answer.print_variables(call.options, explain=call.explain, no_wait=call.no_wait)
    return 0


def _ran(arguments: list[str]) -> int | None:
    """Return the status of a run; None where click has to look at its command line."""
    from mingle_hooks.cli import run as run_run

    asked = run_run.read_run(arguments)
    if asked is None:
        return None
    from mingle_hooks.run.runner import run_command

    return run_command(asked)


def _checked(arguments: list[str]) -> int | None:
    """Return the status of a node's health check; None where this is none."""
    from mingle_hooks.cli import health

    asked = health.read(arguments)
    return None if asked is None else health.check(*asked)


def _fail(arguments: list[str], why: str | None, code: int) -> int:
    """Say why on stderr, and for `mingle env` print what makes eval fail too; return the exit code."""
    for number in _ENDS:
        if signal.getsignal(number) is _stop:  # it ends anyhow
            signal.signal(number, signal.SIG_IGN)
    if why is not None:
        write_stderr(f"mingle: {printable(why, LONGEST)}\n")
    if arguments[:1] == ["env"] or (code == UsageError.exit_code and _is_mistyped(arguments)):
        try:
            write_stdout(_failure_text(arguments[1:], code))
        except MingleError:  # what was wrong has been said, and the code tells it
            pass
    return code


def _is_mistyped(arguments: list[str]) -> bool:
    """Tell whether this may have been meant for `mingle env`, and somebody evals it: `mingle evn`, `mingle --id a`."""
    from mingle_hooks.cli.commands import COMMANDS

    return arguments[:1] != [] and arguments[0] not in COMMANDS and not sys.stdout.isatty()


def _failure_text(arguments: list[str], code: int) -> str:
    """Return what makes eval fail with code, in the shell that the arguments, which may be wrong, ask for."""
    shell = _said(arguments, "--shell", "MINGLE_SHELL") or shells.reader()
    on_failure = _said(arguments, "--on-failure", "MINGLE_ON_FAILURE")
    return shells.failure(
        shell if shell in shells.SHELLS else "sh", code, leftovers(os.environ), ends=on_failure != "status"
    )


def _said(arguments: list[str], option: str, variable: str) -> str:
    """Return the last value of an option, else the variable's."""
    said = [after for before, after in itertools.pairwise(arguments) if before == option]
    said += [word.removeprefix(f"{option}=") for word in arguments if word.startswith(f"{option}=")]
    return (said or [os.environ.get(variable, "")])[-1]


# The command lines that every node of every job runs, read without click, which costs 30 ms to import.
#
# Only what is plain: known options of `mingle env` and `mingle exec`, each with a value that does not look like
# an option. Anything else, help and mistakes included, is left to click, which knows the same options.

FLAGS = {
    "--explain": "explain",
    "--no-wait": "no_wait",
    NO_STRICT: "no_strict",
    "--together": "together",
    "--verbatim": "verbatim",
    "--keep-key": "keep_key",
}
# What starts nothing does not have these.
ONLY_STARTED = ("together", "verbatim", "keep_key")
_SWITCHES = (values.switch, values.differences)  # what an option without a value sets
FLAGS |= {setting.option: setting.name for setting in TABLE if setting.option and setting.read in _SWITCHES}
OPTIONS = {setting.option: setting.name for setting in TABLE if setting.option and setting.option not in FLAGS}


class Call(NamedTuple):
    """A command of the two, its flags and options by name, and for `exec` the command to become."""

    command: Literal["env", "exec"]
    options: dict[str, object]
    explain: bool = False
    no_wait: bool = False
    together: bool = False
    verbatim: bool = False
    keep_key: bool = False
    rest: tuple[str, ...] = ()


def read_call(arguments: Sequence[str]) -> Call | None:
    """Return the call, or None where click has to look at it.

    The options of `exec` end at the first word that is none, or at `--`: what follows is the command's own.
    """
    if not arguments or arguments[0] not in ("env", "exec"):
        return None
    found = split_call(arguments[1:])
    if found is None:
        return None
    options, rest = found
    if rest[:1] == ("--",) and arguments[0] == "exec":
        rest = rest[1:]
    is_exec = arguments[0] == "exec"
    if is_exec != bool(rest) or not (is_exec or options.keys().isdisjoint(ONLY_STARTED)):
        return None
    flags = {flag: options.pop(flag, False) is True for flag in ("explain", "no_wait", *ONLY_STARTED)}
    return Call("exec" if arguments[0] == "exec" else "env", options, **flags, rest=rest)


def split_call(
    words: Sequence[str], flags: Mapping[str, str] = FLAGS, texts: Mapping[str, str] = OPTIONS
) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """Return the options, and the words from the first on that is none; None for an option that is not plain.

    `flags` and `texts` are the options that there are, without and with a value, and their names.
    """
    options: dict[str, object] = {}
    position = 0
    while position < len(words):
        name, is_joined, value = words[position].partition("=")
        if name in flags and not is_joined:
            options[flags[name]] = True
        elif name in texts:
            if not is_joined:
                position += 1
                if position == len(words) or words[position].startswith("-"):
                    return None
                value = words[position]
            options[texts[name]] = value
        elif name == "--" or not name.startswith("-"):
            break
        else:
            return None
        position += 1
    return options, tuple(words[position:])


# Standard error: what is said there may be lost, for there is nobody else to tell.


def write_stderr(text: str) -> None:
    """Write text to stderr, as far as that can be done."""
    send_stderr(text.encode(sys.stderr.encoding, "backslashreplace"))


def send_stderr(data: bytes) -> None:
    """Write bytes to stderr, as far as that can be done."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # closed, full, or nobody reads it
        return


def is_of_step() -> bool:
    """Tell whether all tasks of a Slurm step share this stderr: slurmstepd reads it from a pipe and srun shows it.

    A file, as by `srun --error=%t`, a terminal of `srun --pty` and a redirection are this task's own.
    """
    return "SLURM_STEP_ID" in os.environ and "SLURM_LOCALID" in os.environ and stat.S_ISFIFO(os.fstat(2).st_mode)


# Standard output: all of a text, or an error, and nothing of it left in a file.


def write_stdout(text: str) -> None:
    """Write the whole text to stdout at once; PlaceError when it cannot be written."""
    send_stdout(os.fsencode(text))


def send_stdout(data: bytes) -> None:
    """Write bytes to stdout, waiting where it is a pipe that is full and does not block by itself.

    Raises PlaceError.
    """
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
    """Cut the beginning of a text off its file again, unless somebody wrote after it: half a world is none."""
    try:
        end = os.lseek(1, 0, os.SEEK_CUR)
        if written and os.fstat(1).st_size == end:
            os.ftruncate(1, end - written)
            os.lseek(1, end - written, os.SEEK_SET)
    except OSError:  # a pipe, of which nobody reads more
        return


def _unwritable(error: OSError) -> PlaceError:
    if error.errno == errno.EPIPE:
        return PlaceError("a reader of the output", "a closed pipe", "a command that reads all of it")
    if error.errno == errno.EBADF:
        return PlaceError("an open standard output", "a closed one", "leaving out `>&-`")
    return PlaceError("to write the output", str(error.strerror), "another file or file system")
