"""What a job script requests, what it starts, where, and with which words.

A script's batch part runs once, on the first node; a step runs on every node or for each task, as srun, mpirun, ssh and
their like start it. Variables that stand alone in a word are followed to the words of their values.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import pairwise
from os.path import basename
from typing import Literal, NamedTuple

from mingle_hooks.export import launchers
from mingle_hooks.export.launchers import TABLE, hyphens
from mingle_hooks.scripts import shell
from mingle_hooks.scripts.shell import Command, Frame, Text, unquote

Place = Literal["batch", "step", "host"]

# What a job requests.

NODES = re.compile(r"(?:--nodes[= ]|(?<!\S)-N\s{0,8})(\d{1,9})(?:-(\d{1,9}))?")
_TORQUES = re.compile(r"-l\s{0,8}\S{0,99}?nodes=(\d{1,9})")
_CHUNKS = re.compile(r"select=(\S+)")
_CHUNK = re.compile(r"(\d{0,9})(?:\S*?\bmpiprocs=(\d{1,9}))?")
EACH = re.compile(r"--n?tasks-per-n(?:ode|od|o)?[= ](\d{1,9})")
TASKS = re.compile(r"(?:--ntasks[= ]|(?<!\S)--?np?\s{0,8})(\d{1,9})")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:SBATCH|PBS|BSUB|\$)[ \t][^\n]*", re.MULTILINE)
_COMMAND = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
HETJOB = re.compile(r"^[ \t]*#SBATCH[ \t]+(?:het|pack)job\b", re.MULTILINE)
_CPUS = re.compile(r"^[ \t]*#SBATCH[ \t](?:[^\n#]*[ \t])?(?:--cpus-per-t\w{0,3}[= ]|-c)[ \t]*\d", re.MULTILINE)
_DIRECTIVES = {"SBATCH": "slurm", "PBS": "pbs", "BSUB": "lsf", "$": "sge"}
# What only a script of several nodes writes.
_SEVERAL = re.compile(
    r"SLURM_(?:JOB_)?(?:NUM_NODES|NNODES|NODELIST)|PBS_NODEFILE|PBS_NUM_NODES|LSB_(?:HOSTS|DJOB_HOSTFILE|MCPU_HOSTS)"
    r"|PE_HOSTFILE|NHOSTS|SGE_JOB_HOSTLIST|--nodes[= ]\$"
    r"|--(?:nnodes|num[_-]machines|num[_-]nodes)[= ]\"?(?:\$|[2-9]|1\d)"
)


class Requested(NamedTuple):
    """The nodes that a job requests, 0 if it does not say; tasks in all; its scheduler, "" without directives."""

    nodes: int
    tasks: int | None
    scheduler: str


def requested(text: str, nodes: int | None = None) -> Requested:
    """Return what a script's directives request, on the `nodes` of the command line if they are given.

    Of a heterogeneous job it is what the largest component does.
    """
    components = HETJOB.split("\n".join(_directives(text)))
    return max((_component(directives, nodes) for directives in components), key=lambda one: one.nodes)


def _directives(text: str) -> list[str]:
    """Return a script's directives: sbatch reads none after the first command."""
    command = _COMMAND.search(text)
    end = command.start() if command else len(text)
    return [one[0] for one in _DIRECTIVE.finditer(text) if one.start() < end or one[0].split()[0] != "#SBATCH"]


def _component(directives: str, nodes: int | None) -> Requested:
    found, each, tasks, processes, scheduler = 0, 0, None, 0, ""
    for match in _DIRECTIVE.finditer(directives):
        directive = re.sub(r"\s#.*", "", match[0].strip())
        scheduler = scheduler or _DIRECTIVES[directive[1:].split()[0]]
        if directive.startswith("#SBATCH"):  # of which the last counts
            found = _nodes(directive) or found
            each, tasks = count(EACH, directive) or each, count(TASKS, directive) or tasks
        else:
            found = found or _nodes(directive)
            processes = processes or sum(nodes * each_of_mpi for nodes, each_of_mpi in _chunks(directive))
    found = nodes or found
    if not found and tasks:
        found = -(-tasks // each) if each else 1 if tasks == 1 else 0
    return Requested(found, tasks or each * found or processes or None, scheduler)


def _chunks(directive: str) -> list[tuple[int, int]]:
    """Return the nodes and the MPI processes on each of them, of all chunks that a directive of PBS requests."""
    match = _CHUNKS.search(directive)
    chunks = [_CHUNK.match(chunk) for chunk in match[1].split("+")] if match else []
    return [(int(chunk[1] or 1), int(chunk[2] or 0)) for chunk in chunks if chunk]


def _nodes(directive: str) -> int:
    """Return the number of nodes that a directive requests, 0 for none."""
    if chunks := _chunks(directive):
        return sum(nodes for nodes, _ in chunks)
    if directive.startswith("#BSUB"):
        return count(re.compile(r"-nnodes\s{1,8}(\d{1,9})"), directive) or 0
    match = NODES.search(directive) if directive.startswith("#SBATCH") else None
    return max(int(group) for group in match.groups() if group) if match else count(_TORQUES, directive) or 0


def count(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the number that a pattern finds."""
    match = pattern.search(text)
    return int(match[1]) if match else None


# What a script starts.

# Programs that start something on other nodes, or once for each task.
MPI = {program for row in TABLE if row.name == "mpirun" for program in row.programs}
STEPS = {*MPI, "srun"} | {
    *("aprun", "jsrun", "pbsdsh", "pbs_tmrsh", "blaunch", "qrsh", "ssh", "pdsh", "clush", "parallel", "lrun", "flux"),
}
REMOTE = {"ssh", "pdsh", "clush", "parallel"}  # which give text to a shell that has no variables of the job
_ONE_HOST = {"ssh", "pbs_tmrsh", "qrsh"}  # each call reaches one host
CONTAINERS = {"singularity", "apptainer", "docker", "podman", "shifter", "podman-hpc", "enroot", "ch-run", "sarus"}
_WRAPPERS = {
    *("env", "exec", "time", "nohup", "command", "nice", "numactl", "taskset", "timeout", "stdbuf", "nsys", "ncu"),
    *("strace", "poetry", "conda", "micromamba", "mamba", "pixi", "xvfb-run", "catchsegv", "builtin", "eval", "wait"),
    *("setsid", "script", "sudo", "nvprof", "rocprof", "pipenv", "uv", "run", "unbuffer"),
}
SHELLS = {*launchers.SHELLS}
# Programs and modules that start training processes -> the launcher's name.
_TRAINS = [row for row in TABLE if row.starts == "node" or row.name == "horovodrun"]
_LAUNCHERS = {program: program if row.name == "ray" else row.name for row in _TRAINS for program in row.programs}
_MODULES = {module: row.name for row in TABLE for module in row.modules} | {"deepspeed": "deepspeed"}
_PYTHON = re.compile(r"python[\d.]{0,8}")
_LONG = re.compile(r"\A--[^=]+")
# Options that mingle gives to each launcher, with hyphens.
OPTIONS = {
    "torchrun": (
        *("--nnodes", "--node-rank", "--master-addr", "--master-port"),
        *("--rdzv-id", "--rdzv-backend", "--rdzv-endpoint", "--standalone"),
    ),
    "accelerate": (
        *("--num-machines", "--machine-rank", "--main-process-ip", "--main-process-port"),
        *("--rdzv-backend", "--rdzv-conf", "--same-network"),
    ),
    "deepspeed": ("--hostfile", "-H", "--num-nodes", "--node-rank", "--master-addr", "--master-port", "--no-ssh"),
    "python": (),
}
HOSTFILES = ("--deepspeed-hostfile", "--mpirun-hostfile")  # of accelerate, which starts another launcher with them
# Those that may be abbreviated, with others that the rules look for.
_IN_FULL = {name for names in OPTIONS.values() for name in names} | {
    *("--max-restarts", "--config-file", "--network-interface", *HOSTFILES),
}
_STEP_NODES = re.compile(r"(?:--nodes[= ]|(?<!\S)-N ?)(\S+)")
_REFERENCE = re.compile(r"\"?\$(?:(\w{1,128})|\{(\w{1,128})(?:\[[@*]\])?\})\"?")
RANK = re.compile(
    r"(?:\$\{?|\(\(\s{0,8})(SLURM_(?:NODEID|PROCID|LOCALID)|PBS_(?:NODENUM|TASKNUM|VNODENUM)"
    r"|OMPI_COMM_WORLD_(?:LOCAL_)?RANK|PMIX?_RANK|PALS_RANKID)\b"
)
_STARTS = re.compile(r"\b(?:srun|mpirun|mpiexec|pbsdsh|ssh|blaunch|sbatch|qsub)\b")
_MOST_EXPANDED = 12
_MOST_APPENDED = 64
_MOST_WORDS, _OF_WORD = 20_000, 8  # characters of a value that count as one
NAMES = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_VALUE = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]\s]*\])?(\+?)=")
_COMMENT = re.compile(r"(?:(?<=\s)|\A)#[^\n]*")
_DEFAULT = re.compile(r"\$\{(\w+):?=([^}]*)")
EXPORTS = {"export", "declare", "typeset"}
DECLARES = {"export", "declare", "local", "readonly", "typeset"}


class Assignment(NamedTuple):
    """A variable's value, as it is written, where its shell runs, and the whole `NAME=VALUE`."""

    name: str
    value: Text
    command: Command
    span: Text
    is_appended: bool
    is_array: bool


class Arg(NamedTuple):
    """A word of a command that is started: without quotes, and which of its `$` the batch script expands.

    `word` is where it is written; `use` is the variable that expands to it, or `word` itself.
    """

    text: str
    word: Text
    use: Text
    early: frozenset[int]


Args = tuple[Arg, ...]
Chain = tuple[str, ...]


class Launch(NamedTuple):
    """A program that trains, what starts it, and where.

    `place`: "batch" for the first node, "step" for every node or task, "host" for one node that is named.
    `chain` has the names of the programs around it, from the outside in; `step` the words of the innermost that
    starts it on nodes.
    """

    program: str
    args: Args  # those after the program
    head: Args  # the program's own words, such as python -m torch.distributed.run
    command: Command
    place: Place
    chain: Chain
    step: Args
    outer: Command  # what stands in the script itself
    loop: int | None  # where the loop begins that starts it on each host

    @property
    def at(self) -> Text:
        """Return the program's first word, where it is used."""
        return self.head[0].use

    def option(self, *names: str) -> Arg | None:
        """Return the value of an option, whose names have hyphens; the option itself where there is no value."""
        for index, arg in enumerate(self.args):
            name, joined, value = arg.text.partition("=")
            if hyphens(name) in names:
                is_last = index + 1 == len(self.args)
                return arg._replace(text=value) if joined else arg if is_last else self.args[index + 1]
        return None

    @property
    def nodes(self) -> str:
        """Return the nodes that its step is given, "" for all; -N of mpirun is the number of tasks on each."""
        match = _STEP_NODES.search(" ".join(arg.text for arg in self.step))
        return match[1] if match and basename(self.step[0].text) not in MPI | {"aprun"} else ""

    def has(self, *names: str) -> bool:
        """Return whether an option is given."""
        return self.option(*names) is not None

    def has_value(self, option: str, value: str) -> bool:
        """Return whether an option is given with a value."""
        arg = self.option(option)
        return arg is not None and arg.text == value

    @property
    def standalone(self) -> Arg | None:
        """Return torchrun's --standalone, by which it trains alone."""
        return next((arg for arg in self.args if arg.text == "--standalone"), None)

    @property
    def is_mingle(self) -> bool:
        """Return whether mingle starts it."""
        return any(name.startswith("mingle ") for name in self.chain)

    @property
    def is_open(self) -> bool:
        """Return whether it may have options that the script does not show."""
        pairs = pairwise(["", *(arg.text for arg in self.args[: self.script])])
        return any(re.fullmatch(r"\$[\w@*{]\S{0,160}", text) and not before.startswith("-") for before, text in pairs)

    @property
    def is_of_task(self) -> bool:
        """Return whether its program's arguments name a task's rank: one that trains alone then does so on purpose."""
        return any(RANK.search(arg.text) for arg in self.args[self.script :])

    @property
    def script(self) -> int:
        """Return the position of the training script among the arguments, or their number."""
        for index, arg in enumerate(self.args):
            if arg.text.endswith(".py") or arg.text in ("-m", "--module", "--no-python", "--no_python"):
                return index
        return len(self.args)


_SUBMITS = {"sbatch": "#SBATCH", "qsub": "#PBS", "bsub": "#BSUB"}
_PROGRAMS = STEPS | CONTAINERS | _WRAPPERS | SHELLS | {"mingle"} | {name.split()[0] for name in _LAUNCHERS}


def read_jobs(text: str, nodes: int | None = None) -> list[Job]:
    """Return the job script, and those that it writes in here-documents."""
    line_ends = [match.start() for match in re.finditer("\n", text)]
    jobs = [Job(shell.whole(text), "\n".join(_directives(text)), nodes, line_ends)]
    for command in jobs[0].script.commands:
        for body in (*command.here_documents, *_wrapped(command)):
            if _is_job(command, body):
                directives = _directives(body.text)
                if command.name in _SUBMITS:  # its words win: the last counts for sbatch, the first for the others
                    words = " ".join([_SUBMITS[command.name], *(word.plain for word in command.words[1:])])
                    directives.insert(len(directives) if command.name == "sbatch" else 0, words)
                jobs.append(Job(body, "\n".join(directives), nodes, line_ends))
    return jobs


def _wrapped(command: Command) -> Iterator[Text]:
    """Yield the script in `sbatch --wrap=SCRIPT`."""
    for index, word in enumerate(command.words if command.name == "sbatch" else ()):
        text = unquote(word)
        if text.text.startswith("--wrap="):
            yield text.part(len("--wrap="), len(text.text))
        elif text.text == "--wrap" and index + 1 < len(command.words):
            yield unquote(command.words[index + 1])


def _is_job(command: Command, body: Text) -> bool:
    return command.name in _SUBMITS or bool(_DIRECTIVE.search(body.text))


class Job:
    """A job script, and what it starts, with the values of its variables.

    `commands` has nested ones too, `steps` those that start something on nodes, with srun and its like. `conditions`
    is where `if` and `case` begin and end, in order and apart. `referred` has the variables that it uses, `exported`
    those that a program gets. `srun` starts a step that gets the processors of the job.
    """

    def __init__(self, source: Text, directives: str, nodes: int | None, line_ends: list[int]) -> None:
        self.source, self.script = source, shell.read(source)
        self._line_ends = line_ends
        self.requested = requested(directives, nodes)
        # From Slurm 22.05 to 24.05 srun does not take it from the batch script.
        self.srun = 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK"' if _CPUS.search(directives) else "srun"
        is_shown = not self.requested.nodes and _SEVERAL.search(source.text) is not None
        self.is_several = self.requested.nodes > 1 or is_shown
        self.assignments: dict[str, list[Assignment]] = {}
        self.commands: list[Command] = []
        self.launches: list[Launch] = []
        self.steps: list[Command] = []
        # Without directives and steps, a script that reads a task's rank is one that each task runs.
        is_of_tasks = RANK.search(source.text) and not (self.requested.scheduler or _STARTS.search(source.text))
        self._place: Place = "step" if is_of_tasks else "batch"
        self._places: dict[int, Place] = {}  # of commands, by their id()
        self._words = 0
        frames = {frame for command in self.script.commands for frame in command.frames}
        self._functions: dict[str, set[Place]] = {frame.name: set() for frame in frames if frame.kind == "function"}
        self._files: dict[str, set[Place]] = {}
        self._ends = dict(self.script.ends)
        self._loops: dict[str, int] = {}  # where the loop begins that calls a function
        self._starts: dict[str, Args] = {}  # the step that starts a function or a file
        self._follow()
        self.conditions = self._conditions()
        self.referred = frozenset(NAMES.findall(source.text))
        given: list[Text] = []
        for command in self.commands:
            given += command.assignments if command.words else []
            given += command.words if command.name in STEPS | EXPORTS else []
        self.exported = frozenset(word.text.partition("=")[0] for word in given)
        self.used = self.referred | self.exported

    def line(self, position: int) -> int:
        """Return the line of a position in the file, from 1."""
        return bisect_right(self._line_ends, position - 1) + 1

    def place(self, command: Command) -> Place:
        """Return where a command runs."""
        return self._places.get(id(command), "batch")

    def is_conditional(self, position: int) -> bool:
        """Return whether what stands there may not run."""
        index = bisect_right(self.conditions, (position, sys.maxsize)) - 1
        return index >= 0 and position < self.conditions[index][1]

    def _follow(self) -> None:
        for command in self.script.commands:
            self._assignments(command)
            for output in command.outputs if command.here_documents else ():
                self._files.setdefault(basename(output.plain), set())
        self._uses()
        for command in self.script.commands:
            for place in sorted(self._places_of(command)):  # in the same order each time
                self._command(command, place)

    def _conditions(self) -> list[tuple[int, int]]:
        frames = {frame for command in self.commands for frame in command.frames if frame.kind in ("if", "case")}
        apart: list[tuple[int, int]] = []
        for start, end in sorted((frame.start, self._ends.get(frame.start, frame.start)) for frame in frames):
            if not apart or start >= apart[-1][1]:
                apart.append((start, end))
        return apart

    def _uses(self) -> None:
        """Find where functions and files that the script writes run: in the batch part or in steps."""
        for _ in range(2 if self._functions or self._files else 0):
            for command in self.script.commands:
                places = self._places_of(command)
                args = [_arg(*pair, "batch") for pair in self.expand(command.words)]
                names = [arg.text for arg in args]
                step = next((at for at, name in enumerate(names) if basename(name) in STEPS), len(names))
                if spreads := step < len(names):
                    places = {"step"}
                elif command.name in self._functions:
                    self._functions[command.name].update(places)
                    if (loop := self._loop(command)) is not None:
                        self._loops[command.name] = loop
                for word in names:
                    for name in set(re.findall(r"[\w.-]+", word)) if spreads else ():
                        self._functions.get(name, set()).add("step")
                        self._starts[name] = tuple(args[step : step + 20])
                    base = basename(word).strip("\"'")
                    if base in self._files and not (command.here_documents or command.name in ("chmod", "rm", "cat")):
                        self._files[base].update(places)
                        self._starts[base] = tuple(args[step : step + 20])

    def _places_of(self, command: Command) -> set[Place]:
        return {*self._functions[command.function]} if command.function else {self._place}

    def _assignments(self, command: Command) -> None:
        words = command.words[1:] if command.name in DECLARES or command.name in STEPS else ()
        for word in (*command.assignments, *words):
            if match := _VALUE.match(word.text):
                value = word.part(match.end(), len(word.text))
                self._assign(match[1], value, command, word, is_appended=bool(match[2]))
        for word in command.words if command.name == ":" else ():
            if match := _DEFAULT.search(word.text):
                self._assign(match[1], word.part(*match.span(2)), command, word)

    def _assign(self, name: str, value: Text, command: Command, span: Text, *, is_appended: bool = False) -> None:
        found = Assignment(name, value, command, span, is_appended, value.text.startswith("("))
        insort(self.assignments.setdefault(name, []), found, key=lambda assignment: assignment.span.start)

    def value(self, name: str, before: int) -> list[Assignment]:
        """Return the assignments that make a variable's value at a position, the last one and what it appends to."""
        known = self.assignments.get(name, [])
        end = bisect_left(known, before, key=lambda assignment: assignment.span.start) or len(known)
        found: list[Assignment] = []
        for assignment in reversed(known[max(0, end - _MOST_APPENDED) : end]):
            found.insert(0, assignment)
            if not assignment.is_appended:
                break
        return found

    def expand(self, words: Iterable[Text], depth: int = 0) -> Iterator[tuple[Text, Text]]:
        """Yield words with the values of the variables that stand alone in a word, and where each is used."""
        for word in words:
            self._words += 1
            match = _REFERENCE.fullmatch(word.text)
            values = self.value(match[1] or match[2], word.start) if match and depth < _MOST_EXPANDED else []
            self._words += sum(len(one.value.text) for one in values) // _OF_WORD
            if not values or self._words > _MOST_WORDS:
                yield word, word
                continue
            if word.text.startswith('"') and len(values) == 1 and not values[0].is_array:
                yield values[0].value, word
                continue
            found = [pair for value in values for pair in self.expand(self._split(value), depth + 1)]
            yield from found if len(found) > 1 else [(found[0][0] if found else word, word)]

    def _split(self, assignment: Assignment) -> Iterable[Text]:
        value = assignment.value
        if re.fullmatch(r"[\"']?(?:\$\(|`)[^()`]*[)`][\"']?", value.text):
            return ()
        inner = value.part(1, max(1, len(value.text) - 1)) if assignment.is_array else unquote(value)
        if assignment.is_array:
            inner = inner._replace(text=_COMMENT.sub(lambda found: " " * len(found[0]), inner.text))
        text = re.sub(r"\\?\n", lambda found: " " * len(found[0]), inner.text)
        commands = [command for command in shell.read(Text(text, inner.at, inner.early)).commands if not command.frames]
        return [word for command in commands for word in (*command.assignments, *command.words)]

    def _command(self, command: Command, place: Place) -> None:
        """Follow one of the script's own commands, and the text that it gives to a shell or writes into a file."""
        args = self._run(command, place, command, *self._start(command.function if place == "step" else ""))
        bodies = command.here_documents
        if not args or not bodies or _is_job(command, bodies[0]):
            return
        names = [basename(arg.text) for arg in args]
        if names[0] == "ssh" or not SHELLS.isdisjoint(names):
            inner = "host" if "ssh" in names else "step" if not STEPS.isdisjoint(names) else place
            self._text(bodies[0], command, inner, command, tuple(names[:1]), tuple(args))
            return
        for output in command.outputs:
            name = basename(output.plain)
            for used in self._files.get(name, ()):
                self._text(bodies[0], command, used, command, *self._start(name))

    def _run(self, command: Command, place: Place, outer: Command, chain: Chain, step: Args) -> list[Arg]:
        """Follow what a command starts; return its words, none of one that only gives its output."""
        self.commands.append(command)
        self._places[id(command)] = place
        if command.has_frame("substitution"):
            return []
        args = [_arg(*pair, place) for pair in self.expand(command.words)]
        self._chain(args, command, place, outer, chain, step)
        return args

    def _loop(self, command: Command) -> int | None:
        """Return where the loop around a command begins, or around the calls of its function."""
        loops = [frame.start for frame in command.frames if frame.kind == "loop"]
        return loops[0] if loops else self._loops.get(command.function)

    def _start(self, name: str) -> tuple[Chain, Args]:
        """Return the chain and the step that start a function or a file."""
        step = self._starts.get(name, ())
        return (basename(step[0].text),) if step else (), step

    def _text(self, text: Text, command: Command, place: Place, outer: Command, chain: Chain, step: Args) -> None:
        """Follow text that a shell runs."""
        if len(command.frames) > shell.MOST_NESTED:
            return
        script = shell.read(text, (*command.frames, Frame("text", "", text.start)))
        self._ends.update(script.ends)
        for inner in script.commands:
            self._assignments(inner)
        for inner in script.commands:
            self._run(inner, place, outer, chain, step)

    def _chain(self, args: list[Arg], command: Command, place: Place, outer: Command, chain: Chain, step: Args) -> None:
        """Follow the programs that start each other in one command."""
        at = next((at for at, arg in enumerate(args) if not _VALUE.match(arg.text)), len(args))
        while at < len(args):
            name = basename(args[at].text)
            if launcher := _launcher(args, at):
                program, after = launcher
                rest, head = tuple(args[after:]), tuple(args[at:after])
                launch = Launch(program, rest, head, command, place, chain, step, outer, self._loop(outer))
                self.launches.append(_in_full(launch))
                return
            if name in SHELLS:
                if (text := _command_text(args, at)) is not None:
                    self._text(text, command, place, outer, (*chain, name), step)
                return
            if name not in _PROGRAMS:
                return
            following = _following(args, at)
            chain = (*chain, f"mingle {_next(args, at)}" if name == "mingle" else name)
            if name in STEPS:
                if not self.steps or self.steps[-1] is not command:
                    self.steps.append(command)
                step = tuple(args[at:following])
                place = _place(name, args[at:following], self.requested)
            is_text = name in REMOTE and " " in args[-1].text.strip()
            if is_text or (name == "eval" and following == len(args) > at + 1):
                self._text(_source(args[-1]), command, place, outer, chain, step)
                return
            at = following


def _next(args: list[Arg], at: int) -> str:
    return args[at + 1].text if at + 1 < len(args) else ""


def _command_text(args: list[Arg], at: int) -> Text | None:
    """Return the text of `bash -c TEXT`."""
    for index in range(at + 1, len(args) - 1):
        if re.fullmatch(r"-[a-z]{0,8}c", args[index].text):
            return _source(args[index + 1])
    return None


def _arg(word: Text, use: Text, place: Place) -> Arg:
    plain = unquote(word)
    return Arg(plain.text, word, use, plain.early if place == "batch" else word.early)


def _source(arg: Arg) -> Text:
    """Return the text that a shell gets as this word."""
    plain = unquote(arg.word)
    return Text(plain.text, plain.at, arg.early)


def _following(args: list[Arg], at: int) -> int:
    """Return the position of the next program in a command, or the number of words if it is none that is known."""
    is_srun = basename(args[at].text) == "srun"
    for index in range(at + 1, len(args)):
        text, before = args[index].text, args[index - 1].text
        name = basename(text)
        if (name in _PROGRAMS or _PYTHON.fullmatch(name)) and not before.endswith(("=", "--job-name", "-J", "-R")):
            return index
        if is_srun and not text.startswith(("-", "$")) and not before.startswith("-"):
            return len(args)  # a program of the user's
    return len(args)


def _launcher(args: list[Arg], at: int) -> tuple[str, int] | None:
    """Return the launcher at a position and where its arguments begin."""
    name = basename(args[at].text)
    for count, program in ((1, name), (2, f"{name} {_next(args, at)}")):
        if program in _LAUNCHERS:
            return _LAUNCHERS[program], at + count
    return _python(args, at) if _PYTHON.fullmatch(name) else None


def _in_full(launch: Launch) -> Launch:
    """Return a launch with its own options in full: argparse takes the beginning of a name."""
    if launch.program not in ("torchrun", "accelerate", "deepspeed", "horovodrun"):
        return launch
    own, rest = launch.args[: launch.script], launch.args[launch.script :]
    texts = [_LONG.sub(lambda name: launchers.in_full(name[0], _IN_FULL), arg.text) for arg in own]
    return launch._replace(args=(*(arg._replace(text=text) for arg, text in zip(own, texts, strict=True)), *rest))


def _python(args: list[Arg], at: int) -> tuple[str, int] | None:
    """Return what `python` at a position trains with, and where its arguments begin."""
    for index in range(at + 1, len(args)):
        text = args[index].text
        if text == "-m" and index + 1 < len(args):
            module = args[index + 1].text
            return (_MODULES[module], index + 2) if module in _MODULES else ("python", index + 1)
        if not text.startswith("-") or text == "-c":
            return ("python", index) if text.endswith(".py") or text.startswith("$") else None
    return None


def _place(name: str, args: list[Arg], job: Requested) -> Place:
    """Return what a step starts: a program on every node, or on one."""
    text = " ".join(arg.text for arg in args)
    if name in _ONE_HOST or re.match(r"(?:\S*/)?(?:pbsdsh\s(?:.*\s)?-n|blaunch\s(?:.*\s)?-z\s)", text):
        return "host"
    if name in {"srun", *MPI} and job.nodes != 1:
        nodes, tasks = None if name in MPI else count(NODES, text), count(TASKS, text)
        if nodes == 1 or (nodes is None and tasks == 1):
            return "host"
    return "step"
