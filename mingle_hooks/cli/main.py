"""`mingle`: run a command line, and turn errors into one line and an exit code."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from mingle_hooks.cli import plain
from mingle_hooks.cli.plain import UNHEALTHY, write_stderr, write_stdout
from mingle_hooks.errors import LONGEST, MingleError, UsageError, limit, printable
from mingle_hooks.export import shells
from mingle_hooks.export.variables import leftovers

_STDERR = 2
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """A signal ends this process; raised so that `with` and `finally` clean up."""

    def __init__(self, number: int) -> None:
        from signal import Signals

        super().__init__(f"stopped by {Signals(number).name}")
        self.exit_code = 128 + number


def _stop(number: int, _frame: FrameType | None) -> None:
    raise StoppedError(number)


def main() -> NoReturn:
    """Run this process's command line, and exit."""
    for number in _ENDS:
        # An ignored signal stays ignored, as nohup(1) needs.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    _fill_standard_descriptors()
    sys.exit(run(sys.argv[1:]))


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each closed standard stream, so that no socket gets its number.

    It is read-only, so that output is not lost unnoticed; the command of `mingle exec` finds the stream closed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= _STDERR:
        pass
    os.close(descriptor)
    # Python sets closed streams to None.
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
    except Exception as error:  # noqa: BLE001 - a bug: eval must fail too, and a report needs the traceback
        if (short := limit(error)) is not None:
            return _fail(arguments, str(short), short.exit_code)
        import traceback

        write_stderr(traceback.format_exc())
        return _fail(arguments, "this is a bug in mingle; please report it with the lines above", MingleError.exit_code)


def _is_printed(error: MingleError) -> bool:
    """Tell whether the job's output has this message already, from this process, rank 0 or task 0."""
    is_by_rank_0 = error.is_of_rank_0 and plain.is_of_step()
    is_elsewhere = is_by_rank_0 or (error.is_of_arguments and plain.repeats_task_0())
    return error.is_printed or is_elsewhere


def _run(arguments: list[str]) -> int:
    if (health := plain.read_health_check(arguments)) and (code := _check_health(*health)) is not None:
        return code
    call = plain.read_call(arguments)
    if call is None:
        from mingle_hooks.cli import commands

        code = commands.run_click(arguments)
        return _fail(arguments, None, code) if code else 0
    from mingle_hooks.cli import answer

    if call.command == "exec":
        return answer.execute(call.rest, call.options, call.flags)
    answer.print_variables(call.options, call.flags)
    return 0


def _check_health(scheduler: str, root: str) -> int | None:
    """Print the findings and return the exit status, or None if this scheduler has no hooks here.

    Raises PlaceError and SettingsError.
    """
    from mingle_hooks.hooks.plan import quick_findings

    found = quick_findings(root, scheduler)
    if found and found[0].where == scheduler:
        return None
    for finding in found:
        write_stdout(f"BAD  {finding.where}: {printable(finding.what)}; fix: {printable(finding.mend)}\n")
    return UNHEALTHY if found else 0


def _fail(arguments: list[str], why: str | None, code: int) -> int:
    """Print the reason to stderr, and for `mingle env` text that makes eval fail; return the exit code."""
    for number in _ENDS:
        if signal.getsignal(number) is _stop:  # this process is about to exit
            signal.signal(number, signal.SIG_IGN)
    if why is not None:
        write_stderr(f"mingle: {printable(why, LONGEST)}\n")
    if arguments[:1] == ["env"] or (code == UsageError.exit_code and _is_mistyped(arguments)):
        try:
            write_stdout(_failure_text(arguments[1:], code))
        except MingleError:  # the reason is printed, and the exit code is set
            pass
    return code


def _is_mistyped(arguments: list[str]) -> bool:
    """Tell whether this may be a mistyped `mingle env` in an eval, such as `mingle evn` or `mingle --id a`."""
    from mingle_hooks.cli.commands import COMMANDS

    return arguments[:1] != [] and arguments[0] not in COMMANDS and not sys.stdout.isatty()


def _failure_text(arguments: list[str], code: int) -> str:
    """Return text that makes eval fail with `code`, for the --shell in the arguments, which may be invalid."""
    shell = _last_value(arguments, "--shell", "MINGLE_SHELL") or shells.reader()
    shell = shell if shell in shells.SHELLS else "sh"
    ends = _last_value(arguments, "--on-failure", "MINGLE_ON_FAILURE") != "status"
    return shells.failure(shell, code, leftovers(os.environ), ends=ends)


def _last_value(arguments: list[str], option: str, variable: str) -> str:
    """Return the last value of an option, by default the variable's."""
    found = [after for before, after in itertools.pairwise(arguments) if before == option]
    found += [argument.removeprefix(f"{option}=") for argument in arguments if argument.startswith(f"{option}=")]
    return (found or [os.environ.get(variable, "")])[-1]
