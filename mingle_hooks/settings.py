"""Site and user settings. Later sources win: defaults, two files, MINGLE_* variables, options.

The table below has all of them: the command line, the README and the checks use it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from mingle_hooks import values
from mingle_hooks.errors import SettingsError, UsageError, printable
from mingle_hooks.files import config_directory, settings_tree
from mingle_hooks.net.addresses import DEFAULT_RANGE, Preference
from mingle_hooks.values import Counted, nearest

Scope = Literal["node", "task"]
Order = Literal["scheduler", "topology", "gcp", "oci"]
Bind = Literal["gpu", "none"]
OnFailure = Literal["exit", "status"]

SYSTEM_FILE = "/etc/mingle/mingle.toml"
# A file with a later version may have names that this mingle does not know; they are ignored, as after a roll-back.
VERSION = 1


# The discovery backends; see rendezvous/discovery.py.
BACKENDS = (
    "master",
    "hosts",
    "directory",
    "multicast",
)


def backends(value: object) -> tuple[object, ...]:
    """Read a list of discovery backends. Raises UsageError."""
    names = tuple(str(name) for name in values.words(value))
    for name in names:
        if name not in BACKENDS:
            raise UsageError(f"one or more of {', '.join(BACKENDS)}", name, f"--via {nearest(name, BACKENDS)}")
    return names


# The option that overrides the setting `strict` for one call.
NO_STRICT = "--no-strict"


class Setting(NamedTuple):
    """One setting. An empty key, variable or option means that it cannot be set that way.

    `key` is the key in the TOML files, as TABLE.KEY. Keys that are `site_only` are valid in the site's file only, as
    root's hooks use them.
    """

    name: str
    key: str
    variable: str
    option: str
    read: values.Reader
    default: Any
    help: str
    site_only: bool = False


_SCOPE, _ORDER, _BIND, _ON_FAILURE = (values.one_of(*get_args(kind)) for kind in (Scope, Order, Bind, OnFailure))
_CONTAINERS = values.one_of("auto", "mount", "hook", "none")


def _usual(name: str, read: values.Reader, default: Any, help: str, word: str = "") -> Setting:  # noqa: A002
    """Return a setting of files, a variable and an option, which may call it by another `word`."""
    word = word or name
    return Setting(name, word, f"MINGLE_{word.upper()}", f"--{word.replace('_', '-')}", read, default, help)


def _of_job(name: str, read: values.Reader, default: Any, help: str) -> Setting:  # noqa: A002
    """Return a setting of one job, which no file may hold."""
    return _usual(name, read, default, help)._replace(key="")


def _in_file(name: str, read: values.Reader, default: Any, help: str) -> Setting:  # noqa: A002
    """Return a setting of files only."""
    return Setting(name, name, "", "", read, default, help, site_only=name.startswith("hooks."))


# Settings of one job (id, nodes, rank, master) have no key: in a file they would break the next job. Nor has
# `insecure`: a forgotten line would disable authentication for good.
TABLE = (
    _of_job("id", values.identifier, None, "name of the world; by default the scheduler's job id"),
    _of_job("nodes", values.nodes, None, "number of members; by default the scheduler's number of nodes"),
    # No variable: a leftover one would make every later job train alone.
    Setting("alone", "", "", "--alone", values.switch, default=False,
            help="train on this node only, even if the job has more nodes"),
    _of_job("rank", values.rank, None, "node rank; by default the scheduler's, or an election"),
    _of_job("master", values.endpoint, None, "host of rank 0, if nothing else can find it"),
    _usual("via", backends, (), "discovery backends to use; by default all that apply"),
    _usual("scope", _SCOPE, "node", "one member per node, or per task"),
    _usual("shell", values.word, "sh", "language of the output"),
    _usual("frameworks", values.words, (),
           "frameworks whose variables to set; by default torchrun and gloo", word="for"),
    _usual("iface", values.networks, (), "networks to use, best first; by default the fastest that all nodes share"),
    _usual("port_range", values.ports, DEFAULT_RANGE, "TCP ports that rank 0 may use"),
    _usual("port_hold", values.on_off, default=True,
           help="keep MASTER_PORT for programs that bind with SO_REUSEADDR, as torch does; off releases it at once"),
    _usual("timeout", values.seconds, 300.0, "how long to wait for the other members"),
    _usual("slots", values.slots, None, "processes on this node; by default its GPUs, else tasks, else 1"),
    _usual("order", _ORDER, "scheduler", "assign ranks in the scheduler's order or by network switch"),
    _usual("bind", _BIND, "none", "show each task all GPUs of its node, with --scope task"),
    _usual("key_file", values.path, None, "file with the key of all members, readable by its owner only"),
    _usual("directory", values.path, None, "shared directory in which members can find rank 0"),
    _usual("host_suffix", values.suffix, "", "suffix of host names on the fast network, such as .hsn.site or -ib"),
    _usual("strict", values.differences, (),
           "form no world if nodes differ; in a settings file, a list of differences, such as driver,rdma"),
    Setting("rdma", "rdma", "MINGLE_RDMA", "", values.switch, default=False,
            help="name the nodes without an active RDMA port"),
    _usual("quiet", values.switch, default=False, help="print no messages while waiting"),
    _of_job("on_failure", _ON_FAILURE, "exit",
            "what a failed eval does: exit ends the script, status only sets the exit status; an interactive "
            "shell stays open either way"),
    _of_job("insecure", values.switch, default=False,
            help="use a public key: anyone on the network can join or break the world"),
    Setting("multicast_ttl", "multicast.ttl", "MINGLE_MULTICAST_TTL", "", values.ttl, 1,
            "TTL of beacons: 1 stays on the local network"),
    _in_file("version", values.version, VERSION,
             "version of the file's format; names of a later version that this mingle does not know are ignored"),
    Setting("template.directories", "template.directories", "MINGLE_TEMPLATES", "", values.paths, (),
            "directories with your own templates; they come before the user's, the site's and the built-in ones"),
    _in_file("template.launcher", values.word, "torchrun", "launcher of job scripts that name none"),
    _in_file("hooks.cluster", values.word, "cluster", "name of the cluster, part of every job's key"),
    _in_file("hooks.key_file", values.path, "/etc/mingle/key",
             "the site's key, readable by root only; each job's key is derived from it"),
    _in_file("hooks.observe", values.switch, default=False, help="log what the hooks would set, and set nothing"),
    _in_file("hooks.partitions", values.words, (), "partitions or queues in which the hooks act; by default all"),
    _in_file("hooks.hosts", values.hosts, (), "hosts on which the hooks act; by default all"),
    _in_file("hooks.opt_in", values.word, None,
             "a word that a job's comment must contain for the hooks to act; by default none"),
    _in_file("hooks.prolog", values.program, None,
             "the site's own Slurm Prolog, run at the end of ours: a path, or none"),
    _in_file("hooks.epilog", values.program, None,
             "the site's own Slurm Epilog, run at the end of ours: a path, or none"),
    _in_file("hooks.taskprolog", values.program, None,
             "the site's own Slurm TaskProlog, run at the end of ours: a path, or none"),
    _in_file("hooks.containers", _CONTAINERS, "auto",
             "for sites with pyxis, how variables reach containers: mount (mount the TaskProlog there), hook "
             "(enroot's hook sets them), none, or auto (mount, if that is known to work)"),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in TABLE}
# Tables of single commands, which `Settings.section` returns.
SECTIONS = ("template", "hooks")

# MINGLE_* variables that are no settings: marks of mingle, the key itself, and the switch of the TaskProlog.
# MINGLE_EXPORTS lists the other variables that mingle exported.
NOT_SETTINGS = (
    *("MINGLE_WORLD", "MINGLE_RANK_OFFSET", "MINGLE_EXPORTS", "MINGLE_KEY", "MINGLE_HOOKS"),
    *("MINGLE_RUN", "MINGLE_RUN_ID", "MINGLE_RUN_FORMED", "MINGLE_ATTEMPT"),  # of `mingle run`
)

# What the kubelet sets in every pod for a Service of the namespace whose name begins with mingle. Source: Kubernetes'
# documentation, "Service", "Environment variables".
_OF_A_SERVICE = r"MINGLE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?)"

# Options of `mingle exec` only, and those about output.
EXEC_ONLY, OUTPUT_ONLY = ("together", "verbatim", "keep_key"), ("shell", "on_failure")
# What `mingle run` sets for each member, or has an option of its own for, and output.
NOT_FOR_RUN = ("nodes", "rank", "no_wait", "together", *OUTPUT_ONLY)
# Option -> name: options without a value, which are settings or flags of one call, and options with one.
FLAGS = {f"--{name.replace('_', '-')}": name for name in ("explain", "no_wait", "no_strict", *EXEC_ONLY)}
_SWITCHES = (values.switch, values.differences)  # the readers of settings whose option has no value
FLAGS |= {setting.option: setting.name for setting in TABLE if setting.option and setting.read in _SWITCHES}
OPTIONS = {setting.option: setting.name for setting in TABLE if setting.option and setting.option not in FLAGS}


class Settings(NamedTuple):
    """The settings of `mingle env` as typed fields, in the table's order; others through `section`."""

    id: str | None
    nodes: int | None
    alone: bool
    rank: int | None
    master: tuple[str, int | None] | None
    via: tuple[str, ...]
    scope: Scope
    shell: str
    frameworks: tuple[str, ...]
    iface: tuple[Preference, ...]
    port_range: range
    port_hold: bool
    timeout: float  # seconds
    slots: int | Counted | None
    order: Order
    bind: Bind
    key_file: str | None
    directory: str | None
    host_suffix: str
    strict: tuple[str, ...]
    rdma: bool
    quiet: bool
    on_failure: OnFailure
    insecure: bool
    multicast_ttl: int  # hops
    version: int
    sections: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, str]
    left_out: tuple[str, ...] = ()  # names of files of a later version, each with its file

    def source(self, name: str) -> str:
        """Return the source of a setting: "default", a file's path, a variable or an option."""
        return self.sources.get(name, "default")

    def section(self, name: str) -> Mapping[str, Any]:
        """Return one command's table as key -> value."""
        return self.sections[name]


def load(environ: Mapping[str, str], options: Mapping[str, object], *, system_file: str = SYSTEM_FILE) -> Settings:
    """Return the settings of this call.

    `options` maps settings' names to arguments: text, a list of texts for an option that may be repeated, True for a
    flag; None or an empty list if it was not given. Raises UsageError for an invalid option, SettingsError for an
    invalid file or variable.
    """
    found = {setting.name: setting.default for setting in TABLE}
    sources: dict[str, str] = {}
    user = config_directory(environ)
    left_out: list[str] = []
    of_user = _from_file(f"{user}/mingle.toml", left_out, site=False) if user is not None else ()
    of_site = _from_file(system_file, left_out, site=True)
    for setting, value, source in [*of_site, *of_user, *_from_environ(environ), *_from_options(options)]:
        found[setting.name] = _value(setting, value, source)
        sources[setting.name] = source
    sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for table, key in [name.split(".") for name in found if "." in name]:
        sections[table][key] = found.pop(f"{table}.{key}")
    return Settings(**found, sections=sections, sources=sources, left_out=tuple(left_out))


_SHOWN = 100  # of a wrong value, so that an error has room for where it is


def _value(setting: Setting, value: object, source: str) -> Any:
    try:
        return setting.read(value)
    except UsageError as wrong:
        raise wrong_value(wrong, setting, source) from None


def wrong_value(wrong: UsageError, setting: Setting, source: str) -> UsageError | SettingsError:
    """Return the error for a wrong value, with where it stands."""
    kind = UsageError if source == setting.option else SettingsError
    where = f"{setting.key} in {source}" if "/" in source else source
    error = kind(wrong.expected, f"{printable(wrong.seen, _SHOWN)} ({where})", wrong.remedy)
    error.is_about_arguments = kind is UsageError
    return error


def _from_options(options: Mapping[str, object]) -> Iterator[tuple[Setting, object, str]]:
    for name, value in options.items():
        if value not in (None, (), []) and name != "no_strict":
            setting = BY_NAME[name]
            if setting.read is values.path and isinstance(value, str) and value:
                value = os.path.abspath(os.path.expanduser(value))  # noqa: PLW2901 - relative to the working directory
            yield setting, value, setting.option
    if options.get("no_strict"):
        yield BY_NAME["strict"], False, NO_STRICT


def _from_environ(environ: Mapping[str, str]) -> Iterator[tuple[Setting, object, str]]:
    """Yield the settings of MINGLE_* variables, except empty ones and those that an earlier mingle exported."""
    known = {setting.variable: setting for setting in TABLE if setting.variable}
    ignored = {*NOT_SETTINGS, *left_behind(environ)}
    if "MINGLE_WORLD" in environ:
        ignored.add("MINGLE_ID")
    in_pod = bool(environ.get("KUBERNETES_SERVICE_HOST"))
    for variable in sorted(name for name in environ if name.startswith("MINGLE_")):
        if variable in ignored or (in_pod and variable not in known and re.fullmatch(_OF_A_SERVICE, variable)):
            continue
        if variable not in known:
            raise _unknown("a known MINGLE_* variable", variable, [*known, *NOT_SETTINGS], "the environment")
        if environ[variable]:
            yield known[variable], environ[variable], variable


def left_behind(environ: Mapping[str, str]) -> set[str]:
    """Return the names that MINGLE_EXPORTS lists as exported by an earlier mingle.

    A hook lists NAME=VALUE too: if the variable has another value, the user has set it since.
    """
    listed = environ.get("MINGLE_EXPORTS", "").split()
    exported_values = dict(entry.split("=", 1) for entry in listed if "=" in entry)
    return {name for name in listed if exported_values.get(name, environ.get(name)) == environ.get(name)}


def _from_file(path: str, left_out: list[str], *, site: bool) -> Iterator[tuple[Setting, object, str]]:
    """Yield the settings of a file; unknown names in a file of a later version are added to `left_out`."""
    known = {s.key: s for s in TABLE if s.key and (site or not s.site_only)}
    tree = settings_tree(path, site=site)
    is_later = _value(BY_NAME["version"], tree.get("version", VERSION), path) > VERSION
    for key, value in _flat(tree, path):
        if key in known:
            yield known[key], value, path
        elif is_later:
            left_out.append(f"{key} in {path}")
        else:
            raise _unknown("a known key", key, list(known), path)


def _flat(tree: Mapping[str, object], path: str) -> Iterator[tuple[str, object]]:
    tables = {setting.key.partition(".")[0] for setting in TABLE if "." in setting.key}
    for key, value in tree.items():
        if key in tables:
            if not isinstance(value, dict):
                raise SettingsError(f"a table [{key}]", f"one value ({key} in {path})", f"[{key}] on its own line")
            yield from ((f"{key}.{inner}", deep) for inner, deep in value.items())
        else:
            yield key, value


def _unknown(expected: str, name: str, known: list[str], where: str) -> SettingsError:
    return SettingsError(expected, f"{name} in {where}", nearest(name, known))


# Options on a command line, read without click, which takes 30 ms to import.


def split_call(
    arguments: Sequence[str], flags: Mapping[str, str] = FLAGS, texts: Mapping[str, str] = OPTIONS
) -> tuple[dict[str, object], tuple[str, ...]] | None:
    """Return the options, and the rest from the first argument that is not an option; None for an unusual option.

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
