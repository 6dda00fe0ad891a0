"""Lint of job scripts: the classic mistakes of multi-node jobs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mingle_hooks.scripts.job import read_file

# Mistakes that one line shows by itself.
#
# In no pattern can two repetitions match the same text, so that each reads a hostile line in one pass.


class Pattern(NamedTuple):
    """A mistake: what it looks like, what is wrong, and what to write."""

    looks: re.Pattern[str]
    mistake: str
    remedy: str


_OWN = (
    r"(?:\$\{\w{1,64}:?[-=])?"
    r"(?:(?:\$\(|`)\s{0,8}(?:hostname\b(?!\s{1,8}-(?:\w{0,8}[iI]|-ip|-all))|uname -n)|\$\{?HOSTNAME\b"
    r"|localhost\b|127\.\d|0\.0\.0\.0)"
)
ANYWHERE = (
    Pattern(
        re.compile(
            r"\bMASTER_PORT=[\"']?(?:\d|\$\{\w{1,64}:?[-=]\d|\$\(\(\s{0,8}\d{1,9}\s{0,8}\)\))"
            r"|--(?:master|main_process)[_-]port[=\s]\s{0,64}\d|--rdzv[_-]endpoint[=\s]\s{0,64}\S{1,253}:\d"
        ),
        "a fixed MASTER_PORT: two jobs on one node collide",
        'eval "$(mingle env || echo exit 1)" on every node, and "$MASTER_PORT"',
    ),
    Pattern(
        re.compile(r"\bhostname\s{1,64}(?:-\w{0,8}[iI]\w{0,8}|--ip-address|--all-ip-addresses)\b"),
        "hostname -i: the name may resolve to 127.0.1.1 or to a slow network",
        'the address that mingle env finds, "$MASTER_ADDR"',
    ),
    Pattern(
        re.compile(r"\|\|\s{0,64}(?:echo\s{1,8}|export\s{1,8})?(?:\w{1,64}=)?[\"']?(?:localhost|127\.0\.0\.1)"),
        "|| echo localhost: when the command fails, every node forms a world of its own and the job hangs",
        "|| exit",
    ),
    Pattern(
        re.compile(r"\b(?:GLOO|TP)_SOCKET_IFNAME=[\"']?\^"),
        "^ in GLOO_SOCKET_IFNAME: exclusion is NCCL's syntax only, and Gloo fails on it",
        "one interface's name, or mingle env --for nccl,gloo",
    ),
)
# These are right on one node. Where one overlaps with one of the above, only that is found.
ON_SEVERAL_NODES = (
    Pattern(
        re.compile(
            r"(?:\bMASTER_ADDR=|--(?:master[_-]addr|main_process_ip|rdzv[_-]endpoint)[=\s]\s{0,64})[\"']?" + _OWN
        ),
        "a host's own name as MASTER_ADDR: each node that runs this takes itself for rank 0",
        'eval "$(mingle env || echo exit 1)" on every node, and "$MASTER_ADDR"',
    ),
    Pattern(
        re.compile(
            r"(?:PORT=|--(?:master|main_process)[_-]port[=\s])"
            r"(?:[^\n;]{0,160}?\b(?:RANDOM|shuf)\b|[^\n]{0,160}?(?:getsockname|\.bind\())"
        ),
        "a random MASTER_PORT: different on each node that runs this, and perhaps in use",
        'eval "$(mingle env || echo exit 1)" on every node, and "$MASTER_PORT"',
    ),
    Pattern(
        re.compile(r"\b(?:torchrun|torch\.distributed\.run)\s[^\n]{0,160}?--standalone\b"),
        "--standalone: each node trains alone",
        "leaving it out, behind srun mingle exec",
    ),
)


# A shell script as logical lines: what quotes, parentheses and backslashes join, and which shell runs it.
#
# One pass over the text. A script with an unmatched quote is read line by line.

# Each match takes at least one character, and none is looked at twice.
_PIECE = re.compile(r"[^\\'\"`$()#<\n]+|\\.|\$?\(\(?|\$|.", re.DOTALL)
_HERE = re.compile(r"<<-?[ \t]*[\\'\"]?(\w{1,255})['\"]?")
_ESCAPED = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)  # what follows $'
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB|\$)\s")
_COMMAND_TEXT = re.compile(r"\s-[a-z]{0,8}c\s{1,4}$")  # bash -c, bash -lc
_FUNCTION = re.compile(r"(?:function[ \t]+[\w:.-]+|[\w:.-]+[ \t]*\([ \t]*\))(?:[ \t]*\([ \t]*\))?\s*[{(]")


class Line(NamedTuple):
    """A logical line without comments, with the line feeds of the lines that it joins.

    `here` is `text` with blanks for single-quoted text, which another shell expands. `early` has the positions at
    which this shell runs `$(mingle …)` within the text of `bash -c "…"`. `is_inside`: it is in a function's body or a
    here-document, and does not run where it stands.
    """

    number: int  # of its first line in the file, from 1
    text: str
    here: str
    early: tuple[int, ...] = ()
    is_inside: bool = False


def split_lines(text: str) -> tuple[list[Line], list[Line]]:
    """Return the scheduler's directives and the lines of shell that are not empty."""
    scanner = _Scanner(text, joins=True)
    if scanner.frames:  # an unmatched quote, at least for this reader
        scanner = _Scanner(text, joins=False)
    return scanner.directives, _with_functions([line for line in scanner.lines if line.text.strip()])


class _Scanner:
    """Reads a script, piece by piece: the open quotes and parentheses, and the logical line so far."""

    def __init__(self, text: str, *, joins: bool) -> None:
        self.source, self.joins = text, joins
        self.directives: list[Line] = []
        self.lines: list[Line] = []
        # Open quotes and parentheses: " and c (the same, after bash -c), ( also for $(, a for arithmetic.
        self.frames: list[str] = []
        self.commands = 0  # how many of them are c
        self.ends = {line.strip() for line in text.split("\n")}  # the words that can end a here-document
        self.pending: deque[str] = deque()
        self.number = self.first = 1
        self._clear()
        at, size = 0, len(text)
        while at < size:
            piece = _PIECE.match(text, at)[0]  # type: ignore[index]  # every character matches
            at = self._step(piece, at, at + len(piece))
        self._emit()

    def _clear(self) -> None:
        self.texts: list[str] = []
        self.heres: list[str] = []
        self.early: list[int] = []
        self.length = 0

    def _step(self, piece: str, at: int, after: int) -> int:
        """Take one piece, and return the position of the next."""
        is_quoted = bool(self.frames) and self.frames[-1] in '"c'
        if piece == "\n":
            self._add(piece)
            return self._newline(after)
        if piece == "\\\n":
            self.number += 1
            self._add("\n")
        elif "(" in piece and piece[0] in ("$" if is_quoted else "$("):
            self._open(piece, after)
        elif is_quoted:
            if piece == '"':
                self.commands -= self.frames.pop() == "c"
            elif piece == "`":
                self._expanded(after)
            self._add(piece)
        else:
            return self._outside(piece, at, after)
        return after

    def _outside(self, piece: str, at: int, after: int) -> int:
        if piece == "'":
            return self._single(at)
        if piece == "#" and (at == 0 or self.source[at - 1] in " \t\n;&|("):
            return self._comment(at)
        if piece == "<" and self.source.startswith("<<", at):
            return self._here_document(at)
        if piece == '"':
            self.frames.append("c" if _COMMAND_TEXT.search(self.source[max(0, at - 16) : at]) else '"')
            self.commands += self.frames[-1] == "c"
        elif piece == ")" and self.frames:
            self.frames.pop()
        self._add(piece)
        return after

    def _add(self, text: str, here: str | None = None) -> None:
        self.texts.append(text)
        self.heres.append(text if here is None else here)
        self.length += len(text)

    def _open(self, piece: str, after: int) -> None:
        parens = piece.count("(")
        self.frames += ["(" if parens == 1 else "a"] * parens
        if piece == "$(":
            self._expanded(after)
        self._add(piece)

    def _expanded(self, after: int) -> None:
        if self.commands and self.source.startswith("mingle ", after):
            self.early.append(self.length)

    def _single(self, at: int) -> int:
        if self.source[at - 1 : at] == "$":
            found = _ESCAPED.match(self.source, at + 1)
            end = found.end() - 1 if found else -1
        else:
            end = self.source.find("'", at + 1)
        if end < 0 or (not self.joins and self.source.find("\n", at + 1, end) >= 0):
            self._add("'")
            return at + 1
        text = self.source[at : end + 1]
        self._add(text, re.sub(r"[^\n]", " ", text))
        self.number += text.count("\n")
        return end + 1

    def _comment(self, at: int) -> int:
        end = self.source.find("\n", at)
        end = len(self.source) if end < 0 else end
        if self.source[at - 1 : at] in ("", "\n"):
            self._directive(self.source[at:end])
        return end

    def _directive(self, text: str) -> bool:
        if _DIRECTIVE.match(text):
            self.directives.append(Line(self.number, text, text))
            return True
        return False

    def _here_document(self, at: int) -> int:
        if self.source.startswith("<<<", at):
            self._add("<<<")
            return at + 3
        found = _HERE.match(self.source, at)
        if not found or found[1] not in self.ends or self.frames[-1:] == ["a"]:
            self._add("<<")
            return at + 2
        self.pending.append(found[1])
        self._add(found[0])
        return found.end()

    def _newline(self, at: int) -> int:
        self.number += 1
        if not self.joins:
            self.frames.clear()
            self.commands = 0
        bodies = []
        while self.pending and at < len(self.source):
            end = self.source.find("\n", at)
            end = len(self.source) if end < 0 else end
            text = self.source[at:end]
            at = end + 1
            if text.strip() == self.pending[0]:
                self.pending.popleft()
            elif not self._directive(text) and not text.lstrip().startswith("#"):
                bodies.append(Line(self.number, text, text, (), is_inside=True))
            self.number += 1
        if not self.frames:
            self._emit()
        self.lines += bodies
        return at

    def _emit(self) -> None:
        self.lines.append(Line(self.first, "".join(self.texts), "".join(self.heres), tuple(self.early)))
        self.first = self.number
        self._clear()


def _with_functions(lines: list[Line]) -> list[Line]:
    """Mark the bodies of functions, which end at a brace with the indentation of their name."""
    found, indent = [], -1
    for line in lines:
        text = line.text.strip()
        here = len(line.text) - len(line.text.lstrip())
        begins = indent < 0 and bool(_FUNCTION.match(text))
        is_inside = line.is_inside or begins or indent >= 0
        found.append(line._replace(is_inside=is_inside))
        if begins and text[-1] not in "})":
            indent = here
        elif indent == here and text[0] in "})":
            indent = -1
    return found


# The nodes and tasks that a job script requests, and steps of srun that do not fit them.

# Launchers that start a node's processes themselves, so that Slurm has to start one on each node.
_LAUNCHERS = r"torchrun|torch\.distributed\.(?:run|launch)|accelerate\s{1,8}launch"
_LAUNCHER = re.compile(rf"\b(?:{_LAUNCHERS})\b")
_SLURMS = re.compile(r"(?:--nodes[= ]|(?<!\S)-N\s{0,8})(\d{1,9})(?:-(\d{1,9}))?")
_TORQUES = re.compile(r"-l\s{1,8}nodes=(\d{1,9})")
_CHUNKS = re.compile(r"select=(\S+)")
_EACH = re.compile(r"--ntasks-per-node[= ](\d{1,9})")
_ALL = re.compile(r"(?:--ntasks[= ]|(?<!\S)-n\s{0,8})(\d{1,9})")
_CARRIED = re.compile(r"\bdeclare -f\b")
_STEP = re.compile(r"\bsrun\b((?:\s+-\S+(?:[ \t]+[^\s-]\S*)?)*)")


class Requested(NamedTuple):
    """The nodes that directives request, and the tasks on all of them with the line of that; None if there is none."""

    nodes: int
    tasks: int | None = None
    line: int = 0


def requested_tasks(directives: Iterable[Line]) -> Requested:
    """Return what a script's directives request."""
    nodes, each, tasks, number = 0, None, None, 0
    for line in directives:
        nodes = nodes or _nodes(line.text)
        if line.text.startswith("#SBATCH"):
            line_each, line_all = _count(_EACH, line.text), _count(_ALL, line.text)
            number = line.number if line_each or line_all else number
            each, tasks = line_each or each, line_all or tasks
    if not nodes:
        nodes = -(-tasks // each) if each and tasks else 1
    return Requested(nodes, tasks or (each and each * nodes), number)


def _nodes(text: str) -> int:
    """Return the number of nodes that a directive requests, 0 for none."""
    if match := _CHUNKS.search(text):
        counts = [re.match(r"\d*", chunk) for chunk in match[1].split("+")]
        return sum(int(count[0][:9] or 1) for count in counts if count)
    match = _SLURMS.search(text) if text.startswith("#SBATCH") else None
    return max(int(group) for group in match.groups() if group) if match else _count(_TORQUES, text) or 0


def _count(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


_TRAINS = re.compile(rf"\b(?:{_LAUNCHERS}|mingle\s{{1,8}}exec)\b")
_ASKS = re.compile(r"\bmingle\s{1,8}env\b(?![^\n]{0,160}--no-wait)")
# The same as the command of a line, and not as an argument.
_COMMAND = re.compile(
    r"\s*(?:(?:exec|time|nohup|env)\s{1,8}|[A-Za-z_]\w{0,254}=[^\s\"'$(]{0,255}\s{1,8}){0,16}"
    r"(?:[\w.-]{0,255}/){0,32}(?:torchrun|accelerate\s{1,8}launch|mingle\s{1,8}exec"
    r"|python[\d.]{0,8}\s{1,8}-m\s{1,8}torch\.distributed\.(?:run|launch))\b"
)
# Programs that start something on the other nodes.
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
    """A mistake: the line, what is wrong, and what to write."""

    line: int
    mistake: str
    remedy: str


def read_script(path: str) -> str:
    """Return a script's text. Raises UsageError."""
    return read_file(path, "script", "the path of an sbatch or PBS script").decode(errors="replace")


def lint_script(text: str) -> list[Finding]:
    """Return the mistakes in a script, by line, in a time proportional to its length."""
    directives, lines = split_lines(text)
    job = requested_tasks(directives)
    patterns = (*ANYWHERE, *(ON_SEVERAL_NODES if job.nodes > 1 else ()))
    found = {finding for line in lines for finding in _of_patterns(line, patterns)}
    if job.nodes > 1:
        found |= {*_alone(lines), *_expanded_early(lines), *_steps(job, lines)}
    return sorted(found)


def _of_patterns(line: Line, patterns: Iterable[Pattern]) -> Iterator[Finding]:
    """Find the patterns in a line; of two that overlap, the first."""
    taken: set[int] = set()
    for pattern in patterns:
        for number, match in _numbered(line, pattern.looks.finditer(line.text)):
            span = range(*match.span())
            if taken.isdisjoint(span):
                yield Finding(number, pattern.mistake, pattern.remedy)
            taken.update(span)


def _numbered(line: Line, matches: Iterable[re.Match[str]]) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield each match with the number of the line in the file where it begins; no text is read twice for that."""
    number, counted = line.number, 0
    for match in matches:
        number += line.text.count("\n", counted, match.start())
        counted = match.start()
        yield number, match


def _finding(line: Line, at: int, mistake: str, remedy: str) -> Finding:
    """Return a finding at a position in a logical line."""
    return Finding(line.number + line.text.count("\n", 0, at), mistake, remedy)


def _alone(lines: list[Line]) -> Iterator[Finding]:
    """Find launchers that the batch script starts, on its own node only."""
    # A command substitution is no training.
    spreading = [line for line in lines if _SPREADS.search(re.sub(r"\$\([^()]*\)|`[^`]*`", "", line.text))]
    if spreading:
        starts_itself = any(_ITSELF.search(line.text) for line in spreading)
        for line in () if starts_itself else lines:
            if not line.is_inside and (match := _COMMAND.match(line.text)):
                yield _finding(line, match.end(), f"a launcher {_ALONE}", _SPREAD)
        return
    training = [(line, match) for line in lines if (match := _TRAINS.search(line.text))]
    program = "a launcher" if training else "mingle env"
    for line, match in training or [(line, match) for line in lines if (match := _ASKS.search(line.text))]:
        yield _finding(line, match.start(), f"{program} {_ALONE}", _SPREAD)


def _expanded_early(lines: list[Line]) -> Iterator[Finding]:
    """Find variables and commands that the batch script expands, but that are meant for every node."""
    for line in lines:
        for number, match in _numbered(line, _RANK_OF_BATCH.finditer(line.here)):
            mistake = f"${match[1]} taken in the batch script, where it is the first node's"
            remedy = "single quotes, as in srun bash -c '…', or mingle env on every node"
            yield Finding(number, mistake, remedy)
        if line.early and _SPREADS.search(line.text):
            mistake = "$(mingle …) within double quotes: the batch script runs it, before any node does"
            remedy = "single quotes: srun bash -c 'eval \"$(mingle env)\"; …', or srun mingle exec"
            yield _finding(line, line.early[0], mistake, remedy)


def _steps(job: Requested, lines: list[Line]) -> Iterator[Finding]:
    """Find steps of srun that start other tasks than is meant.

    Seen with Slurm 22.05: --ntasks-per-node of srun has no effect if the directives request a number of tasks.
    """
    is_inside = any(line.is_inside and _LAUNCHER.search(line.text) for line in lines)
    for line in lines:
        steps = [*_STEP.finditer(line.text)]
        ends = [*(step.start() for step in steps[1:]), len(line.text)]
        for (number, step), end in zip(_numbered(line, steps), ends, strict=False):
            each, tasks = _count(_EACH, step[1]), _count(_ALL, step[1])
            nodes = _count(_SLURMS, step[1]) or job.nodes
            # A function's launcher gets into a step by `declare -f`.
            launches = _LAUNCHER.search(line.text, step.start(), end) or (
                is_inside and _CARRIED.search(line.text, step.start(), end)
            )
            if each and not tasks and job.tasks and job.tasks != each * nodes:
                mistake = f"--ntasks-per-node={each} of srun, which starts the {job.tasks} of #SBATCH"
                remedy = f"--ntasks={each * nodes} beside it, and no fewer in #SBATCH"
                yield Finding(number, mistake, remedy)
            elif launches and (tasks or job.tasks or (each or 1) * nodes) > nodes:
                mistake = "more than one task for each node, with a launcher that starts the others"
                remedy = "--ntasks-per-node=1, and the launcher's own --nproc-per-node"
                yield Finding(number if tasks or not job.tasks else job.line, mistake, remedy)
