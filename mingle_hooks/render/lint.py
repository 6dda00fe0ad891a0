"""Reading a job script that somebody wrote, and naming the classic mistakes of multi-node jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from mingle_hooks.errors import UsageError

_LARGEST_BYTES = 1 << 20  # sbatch's own limit is 4 MiB; real scripts are a page
_LAUNCHER = re.compile(r"\b(torchrun|torch\.distributed\.(?:run|launch)|accelerate\s+launch)\b")
# What starts something on the other nodes.
_SPREADS = re.compile(r"\b(srun|pbs_tmrsh|pbsdsh|mpirun|mpiexec|blaunch|qrsh|ssh|pdsh|clush|parallel)\b")
_NODES = re.compile(r"(?:--nodes[= ]|-N\s*)(\d+)|-l\s+nodes=(\d+)")
_CHUNKS = re.compile(r"select=(\S+)")
_TASKS = re.compile(r"--ntasks-per-node[= ](\d+)")
_ALL_TASKS = re.compile(r"(?:--ntasks[= ]|-n\s*)(\d+)")
_RANK_OF_BATCH = re.compile(
    r"(?:\b(?:NODE_|GROUP_)?RANK=|--(?:node|machine)[_-]rank[=\s]\s*)[\"']?\$\{?(SLURM_(?:NODEID|PROCID)|PBS_NODENUM)\b"
)


class Finding(NamedTuple):
    """A mistake: the line, what is wrong, what to write."""

    line: int
    mistake: str
    mend: str


class Pattern(NamedTuple):
    """A mistake that one line shows by itself."""

    looks: re.Pattern[str]
    mistake: str
    mend: str


PATTERNS = (
    Pattern(
        re.compile(
            r"\bMASTER_PORT=[\"']?(?:\d|\$\{\w+:?[-=]\d|\$\(\(\s*\d+\s*\)\))"
            r"|--(?:master|main_process)[_-]port[=\s]\s*\d|--rdzv[_-]endpoint[=\s]\s*\S{1,253}:\d+\b"
        ),
        "a fixed MASTER_PORT: two jobs on one node meet on it",
        'v=$(mingle env) || exit; eval "$v" on every node, and "$MASTER_PORT"',
    ),
    Pattern(
        re.compile(r"\bhostname\s+(?:-\w*[iI]\w*|--ip-address|--all-ip-addresses)\b"),
        "hostname -i: the name may resolve to 127.0.1.1 or to a slow network",
        'the address that mingle env finds, "$MASTER_ADDR"',
    ),
    Pattern(
        re.compile(r"\|\|\s*(?:echo\s+|export\s+)?(?:\w+=)?[\"']?(?:localhost|127\.0\.0\.1)"),
        "|| echo localhost: when the command fails, every node is a world of its own and the job hangs",
        "|| exit",
    ),
    Pattern(
        re.compile(r"\b(?:GLOO|TP)_SOCKET_IFNAME=[\"']?\^"),
        "^ in GLOO_SOCKET_IFNAME: exclusion is NCCL's syntax only, and Gloo fails on it",
        "one interface's name, or mingle env --for nccl,gloo",
    ),
    Pattern(
        re.compile(r"\beval\s+(?:\\?[\"'])?\\?\$\(mingle env"),
        'eval "$(mingle env)": a crash before any output goes unseen',
        'v=$(mingle env) || exit; eval "$v"',
    ),
)


@dataclass(frozen=True)
class Line:
    """A logical line: what backslashes join, a line feed for each, without comments; and its first line's number."""

    number: int
    text: str

    def at(self, match: re.Match[str]) -> int:
        """Return the number of the line in which a match begins."""
        return self.number + self.text.count("\n", 0, match.start())


def read(path: str) -> str:
    """Return a script's text. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as wrong:
        raise UsageError(
            "a readable script", f"{path}: {wrong.strerror}", "the path of an sbatch or PBS script"
        ) from None
    if len(data) > _LARGEST_BYTES:
        raise UsageError(f"a script of at most {_LARGEST_BYTES} bytes", path, "the script itself")
    return data.decode(errors="replace")


def lint(text: str) -> list[Finding]:
    """Return the mistakes in a script's text, by line."""
    directives, lines = _parted(text)
    found = [
        Finding(line.at(match), its.mistake, its.mend)
        for line in lines
        for its in PATTERNS
        if (match := its.looks.search(line.text))
    ]
    if _nodes(directives) > 1:
        found += _on_several_nodes(directives, lines)
    return sorted(found)


def _parted(text: str) -> tuple[list[Line], list[Line]]:
    """Return the directives and the lines of shell."""
    directives, lines, number = [], [], 0
    for joined in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n?", text):
        line = Line(number + 1, re.sub(r"[^\S\n]#[^\S\n][^\n]*", "", joined.replace("\\\n", "\n")).strip())
        number += joined.count("\n")
        if re.match(r"#(SBATCH|PBS|BSUB|\$)\s", line.text):
            directives.append(line)
        elif line.text and not line.text.startswith("#"):
            lines.append(line)
    return directives, lines


def _on_several_nodes(directives: list[Line], lines: list[Line]) -> list[Finding]:
    found = []
    # What is asked in $(…) is no training.
    body = re.sub(r"\$\([^()]*\)|`[^`]*`", "", "\n".join(line.text for line in lines))
    for line in lines:
        if (match := _LAUNCHER.search(line.text)) and not _SPREADS.search(body):
            mend = "srun in front of it, on Slurm; pbs_tmrsh for each host, on PBS; or mingle template"
            found.append(Finding(line.at(match), "a launcher without srun: it runs on the first node only", mend))
        if match := _RANK_OF_BATCH.search(_expanded_here(line.text)):
            mistake = f"${match[1]} taken in the batch script, where it is the first node's"
            mend = "single quotes, as in srun bash -c '…', or mingle env on every node"
            found.append(Finding(line.at(match), mistake, mend))
    return found + _tasks(directives, lines)


def _expanded_here(line: str) -> str:
    """Return a line with blanks for what single quotes keep for a shell on the node."""
    return re.sub(r"'[^']*'", lambda quoted: re.sub(r"[^\n]", " ", quoted[0]), line)


def _tasks(directives: list[Line], lines: list[Line]) -> list[Finding]:
    """Say where Slurm would start a launcher several times on a node, as it starts the node's processes itself."""
    nodes = _nodes(directives)
    for line in lines:
        launcher = _LAUNCHER.search(line.text)
        if launcher is None or "srun" not in line.text[: launcher.start()]:
            continue
        # srun's own options win over the job's.
        own = line.text[: launcher.start()].rpartition("srun")[2]
        places = [line] if _TASKS.search(own) or _ALL_TASKS.search(own) else directives
        for place in places:
            text = own if place is line else place.text
            if _count(_TASKS, text, 1) > 1 or _count(_ALL_TASKS, text, nodes) != nodes:
                mistake = "more than one task for each node, with a launcher that starts the others"
                return [Finding(place.number, mistake, "--ntasks-per-node=1, and the launcher's own --nproc-per-node")]
    return []


def _nodes(directives: list[Line]) -> int:
    for line in directives:
        if match := _CHUNKS.search(line.text):
            counts = [re.match(r"\d*", chunk) for chunk in match[1].split("+")]
            return sum(int(count[0][:9] or 1) for count in counts if count)
        if _NODES.search(line.text):
            return _count(_NODES, line.text, 1)
    return 1


def _count(pattern: re.Pattern[str], text: str, otherwise: int) -> int:
    match = pattern.search(text)
    return int(next(group for group in match.groups() if group)[:9]) if match else otherwise
