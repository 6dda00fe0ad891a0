"""Reading a job script that somebody wrote, and naming the classic mistakes of multi-node jobs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mingle_hooks.errors import UsageError

# The classic mistakes of multi-node jobs that a line shows by itself.
#
# No pattern repeats over what another repetition in it could take too, so that each reads a hostile line in one pass.


class Pattern(NamedTuple):
    """A mistake: how it looks, what is wrong, what to write."""

    looks: re.Pattern[str]
    mistake: str
    mend: str


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
# Right on one node. What overlaps with one of the above is said there.
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


# A shell script as logical lines: what quotes, parentheses and backslashes join, and who runs it.
#
# One pass over the text. A script whose quotes do not come out even is read line by line.

# Each match takes at least one character, and none is looked at twice.
_PIECE = re.compile(r"[^\\'\"`$()#<\n]+|\\.|\$?\(\(?|\$|.", re.DOTALL)
_HERE = re.compile(r"<<-?[ \t]*[\\'\"]?(\w{1,255})['\"]?")
_ESCAPED = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)  # what follows $'
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB|\$)\s")
_COMMAND_TEXT = re.compile(r"\s-[a-z]{0,8}c\s{1,4}$")  # bash -c, bash -lc
_FUNCTION = re.compile(r"(?:function[ \t]+[\w:.-]+|[\w:.-]+[ \t]*\([ \t]*\))(?:[ \t]*\([ \t]*\))?\s*[{(]")


class Line(NamedTuple):
    """A logical line without comments, with a line feed for each that it is joined of.

    `here` is `text` with blanks for what single quotes keep for another shell. `early` are the places in it where
    this shell runs `$(mingle …)` within the text of `bash -c "…"`. `is_inside` tells what other lines start: a
    function's body or a here-document.
    """

    number: int  # of its first line in the file, from 1
    text: str
    here: str
    early: tuple[int, ...] = ()
    is_inside: bool = False


def split_lines(text: str) -> tuple[list[Line], list[Line]]:
    """Return the scheduler's directives and the lines of shell that hold something."""
    scanner = _Scanner(text, joins=True)
    scanner.run()
    if scanner.frames:  # a quote without an end, at least for this reader
        scanner = _Scanner(text, joins=False)
        scanner.run()
    return scanner.directives, _with_functions([line for line in scanner.lines if line.text.strip()])


class _Scanner:
    """The state between two pieces of text: open quotes and parentheses, and the logical line so far."""

    def __init__(self, text: str, *, joins: bool) -> None:
        self.source, self.joins = text, joins
        self.directives: list[Line] = []
        self.lines: list[Line] = []
        # What is open: " and c (the same, after bash -c), ( and $(, a for arithmetic.
        self.frames: list[str] = []
        self.commands = 0  # how many of them are c
        self.ends = {line.strip() for line in text.split("\n")}  # what can end a here-document
        self.pending: deque[str] = deque()
        self.number = self.first = 1
        self._clear()

    def _clear(self) -> None:
        self.texts: list[str] = []
        self.heres: list[str] = []
        self.early: list[int] = []
        self.length = 0

    def run(self) -> None:
        """Read the text to its end."""
        at, size = 0, len(self.source)
        while at < size:
            found = _PIECE.match(self.source, at)
            piece = found[0] if found else self.source[at]  # every character matches
            at = self._step(piece, at, at + len(piece))
        self._emit()

    def _step(self, piece: str, at: int, after: int) -> int:
        """Take one piece, and return where the next begins."""
        if piece == "\n":
            self._add(piece)
            return self._newline(after)
        if piece == "\\\n":
            self.number += 1
            self._add("\n")
        elif self.frames and self.frames[-1] in '"c':
            self._within_quotes(piece, after)
        elif "(" in piece and piece[0] in "$(":
            self._open(piece, after)
        else:
            return self._outside(piece, at, after)
        return after

    def _within_quotes(self, piece: str, after: int) -> None:
        if piece[0] == "$" and "(" in piece:
            self._open(piece, after)
            return
        if piece == '"':
            self.commands -= self.frames.pop() == "c"
        elif piece == "`":
            self._expanded(after)
        self._add(piece)

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
    """Mark the bodies of functions, which end at a brace that stands as far to the left as their name."""
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


# How many nodes and tasks a job script asks for, and steps of srun that do not fit them.

# Those that start a node's processes themselves, so that Slurm has to start one on each node.
_LAUNCHER = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate\s{1,8}launch)\b")
_SLURMS = re.compile(r"(?:--nodes[= ]|(?<!\S)-N\s{0,8})(\d{1,9})(?:-(\d{1,9}))?")
_TORQUES = re.compile(r"-l\s{1,8}nodes=(\d{1,9})")
_CHUNKS = re.compile(r"select=(\S+)")
_EACH = re.compile(r"--ntasks-per-node[= ](\d{1,9})")
_ALL = re.compile(r"(?:--ntasks[= ]|(?<!\S)-n\s{0,8})(\d{1,9})")
_CARRIED = re.compile(r"\bdeclare -f\b")
_STEP = re.compile(r"\bsrun\b((?:\s+-\S+(?:[ \t]+[^\s-]\S*)?)*)")


class TasksAsked(NamedTuple):
    """What the directives ask for: nodes, and tasks on all of them, None where they say nothing, and in which line."""

    nodes: int
    tasks: int | None = None
    line: int = 0


def tasks_asked(directives: Iterable[Line]) -> TasksAsked:
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
    return TasksAsked(nodes, tasks or (each and each * nodes), place)


def launches_inside(lines: Iterable[Line]) -> bool:
    """Tell whether a function starts a launcher."""
    return any(line.is_inside and _LAUNCHER.search(line.text) for line in lines)


def steps_that_do_not_fit(job: TasksAsked, line: Line, *, is_inside: bool) -> Iterator[tuple[int, int, str, str]]:
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


def read_script(path: str) -> str:
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


def lint_script(text: str) -> list[Finding]:
    """Return the mistakes in a script's text, by line, in a time that grows as the text does."""
    directives, lines = split_lines(text)
    job = tasks_asked(directives)
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


def _steps(job: TasksAsked, lines: list[Line]) -> Iterator[Finding]:
    is_inside = launches_inside(lines)
    for line in lines:
        for at, place, mistake, mend in steps_that_do_not_fit(job, line, is_inside=is_inside):
            yield Finding(place or line.number + line.text.count("\n", 0, at), mistake, mend)
