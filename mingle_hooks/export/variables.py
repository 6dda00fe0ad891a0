"""From a world to variables: names, values and their sources, and the variables of an earlier mingle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import FRAMEWORKS, Framework, framework, plugin_variables
from mingle_hooks.net.addresses import interface_of
from mingle_hooks.schedulers import slurm
from mingle_hooks.settings import left_behind
from mingle_hooks.view import File, View

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.member import MemberSpec


# The marks that mingle always exports. MINGLE_ID alone is no mark: it is also the user's setting.
MARKS = ("MINGLE_ID", "MINGLE_WORLD", "MINGLE_RANK_OFFSET", "MINGLE_EXPORTS")
NODE = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
TASK = ("RANK", "LOCAL_RANK", "GROUP_RANK")
# All names that mingle can export without plugins, in order.
KNOWN = tuple(dict.fromkeys([*NODE, *TASK, *MARKS, *(n for f in FRAMEWORKS.values() for n in f.names)]))

USER = "the environment"
# Variables of the scheduler, which a framework may replace.
SCHEDULERS = ("SLURM_JOB_NAME",)


class Variable(NamedTuple):
    """One variable to export; `lost` is the value that was replaced or not used, and why."""

    name: str
    value: str
    source: str
    lost: str = ""


def files(view: View, names: Iterable[str]) -> tuple[File, ...]:
    """Return the files of these frameworks, each once. Raises UsageError for an unknown name."""
    return tuple({file.name: file for name in names for file in _files(framework(name), view)}.values())


def _files(row: Framework, view: View) -> tuple[File, ...]:
    return row.files(view) if row.files is not None else ()


def variables(view: View, names: Iterable[str], paths: Mapping[str, str] | None = None) -> tuple[Variable, ...]:
    """Return all variables in order: the world's, the frameworks', and MINGLE_EXPORTS.

    `paths` maps the names of `files(view, names)` to the paths that the caller wrote. Unknown values, None in the
    Assignment, are left out. Raises UsageError for an unknown framework, or two that contradict each other.
    """
    names = tuple(dict.fromkeys(names))
    found = [_shared(view, name, value) for name, value in _world(view).items() if value is not None]
    wanted = _settings(view, names, paths)
    found += [_wanted(view, name, value, source) for name, (value, source) in wanted.items()]
    found += [_bound(view, name, value) for name, value in view.gpu_variables.items()]
    mine = [v.name for v in found if view.user_environ.get(v.name) != v.value and v.name not in view.gpu_variables]
    return (*found, Variable("MINGLE_EXPORTS", " ".join([*mine, "MINGLE_EXPORTS"]), "mingle"))


def earlier(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in `environ` that an earlier mingle, or enroot's PyTorch hook, exported, in order."""
    left = {*_of_mingle(environ), *slurm.of_enroot(environ)}
    return tuple(name for name in _known() if name in left)


def _known() -> tuple[str, ...]:
    """Return all names that mingle can export, with those of loaded plugins."""
    return (*KNOWN, *plugin_variables())


def _of_mingle(environ: Mapping[str, str]) -> set[str]:
    """Return the names that an earlier mingle exported.

    MINGLE_ID beside MINGLE_EXPORTS or MINGLE_WORLD marks an earlier mingle. MINGLE_EXPORTS lists the names; without it
    they are all that mingle can export. Unknown names are never returned.
    """
    is_listed = "MINGLE_EXPORTS" in environ
    if "MINGLE_ID" not in environ or not (is_listed or "MINGLE_WORLD" in environ):
        return set()
    left = {*left_behind(environ), *MARKS[1:]} if is_listed else set(_known())
    return left & environ.keys()


def own(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment: `environ` without what an earlier mingle exported."""
    left = set(earlier(environ))
    return {name: value for name, value in environ.items() if name not in left}


def stale(environ: Mapping[str, str], exported: Iterable[str]) -> tuple[str, ...]:
    """Return the names to unset: those that an earlier mingle exported and this one does not."""
    new_names = set(exported)
    return tuple(name for name in earlier(environ) if name not in new_names)


def leftovers(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names to unset after a failure: those of the world and of an earlier mingle, not the user's."""
    left, user_environ = set(earlier(environ)), own(environ)
    return tuple(n for n in _known() if n in left or (n in (*NODE, *TASK, *MARKS) and not user_environ.get(n)))


def _world(view: View) -> dict[str, str | None]:
    world, place = view.world, view.place
    found: dict[str, object] = {
        "MASTER_ADDR": world.master_addr,
        "MASTER_PORT": world.master_port,
        "NODE_RANK": place.node_rank,
        "NNODES": world.nodes,
        "LOCAL_WORLD_SIZE": place.slots,
        "WORLD_SIZE": world.size,
    }
    if view.scope == "task" or place.local_rank is not None:
        found |= {"RANK": place.rank, "LOCAL_RANK": place.local_rank, "GROUP_RANK": place.node_rank}
    found |= {"MINGLE_ID": world.id, "MINGLE_WORLD": world.digest, "MINGLE_RANK_OFFSET": place.rank_offset}
    return {name: None if value is None else str(value) for name, value in found.items()}


def _settings(view: View, names: tuple[str, ...], paths: Mapping[str, str] | None) -> dict[str, tuple[str, str]]:
    """Return name -> (value, framework) for all frameworks, with the paths of their files."""
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        row = framework(name)
        settings = row.settings(view)
        if unknown := settings.keys() - set(row.names):
            expected = f"{name} to set only the variables that it declares"
            raise UsageError(expected, ", ".join(sorted(unknown)), f"--for without {name}")
        for file in _files(row, view):
            settings |= dict.fromkeys(file.variables, (paths or {})[file.name])
        for variable, value in settings.items():
            if variable in view.site:  # an environment variable would override the site's file
                continue
            before, other = found.setdefault(variable, (value, name))
            if before != value:
                seen = f"{before} for {other}, {value} for {name}"
                remedy = f"either --for {other} or --for {name}"
                raise UsageError(f"frameworks that agree on {variable}", seen, remedy)
    return found


def _shared(view: View, name: str, value: str) -> Variable:
    """Return a variable of the world, with the user's value if it differs."""
    user_value = view.user_environ.get(name)
    if user_value == value:
        return Variable(name, value, USER)
    lost = f"{printable(user_value)} in {USER}: all members share one world" if user_value else ""
    return Variable(name, value, "the world", lost)


def _bound(view: View, name: str, value: str) -> Variable:
    """Return a scheduler's variable that --bind changes for this task; MINGLE_EXPORTS does not list it."""
    return Variable(name, value, "--bind", f"{printable(view.user_environ.get(name, ''))}, for this task only")


def _wanted(view: View, name: str, value: str, source: str) -> Variable:
    """Return a framework's variable; the user's value wins unless it is empty."""
    user_value = view.user_environ.get(name)
    if name in SCHEDULERS and user_value and user_value != value:
        return Variable(name, value, source, f"{printable(user_value)} from the scheduler")
    if not user_value:
        return Variable(name, value, source)
    lost = "" if user_value == value else f"{printable(value)} for {source}: your own value is kept"
    return Variable(name, user_value, USER, lost)


# `--explain`: every variable, its value, its source and what it replaced; then notes on how the world formed.

# Longer values, such as TF_CONFIG, would push the other columns off the terminal.
LONGEST_VALUE = 60  # characters
_HEAD = ("NAME", "VALUE", "SOURCE", "IGNORED")


def explain(
    host: str, found: Sequence[Variable], sources: Mapping[str, str], environ: Mapping[str, str], notes: Sequence[str]
) -> str:
    """Return an aligned table and the notes below it; each line begins with the host, for a job's log.

    `sources` are those of the world's variables, by name; `environ` is the environment of this process.
    """
    rows = [_HEAD]
    left = dict(_replaced(environ))
    for name, value, source, lost in found:
        shown = sources.get(name, source) if source == "the world" else source
        rows.append((name, value, shown, lost or left.get(name, "")))
    names = {variable.name for variable in found}
    rows += [(name, "", "unset", lost) for name, lost in left.items() if name not in names]
    cells = [
        (name, printable(value, LONGEST_VALUE), printable(source), printable(lost))
        for name, value, source, lost in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[3]]).rstrip() for row in cells]
    return "".join(f"{host}: {line}\n" for line in [*lines, *map(printable, notes)])


def left_to_nccl(view: View) -> list[str]:
    """Return notes on NCCL settings that the site's or the user's files have, and that are not exported."""
    wanted = {name for row in map(framework, view.frameworks) for name in row.names}
    return [
        f"{name}={setting.value} is set in {setting.source}; mingle exports none, as a variable would override it"
        for name, setting in view.site.items()
        if name in wanted
    ]


def explain_sources(spec: MemberSpec, view: View) -> dict[str, str]:
    """Return the source of each variable of the world: an option, a variable, a count."""
    settings, facts, address = spec.settings, spec.facts, view.place.address
    slots = {"--slots": settings.source("slots"), "gpus": "GPUs seen", "default": "the default"}
    slots["tasks"] = facts.sources.get("local_count", facts.scheduler)
    slots["cpus"] = facts.sources.get("cpus", facts.scheduler)
    by_rank_0 = "rank 0"
    if view.world.nodes != 1 and address is not None:
        by_rank_0 = f"rank 0, reached from {address} ({interface_of(address)})"
    return {
        "MASTER_ADDR": by_rank_0,
        "MASTER_PORT": "rank 0",
        "NODE_RANK": _by_order(spec) if spec.rank is not None else "election, then host names",
        "NNODES": spec.nodes_source,
        "LOCAL_WORLD_SIZE": slots.get(spec.slots_from, spec.slots_from),
        "WORLD_SIZE": f"sum over {view.world.nodes} member{'s' if view.world.nodes != 1 else ''}",
        "RANK": facts.sources.get("task_rank", "MINGLE_RANK_OFFSET and LOCAL_RANK"),
        "LOCAL_RANK": facts.sources.get("local_rank", facts.scheduler),
        "GROUP_RANK": "NODE_RANK",
        "MINGLE_ID": settings.source("id") if settings.id else facts.sources.get("job_id", facts.scheduler),
        "MINGLE_WORLD": "the whole world",
        "MINGLE_RANK_OFFSET": "sum over lower ranks",
    }


def _by_order(spec: MemberSpec) -> str:
    if spec.settings.order == "scheduler" or spec.nodes == 1:
        return spec.rank_source
    return f"{spec.settings.source('order')} {spec.settings.order}; {spec.rank_source} says {spec.rank}"


def _replaced(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each name that an earlier mingle or a hook exported, and a note on its replaced value."""
    of_hook = slurm.of_enroot(environ)
    for name in earlier(environ):
        source = "enroot's PyTorch hook" if name in of_hook else "an earlier mingle"
        yield name, f"{environ[name]} from {source}: replaced"
