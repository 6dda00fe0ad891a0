"""`mingle`: which command, and what becomes of errors."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from mingle_hooks.errors import MingleError, UsageError, printable

if TYPE_CHECKING:
    from types import FrameType

# name -> (module with a click command of that name, one line of help). Only the one that is called is loaded.
COMMANDS = {
    "env": ("mingle_hooks.cli.env", "Print this node's place in the world, for eval."),
    "exec": ("mingle_hooks.cli.exec", "Set the variables, then become COMMAND."),
    "key": ("mingle_hooks.cli.key", "Print a fresh key for the members of a world."),
    "template": ("mingle_hooks.cli.template", "Make job scripts from one job description."),
    "hooks": ("mingle_hooks.cli.hooks", "Make and install prolog, epilog and task prolog."),
}


class _Commands(click.Group):
    """The table above as a click group: a command's module is loaded when the command is called."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[name][0]), name)
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mingle-hooks", message="%(prog)s %(version)s")
def mingle() -> None:
    """Tell every node of a job who is rank 0, and how to reach it."""


class StoppedError(Exception):
    """A signal asked this process to end; what it has open is closed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def _stop(number: int, _frame: FrameType | None) -> None:
    raise StoppedError(number)


def main() -> None:
    """Run the command line; one line on stderr and a documented exit code for whatever goes wrong."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Return the exit code of one command line."""
    try:
        code = mingle.main(arguments, prog_name="mingle", standalone_mode=False)
    except MingleError as error:
        return fail(arguments, str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return fail(arguments, None, UsageError.exit_code)
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "mingle"
        wrong = UsageError(f"options of `{where}`", error.format_message(), f"`{where} --help`")
        return fail(arguments, str(wrong), wrong.exit_code)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (StoppedError, click.Abort, BrokenPipeError) as error:
        return fail(arguments, str(error) or "stopped", getattr(error, "exit_code", 1))
    except Exception:  # noqa: BLE001 - a bug: eval has to fail too, and the report needs the trace
        import traceback  # noqa: PLC0415

        traceback.print_exc()
        return fail(arguments, "this is a bug in mingle; please report it with the lines above", MingleError.exit_code)
    return code if isinstance(code, int) else 0


def fail(arguments: list[str], why: str | None, code: int) -> int:
    """Say why on stderr, and for `mingle env` print what makes eval fail too; return the exit code."""
    if why is not None:
        print(f"mingle: {printable(why, 1600)}", file=sys.stderr)  # noqa: T201 - the program's own message
    if arguments[:1] == ["env"]:
        write(_failure_text(arguments[1:], code))
    return code


def _failure_text(arguments: list[str], code: int) -> str:
    """Return what makes eval fail with code, in the shell that the arguments, which may be wrong, ask for."""
    from mingle_hooks.export import shells  # noqa: PLC0415 - other commands need none of it
    from mingle_hooks.export.variables import leftovers  # noqa: PLC0415

    asked = [after for option, after in zip(arguments, arguments[1:], strict=False) if option == "--shell"]
    asked += [option.removeprefix("--shell=") for option in arguments if option.startswith("--shell=")]
    shell = (asked or [os.environ.get("MINGLE_SHELL", "")])[-1]
    return shells.failure(shell if shell in shells.SHELLS else "sh", code, leftovers(os.environ))


def write(text: str) -> None:
    """Write the whole text to stdout at once; OSError when it cannot be written."""
    data = os.fsencode(text)
    while data:
        data = data[os.write(1, data) :]
