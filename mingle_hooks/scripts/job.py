"""A job description: made from options and a TOML file, checked here, and the same for all schedulers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mingle_hooks.errors import UsageError
from mingle_hooks.files import toml
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.scripts import command as command_command
from mingle_hooks.scripts.command import Launcher
from mingle_hooks.scripts.fields import FIELDS, MOST_ENTRIES, NOT_CARRIED, TABLE, Field, Gpus, Signal, count_field
from mingle_hooks.values import nearest

# What is said of a whole job (--ntasks, --gpus) or in Slurm's words (--gres), as values for each node.

Each = dict[str, tuple[Any, ...]]
# The whole's field -> the field that says the same of one node.
_EACH = {"ntasks": "ntasks-per-node", "gpus": "gpus-per-node"}
SAME = {**_EACH, "gres": "gpus-per-node"}


def totals_by_node(each: Mapping[str, tuple[Any, ...]], totals: Mapping[str, Any]) -> Each:
    """Return the values for each group of nodes, with what the totals say of them.

    A total is shared evenly by all nodes, or with a number for each node tells how many nodes there are. Raises
    UsageError that names the total where it does not come out even.
    """
    found = dict(each)
    if "gres" in totals and found.setdefault("gpus-per-node", totals["gres"]) != totals["gres"]:
        seen = f"{_text(totals['gres'])} and --gpus-per-node {_text(found['gpus-per-node'])}"
        raise UsageError("--gres that says what --gpus-per-node says", seen, "leaving one of them out")
    for total, name in _EACH.items():
        if total in totals:
            found |= _shared(found, total, totals[total], name)
    return found


def _shared(found: Each, total: str, value: Gpus | int, name: str) -> Each:
    number = _number(value)
    here = found.get(name)
    if here and len(here) == 1 and "nodes" not in found:
        nodes = number // _number(here[0])
        if nodes * _number(here[0]) != number:
            raise _uneven(total, number, _number(here[0]), f"{here[0]} on each node")
        return {"nodes": (_bounded_totals(nodes, total, MOST_NODES),)}
    length = max((len(values) for values in found.values()), default=1)
    counts = _long(found.get("nodes", (1,)), length)
    nodes = sum(counts)
    if here:
        said = sum(many * _number(its) for many, its in zip(counts, _long(here, length), strict=False))
        if said != number:
            remedy = f"leaving --{total} out"
            raise UsageError(f"--{total} {said}, as --{name} says", f"--{total} {number}", remedy)
        return {}
    if number % nodes:
        raise _uneven(total, number, nodes, f"{nodes} nodes")
    share = _bounded_totals(number // nodes, total)
    return {name: (Gpus(share, value.type) if isinstance(value, Gpus) else share,)}


def _number(value: Gpus | int) -> int:
    return value.number if isinstance(value, Gpus) else value


def _long(values: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    return values * length if len(values) == 1 else values


def _bounded_totals(number: int, total: str, most: int | None = None) -> int:
    try:
        return count_field(number) if most is None else count_field(number, most=most)
    except UsageError as wrong:
        raise UsageError(f"--{total} that is, for each node, {wrong.expected}", wrong.seen, "more --nodes") from None


def _uneven(total: str, number: int, parts: int, by: str) -> UsageError:
    lower = number // parts * parts
    works = f"--{total} {lower} or {lower + parts}" if lower else f"--{total} {parts}"
    return UsageError(f"--{total} that comes out even with {by}", f"--{total} {number}", works)


def _text(values: tuple[Any, ...]) -> str:
    return "+".join(str(value) for value in values)


def total_sources(given: Mapping[str, str]) -> dict[str, str]:
    """Return where each field comes from, with those that were made of others."""
    return {each: given[total] for total, each in SAME.items() if total in given} | dict(given)


_LARGEST_SPEC_BYTES = 1 << 20  # a description is a screenful
MOST_GROUPS = 128  # Slurm's own bound on the components of a job (MAX_HET_JOB_COMPS)
_WARNING_S = 120  # enough to write a large checkpoint; half of a shorter limit
_SBATCHS_WARNING_S = 60  # what sbatch takes for a --signal without seconds
DEFAULT = "default"


@dataclass(frozen=True)
class Group:
    """Nodes that are alike. `ntasks` training processes run on each."""

    nodes: int
    ntasks: int
    gpus: Gpus | None = None
    cpus: int | None = None  # for each process
    mem: int | None = None  # MiB on each node
    constraint: str | None = None


@dataclass(frozen=True)
class Job:
    """What a user says of a job. None or empty: not said, and left to the scheduler.

    `starter` are the user's own words for the launcher, as in `torchrun train.py`; `command` is what it starts.
    """

    command: tuple[str, ...]
    launcher: Launcher
    groups: tuple[Group, ...]
    job_name: str
    signal: Signal
    starter: tuple[str, ...] = ()
    time: int | None = None  # seconds
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    exclusive: bool = False
    output: str | None = None
    error: str | None = None
    mail_user: str | None = None
    mail_type: tuple[str, ...] = ()
    array: str | None = None
    dependency: str | None = None
    requeue: bool = False
    chdir: str | None = None
    module: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()
    no_environment: bool = False
    container: str | None = None
    bind: tuple[str, ...] = ()
    max_restarts: int = 3
    frameworks: tuple[str, ...] = ()
    directive: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def nodes(self) -> int:
        """All nodes."""
        return sum(group.nodes for group in self.groups)

    @property
    def ntasks(self) -> int | None:
        """Training processes on each node, or None where groups differ."""
        counts = {group.ntasks for group in self.groups}
        return counts.pop() if len(counts) == 1 else None

    @property
    def has_gpus(self) -> bool:
        """Whether any node has GPUs."""
        return any(group.gpus for group in self.groups)

    def source(self, name: str) -> str:
        """Tell where a field comes from: its option, the file, or "default"."""
        return self.sources.get(name, DEFAULT)


def describe(
    options: Mapping[str, object],
    command: Iterable[str] = (),
    *,
    spec: str | Mapping[str, object] | None = None,
    default_launcher: str = "torchrun",
) -> Job:
    """Return the job of these options, by field name, and of `spec`: the path of a TOML file, or what one holds.

    Options win. An option that was not given is None, False or empty. The file may hold the command too, as a list.
    Raises UsageError that names the field.
    """
    pinned, sources = _from_file(spec) if isinstance(spec, str) else _from_tree(spec or {}, "the job")
    words = tuple(command) or tuple(pinned.pop("command", ()))
    pinned.pop("command", None)
    for name, value in options.items():
        if value not in (None, False, (), []):
            pinned[name] = _read(FIELDS[name], value, FIELDS[name].option)
            sources[name] = FIELDS[name].option
    return _job(pinned, _command(words), sources, default_launcher)


def _job(pinned: dict[str, Any], words: tuple[str, ...], sources: dict[str, str], default_launcher: str) -> Job:
    each = {name: pinned.pop(name) for name, its in FIELDS.items() if its.kind == "each" and name in pinned}
    whole = {name: its.pop(name) for name in SAME for its in (pinned, each) if name in its}
    each = totals_by_node(each, whole)
    command = command_command.read_command(words, pinned.pop("launcher", None), default_launcher)
    groups = _groups(each)
    if command.starter and command.launcher.starts == "node":
        groups = tuple(_started_once(group) for group in groups)
    command_command.check_nodes(command, sum(group.nodes for group in groups))
    frameworks = tuple(name for names in pinned.pop("for", ()) for name in names.split(","))
    return Job(
        command=command.program,
        launcher=command.launcher,
        starter=command.starter,
        groups=groups,
        job_name=pinned.pop("job-name", None) or _name(command),
        signal=_warning(pinned.pop("signal", None), pinned.get("time")),
        frameworks=(*command.frameworks, *frameworks),
        sources=total_sources(sources),
        **{FIELDS[name].attribute: value for name, value in pinned.items()},
    )


def _started_once(group: Group) -> Group:
    """Return the group with a process for each GPU where the user, who typed the launcher, counts that as one task."""
    if group.ntasks != 1 or not group.gpus or group.gpus.number == 1:
        return group
    share, rest = divmod(group.cpus or 0, group.gpus.number)
    if rest:
        works = f"--cpus-per-task {(share + 1) * group.gpus.number}"
        raise UsageError(f"--cpus-per-task that {group.gpus.number} GPUs share evenly", str(group.cpus), works)
    return dataclasses.replace(group, ntasks=group.gpus.number, cpus=share or None)


def _warning(pinned: tuple[str, int | None] | None, limit_s: int | None) -> Signal:
    """Return the warning before the time limit. One at the start would end the job before it has done anything."""
    name, before_s = pinned or ("USR1", None)
    if before_s is None:
        usual_s = _SBATCHS_WARNING_S if pinned else _WARNING_S
        return Signal(name, min(usual_s, -(-limit_s // 2)) if limit_s else usual_s)
    if limit_s and before_s >= limit_s:
        seen = f"{before_s} s before a limit of {limit_s} s"
        raise UsageError("--signal after the start", seen, f"--signal {name}, which comes half-way or later")
    return Signal(name, before_s)


def _groups(each: Mapping[str, tuple[Any, ...]]) -> tuple[Group, ...]:
    """Return one group for each place in the longest list; a single value counts for all."""
    length = max((len(values) for values in each.values()), default=1)
    for name, values in each.items():
        if len(values) not in (1, length):
            raise UsageError(f"{FIELDS[name].option} with 1 or {length} values", str(len(values)), "as many as groups")

    def at(name: str, place: int) -> Any:
        values = each.get(name, (None,))
        return values[place if len(values) > 1 else 0]

    return tuple(
        Group(
            nodes=at("nodes", i) or 1,
            gpus=at("gpus-per-node", i),
            ntasks=at("ntasks-per-node", i) or (at("gpus-per-node", i) or Gpus(1)).number,
            cpus=at("cpus-per-task", i),
            mem=at("mem", i),
            constraint=at("constraint", i),
        )
        for i in range(length)
    )


def _command(words: tuple[object, ...]) -> tuple[str, ...]:
    texts = tuple(word for word in words if isinstance(word, str) and not NOT_CARRIED.intersection(word))
    if not texts or len(texts) != len(words):
        raise UsageError("a training command", repr(words) if words else "none", "-- train.py --lr 1e-3 at the end")
    if not texts[0] or (texts[0].startswith("-") and texts[0] != "-m") or texts == ("-m",):
        raise UsageError("a script, a program or -m MODULE", repr(texts[0]), "-- train.py")
    return texts


def _name(command: command_command.Command) -> str:
    """Return a name that every scheduler takes: letters, digits, - and _, at most 15 of them (classic PBS)."""
    words = command.program
    scripts = (word for word in words if word.endswith(".py"))
    modules = (words[at + 1] for at in range(len(words) - 1) if words[at] == "-m")
    programs = (word for word in (words[0], *command.starter[-1:]) if not word.startswith("-"))
    first = next((name for names in (scripts, modules, programs) for name in names), "job")
    base = first.rsplit("/", 1)[-1].removesuffix(".py")
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in base)[:15]
    return kept if kept[:1].isalpha() else f"job{kept}"[:15]


def _from_file(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    return _from_tree(_parsed(path), path)


def _from_tree(tree: Mapping[str, object], path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the fields of a TOML file, or of a mapping; `path` says which, in messages."""
    pinned: dict[str, Any] = {}
    for key, value in tree.items():
        name = key.replace("_", "-")
        if name == "command":
            pinned[name] = _words(value, path)
        elif name in FIELDS:
            pinned[name] = _read(FIELDS[name], value, f"{key} in {path}")
        else:
            raise _unknown(key, path)
    return pinned, dict.fromkeys(pinned, path)


def _words(value: object, path: str) -> list[object]:
    if isinstance(value, str) and len(value.split()) > 1:
        raise UsageError("a list of words", f"command in {path}: {value!r}", 'command = ["train.py", "--lr", "1e-3"]')
    return value if isinstance(value, list) else [value]


def _read(its: Field, value: object, where: str) -> Any:
    try:
        if its.name == "env" and isinstance(value, dict):
            value = [f"{name}={_as_text(text)}" for name, text in value.items()]
        if its.kind == "each":
            parts = value if isinstance(value, list) else value.split("+") if isinstance(value, str) else [value]
            return tuple(its.read(part) for part in _bounded(parts, MOST_GROUPS))
        if its.kind == "many":
            return tuple(its.read(part) for part in _bounded(value, MOST_ENTRIES))
        return its.read(value)
    except UsageError as wrong:
        raise UsageError(wrong.expected, f"{where}: {wrong.seen}", wrong.remedy) from None


def _as_text(value: object) -> str:
    """Return a value of TOML as it was written; of other kinds than these, Python knows another spelling."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UsageError("text or a whole number", repr(value), "quotes around it")
    return str(value)


def _bounded(value: object, most: int) -> list[object]:
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    if not 1 <= len(parts) <= most:
        raise UsageError(f"1 to {most} values", str(len(parts)), "a shorter list")
    return parts


def _parsed(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_SPEC_BYTES + 1)
    except OSError as wrong:
        raise UsageError("a readable file", f"{path}: {wrong.strerror} (--spec)", "the path of a TOML file") from None
    if len(data) > _LARGEST_SPEC_BYTES:
        raise UsageError(f"at most {_LARGEST_SPEC_BYTES} bytes", f"{path}, which is larger (--spec)", "a TOML file")
    try:
        return toml(data)
    except ValueError as wrong:
        raise UsageError("a TOML file", f"{path}: {wrong} (--spec)", "correcting that line") from None


def _unknown(key: str, path: str) -> UsageError:
    near = nearest(key, ["command", *(its.name for its in TABLE)])
    return UsageError("a field of a job", f"{key} in {path}", f"{near}, which is the nearest")
