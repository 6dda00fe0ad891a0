"""How help, completion and man pages show an option: its group, the kind of its value, and the values there are.

What a setting is and what it means stands in the tables of settings and of job fields; this is the rest, which only
a person needs, so that no node has to load it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import click
from click.shell_completion import CompletionItem

from mingle_hooks import plugins, values
from mingle_hooks.cli.plain import FLAGS
from mingle_hooks.errors import MingleError
from mingle_hooks.export.frameworks import FRAMEWORKS, NONE
from mingle_hooks.export.hostfiles import FORMATS
from mingle_hooks.export.shells import SHELLS
from mingle_hooks.schedulers.facts import SCHEDULER, SOURCES
from mingle_hooks.settings import BACKENDS, TABLE

Kind = Literal["plain", "list", "file", "dir"]

WORLD, OTHERS, NETWORK, OUTPUT, KEYS = "The world", "Finding the others", "Network", "Output", "Keys"
HOSTS, END, CHECKED = "Hosts and attempts", "Ending and output", "What is checked"
JOB, NODES, TRAINING, MAIL = "The job", "Nodes", "The training", "Output and mail"
# The headings in their order; what has none comes last, as click does it.
GROUPS = (HOSTS, END, CHECKED, WORLD, OTHERS, NETWORK, OUTPUT, KEYS, NODES, TRAINING, JOB, MAIL)


class Shown(NamedTuple):
    """How one option is shown. `kind` is how its value is completed: plain, list (a,b), file or dir."""

    group: str
    metavar: str = ""  # none for a flag
    kind: Kind = "plain"
    values: Callable[[], Iterable[str]] = tuple
    default: str = ""  # where the text does not tell it
    lists: bool = False  # whether the text is to name all values
    added: Callable[[], Iterable[str]] = tuple  # by other packages: for completion only, as to look for them takes long


def _ways() -> Iterable[str]:
    return BACKENDS


def _shells() -> Iterable[str]:

    return SHELLS


def _frameworks() -> Iterable[str]:

    return (*FRAMEWORKS, NONE)


def _added_frameworks() -> Iterable[str]:

    try:
        return plugins.names(plugins.FRAMEWORKS)
    except MingleError:  # what is installed cannot be read: our own names are offered all the same
        return ()


def _orders() -> Iterable[str]:

    return (SCHEDULER, *SOURCES)


def _host_formats() -> Iterable[str]:

    return FORMATS


def _launchers() -> Iterable[str]:
    from mingle_hooks.scripts.job import LAUNCHERS

    return LAUNCHERS


def _interfaces() -> Iterable[str]:
    from mingle_hooks.net.addresses import interfaces

    return dict.fromkeys(found.name for found in interfaces())


# Settings that are options, and the flags of `mingle env`, by name.
SETTINGS = {
    "id": Shown(WORLD, "NAME"),
    "nodes": Shown(WORLD, "N"),
    "alone": Shown(WORLD),
    "slots": Shown(WORLD, "N|gpus|tasks|cpus", values=lambda: values.COUNTED),
    "scope": Shown(WORLD, "node|task", values=lambda: ("node", "task"), default="node"),
    "order": Shown(WORLD, "scheduler|topology|…", values=_orders, default="scheduler", lists=True),
    "bind": Shown(WORLD, "gpu|none", values=lambda: ("gpu", "none"), default="none"),
    "rank": Shown(OTHERS, "N"),
    "master": Shown(OTHERS, "HOST[:PORT]"),
    "via": Shown(OTHERS, "WAY,…", "list", _ways, lists=True),
    "directory": Shown(OTHERS, "DIR", "dir"),
    "timeout": Shown(OTHERS, "90s|5m|1h", values=lambda: ("90s", "5m", "30m", "1h"), default="5m"),
    "no_wait": Shown(OTHERS),
    "iface": Shown(NETWORK, "NAME|CIDR,…", "list", _interfaces),
    "host_suffix": Shown(NETWORK, "SUFFIX"),
    "port_range": Shown(NETWORK, "A-B", default="20000-24999"),
    "port_hold": Shown(NETWORK, "on|off", values=lambda: ("on", "off"), default="on"),
    "strict": Shown(WORLD),
    "no_strict": Shown(WORLD),
    "frameworks": Shown(OUTPUT, "F,…", "list", _frameworks, lists=True, added=_added_frameworks),
    "shell": Shown(OUTPUT, "sh|csh|fish|…", values=_shells, default="sh", lists=True),
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
    "hosts": Shown(HOSTS, "NAME,…"),
    "nodes": Shown(HOSTS, "N|A:B"),
    "spares": Shown(HOSTS, "N", default="0"),
    "window": Shown(HOSTS, "SECONDS", default="30"),
    "restarts": Shown(HOSTS, "N", default="0"),
    "progress": Shown(HOSTS, "FILE", "file"),
    "grace": Shown(END, "SECONDS"),
    "silence": Shown(END, "SECONDS", default="15"),
    "stall": Shown(END, "30m|2h"),
    "limit": Shown(END, "90m|4h"),
    "warn": Shown(END, "SECONDS"),
    "warn_signal": Shown(END, "NAME", values=lambda: ("USR1", "USR2", "HUP", "INT", "TERM", "QUIT"), default="USR1"),
    "again": Shown(END, "LINE"),
    "start_option": Shown(HOSTS, "OPTION"),
    "no_label": Shown(END),
    "log_dir": Shown(END, "DIR", "dir"),
}
# Of `mingle hosts`.
HOSTS_FORMAT = Shown(OUTPUT, "F", values=_host_formats, default="mpi", lists=True)
# Of `mingle check`.
CHECK = {
    "hosts": Shown(CHECKED, "NAME,…"),
    "bandwidth": Shown(CHECKED),
    "start": Shown(CHECKED, "SECONDS", default="60s"),
    "timeout": Shown(CHECKED, "SECONDS"),
    "command": Shown(CHECKED, "COMMAND"),
    "limit": Shown(CHECKED, "90s|10m", default="10m"),
    "html": Shown(OUTPUT, "FILE", "file"),
    "exclude": Shown(OUTPUT),
    "force": Shown(OUTPUT),
    "json": Shown(OUTPUT),
}
# Of `mingle kill`.
KILL_TIMEOUT = Shown(END, "SECONDS", default="60s")
# Asks for every option, after --help.
ALL = "--all"
# The options that `mingle env` and `mingle exec` show first.
COMMON = ("id", "nodes", "alone", "rank", "slots", "scope", "master", "timeout", "iface", "frameworks")
# `mingle exec` prints nothing, so these two mean nothing to it.
ONLY_PRINTED = ("shell", "on_failure")

# Fields of a job description, by name; how each is given stands in its own table.
FIELDS = {
    NODES: "nodes gpus-per-node ntasks-per-node ntasks gpus gres cpus-per-task mem constraint exclusive",
    TRAINING: "launcher for max-restarts requeue module env setup no-environment container bind chdir",
    JOB: "job-name time signal partition account qos reservation array dependency directive",
    MAIL: "output error mail-user mail-type",
}
FIELD_GROUPS = {name: group for group, names in FIELDS.items() for name in names.split()}
FIELD_VALUES: dict[str, tuple[Kind, Callable[[], Iterable[str]]]] = {
    "launcher": ("plain", _launchers),
    "for": ("list", lambda: (*_frameworks(), *_added_frameworks())),
    "mail-type": ("list", lambda: ("BEGIN", "END", "FAIL", "ALL")),
    "signal": ("plain", lambda: ("USR1@120", "TERM@120", "INT@120", "USR2@120", "HUP@120")),
    "container": ("file", tuple),
    "output": ("file", tuple),
    "error": ("file", tuple),
    "chdir": ("dir", tuple),
    "bind": ("dir", tuple),
}


def matching(incomplete: str, known: Iterable[str], *, is_list: bool = False) -> list[CompletionItem[str]]:
    """Return what a word may become: one of the known, or one more after those that are listed already."""
    before, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    listed = before.split(",")
    return [CompletionItem(f"{before}{comma}{name}") for name in known if name.startswith(last) and name not in listed]


class Option(click.Option):
    """An option that knows its group and its values. `brief` is its help without the list of values."""

    def __init__(self, *args: Any, shown: Shown, **kwargs: Any) -> None:
        if shown.metavar:
            kwargs["metavar"] = shown.metavar
        super().__init__(*args, **kwargs)
        self.shown = shown
        default = f" [default: {shown.default}]" if shown.default else ""
        self.brief = f"{self.help or ''}{default}"
        if shown.lists:
            many = "One or more" if shown.kind == "list" else "One"
            self.help = f"{self.help or ''} {many} of {', '.join(shown.values())}."
        self.help = f"{self.help or ''}{default}"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return the values that begin so; for a path, leave it to the shell."""
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
        """Note whether all options are asked for."""
        return super().parse_args(ctx, help_words(ctx, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the options."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.examples.splitlines()))
        if self.common and ALL not in ctx.meta:
            self._format_common(ctx, formatter)
            return
        for group, params in grouped(self, ctx):
            rows = [row for row in (param.get_help_record(ctx) for param in params) if row is not None]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def _format_common(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = {param.name: param for param in self.get_params(ctx)}
        rows = []
        for name in self.common:
            param = known[name]
            record = param.get_help_record(ctx)
            if record is not None:
                rows.append((record[0], param.brief) if isinstance(param, Option) else record)
        rows.append(("-h, --help [--all]", "Show this help, or with --all every option."))
        with formatter.section("Options"):
            formatter.write_dl(rows)


def help_words(ctx: click.Context, args: list[str]) -> list[str]:
    """Return the words of a command line, and note whether they are `--help --all`, in any order and nothing else."""
    if ALL not in args or not set() < {*args} - {ALL} <= {*ctx.help_option_names}:
        return args
    ctx.meta[ALL] = True
    return [*ctx.help_option_names[-1:]]


def grouped(command: click.Command, ctx: click.Context) -> list[tuple[str, list[click.Option]]]:
    """Return a command's options that are shown, under their headings; those without one under "Options"."""
    found: dict[str, list[click.Option]] = {group: [] for group in (*GROUPS, "Options")}
    for param in command.get_params(ctx):
        if isinstance(param, click.Option) and not param.hidden:
            found[param.shown.group if isinstance(param, Option) else "Options"].append(param)
    return [(group, params) for group, params in found.items() if params]


# The options of `mingle env` and `mingle exec` for click, made from the one table of settings.

# Flags that are no settings, as they belong to one call -> what each does.
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
    """Give a command one option for each setting that has one, in the order of the groups.

    Some are `hidden` from its help, some it does not take at all; or it takes `only` these.
    """
    options = {setting.name: setting.option for setting in TABLE if setting.option}
    texts = {setting.name: setting.help[0].upper() + setting.help[1:] + "." for setting in TABLE}
    options |= {name: option for option, name in FLAGS.items()}
    for name in sorted(options.keys() & set(only) - set(without), key=[*SETTINGS].index, reverse=True):
        kind: dict[str, Any] = {"is_flag": True, "default": None} if options[name] in FLAGS else {}
        if name in CALL_FLAGS:
            kind["default"] = False
        text = (texts | CALL_FLAGS)[name]
        command = click.option(
            options[name], name, cls=Option, shown=SETTINGS[name], help=text, hidden=name in hidden, **kind
        )(command)
    return command
