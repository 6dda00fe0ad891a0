"""Reading a job script that somebody wrote, and naming the classic mistakes of multi-node jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.render.lines import Line, parted
from mingle_hooks.render.mistakes import ANYWHERE, ON_SEVERAL_NODES, Pattern
from mingle_hooks.render.tasks import Asked, asked, launches_inside, wrong_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LARGEST_BYTES = 1 << 20  # sbatch's own limit is 4 MiB; real scripts are a page
_TRAINS = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate\s{1,8}launch|mingle\s{1,8}exec)\b")
_ASKS = re.compile(r"\bmingle\s{1,8}env\b(?![^\n]{0,160}--no-wait)")
# The same as the command of a line, and not as a word in it.
_COMMAND = re.compile(
    r"\s*(?:(?:exec|time|nohup|env)\s{1,8}|[A-Za-z_]\w{0,254}=[^\s\"'$(]{0,255}\s{1,8}){0,16}"
    r"(?:[\w.-]{0,255}/){0,32}(?:torchrun|accelerate\s{1,8}launch|mingle\s{1,8}exec"
    r"|python[\d.]{0,8}\s{1,8}-m\s{1,8}torch\.distributed\.(?:run|launch))\b"
)
# What starts something on the other nodes.
_SPREADS = re.compile(
    r"\b(?:srun|pbs_tmrsh|pbsdsh|mpirun|mpiexec|blaunch|qrsh|ssh|pdsh|clush|parallel|mingle\s{1,8}run)\b"
)
_ITSELF = re.compile(r"\$\{?(?:0|BASH_SOURCE)\b")
_RANK_OF_BATCH = re.compile(
    r"(?:\b(?:NODE_|GROUP_)?RANK=|--(?:node|machine)[_-]rank[=\s]\s{0,64})[\"']?\$\{?(SLURM_(?:NODEID|PROCID)|PBS_NODENUM)\b"
)
_ALONE = "without srun: it runs on the first node only"
_SPREAD = "mingle run in front of it, or srun on Slurm; or mingle template"


class Finding(NamedTuple):
    """A mistake: the line, what is wrong, what to write."""

    line: int
    mistake: str
    mend: str


def read(path: str) -> str:
    """Return a script's text. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as wrong:
        raise UsageError(
            "a readable script", f"{path}: {wrong.strerror}", "the path of an sbatch or PBS script"
        ) from None
    if len(data) > LARGEST_BYTES:
        raise UsageError(f"a script of at most {LARGEST_BYTES} bytes", path, "the script itself")
    return data.decode(errors="replace")


def lint(text: str) -> list[Finding]:
    """Return the mistakes in a script's text, by line, in a time that grows as the text does."""
    directives, lines = parted(text)
    job = asked(directives)
    patterns = (*ANYWHERE, *(ON_SEVERAL_NODES if job.nodes > 1 else ()))
    found = {its for line in lines for its in _of_patterns(line, patterns)}
    if job.nodes > 1:
        found |= {*_alone(lines), *_of_batch(lines), *_steps(job, lines)}
    return sorted(found)


def _of_patterns(line: Line, patterns: Iterable[Pattern]) -> Iterator[Finding]:
    """Say what each pattern finds; where two overlap, the first."""
    taken: set[int] = set()
    for its in patterns:
        for number, match in _placed(line, its.looks):
            place = range(match.start(), match.end())
            if taken.isdisjoint(place):
                yield Finding(number, its.mistake, its.mend)
            taken.update(place)


def _placed(line: Line, pattern: re.Pattern[str], text: str | None = None) -> Iterator[tuple[int, re.Match[str]]]:
    """Return each match with the number of the line in the file where it begins."""
    number, counted = line.number, 0
    for match in pattern.finditer(line.text if text is None else text):
        number += line.text.count("\n", counted, match.start())
        counted = match.start()
        yield number, match


def _alone(lines: list[Line]) -> Iterator[Finding]:
    """Say where a launcher is started by the batch script, on its own node."""
    # What is asked in $(…) is no training.
    spreading = [line for line in lines if _SPREADS.search(re.sub(r"\$\([^()]*\)|`[^`]*`", "", line.text))]
    if spreading:
        starts_itself = any(_ITSELF.search(line.text) for line in spreading)
        for line in () if starts_itself else lines:
            if not line.is_inside and (match := _COMMAND.match(line.text)):
                yield Finding(line.number + line.text.count("\n", 0, match.end()), f"a launcher {_ALONE}", _SPREAD)
        return
    training = [(line, match) for line in lines if (match := _TRAINS.search(line.text))]
    what = "a launcher" if training else "mingle env"
    for line, match in training or [(line, match) for line in lines if (match := _ASKS.search(line.text))]:
        yield Finding(line.number + line.text.count("\n", 0, match.start()), f"{what} {_ALONE}", _SPREAD)


def _of_batch(lines: list[Line]) -> Iterator[Finding]:
    """Say what the batch script expands, where it was meant for every node."""
    for line in lines:
        for number, match in _placed(line, _RANK_OF_BATCH, line.here):
            mistake = f"${match[1]} taken in the batch script, where it is the first node's"
            yield Finding(number, mistake, "single quotes, as in srun bash -c '…', or mingle env on every node")
        if line.early and _SPREADS.search(line.text):
            mistake = "$(mingle …) within double quotes: the batch script runs it, before any node does"
            mend = "single quotes: srun bash -c 'eval \"$(mingle env)\"; …', or srun mingle exec"
            yield Finding(line.number + line.text.count("\n", 0, line.early[0]), mistake, mend)


def _steps(job: Asked, lines: list[Line]) -> Iterator[Finding]:
    is_inside = launches_inside(lines)
    for line in lines:
        for at, place, mistake, mend in wrong_steps(job, line, is_inside=is_inside):
            yield Finding(place or line.number + line.text.count("\n", 0, at), mistake, mend)
