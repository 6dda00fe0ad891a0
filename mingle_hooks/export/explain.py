"""The answer to `--explain`: every variable, its value, its source and what it replaced; then how the world formed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import printable
from mingle_hooks.export import variables
from mingle_hooks.export.frameworks import framework
from mingle_hooks.fabric.interfaces import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mingle_hooks.export.variables import Variable
    from mingle_hooks.export.view import View
    from mingle_hooks.job import MemberSpec

# Longer values, such as TF_CONFIG, would push the other columns off any terminal.
LONGEST_VALUE = 60  # characters
_HEAD = ("NAME", "VALUE", "SOURCE", "IGNORED")


def explain(
    host: str,
    found: Sequence[Variable],
    sources: Mapping[str, str],
    environ: Mapping[str, str],
    story: Sequence[str] = (),
) -> str:
    """Return an aligned table for stderr and the story below it; each line begins with the host, for a job's log.

    `sources` tells where a variable of the world came from, `environ` is the process's, with what others left there.
    """
    rows = [_HEAD]
    left = dict(_left(environ))
    for variable in found:
        source = sources.get(variable.name, variable.source) if variable.source == "the world" else variable.source
        rows.append((variable.name, variable.value, source, variable.lost or left.pop(variable.name, "")))
    names = {variable.name for variable in found}
    rows += [(name, "", "unset", lost) for name, lost in left.items() if name not in names]
    cells = [
        (name, printable(value, LONGEST_VALUE), printable(source), printable(lost))
        for name, value, source, lost in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[3]]).rstrip() for row in cells]
    return "".join(f"{host}: {line}\n" for line in [*lines, *map(printable, story)])


def left_to_nccl(view: View) -> list[str]:
    """Return what the site's files, or the user's, say to NCCL, and these frameworks do not say again."""
    wanted = {name for row in map(framework, view.frameworks) for name in row.names}
    return [
        f"{name}={setting.value} is set in {setting.source}; mingle exports none, as a variable would override it"
        for name, setting in view.site.items()
        if name in wanted
    ]


def sources(spec: MemberSpec, view: View) -> dict[str, str]:
    """Return where each variable of the world came from: an option, a variable, what was counted.

    Raises NetworkError.
    """
    settings, facts, address = spec.settings, spec.facts, view.place.address
    slots = {"--slots": settings.source("slots"), "gpus": "GPUs seen", "default": "the default"}
    slots["tasks"] = facts.sources.get("local_count", facts.scheduler)
    slots["cpus"] = facts.sources.get("cpus", facts.scheduler)
    named = {"id": settings.source("id") if settings.id else facts.sources.get("job_id", facts.scheduler)}
    by_rank_0 = "rank 0"
    if view.world.nodes != 1 and address is not None:
        by_rank_0 = f"rank 0, reached from {address} ({name_of(address)})"
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
        "MINGLE_ID": named["id"],
        "MINGLE_WORLD": "the whole world",
        "MINGLE_RANK_OFFSET": "sum over lower ranks",
    }


def _by_order(spec: MemberSpec) -> str:
    if spec.settings.order == "scheduler" or spec.nodes == 1:
        return spec.rank_source
    return f"{spec.settings.source('order')} {spec.settings.order}; {spec.rank_source} says {spec.rank}"


def _left(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each name of the world that another program left in the environment, and what it left."""
    of_hook = variables.of_slurm(environ)
    for name in variables.earlier(environ):
        whose = "enroot's PyTorch hook" if name in of_hook else "an earlier mingle"
        yield name, f"{environ[name]} from {whose}: replaced"
