"""How many nodes and tasks a job script asks for, and steps of srun that do not fit them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mingle_hooks.render.lines import Line

# Those that start a node's processes themselves, so that Slurm has to start one on each node.
_LAUNCHER = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate\s{1,8}launch)\b")
_SLURMS = re.compile(r"(?:--nodes[= ]|(?<!\S)-N\s{0,8})(\d{1,9})(?:-(\d{1,9}))?")
_TORQUES = re.compile(r"-l\s{1,8}nodes=(\d{1,9})")
_CHUNKS = re.compile(r"select=(\S+)")
_EACH = re.compile(r"--ntasks-per-node[= ](\d{1,9})")
_ALL = re.compile(r"(?:--ntasks[= ]|(?<!\S)-n\s{0,8})(\d{1,9})")
_CARRIED = re.compile(r"\bdeclare -f\b")
_STEP = re.compile(r"\bsrun\b((?:\s+-\S+(?:[ \t]+[^\s-]\S*)?)*)")


class Asked(NamedTuple):
    """What the directives ask for: nodes, and tasks on all of them, None where they say nothing, and in which line."""

    nodes: int
    tasks: int | None = None
    line: int = 0


def asked(directives: Iterable[Line]) -> Asked:
    """Return what a script's directives ask for."""
    nodes, each, tasks, place = 0, None, None, 0
    for line in directives:
        nodes = nodes or _nodes(line.text)
        if line.text.startswith("#SBATCH"):
            its_each, its_all = _count(_EACH, line.text), _count(_ALL, line.text)
            place = line.number if its_each or its_all else place
            each, tasks = its_each or each, its_all or tasks
    if not nodes:
        nodes = -(-tasks // each) if each and tasks else 1
    return Asked(nodes, tasks or (each and each * nodes), place)


def launches_inside(lines: Iterable[Line]) -> bool:
    """Tell whether a function starts a launcher."""
    return any(line.is_inside and _LAUNCHER.search(line.text) for line in lines)


def wrong_steps(job: Asked, line: Line, *, is_inside: bool) -> Iterator[tuple[int, int, str, str]]:
    """Say which steps start other tasks than is meant: place in the line, or number of the directive, mistake, mend.

    `is_inside` tells that the launcher is in a function, which a step gets by `declare -f`.

    Seen with Slurm 22.05: --ntasks-per-node of srun counts for nothing where the directives say how many tasks.
    """
    steps = list(_STEP.finditer(line.text))
    for step, end in zip(steps, [*(its.start() for its in steps[1:]), len(line.text)], strict=False):
        own = step[1]
        each, tasks = _count(_EACH, own), _count(_ALL, own)
        nodes = _count(_SLURMS, own) or job.nodes
        if each and not tasks and job.tasks and job.tasks != each * nodes:
            mend = f"--ntasks={each * nodes} beside it, and no fewer in #SBATCH"
            yield step.start(), 0, f"--ntasks-per-node={each} of srun, which starts the {job.tasks} of #SBATCH", mend
        elif (is_inside and _CARRIED.search(line.text, step.start(), end)) or _LAUNCHER.search(
            line.text, step.start(), end
        ):
            started = tasks or job.tasks or (each or 1) * nodes
            if started > nodes:
                place = 0 if tasks or not job.tasks else job.line
                mistake = "more than one task for each node, with a launcher that starts the others"
                yield step.start(), place, mistake, "--ntasks-per-node=1, and the launcher's own --nproc-per-node"


def _nodes(text: str) -> int:
    """Return the number of nodes that a directive asks for, 0 where it says nothing of them."""
    if match := _CHUNKS.search(text):
        counts = [re.match(r"\d*", chunk) for chunk in match[1].split("+")]
        return sum(int(count[0][:9] or 1) for count in counts if count)
    match = _SLURMS.search(text) if text.startswith("#SBATCH") else None
    return max(int(group) for group in match.groups() if group) if match else _count(_TORQUES, text) or 0


def _count(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None
