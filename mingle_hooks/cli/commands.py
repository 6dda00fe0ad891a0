"""The click group `mingle`: its commands, and click's complaints in our words."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Container
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from mingle_hooks import __version__
from mingle_hooks.cli.plain import COMPLETE, send_stderr, send_stdout
from mingle_hooks.errors import UsageError
from mingle_hooks.values import nearest

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Group(click.Group):
    """Shows its help where no command is named, as a mistake; what click does then differs from version to version."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"subcommand_metavar": "COMMAND [ARG]...", **kwargs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an empty command line before click looks at it."""
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:  # else: for a Tab
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the whole line that it says of itself."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, its.get_short_help_str(limit=1000)) for name, its in found if its is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant, and its own words. UsageError, with the nearest, where there is none."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing and not name.startswith("-"):
            near = f"{ctx.command_path} {self._meant(ctx, name)}"
            raise UsageError(f"a command: {', '.join(known)}", name, f"`{near}`")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, name: str) -> str:
        """Return what to type instead of a name that is no command; a program's is what `exec` becomes."""
        lines = self._lines(ctx)
        if name not in lines and "exec" in lines and shutil.which(name):
            return f"exec {name}"
        return lines[nearest(name, lines)]

    def _lines(self, ctx: click.Context) -> dict[str, str]:
        """Return each command's name -> what to type; also of those below: `mingle doctor` is `mingle hooks doctor`."""
        known = self.list_commands(ctx)
        groups = {name: its for name in known if isinstance(its := self.get_command(ctx, name), click.Group)}
        below = {name: f"{group} {name}" for group, its in groups.items() for name in its.list_commands(ctx)}
        return {name: name for name in known} | {name: line for name, line in below.items() if name not in known}


# sys.stdout and sys.stderr for click: the one all or nothing, the other as far as it goes.


class _Standard(io.RawIOBase):
    """A descriptor whose writer knows what a failure means."""

    def __init__(self, descriptor: int, send: Callable[[bytes], None]) -> None:
        self._descriptor, self._send = descriptor, send

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Buffer) -> int:
        whole = bytes(data)
        self._send(whole)
        return len(whole)


def replace_streams() -> None:
    """Have everything that is printed go through `stdout` and `stderr`, at once."""
    for name, descriptor, send in (("stdout", 1, send_stdout), ("stderr", 2, send_stderr)):
        old = getattr(sys, name)
        raw: Any = _Standard(descriptor, send)  # and no buffer, in which something could be left
        text = io.TextIOWrapper(raw, encoding=old.encoding, errors=old.errors, write_through=True)
        setattr(sys, name, text)


# name -> (module with a click command of that name, one line of help). Only the one that is called is loaded.
COMMANDS = {
    "env": ("mingle_hooks.cli.env", "Print the variables of this node for eval."),
    "exec": ("mingle_hooks.cli.env", "Set the variables, then become COMMAND."),
    "run": ("mingle_hooks.cli.run", "Run COMMAND on all hosts of the job as one."),
    "check": ("mingle_hooks.cli.check", "Find hosts that differ or cannot reach the others."),
    "ls": ("mingle_hooks.cli.run", "List your runs."),
    "show": ("mingle_hooks.cli.run", "Show one run: its nodes, who is missing, and its last failure."),
    "kill": ("mingle_hooks.cli.run", "End a run on all of its nodes and wait until it has ended."),
    "hosts": ("mingle_hooks.cli.env", "Print the hosts of the world, for MPI and other programs."),
    "key": ("mingle_hooks.cli.docs", "Print a new key for the members of a world."),
    "template": ("mingle_hooks.cli.template", "Write a job script from a job description."),
    "hooks": ("mingle_hooks.cli.hooks", "Install the hooks of a cluster: prolog, epilog, task prolog."),
    "schema": ("mingle_hooks.cli.template", "Print the JSON schema of a job file or of mingle.toml."),
    "docs": ("mingle_hooks.cli.docs", "Print a page of the documentation."),
    "completion": ("mingle_hooks.cli.completion", "Print the completion script for bash, zsh or fish."),
}
# Shown by `mingle --help --all` only.
RARE = {"schema"}


class _Commands(Group):
    """The table above as a click group: a command's module is loaded when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return what a command's name may become; without loading any."""
        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from mingle_hooks.cli.help import help_words

        return super().parse_args(ctx, help_words(ctx, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from mingle_hooks.cli.help import ALL

        rows = [row for param in self.get_params(ctx) if (row := param.get_help_record(ctx)) is not None]
        if ALL not in ctx.meta:
            rows[-1] = ("-h, --help [--all]", "Show this help, or with --all every command.")
        with formatter.section("Options"):
            formatter.write_dl(rows)
        with formatter.section("Commands"):
            known = [(name, line) for name, (_, line) in COMMANDS.items() if name not in RARE or ALL in ctx.meta]
            formatter.write_dl(known)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def mingle() -> None:
    """Give every node of a job the same rank 0, address and port.

    \b
    srun mingle exec torchrun train.py      in a Slurm job
    mingle run torchrun train.py            in a PBS job script
    mingle exec --id a --nodes 4 COMMAND    on each of four machines
    """


def run_click(arguments: list[str]) -> int:
    """Return the exit code of a command line; UsageError for one that click cannot read."""
    replace_streams()
    if (asked := os.environ.get(COMPLETE)) is not None:
        from mingle_hooks.cli.completion import respond

        return respond(mingle, asked)
    try:
        code = mingle.main(arguments, prog_name="mingle", standalone_mode=False)
    except click.ClickException as error:
        mistake = complaint(error, arguments, COMMANDS)
        mistake.is_of_arguments = True
        raise mistake from None
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return 1
    return code if isinstance(code, int) else 0


# click's complaints in our words: what was expected, what stands there, what to try.


def complaint(error: click.ClickException, arguments: list[str], commands: Container[str]) -> UsageError:
    """Return what click says of the arguments of `mingle`, as our one line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    words = ["mingle", *(word for word in arguments[:1] if word in commands)]
    where = context.command_path if context else " ".join(words)
    if isinstance(error, click.NoSuchOption):
        known = error.possibilities or ()
        near = nearest(error.option_name, known) if known else f"`{where} --help`"
        return UsageError(f"an option of `{where}`", error.option_name, near)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _argument(error, error.param, where)
    said = error.format_message().removeprefix("Got ").rstrip(".")
    if isinstance(error, click.BadOptionUsage):
        said = said.replace(f"Option {error.option_name!r} ", f"{error.option_name}, which ")
    return UsageError(f"options of `{where}`", said, f"`{where} --help`")


def _argument(error: click.BadParameter, param: click.Parameter, where: str) -> UsageError:
    choices = [str(choice) for choice in param.type.choices] if isinstance(param.type, click.Choice) else []
    expected = f"one of {', '.join(choices)}" if choices else f"{param.human_readable_name} after `{where}`"
    if isinstance(error, click.MissingParameter):
        return UsageError(expected, "none", f"`{where} {choices[0]}`" if choices else f"`{where} --help`")
    seen = error.message.partition(" is not one of ")[0].strip("'")
    return UsageError(expected, seen, f"`{where} {nearest(seen, choices)}`" if choices else f"`{where} --help`")
