"""`mingle`: run a command line, and turn errors into one line and an exit code."""

from __future__ import annotations

import io
import itertools
import os
import signal
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from mingle_hooks.errors import LONGEST, MingleError, UsageError, limit, printable
from mingle_hooks.export import variables
from mingle_hooks.files import fill_standard_descriptors, write_stderr, write_stdout
from mingle_hooks.settings import EXEC_ONLY, FLAGS, NOT_FOR_RUN, OPTIONS, split_call

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(BaseException):
    """A signal ends this process; raised so that `with` and `finally` clean up, and no `except Exception` goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def _stop(number: int, _frame: FrameType | None) -> None:
    raise StoppedError(number)


def main() -> NoReturn:
    """Run this process's command line, and exit."""
    for number in _ENDS:
        # An ignored signal stays ignored, as nohup(1) needs.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    # While SIGCHLD is ignored, the kernel drops the status of a child. COMMAND of `mingle exec` inherits it as it is.
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN and sys.argv[1:2] not in (["env"], ["exec"]):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Read-only, so that output is not lost unnoticed; the command of `mingle exec` finds the stream closed.
    fill_standard_descriptors(os.O_RDONLY)
    # Python sets closed streams to None.
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    # Without a buffer: text that a closed or full stderr does not take stays in it, and makes Python exit with 120.
    encoding = sys.stderr.encoding if sys.stderr else None
    stderr: Any = io.FileIO(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(stderr, encoding, "backslashreplace", write_through=True)
    sys.exit(run(sys.argv[1:]))


# What sees this process fail, srun or `mingle run`, may end rank 0 at once: rank 0 prints the reason first.
RANK_0_PRINTS_S = 0.5


def run(arguments: list[str]) -> int:
    """Return the exit code of one command line."""
    try:
        return _run(arguments)
    except MingleError as error:
        is_printed = _is_printed(error)
        if is_printed and error.repeats_rank_0:
            with suppress(StoppedError):
                time.sleep(RANK_0_PRINTS_S)
        return _fail(arguments, None if is_printed else str(error), error.exit_code)
    except StoppedError as error:
        return _fail(arguments, str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 - a bug: eval must fail too, and a report needs the traceback
        if (short := limit(error)) is not None:
            return _fail(arguments, str(short), short.exit_code)
        import traceback

        write_stderr(traceback.format_exc())
        return _fail(arguments, "this is a bug in mingle; please report it with the lines above", MingleError.exit_code)


def _is_printed(error: MingleError) -> bool:
    """Return whether the job's output has this message already, from this process, rank 0 or task 0."""
    is_by_rank_0 = error.repeats_rank_0 and _is_of_step()
    return error.is_printed or is_by_rank_0 or (error.is_about_arguments and _repeats_task_0())


def _is_of_step() -> bool:
    """Return whether all tasks of a Slurm step share this stderr: slurmstepd reads it from a pipe and srun shows it.

    A file (`srun --error=%t`), a terminal (`srun --pty`) or a redirection is this task's own.
    """
    return "SLURM_STEP_ID" in os.environ and "SLURM_LOCALID" in os.environ and stat.S_ISFIFO(os.fstat(2).st_mode)


# Values of bash's variable `_` if no bash of this task started the process.
_STARTERS = ("", "srun", "salloc", "sbatch")


def _repeats_task_0() -> bool:
    """Return whether srun gave the same arguments to task 0 of this step, which prints the error about them.

    If slurmstepd did not start this process itself, a script may have chosen arguments for each task; `_` shows that
    `bash -c` became this process. Each component of a heterogeneous job has its own command. `srun --multi-prog` and
    `exec` in a script cannot be detected.
    """
    if os.environ.get("SLURM_PROCID", "0") == "0" or "SLURM_HET_SIZE" in os.environ or not _is_of_step():
        return False
    try:
        with open(f"/proc/{os.getppid()}/comm") as parent:
            is_direct = parent.read() == "slurmstepd\n"
    except OSError:  # hidden, as in a container
        return False
    return is_direct and os.path.basename(os.environ.get("_", "")) in _STARTERS


def _run(arguments: list[str]) -> int:
    call = read_call(arguments)
    if call is None:
        from mingle_hooks.cli import commands

        code = commands.run_click(arguments)
        return code and _fail(arguments, None, code)
    options, command = call
    if arguments[0] == "run":
        from mingle_hooks.run import start

        return start.run(command, options)
    from mingle_hooks.cli import answer  # what fails while it loads has to make eval fail, too

    flags = answer.Flags(*(options.pop(flag, False) is True for flag in answer.Flags._fields))
    if command:
        return answer.execute(command, options, flags)
    answer.print_variables(options, flags)
    return 0


def read_call(arguments: Sequence[str]) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """Return the options and flags of a plain call of `env`, `exec` or `run`, and the command of the last two.

    A plain one has only known options, with values that do not look like options; those before a command end at `--` or
    at the first argument that is no option. None means that click, which knows the same options, must parse it: help
    and mistakes too.
    """
    flags, texts = FLAGS, OPTIONS
    if arguments[:1] == ["run"]:
        from mingle_hooks.run.start import Options

        flags, texts = ({name: to for name, to in table.items() if to not in NOT_FOR_RUN} for table in (FLAGS, OPTIONS))
        own = {f"--{name.replace('_', '-')}": name for name in Options._fields if name != "start_option"}  # repeated
        flags["--no-label"] = own.pop("--no-label")
        texts |= own
    found = split_call(arguments[1:], flags, texts) if arguments and arguments[0] in ("env", "exec", "run") else None
    if found is None:
        return None
    options, command = found
    if arguments[0] == "env":
        return None if command or not options.keys().isdisjoint(EXEC_ONLY) else found
    command = command[1:] if command[:1] == ("--",) else command
    return (options, command) if command else None


def _fail(arguments: list[str], why: str | None, code: int) -> int:
    """Print the reason to stderr, and for `mingle env` text that makes eval fail; return the exit code."""
    for number in _ENDS:
        if signal.getsignal(number) is _stop:  # this process is about to exit
            signal.signal(number, signal.SIG_IGN)
    if why is not None:
        write_stderr(f"mingle: {printable(why, LONGEST)}\n")
    if arguments[:1] == ["env"] or (code == UsageError.exit_code and _is_mistyped(arguments)):
        with suppress(MingleError):  # the reason is printed, and the exit code is set
            write_stdout(_failure_text(arguments[1:], code))
    return code


def _is_mistyped(arguments: list[str]) -> bool:
    """Return whether this may be a mistyped `mingle env` in an eval, such as `mingle evn` or `mingle --id a`."""
    from mingle_hooks.cli.commands import COMMANDS

    return arguments[:1] != [] and arguments[0] not in COMMANDS and not sys.stdout.isatty()


def _failure_text(arguments: list[str], code: int) -> str:
    """Return text that makes eval fail with `code`, for the --shell in the arguments, which may be invalid."""
    shell = _last_value(arguments, "--shell", "MINGLE_SHELL") or variables.reader()
    shell = shell if shell in variables.SHELLS else "sh"
    ends = _last_value(arguments, "--on-failure", "MINGLE_ON_FAILURE") != "status"
    return variables.failure(shell, code, variables.leftovers(os.environ), ends=ends)


def _last_value(arguments: list[str], option: str, variable: str) -> str:
    """Return the last value of an option, by default the variable's."""
    found = os.environ.get(variable, "")
    for before, argument in itertools.pairwise(["", *arguments]):
        if before == option:
            found = argument
        elif argument.startswith(f"{option}="):
            found = argument.removeprefix(f"{option}=")
    return found
