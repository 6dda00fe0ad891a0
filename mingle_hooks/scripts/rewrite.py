"""`mingle lint --diff` and `--fix`: the same job script with mingle in it, and nothing else changed.

If the script might then do something else, it stays unchanged, and the reason is returned.
"""

from __future__ import annotations

import re
from itertools import pairwise
from os.path import basename
from typing import NamedTuple

from mingle_hooks.export.launchers import hyphens
from mingle_hooks.scripts.launches import CONTAINERS, DECLARES, NAMES, STEPS, Assignment, Job, Launch, read_jobs
from mingle_hooks.scripts.lint import MULTI, lint_jobs, lint_script, started_tasks
from mingle_hooks.scripts.shell import Command, Text


class Fixed(NamedTuple):
    """A script with mingle in it; `unsure` has the reasons why it was left unchanged, if any."""

    text: str
    unsure: tuple[str, ...] = ()


class _UnsureError(Exception):
    """Why a script cannot be changed with certainty."""


# Options that mingle gives to each launcher, with hyphens, and those of them that take no value.
_OPTIONS = {
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
_FLAGS = ("--standalone", "--no-ssh", "--same-network")
# Variables that mingle sets on every node. The script's own ranks may count for other commands too, and then stay.
_ADDRESSES = {"MASTER_ADDR", "MASTER_PORT"}
_RANKS = {"RANK", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
_INTERFACES = {"NCCL_SOCKET_IFNAME": "nccl", "GLOO_SOCKET_IFNAME": "gloo", "TP_SOCKET_IFNAME": "gloo"}
# Values that only find addresses, ports, nodes and ranks.
_FINDS = re.compile(
    r"scontrol|hostname|HOSTNAME|uname|getent|nslookup|localhost|127\.0\.0\.1|getsockname|shuf|RANDOM"
    r"|NODELIST|NODEFILE|HOSTFILE|NNODES|NUM_NODES|SLURM_(?:PROCID|NODEID|LOCALID|NTASKS|JOB_?ID)|SLURMD_NODENAME|LSB_"
)
_DECLARES = DECLARES | {":"}
_ECHO = ("echo", "printf")
# What an echo of addresses may say besides.
_OF_JOB = re.compile(r"SLURM_\w+|PBS_\w+|LSB_\w+|HOSTNAME|HOST|USER|HOME|PWD")
_STEP_NODES = re.compile(r"(?:--nodes[= ]|(?<!\S)-N ?)(\S+)")
_ALL_NODES = re.compile(r"\d+|\"?\$\{?SLURM_(?:JOB_NUM_NODES|NNODES)\}?\"?")
_PASS_VARIABLES_ON = ("apptainer", "singularity")
_OWN_ENVIRONMENT = re.compile(r"-\w{0,8}[eC]\w{0,8}|--(?:cleanenv|containall)")
_JOINS = ("&&", "||", "|", "|&", "&")
_GONE = "\0"
_LONGEST = 1 << 15  # each variable is looked for in all of the script


def fix_script(text: str, nodes: int | None = None) -> Fixed:
    """Return a script with mingle in it, if all of its traps can be removed with certainty."""
    jobs = read_jobs(text, nodes)
    found = lint_jobs(jobs)
    if not found:
        return Fixed(text)
    try:
        fixed = _Rewrite(text, jobs).text()
    except _UnsureError as reason:
        return Fixed(text, (str(reason),))
    left = lint_script(fixed, nodes)
    if fixed == text or left:
        return Fixed(text, tuple(f"line {finding.line}: {finding.mistake}" for finding in found))
    return Fixed(fixed)


class _Rewrite:
    """Collects the edits of one script: pieces of the file, and what comes in their place."""

    def __init__(self, text: str, jobs: list[Job]) -> None:
        self.source = text
        self.job, self.has_several = jobs[0], len(jobs) > 1
        self.edits: dict[tuple[int, int], str] = {}

    def text(self) -> str:
        """Return the script with all edits. Raises _UnsureError."""
        if not self.job.is_several:
            raise _UnsureError("it uses one node: torchrun --standalone takes a free port")
        if len(self.source) > _LONGEST:
            raise _UnsureError(f"it is longer than {_LONGEST} characters")
        if self.has_several:
            raise _UnsureError("it writes another job script")
        if not self.job.script.is_whole or _GONE in self.source:
            raise _UnsureError("a quote or a parenthesis has no end")
        launches = [launch for launch in self.job.launches if not launch.is_mingle]
        if not launches:
            raise _UnsureError("it starts no launcher that mingle knows")
        for launch in launches:
            if launch.program not in _OPTIONS:
                raise self._unsure(launch.at, f"{launch.program} needs its own lines: `mingle docs frameworks`")
            self._options(launch)
        frameworks = self._interfaces()
        for launch in launches:
            self._launcher(launch, frameworks)
        self._assignments()
        return _edited(self.source, self.edits)

    def _unsure(self, at: Text | int, reason: str) -> _UnsureError:
        return _UnsureError(f"line {self.job.lines.line(at if isinstance(at, int) else at.start)}: {reason}")

    def _remove(self, text: Text) -> None:
        self.edits[text.start, text.end] = ""

    # The launchers.

    def _options(self, launch: Launch) -> None:
        """Leave out the launcher's options for the rendezvous."""
        names, options = _OPTIONS[launch.program], launch.args[: launch.script]
        if not names:
            return
        is_value = False
        for index, arg in enumerate(options):
            name, joined, _ = arg.text.partition("=")
            if is_value:
                self._remove(arg.use)
                is_value = False
            elif hyphens(name) in names:
                self._remove(arg.use)
                is_value = not joined and hyphens(name) not in _FLAGS
            elif name.startswith("$") and not (index and options[index - 1].text.startswith("-")):
                raise self._unsure(arg.use, f"{arg.text} may hold options of {launch.program}")

    def _launcher(self, launch: Launch, frameworks: tuple[str, ...]) -> None:
        """Put `mingle exec` before the program."""
        options = [f"--for {','.join(frameworks)}"] if frameworks else []
        if reason := self._doubt(launch):
            raise self._unsure(launch.at, reason)
        if launch.place == "host":
            self._loop(launch, options)
            return
        if launch.program == "python":
            options.append("--scope task")
        start = "mingle exec"
        if launch.place == "batch":
            start = "srun mingle exec" if self.job.requested.scheduler == "slurm" else "mingle run"
        at = self._container(launch) or launch.at
        self.edits[at.start, at.start] = " ".join([start, *options, ""])

    def _container(self, launch: Launch) -> Text | None:
        """Return the word `apptainer`, which passes variables on: `mingle exec` can go before it."""
        words = [(word, basename(word.plain)) for word in launch.command.words]
        found = [word for (word, name), (_, after) in pairwise(words) if name in _PASS_VARIABLES_ON and after == "exec"]
        is_own = any(_OWN_ENVIRONMENT.fullmatch(name) for _, name in words)
        return found[0] if found and launch.program == "torchrun" and not is_own else None

    def _doubt(self, launch: Launch) -> str:
        """Return why `mingle exec` before a program may not do the same, "" if it does."""
        job, step = self.job, " ".join(arg.text for arg in launch.step)
        nodes, tasks = started_tasks(job, launch)
        given = _STEP_NODES.search(step)
        is_some = (nodes or 0) < job.requested.nodes or (given and not _ALL_NODES.fullmatch(given[1]))
        containers = CONTAINERS.intersection(launch.chain)
        is_contained = " --container" in step or (containers and self._container(launch) is None)
        is_elsewhere = not job.requested.scheduler or not (launch.step or launch.place == "batch")
        is_conditional = job.is_conditional(launch.at.start) or job.is_conditional(launch.command.start)
        is_host = launch.place == "host"
        reasons = (
            (is_contained, "mingle has to be installed in the container, or to stand before it"),
            (is_elsewhere, "how it is started on the nodes is not in this script"),
            (is_conditional, "it starts in a condition"),
            (launch.program == "python" and _ADDRESSES.isdisjoint(job.assignments), "it finds its ranks itself"),
            (not is_host and is_some, "it may start on some of the job's nodes only"),
            (
                not is_host and launch.program in MULTI and (tasks or 1) > (nodes or tasks or 1),
                f"{launch.program} needs one task on each node, and {tasks} start on {nodes}",
            ),
            (launch.place == "batch" and launch.chain, f"{' '.join(launch.chain)} stands before it"),
        )
        return next((reason for is_so, reason in reasons if is_so), "")

    def _loop(self, launch: Launch, options: list[str]) -> None:
        """Put one `mingle run` in place of a loop over hosts."""
        script, at = self.job.script, launch.at
        loops = [frame for frame in launch.outer.frames if frame.kind == "loop"]
        if len(loops) != 1 or len(launch.outer.frames) != 1 or loops[0].start not in script.ends:
            raise self._unsure(at, "it starts on one host, and not in a loop over all")
        start, end = loops[0].start, script.ends[loops[0].start]
        inside = [one for one in script.commands if start <= one.start < end and not one.has_frame("substitution")]
        made = {name for one in inside if one.name == "for" for name in re.findall(r"\w+", one.words[1].text)}
        for command in inside:
            if command.words and command is not launch.outer and command.name not in ("for", "sleep", "export", *_ECHO):
                raise self._unsure(command.start, "the loop does more than start the launcher")
            made.update(word.text.partition("=")[0].rstrip("+") for word in (*command.assignments, *command.words[1:]))
        nested = [
            one for one in self.job.commands if one.frames[:-1] == launch.outer.frames and one is not launch.outer
        ]
        if any(one.name not in ("cd", launch.command.name) for one in nested if one.frames[-1].kind == "text"):
            raise self._unsure(at, "more than the launcher runs on each host")
        words = [arg.use for arg in (*launch.head, *launch.args) if (arg.use.start, arg.use.end) not in self.edits]
        line = " ".join(["mingle run", *options, *(word.text for word in words)])
        if used := made.intersection(NAMES.findall(line)):
            raise self._unsure(at, f"the command uses ${min(used)} of the loop")
        self._clear(start, end)
        after = next((one for one in script.commands if one.start >= end), None)
        tail = re.match(r"[ \t]*&(?!&)", self.source[end : end + 99])
        self.edits[start, end + (tail.end() if tail else 0)] = line
        if after and after.name == "wait":
            self.edits[after.start, after.end] = ""

    def _clear(self, start: int, end: int) -> None:
        """Drop the edits within a piece that goes as a whole."""
        for span in [span for span in self.edits if start <= span[0] and span[1] <= end]:
            del self.edits[span]

    # The variables.

    def _interfaces(self) -> tuple[str, ...]:
        """Leave out interfaces that are written down; return the frameworks that get each node's own."""
        found = []
        for name, framework in _INTERFACES.items():
            for value in self.job.assignments.get(name, []):
                if framework != "nccl" or not value.value.plain.startswith("^"):  # which may stay
                    self._leave_out(value)
                    found.append(framework)
        return tuple(dict.fromkeys(found))

    def _assignments(self) -> None:
        """Leave out the variables that mingle sets, and then those that only served what is left out."""
        for _ in range(len(self.job.assignments) + 1):
            before = len(self.edits)
            for name in sorted(self.job.assignments):
                self._variable(name)
            if len(self.edits) == before:
                return

    def _variable(self, name: str) -> None:
        values = [value for value in self.job.assignments[name] if not self._is_gone(value)]
        is_address = name in _ADDRESSES
        if not values or not (is_address or all(_finds(value) for value in values)):
            return
        uses = self._uses(name)
        exports = [use for use in uses if use.name in _DECLARES and name in [word.text for word in use.words]]
        others = [use for use in uses if not self._only_says(use) and use not in exports]
        if others and is_address:
            raise self._unsure(others[0].start, f"this line uses {name}, which only the nodes know")
        if others or not (is_address or name in _RANKS or self._served(name)):
            return
        for use in uses:
            if use in exports and len(use.words) > 2:  # noqa: PLR2004  # export NAME OTHER
                self._remove(next(word for word in use.words if word.text == name))
            else:
                self._leave_out_command(use)
        for value in values:
            self._leave_out(value)

    def _is_gone(self, value: Assignment) -> bool:
        return any(start <= value.span.start and value.span.end <= end for start, end in self.edits)

    def _served(self, name: str) -> bool:
        """Return whether something that is left out used a variable."""
        return any(name in NAMES.findall(self.source[start:end]) for start, end in self.edits if start < end)

    def _uses(self, name: str) -> list[Command]:
        """Return the script's own commands that use a variable and stay."""
        pattern = re.compile(
            rf"\$\{{?[#!]?{name}\b|\b(?:export|unset)[ \t][^\n;]*?\b{name}\b(?![+=])|\(\([^\n]*?\b{name}\b"
        )
        positions = [match.end() - 1 for match in pattern.finditer(self.source)]
        spans = [*self.edits, *((value.span.start, value.span.end) for value in self.job.assignments[name])]
        kept = [at for at in positions if not any(start <= at < end for start, end in spans)]
        found = [self._command_at(at) for at in kept]
        return [command for command in found if command is not None]

    def _command_at(self, position: int) -> Command | None:
        """Return the script's own command at a position, None in a comment."""
        found = None
        for command in self.job.script.commands:
            bodies = [(command.start, command.end), *((body.start, body.end) for body in command.here_documents)]
            if any(start <= position < end for start, end in bodies) and not command.has_frame("substitution"):
                found = command
        return found

    def _only_says(self, command: Command) -> bool:
        """Return whether a command only prints addresses, and what the scheduler says."""
        names = {name for word in command.words for name in NAMES.findall(word.text)}
        known = {name for name in names if name in _ADDRESSES or _OF_JOB.fullmatch(name) or self._finds_all(name)}
        return (
            command.name in _ECHO
            and names == known
            and not (command.outputs or "$(" in " ".join(word.text for word in command.words))
        )

    def _finds_all(self, name: str) -> bool:
        return name in self.job.assignments and all(_finds(value) for value in self.job.assignments[name])

    def _leave_out(self, value: Assignment) -> None:
        """Leave out an assignment, and its command if that does nothing else."""
        command = value.command
        if command.name in STEPS and value.span in command.words:  # -x NAME=VALUE
            before = command.words[command.words.index(value.span) - 1]
            if before.text != "-x":
                raise self._unsure(value.span, f"how {command.name} gets {value.name} is not clear")
            self._remove(before)
            self._remove(value.span)
            return
        words = command.words[1:] if command.name in _DECLARES else command.words
        others = [
            word
            for word in (*command.assignments, *words)
            if word is not value.span and (word.start, word.end) not in self.edits and not word.text.startswith("-")
        ]
        if others:
            self._remove(value.span)
        else:
            self._leave_out_command(command)

    def _leave_out_command(self, command: Command) -> None:
        if command.after in _JOINS or command.before in _JOINS[:-1]:
            raise self._unsure(command.start, "this line is joined with another command")
        frame = command.frames[-1] if command.frames else None
        if frame is not None and frame.kind not in ("function", "text"):
            raise self._unsure(command.start, "this line stands in a condition or a loop")
        others = [one for one in self.job.commands if one is not command and one.frames == command.frames]
        if frame is not None and all((one.start, one.end) in self.edits for one in others):
            raise self._unsure(command.start, "nothing would be left of this function")
        self._clear(command.start, command.end)
        semicolon = re.match(r"[ \t]*;(?!;)(?=[ \t]*\S)", self.source[command.end : command.end + 99])
        self.edits[command.start, command.end + (semicolon.end() if semicolon else 0)] = ""


def _finds(value: Assignment) -> bool:
    """Return whether a value only finds addresses, ports, nodes or ranks."""
    text = value.value.text
    return bool(_FINDS.search(text) or NAMES.search(text)) or text.strip("\"'").isdigit()


def _edited(text: str, edits: dict[tuple[int, int], str]) -> str:
    """Return the text with its edits. An emptied line is dropped, with the backslash that continued it."""
    pieces: list[str] = []
    position = 0
    for (start, end), new in sorted(edits.items()):
        if start >= position:
            pieces += [text[position:start], new or _GONE]
            position = end
    lines: list[str] = []
    for line in "".join([*pieces, text[position:]]).splitlines(keepends=True):
        if _GONE not in line:
            lines.append(line)
        elif kept := re.fullmatch(r"[ \t\0]*(\\?)(?:#[^\n]*)?\r?\n?", line):
            if not kept[1] and lines and re.search(r"\\\r?\n\Z", lines[-1]):
                lines[-1] = re.sub(r"[ \t]*\\(\r?\n)\Z", r"\1", lines[-1])
        else:
            line = re.sub(r"(\A[ \t]*|[\"'(`])\0(?:[ \t]*\0)*[ \t]*", r"\1", line)  # noqa: PLW2901
            lines.append(re.sub(r"[ \t]*\0", "", line))
    return "".join(lines)
