"""The click group `mingle`: its commands, and click's complaints in our words."""

from __future__ import annotations

import os
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from mingle_hooks import __version__
from mingle_hooks.cli import streams
from mingle_hooks.cli.group import COMPLETE, Group

# name -> (module with a click command of that name, one line of help). Only the one that is called is loaded.
COMMANDS = {
    "env": ("mingle_hooks.cli.env", "Print the variables of this node for eval."),
    "exec": ("mingle_hooks.cli.exec", "Set the variables, then become COMMAND."),
    "run": ("mingle_hooks.cli.run", "Run COMMAND on all hosts of the job as one."),
    "check": ("mingle_hooks.cli.check", "Find hosts that differ or cannot reach the others."),
    "ls": ("mingle_hooks.cli.ls", "List your runs."),
    "show": ("mingle_hooks.cli.show", "Show one run: its nodes, who is missing, and its last failure."),
    "kill": ("mingle_hooks.cli.kill", "End a run on all of its nodes and wait until it has ended."),
    "hosts": ("mingle_hooks.cli.hosts", "Print the hosts of the world, for MPI and other programs."),
    "key": ("mingle_hooks.cli.key", "Print a new key for the members of a world."),
    "template": ("mingle_hooks.cli.template", "Write a job script from a job description."),
    "hooks": ("mingle_hooks.cli.hooks", "Install the hooks of a cluster: prolog, epilog, task prolog."),
    "schema": ("mingle_hooks.cli.schema", "Print the JSON schema of a job file or of mingle.toml."),
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
        from mingle_hooks.cli import help as shown

        return super().parse_args(ctx, shown.help_words(ctx, args))

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


def run(arguments: list[str]) -> int:
    """Return the exit code of a command line; UsageError for one that click cannot read."""
    streams.replace()
    if (asked := os.environ.get(COMPLETE)) is not None:
        from mingle_hooks.cli.completion import respond

        return respond(mingle, asked)
    try:
        code = mingle.main(arguments, prog_name="mingle", standalone_mode=False)
    except click.ClickException as error:
        from mingle_hooks.cli.complaint import complaint

        raise complaint(error, arguments, COMMANDS) from None
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return 1
    return code if isinstance(code, int) else 0
