"""The click group `mingle`: its commands, options, help and completion, and click's errors as UsageError.

The tables of settings and job fields say what an option means; this module says how help, completion and man pages
show it. `mingle env` does not import it on the nodes.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple

import click
from click import shell_completion
from click.shell_completion import CompletionItem

from mingle_hooks import __version__, plugins, values
from mingle_hooks.errors import MingleError, UsageError
from mingle_hooks.export.frameworks import FRAMEWORKS, NONE
from mingle_hooks.export.hostfiles import FORMATS
from mingle_hooks.export.variables import SHELLS
from mingle_hooks.files import send_stderr, send_stdout, write_stdout
from mingle_hooks.net.addresses import interfaces
from mingle_hooks.schedulers.facts import SCHEDULER, SOURCES
from mingle_hooks.settings import BACKENDS, FLAGS, TABLE
from mingle_hooks.values import nearest

# Set by completion scripts to an instruction such as bash_complete.
COMPLETE = "_MINGLE_COMPLETE"
Kind = Literal["plain", "list", "file", "dir"]

WORLD, OTHERS, NETWORK, OUTPUT, KEYS = "The world", "Finding the others", "Network", "Output", "Keys"
HOSTS, END, CHECKED = "Hosts and attempts", "Ending and output", "What is checked"
JOB, NODES, TRAINING, MAIL = "The job", "Nodes", "The training", "Output and mail"
# The headings in order; options without one come last.
GROUPS = (HOSTS, END, CHECKED, WORLD, OTHERS, NETWORK, OUTPUT, KEYS, NODES, TRAINING, JOB, MAIL)


class Shown(NamedTuple):
    """How help shows an option; `kind` is how completion treats its value: plain, list (a,b), file or dir."""

    group: str
    metavar: str = ""  # none for a flag
    kind: Kind = "plain"
    values: Callable[[], Iterable[str]] = tuple
    default: str = ""  # if the help text does not say it
    lists: bool = False  # whether the help lists all values
    help: str = ""  # for options that are no settings
    added: Callable[[], Iterable[str]] = tuple  # by plugins: for completion only, as finding them is slow


def _frameworks() -> Iterable[str]:
    return (*FRAMEWORKS, NONE)


def _added_frameworks() -> Iterable[str]:
    try:
        return plugins.names(plugins.FRAMEWORKS)
    except MingleError:  # an installed package is broken: offer the built-in names
        return ()


# Settings that are options, and the flags of `mingle env`, by name.
SETTINGS = {
    "id": Shown(WORLD, "NAME"),
    "nodes": Shown(WORLD, "N"),
    "alone": Shown(WORLD),
    "slots": Shown(WORLD, "N|gpus|tasks|cpus", values=lambda: values.COUNTED),
    "scope": Shown(WORLD, "node|task", values=lambda: ("node", "task"), default="node"),
    "order": Shown(
        WORLD, "scheduler|topology|…", values=lambda: (SCHEDULER, *SOURCES), default="scheduler", lists=True
    ),
    "bind": Shown(WORLD, "gpu|none", values=lambda: ("gpu", "none"), default="none"),
    "rank": Shown(OTHERS, "N"),
    "master": Shown(OTHERS, "HOST[:PORT]"),
    "via": Shown(OTHERS, "WAY,…", "list", lambda: BACKENDS, lists=True),
    "directory": Shown(OTHERS, "DIR", "dir"),
    "timeout": Shown(OTHERS, "90s|5m|1h", values=lambda: ("90s", "5m", "30m", "1h"), default="5m"),
    "no_wait": Shown(OTHERS),
    "iface": Shown(NETWORK, "NAME|CIDR,…", "list", lambda: dict.fromkeys(found.name for found in interfaces())),
    "host_suffix": Shown(NETWORK, "SUFFIX"),
    "port_range": Shown(NETWORK, "A-B", default="20000-24999"),
    "port_hold": Shown(NETWORK, "on|off", values=lambda: ("on", "off"), default="on"),
    "strict": Shown(WORLD),
    "no_strict": Shown(WORLD),
    "frameworks": Shown(OUTPUT, "F,…", "list", _frameworks, lists=True, added=_added_frameworks),
    "shell": Shown(OUTPUT, "sh|csh|fish|…", values=lambda: SHELLS, default="sh", lists=True),
    "on_failure": Shown(OUTPUT, "exit|status", values=lambda: ("exit", "status"), default="exit"),
    "together": Shown(WORLD),
    "verbatim": Shown(WORLD),
    "explain": Shown(OUTPUT),
    "quiet": Shown(OUTPUT),
    "key_file": Shown(KEYS, "FILE", "file"),
    "keep_key": Shown(KEYS),
    "insecure": Shown(KEYS),
}
# The options that only `mingle run` has, by name.
RUN = {
    "hosts": Shown(HOSTS, "NAME,…", help="Run on these hosts, by ssh. [default: all hosts of the job]"),
    "nodes": Shown(HOSTS, "N|A:B", help="Number of hosts that train; A:B waits for at least A and takes up to B."),
    "spares": Shown(HOSTS, "N", default="0", help="Number of extra hosts that replace lost ones."),
    "window": Shown(HOSTS, "SECONDS", default="30", help="With --nodes A:B, how long to wait for more than A hosts."),
    "restarts": Shown(HOSTS, "N", default="0", help="How often to restart after a failure."),
    "progress": Shown(
        HOSTS,
        "FILE",
        "file",
        help="A file that changes as training advances, such as a checkpoint. If the same failure occurs three more"
        " times without a change, mingle stops restarting.",
    ),
    "grace": Shown(END, "SECONDS", help="Time between SIGTERM and SIGKILL. [default: 2 s less than the scheduler's]"),
    "silence": Shown(
        END, "S[,S]", default="15,600", help="How long a host may be silent, and mingle on a host that still answers."
    ),
    "stall": Shown(
        END,
        "30m|2h",
        help="If no rank writes anything for this long, print the stacks of all Python processes and end with 75.",
    ),
    "limit": Shown(
        END, "90m|4h", help="End after this time, with status 75. [default: the scheduler's limit, if --warn is given]"
    ),
    "warn": Shown(END, "SECONDS", help="Warn COMMAND this long before the limit."),
    "warn_signal": Shown(
        END,
        "NAME",
        values=lambda: ("USR1", "USR2", "HUP", "INT", "TERM", "QUIT"),
        default="USR1",
        help="The signal of the warning; it goes to the processes that handle it.",
    ),
    "again": Shown(
        END,
        "LINE",
        help="A shell line to run at the end if another try makes sense: after status 75 or a warning, unless four"
        " runs in a row formed no world. It has 10 min.",
    ),
    "on_event": Shown(
        END,
        "LINE",
        help="A shell line to run for each event, such as a failure or a restart. It gets the event on stdin, as JSON"
        " (`mingle schema events`), and has 10 s.",
    ),
    "start_option": Shown(
        HOSTS, "OPTION", help="An option for the scheduler's starter (srun), such as --container-image=IMAGE."
    ),
    "no_label": Shown(END, help="Do not prefix output lines with the host."),
    "log_dir": Shown(END, "DIR", "dir", help="Write one log file per member and events.jsonl to this directory."),
}
# Of `mingle hosts`.
FORMAT = {"format": Shown(OUTPUT, "F", values=lambda: FORMATS, default="mpi", lists=True, help="Format of the list.")}
# Of `mingle check`.
CHECK = {
    "hosts": Shown(CHECKED, "NAME,…", help="Check these hosts, by ssh. [default: all hosts of the job]"),
    "bandwidth": Shown(CHECKED, help="Also measure bandwidth between hosts; takes about 3 s more."),
    "start": Shown(CHECKED, "SECONDS", default="60s", help="Time limit for the start of a probe on each host."),
    "timeout": Shown(
        CHECKED, "SECONDS", help="Time limit of the check after that. [default: 5 s for up to 16 hosts, 15 s for 256]"
    ),
    "command": Shown(
        CHECKED, "COMMAND", help="Then run this command on ever fewer hosts, to find the one or two that make it fail."
    ),
    "limit": Shown(CHECKED, "90s|10m", default="10m", help="A run of the command that takes longer counts as failed."),
    "html": Shown(OUTPUT, "FILE", "file", help="Write the result as a single HTML page."),
    "exclude": Shown(OUTPUT, help="Print only the hosts to leave out, in the form of sbatch --exclude."),
    "force": Shown(OUTPUT, help="Let --exclude name more than a quarter of the hosts."),
    "json": Shown(OUTPUT, help="Print JSON."),
}
# Of `mingle kill`.
KILL_TIMEOUT = Shown(END, "SECONDS", default="60s")
# After --help: show every option.
ALL = "--all"
# The options that `mingle env` and `mingle exec` show first.
COMMON = ("id", "nodes", "alone", "rank", "slots", "scope", "master", "timeout", "iface", "frameworks")


def matching(incomplete: str, known: Iterable[str], *, is_list: bool = False) -> list[CompletionItem[str]]:
    """Return the completions among the known names, or for a list those that it does not have yet."""
    before, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    listed = before.split(",")
    return [CompletionItem(f"{before}{comma}{name}") for name in known if name.startswith(last) and name not in listed]


class Option(click.Option):
    """An option that knows its group and its values. `brief` is its help without the list of values."""

    def __init__(self, *args: Any, shown: Shown, **kwargs: Any) -> None:
        if not shown.metavar:  # with is_flag=False click takes no value that begins with -
            kwargs = {"is_flag": True, **kwargs}
        super().__init__(*args, metavar=shown.metavar or None, **kwargs)
        text, many = self.help or "", "One or more" if shown.kind == "list" else "One"
        listed = f" {many} of {', '.join(shown.values())}." if shown.lists else ""
        default = f" [default: {shown.default}]" if shown.default else ""
        self.shown, self.brief, self.help = shown, f"{text}{default}", f"{text}{listed}{default}"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return the values with this prefix; the shell completes paths."""
        if self.shown.kind in ("file", "dir"):
            return [CompletionItem(incomplete, type=self.shown.kind)]
        if self.is_flag:
            return super().shell_complete(ctx, incomplete)
        known = (*self.shown.values(), *self.shown.added())
        return matching(incomplete, known, is_list=self.shown.kind == "list")


class Grouped(click.Command):
    """A command with examples, whose --help shows the `common` options, and --help --all every option in groups.

    A command that names no common options always shows all of them.
    """

    def __init__(self, *args: Any, examples: str = "", common: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples, self.common = examples, common

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Record whether the arguments are --help --all."""
        return super().parse_args(ctx, help_arguments(ctx, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.examples.splitlines()))
        if self.common and ALL not in ctx.meta:
            self._format_common(ctx, formatter)
            return
        for group, params in grouped(self, ctx):
            if rows := [row for param in params if (row := param.get_help_record(ctx)) is not None]:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def _format_common(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = {param.name: param for param in self.get_params(ctx)}
        shown = [(param, param.get_help_record(ctx)) for param in (known[name] for name in self.common)]
        rows = [(row[0], param.brief) if isinstance(param, Option) else row for param, row in shown if row]
        rows.append(("-h, --help [--all]", "Show this help, or with --all every option."))
        with formatter.section("Options"):
            formatter.write_dl(rows)


def help_arguments(ctx: click.Context, args: list[str]) -> list[str]:
    """Return the arguments, and record whether they are just `--help --all`, in any order."""
    if ALL not in args or not set() < {*args} - {ALL} <= {*ctx.help_option_names}:
        return args
    ctx.meta[ALL] = True
    return [*ctx.help_option_names[-1:]]


def grouped(command: click.Command, ctx: click.Context) -> list[tuple[str, list[click.Option]]]:
    """Return a command's visible options by heading; those without one are under "Options"."""
    found: dict[str, list[click.Option]] = {group: [] for group in (*GROUPS, "Options")}
    for param in command.get_params(ctx):
        if isinstance(param, click.Option) and not param.hidden:
            found[param.shown.group if isinstance(param, Option) else "Options"].append(param)
    return [(group, params) for group, params in found.items() if params]


# The options of `mingle env` and `mingle exec`, from the table of settings.

# Flags of a single call, which are no settings -> their help.
CALL_FLAGS = {
    "no_wait": "Print what the scheduler's variables say, without contacting the other members.",
    "together": "Stay, and end COMMAND on all nodes if it fails on one, as `mingle run` does.",
    "verbatim": "Do not add options to the command line of launchers.",
    "keep_key": "Keep MINGLE_KEY in COMMAND's environment, for a mingle that COMMAND starts.",
    "no_strict": "Form a world even if nodes differ, whatever the settings say.",
    "explain": "Print the source of each value to stderr.",
}


def settings_options(
    command: Callable[..., Any],
    hidden: Collection[str] = (),
    without: Collection[str] = (),
    only: Collection[str] = tuple(SETTINGS),
) -> Callable[..., Any]:
    """Add the options of settings to a command, in the order of the groups.

    Help does not show the `hidden` ones; options in `without`, or not in `only`, are not added.
    """
    options = {setting.name: setting.option for setting in TABLE if setting.option}
    texts = {setting.name: setting.help[0].upper() + setting.help[1:] + "." for setting in TABLE} | CALL_FLAGS
    options |= {name: option for option, name in FLAGS.items()}
    for name in sorted(options.keys() & set(only) - set(without), key=[*SETTINGS].index, reverse=True):
        default = False if name in CALL_FLAGS else None  # None: not given, so that other settings count
        more = {"help": texts[name], "hidden": name in hidden, "default": default}
        command = click.option(options[name], name, cls=Option, shown=SETTINGS[name], **more)(command)
    return command


def own_options(command: Callable[..., Any], table: dict[str, Shown], **more: dict[str, Any]) -> Callable[..., Any]:
    """Add the options of a table to a command; `more` holds further arguments for click, by option."""
    for name, shown in reversed(table.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, name, cls=Option, shown=shown, help=shown.help, **more.get(name, {}))(command)
    return command


# `mingle completion`: click's scripts for bash, zsh and fish, which call mingle with _MINGLE_COMPLETE set.

COMPLETERS: dict[str, type[shell_completion.ShellComplete]] = {
    "bash": shell_completion.BashComplete,
    "zsh": shell_completion.ZshComplete,
    "fish": shell_completion.FishComplete,
}


def complete_file(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Let the shell complete a file's name, as in COMMAND's words."""
    return [CompletionItem(incomplete, type="file")]


# COMMAND of `exec` and `run`, with its arguments.
command_argument = click.argument(
    "command",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="COMMAND [ARG]...",
    shell_complete=complete_file,
)
_COMPLETION_EXAMPLES = """\
bash: echo 'eval "$(mingle completion bash)"' >> ~/.bashrc
zsh: echo 'eval "$(mingle completion zsh)"' >> ~/.zshrc # after compinit
fish: mingle completion fish > ~/.config/fish/completions/mingle.fish"""


@click.command(cls=Grouped, examples=_COMPLETION_EXAMPLES)
@click.argument("shell", type=click.Choice([*COMPLETERS]))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    context = click.get_current_context().find_root()
    write_stdout(COMPLETERS[shell](context.command, {}, "mingle", COMPLETE).source())


# The groups of commands.


class Group(click.Group):
    """A group that prints its help and fails if no command is given; click's versions differ in that."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"subcommand_metavar": "COMMAND [ARG]...", **kwargs})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse empty arguments before click parses them."""
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:  # resilient: for completion
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its whole help line."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command and its arguments. Raises UsageError, with the nearest command, for an unknown one."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing and not name.startswith("-"):
            near = f"{ctx.command_path} {self._meant(ctx, name)}"
            raise UsageError(f"a command: {', '.join(known)}", name, f"`{near}`")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, name: str) -> str:
        """Return what to type instead of an unknown command: `exec NAME` for a program, else the nearest command."""
        lines = self._lines(ctx)
        if name not in lines and "exec" in lines and shutil.which(name):
            return f"exec {name}"
        return lines[nearest(name, lines)]

    def _lines(self, ctx: click.Context) -> dict[str, str]:
        """Return command -> what to type, also for subcommands: `mingle doctor` is `mingle hooks doctor`."""
        known = self.list_commands(ctx)
        groups = {name: command for name in known if isinstance(command := self.get_command(ctx, name), click.Group)}
        below = {name: f"{group} {name}" for group, command in groups.items() for name in command.list_commands(ctx)}
        return {name: name for name in known} | {name: line for name, line in below.items() if name not in known}


# sys.stdout and sys.stderr for click, written by send_stdout and send_stderr.


class _Standard(io.FileIO):
    """A raw stream that writes by a function that handles failures."""

    def __init__(self, descriptor: int, send: Callable[[bytes], None]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._send = send

    def write(self, data: Any) -> int:
        whole = bytes(data)
        self._send(whole)
        return len(whole)


def replace_streams() -> None:
    """Replace sys.stdout and sys.stderr by unbuffered streams over send_stdout and send_stderr."""
    for name, descriptor, send in (("stdout", 1, send_stdout), ("stderr", 2, send_stderr)):
        old = getattr(sys, name)
        raw: Any = _Standard(descriptor, send)  # no buffer, in which output could be lost
        text = io.TextIOWrapper(raw, encoding=old.encoding, errors=old.errors, write_through=True)
        setattr(sys, name, text)


# name -> (module with a click command of that name, one line of help). Only the called one is imported.
COMMANDS = {
    "env": ("mingle_hooks.cli.jobs", "Print the variables of this node for eval."),
    "exec": ("mingle_hooks.cli.jobs", "Set the variables, then become COMMAND."),
    "run": ("mingle_hooks.cli.jobs", "Run COMMAND on all hosts of the job as one."),
    "check": ("mingle_hooks.cli.jobs", "Find hosts that differ or cannot reach the others."),
    "ls": ("mingle_hooks.cli.jobs", "List your runs."),
    "show": ("mingle_hooks.cli.jobs", "Show one run: its nodes, who is missing, and its last failure."),
    "kill": ("mingle_hooks.cli.jobs", "End a run on all of its nodes and wait until it has ended."),
    "hosts": ("mingle_hooks.cli.jobs", "Print the hosts of the world, for MPI and other programs."),
    "key": ("mingle_hooks.cli.template", "Print a new key for the members of a world."),
    "template": ("mingle_hooks.cli.template", "Write a job script from a job description."),
    "lint": ("mingle_hooks.cli.template", "Report what goes wrong at run time in job scripts."),
    "hooks": ("mingle_hooks.cli.hooks", "Install the hooks of a cluster: prolog, epilog, task prolog."),
    "schema": ("mingle_hooks.cli.template", "Print the JSON schema of job files, settings, events or checks."),
    "docs": ("mingle_hooks.cli.template", "Print a page of the documentation."),
    "completion": ("mingle_hooks.cli.commands", "Print the completion script for bash, zsh or fish."),
}
# Shown by `mingle --help --all` only.
RARE = {"schema"}


class _Commands(Group):
    """The commands above as a click group, which imports a command's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return the completions of a command's name, without importing any."""
        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, help_arguments(ctx, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
    """Run a command line by click and return its exit code. Raises UsageError if click cannot parse it."""
    replace_streams()
    if instruction := os.environ.get(COMPLETE):
        shell, _, what = instruction.partition("_")
        if shell not in COMPLETERS or what not in ("complete", "source"):
            raise UsageError(f"{COMPLETE} such as bash_complete", instruction, "`mingle completion bash`")
        return shell_completion.shell_complete(mingle, {}, "mingle", COMPLETE, instruction)
    try:
        code = mingle.main(arguments, prog_name="mingle", standalone_mode=False)
    except click.ClickException as error:
        mistake = _usage_error(error, arguments)
        mistake.is_about_arguments = True
        raise mistake from None
    return code if isinstance(code, int) else 0


# click's errors as UsageError.


def _usage_error(error: click.ClickException, arguments: list[str]) -> UsageError:
    """Return click's error about the arguments of `mingle` as a UsageError."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    names = ["mingle", *(name for name in arguments[:1] if name in COMMANDS)]
    where = context.command_path if context else " ".join(names)
    if isinstance(error, click.NoSuchOption):
        known = error.possibilities or ()
        near = nearest(error.option_name, known) if known else f"`{where} --help`"
        return UsageError(f"an option of `{where}`", error.option_name, near)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _argument(error, error.param, where)
    message = error.format_message().removeprefix("Got ").rstrip(".")
    if isinstance(error, click.BadOptionUsage):
        message = message.replace(f"Option {error.option_name!r} ", f"{error.option_name}, which ")
    return UsageError(f"options of `{where}`", message, f"`{where} --help`")


def _argument(error: click.BadParameter, param: click.Parameter, where: str) -> UsageError:
    choices = [str(choice) for choice in param.type.choices] if isinstance(param.type, click.Choice) else []
    expected = f"one of {', '.join(choices)}" if choices else f"{param.human_readable_name} after `{where}`"
    if isinstance(error, click.MissingParameter):
        return UsageError(expected, "none", f"`{where} {choices[0]}`" if choices else f"`{where} --help`")
    # 'blue' is not one of ...; 'missing.txt': No such file or directory
    seen = error.message.partition(" is not one of ")[0].replace("': ", ": ", 1).strip("'")
    option = f"{param.opts[0]} " if isinstance(param, click.Option) else ""
    return UsageError(expected, seen, f"`{where} {option}{nearest(seen, choices)}`" if choices else f"`{where} --help`")
