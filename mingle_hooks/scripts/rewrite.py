"""`mingle lint --diff` and `--fix`: the same job script with mingle in it, and nothing else changed.

If the script might then do something else, it stays unchanged, and the reason is returned.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from os.path import basename
from typing import NamedTuple

from mingle_hooks.export.launchers import NODES, TABLE, hyphens
from mingle_hooks.scripts import launches
from mingle_hooks.scripts.launches import (
    DECLARES,
    HOSTFILES,
    NAMES,
    OPTIONS,
    SHELLS,
    STEPS,
    Assignment,
    Job,
    Launch,
    read_jobs,
)
from mingle_hooks.scripts.lint import MULTI, lint_jobs, lint_script, started_tasks
from mingle_hooks.scripts.shell import Command, Text
from mingle_hooks.values import holds


class Fixed(NamedTuple):
    """A script with mingle in it; `unsure` has the reasons why it was left unchanged, if any."""

    text: str
    unsure: tuple[str, ...] = ()


class _UnsureError(Exception):
    """Why a script cannot be changed with certainty."""


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
_BOUNDS = re.compile(r"(\$?\{?\w+\}?):(\$?\{?\w+\}?)")  # of --nnodes MIN:MAX
_ALL_NODES = re.compile(r"\d+|\"?\$\{?SLURM_(?:JOB_NUM_NODES|NNODES)\}?\"?")
# What a loop over hosts may give to srun: `mingle run` starts one task on each node too.
_PER_HOST = re.compile(
    r"--(?:nodes|ntasks|ntasks-per-node|nodelist|relative|overlap|exact|exclusive|kill-on-bad-exit)(?:=.*)?|-[NnwrK]\S*"
)
_RANGE = re.compile(r"\{-?\d{1,5}(?:\.\.-?\d{1,5}){1,2}\}|(?:\$\(|`) *seq(?: +-?\d{1,5}){1,3} *[)`]")
_COUNTING = re.compile(r"= *(\d{1,5}) *; *\w+ *<(=?) *(\d{1,5}) *;(?: *\w+ *\+= *(\d{1,5}))?")
_WORKERS = re.compile(r":1\}|= *1 *;[^;]*<[^=]|seq +1 [^;]*- *1\)")
_HERE = re.compile(r"\$\{?PWD\}?|\$\(pwd\)|`pwd`")
_SUBMITTED_IN = {"slurm": r"\$\{?SLURM_SUBMIT_DIR\}?", "lsf": r"\$\{?LS_SUBCWD\}?"}  # where a job starts
_BACKGROUND = re.compile(r"(?<![&<>|])&(?![&>])")
# Programs, and files that are sourced, that do not use addresses, ranks and interfaces.
_HARMLESS = {
    *("hostname", "nvidia-smi", "rocm-smi", "echo", "printf", "true", "sleep", "date"),
    *("mkdir", "cp", "rm", "tar", "rsync", "ls", "cat", "sync", "chmod", "module", "tee"),
}
# What bash does itself, besides what runs another program: exec, command, eval.
_BUILTINS = _DECLARES | {
    *(".", "source", "[", "alias", "bg", "break", "case", "cd", "continue", "dirs", "disown", "exit", "false", "fg"),
    *("for", "getopts", "hash", "jobs", "kill", "let", "mapfile", "popd", "pushd", "pwd", "read", "readarray"),
    *("return", "select", "set", "shift", "shopt", "test", "times", "trap", "type", "ulimit", "umask", "unalias"),
    *("unset", "wait"),
}
_STEP_VALUE = re.compile(r"\d+|\S*\$\S+")
_ACTIVATES = re.compile(r"(?:\A|/)(?:activate|conda\.sh|\.?(?:bashrc|bash_profile|profile))\Z|\A/etc/profile")
# What prints all that is exported.
_SAVES = re.compile(r"(?:\S*/)?(?:env|printenv)|export(?: -p)?|(?:declare|typeset)(?: -\w+)?|set")
_ALL_EXPORTED = re.compile(r"\bset +(?:-\w*a|-o +allexport)")
# What comes before a name that is used without `$`, and commands that use names within their words.
_SUBSCRIPT = re.compile(r"(?:\[[^\]\n]*|\$\{[^}\n]*)\Z")
_NEAR = 200
_BY_NAME = ("let", "eval", "trap")
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
        self.own = [command for command in self.job.script.commands if not command.has_frame("substitution")]
        spans = [(one.start, one.end, one) for one in self.own]
        spans += [(body.start, body.end, one) for one in self.own for body in one.here_documents]
        self.spans = sorted(spans, key=itemgetter(0, 1))

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
        for launch in self.launches:
            if launch.program not in OPTIONS:
                raise self._unsure(launch.at, f"{launch.program} needs its own lines: `mingle docs frameworks`")
            self._options(launch)
        frameworks = self._interfaces()
        for launch in self.launches:
            self._launcher(launch, frameworks)
        self._assignments()
        for name in _INTERFACES:
            if any(self._is_left_out(value.span) for value in self._values(name)) and (uses := self._uses(name)):
                raise self._unsure(uses[0].start, f"this line uses {name}, which differs between nodes")
        self._shared()
        return _edited(self.source, self.edits)

    @cached_property
    def launches(self) -> list[Launch]:
        """Return what trains: a python on the first node does not, such as one that prepares data."""
        found = [launch for launch in self.job.launches if not launch.is_mingle]
        if not found:
            raise _UnsureError("it starts no launcher that mingle knows")
        training = [launch for launch in found if (launch.program, launch.place) != ("python", "batch")]
        if not training:
            raise self._unsure(found[0].at, "python may be meant to run once, on the first node")
        return training

    def _unsure(self, at: Text | int, reason: str) -> _UnsureError:
        return _UnsureError(f"line {self.job.line(at if isinstance(at, int) else at.start)}: {reason}")

    def _remove(self, text: Text) -> None:
        self.edits[text.start, text.end] = ""

    # The launchers.

    def _options(self, launch: Launch) -> None:
        """Leave out the launcher's options for the rendezvous."""
        names, options = OPTIONS[launch.program], launch.args[: launch.script]
        if not names:
            return
        flags = next(row.flags for row in TABLE if row.name == launch.program) or ()
        is_left_out = has_value = False
        for arg in options:
            name, joined, _ = arg.text.partition("=")
            is_option = name.startswith("-") and not (has_value and is_left_out)
            if is_option:
                is_left_out = hyphens(name) in names
            elif not has_value and name.startswith("$") and ".py" not in arg.text:
                raise self._unsure(arg.use, f"{arg.text} may hold options of {launch.program}")
            elif not has_value and not name.startswith("`#"):  # the training script, whose options follow
                return
            if is_left_out:
                self._remove(arg.use)
            has_value = is_option and not joined and hyphens(name) not in flags

    def _launcher(self, launch: Launch, frameworks: tuple[str, ...]) -> None:
        """Put `mingle exec` before the program."""
        if _restarts(launch):
            frameworks = ("torchrun-elastic", *frameworks)
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
            start = f"{self.job.srun} mingle exec" if self.job.requested.scheduler == "slurm" else "mingle run"
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
        is_some = (nodes or 0) < job.requested.nodes or (launch.nodes and not _ALL_NODES.fullmatch(launch.nodes))
        containers = launches.CONTAINERS.intersection(launch.chain)
        is_contained = " --container" in step or (containers and self._container(launch) is None)
        is_host, is_batch = launch.place == "host", launch.place == "batch"
        is_elsewhere = not job.requested.scheduler or not (launch.step or is_batch)
        # Which pass on no variables, so that mingle would not know the job there.
        reached = launches.REMOTE.intersection(launch.chain) - {"ssh"}
        is_conditional = job.is_conditional(launch.at.start) or job.is_conditional(launch.command.start)
        count = launch.option(*NODES)
        bounds = _BOUNDS.fullmatch(count.text) if count else None
        is_alone = launch.standalone or (count and count.text == "1")
        is_alone = is_alone and (len(self.launches) > 1 or launch.is_of_task)
        is_alone = is_alone or (is_batch and any(one.place != "batch" for one in self.launches))
        is_python = launch.program == "python"
        is_beside = is_python and any(one.program != "python" for one in self.launches)
        is_in_value = is_batch and not launch.command.start <= launch.at.start < launch.command.end
        is_per_task = not is_host and launch.program in MULTI and (tasks or 1) > (nodes or tasks or 1)
        reasons = (
            (is_contained, "mingle has to be installed in the container, or to stand before it"),
            (launch.has(*HOSTFILES), "it reaches the other nodes itself"),
            (reached, f"{' '.join(reached)} starts it, which does not pass on the job's variables"),
            (is_elsewhere, "how it is started on the nodes is not in this script"),
            (launches.HETJOB.search(self.source), "in a heterogeneous job it may be for one component"),
            (is_conditional, "it starts in a condition"),
            (bounds and bounds[1] != bounds[2], "it may go on with fewer nodes than the job has"),
            (is_beside, "python may not train, beside another launcher"),
            (is_alone, "it may be meant to train alone"),
            (is_python and _ADDRESSES.isdisjoint(job.assignments), "it finds its ranks itself"),
            (not is_host and is_some, "it may start on some of the job's nodes only"),
            (is_per_task, f"{launch.program} needs one task on each node, and {tasks} start on {nodes}"),
            (is_in_value and job.srun != "srun", "srun needs --cpus-per-task before it"),  # whose value quotes may hide
            (is_batch and launch.chain, f"{' '.join(launch.chain)} stands before it"),
        )
        return next((reason for is_so, reason in reasons if is_so), "")

    def _loop(self, launch: Launch, options: list[str]) -> None:
        """Put one `mingle run` in place of a loop over hosts."""
        script, at = self.job.script, launch.at
        loops = [frame for frame in launch.outer.frames if frame.kind == "loop"]
        if len(loops) != 1 or len(launch.outer.frames) != 1 or loops[0].start not in script.ends:
            raise self._unsure(at, "it starts on one host, and not in a loop over all")
        start, end = loops[0].start, script.ends[loops[0].start]
        inside = [one for one in self.own if start <= one.start < end]
        made = {name for one in inside if one.name == "for" for name in re.findall(r"\w+", one.words[1].text)}
        for command in inside:
            if command.words and command is not launch.outer and command.name not in ("for", "sleep", "export", *_ECHO):
                raise self._unsure(command.start, "the loop does more than start the launcher")
            made.update(word.text.partition("=")[0].rstrip("+") for word in (*command.assignments, *command.words[1:]))
        outer = launch.outer
        nested = [one for one in self.job.commands if one.frames[:-1] == outer.frames and one is not outer]
        if any(one.name not in ("cd", launch.command.name) for one in nested if one.frames[-1].kind == "text"):
            raise self._unsure(at, "more than the launcher runs on each host")
        words = [arg.use for arg in (*launch.head, *launch.args) if (arg.use.start, arg.use.end) not in self.edits]
        line = " ".join(["mingle run", *options, *(word.text for word in words)])
        if used := made.intersection(NAMES.findall(line)):
            raise self._unsure(at, f"the command uses ${min(used)} of the loop")
        if used := made.intersection(NAMES.findall(self.source[end:])):
            raise self._unsure(at, f"${min(used)} of the loop is used after it")
        if reason := self._loop_doubt(launch, inside, nested):
            raise self._unsure(at, reason)
        tail = re.match(r"[ \t]*&(?!&)", self.source[end : end + 99])
        after = next((one for one in script.commands if one.start >= end), None)
        if after and after.name != "wait" and (tail or launch.outer.after == "&"):
            raise self._unsure(after.start, "this line runs beside the loop")
        self._clear(start, end)
        end += tail.end() if tail else 0
        self.edits[start, end] = line
        if after and after.name == "wait" and not _BACKGROUND.search(self.source[:start] + self.source[end:]):
            self._leave_out_command(after)

    def _loop_doubt(self, launch: Launch, inside: list[Command], nested: list[Command]) -> str:
        """Return why one `mingle run` may not do the same as a loop, "" if it does.

        `inside` are the loop's commands, `nested` those that run on each host.
        """
        job, loop, commands = self.job, inside[0], [*inside, *nested]
        text, given = self.source[loop.start : loop.end], launch.option(*NODES)
        numbers = [given.text] if given else []
        numbers += [value.value.plain for one in numbers for name in NAMES.findall(one) for value in self._values(name)]
        is_python = launch.program == "python"
        others = [one for one in job.launches if is_python or (one.program, one.place) != ("python", "batch")]
        is_another = any(re.fullmatch(r"[\d:]+", one) and not holds(one, job.requested.nodes) for one in numbers)
        before = [one for one in self.own if one.start < loop.start and not one.has_frame("subshell")]
        places = [one.words[-1].plain for one in before if one.name == "cd"]
        here = re.escape(places[-1]) if places else _SUBMITTED_IN.get(job.requested.scheduler, _GONE)
        moves = [one.words[-1].plain for one in commands if one.name == "cd"]
        is_away = any(not (_HERE.fullmatch(to) or (to[:1] in "/$" and re.fullmatch(here, to))) for to in moves)
        words = [word for one in commands if one.words for word in one.assignments]
        words += [word for one in commands if one.name in launches.EXPORTS for word in one.words[1:]]
        names = [word.text.partition("=")[0] for word in words if not self._is_left_out(word)]
        kept = [name for name in names if name not in _ADDRESSES | _RANKS]
        around = [name for name in launch.chain if name not in STEPS | SHELLS]
        by = {"srun", *launches.MPI}
        options = [arg.text for arg in launch.step[1:] if launch.chain[0] in by and arg.text.startswith("-")]
        odd = [option for option in options if not _PER_HOST.fullmatch(option)]
        times = _times(loop, text)
        reasons = (
            (len(others) > 1, "another launcher starts beside the loop"),
            (times not in (None, job.requested.nodes), "the loop runs another number of times than the job has nodes"),
            (_WORKERS.search(text), "the loop leaves out the first node"),
            (is_another, "its number of nodes is not the job's"),
            (launch.standalone, "each node trains alone"),
            (is_away, "it starts in another directory"),
            (kept, f"the loop sets {' '.join(kept)}"),
            (around, f"{' '.join(around)} stands before it"),
            (any(one.outputs for one in commands), "its output goes to a file"),
            (odd, f"the loop gives {' '.join(odd)} to {launch.chain[0]}"),
        )
        return next((reason for is_so, reason in reasons if is_so), "")

    def _clear(self, start: int, end: int) -> None:
        """Drop the edits within a piece that goes as a whole."""
        for span in [span for span in self.edits if start <= span[0] and span[1] <= end]:
            del self.edits[span]

    # The variables.

    def _interfaces(self) -> tuple[str, ...]:
        """Leave out interfaces that are written down; return the frameworks that get each node's own."""
        found = []
        for name, framework in _INTERFACES.items():
            for value in self._values(name):
                if framework != "nccl" or not value.value.plain.startswith("^"):  # which may stay
                    if reader := self._reader(name, [value.command]):
                        raise self._unsure(reader.start, f"this line may use {name}, which differs between nodes")
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

    def _values(self, name: str) -> list[Assignment]:
        return self.job.assignments.get(name, [])

    def _variable(self, name: str) -> None:
        values = [value for value in self._values(name) if not self._is_left_out(value.span)]
        is_address = name in _ADDRESSES
        if not values or not (is_address or all(_finds(value) for value in values)):
            return
        uses = self._uses(name)
        exports = [use for use in uses if use.name in _DECLARES and name in [word.text for word in use.words]]
        others = [use for use in uses if not self._only_says(use) and use not in exports]
        if others and is_address:
            raise self._unsure(others[0].start, f"this line uses {name}, which only the nodes know")
        # Any program may read what is exported.
        is_served = is_address or name in _RANKS or (self._served(name) and not self._is_exported(name))
        if others or not is_served:
            return
        if reader := self._reader(name, [*exports, *(value.command for value in values)]):
            if is_address:
                raise self._unsure(reader.start, f"this line may use {name}, which only the nodes know")
            return
        for use in uses:
            left = [word for word in use.words[1:] if word.text != name and not self._is_left_out(word)]
            if use in exports and any(not word.text.startswith("-") for word in left):  # export NAME OTHER
                self._remove(next(word for word in use.words if word.text == name))
            else:
                self._leave_out_command(use)
        for value in values:
            self._leave_out(value)

    def _shared(self) -> None:
        """Raise _UnsureError if a value that changes is for something else than the launchers, too."""
        launching = {id(one) for launch in self.launches for one in (launch.command, launch.outer)}
        nested = [one for one in self.job.commands if one.has_frame("text", "substitution")]
        names = [name for name in self.job.assignments if any(self._is_edited(value) for value in self._values(name))]
        for name in names:  # and then those whose values have it
            uses = [*self._uses(name), *(one for one in nested if name in NAMES.findall(_written(one)))]
            for use in uses:
                if id(use) in launching or _is_said(use):
                    continue
                if use.words and use.name not in _DECLARES:
                    raise self._unsure(use.start, f"this line uses {name}, whose value changes")
                its = [value for values in self.job.assignments.values() for value in values if value.command is use]
                names += [one.name for one in its if one.name not in names and name in NAMES.findall(one.value.text)]
            setters = [value.command for value in self._values(name)]
            if self._is_exported(name) and (reader := self._reader(name, setters)):
                raise self._unsure(reader.start, f"this line may use {name}, whose value changes")

    def _is_edited(self, value: Assignment) -> bool:
        start, end = value.value.start, value.value.end
        return not self._is_left_out(value.span) and any(start <= one[0] and one[1] <= end for one in self.edits)

    def _is_exported(self, name: str) -> bool:
        return name in self.job.exported or bool(_ALL_EXPORTED.search(self.source))

    def _reader(self, name: str, setters: list[Command]) -> Command | None:
        """Return a command after those that set a variable which may read it, though it does not name it."""
        readers = [*self._sources]
        if self._is_exported(name):
            readers += self._inheritors if name not in _RANKS else [*self._inheritors, *self._programs]
        for setter in setters:
            if setter.words and setter.name not in _DECLARES:  # NAME=VALUE PROGRAM
                continue
            shells = {frame for frame in setter.frames if frame.kind in ("text", "subshell")}
            for one in readers:
                is_after = one.start > setter.start or one.has_frame("function", "loop")
                if is_after and shells.issubset(one.frames):
                    return one
        return None

    @cached_property
    def _sources(self) -> list[Command]:
        """Return the commands that read a file in their own shell."""
        found = [one for one in self.job.commands if one.name in ("source", ".")]
        return [one for one in found if not _ACTIVATES.search("".join(word.plain for word in one.words[1:2]))]

    @cached_property
    def _inheritors(self) -> list[Command]:
        """Return what gets what is exported: steps and scripts that start no launcher, and what saves it to a file."""
        starts = [self._command_at(one.step[0].use.start) for one in self.job.launches if one.step]
        starts += [one for launch in self.job.launches for one in (launch.command, launch.outer)]
        launching, steps = {id(one) for one in starts}, {id(one) for one in self.job.steps}
        nested: dict[int, list[Command]] = {}
        for one in self.job.commands:
            if one.has_frame("text"):
                nested.setdefault(id(self._command_at(one.start)), []).append(one)
        found = []
        for one in self.job.commands:
            words = [word.plain for word in one.words]
            is_step = id(one) in steps and not _is_harmless(words, nested.get(id(one), []))
            is_script = one.name in SHELLS and len(words) > 1 and not any(re.match(r"-\w*c", word) for word in words)
            is_saved = bool(one.outputs and _SAVES.fullmatch(" ".join(words)))
            is_program = self.job.place(one) != "batch" and "/" in "".join(words[:1]) and one.name not in _HARMLESS
            is_other = one.name.endswith((".sh", "envsubst")) or (is_program and id(one) not in steps)
            if is_step or is_script or is_saved or is_other:
                found.append(one)
        return [one for one in found if id(one) not in launching and not one.has_frame("substitution")]

    @cached_property
    def _programs(self) -> list[Command]:
        """Return what else the batch part runs, python too: the script's own ranks may be meant for it."""
        trains = [one for one in self.job.launches if (one.program, one.place) != ("python", "batch")]
        known = {id(one) for launch in trains for one in (launch.command, launch.outer)}
        known |= {id(one) for one in self.job.steps}
        functions = {frame.name for one in self.job.commands for frame in one.frames if frame.kind == "function"}
        ignored = _BUILTINS | _HARMLESS | functions
        found = [one for one in self.job.commands if id(one) not in known and self.job.place(one) == "batch"]
        found = [one for one in found if one.words and not one.words[0].text.startswith(("[[", "(("))]
        return [one for one in found if one.name not in ignored and not one.has_frame("substitution")]

    def _is_left_out(self, text: Text) -> bool:
        return any(start <= text.start and text.end <= end for start, end in self.edits)

    def _served(self, name: str) -> bool:
        """Return whether something that is left out used a variable."""
        return any(name in NAMES.findall(self.source[start:end]) for start, end in self.edits if start < end)

    def _uses(self, name: str) -> list[Command]:
        """Return the script's own commands that use a variable and stay."""
        spans = [*self.edits, *((value.span.start, value.span.end) for value in self._values(name))]
        found: dict[int, Command] = {}
        for match in re.finditer(rf"(?<!\w){name}(?!\w)", self.source):
            at = match.start()
            command = self._command_at(at)
            if command is None or id(command) in found or any(start <= at < end for start, end in spans):
                continue
            if self._is_use(command, name, at):
                found[id(command)] = command
        return [*found.values()]

    def _is_use(self, command: Command, name: str, at: int) -> bool:
        """Return whether a command uses a variable that it names at a position: with `$`, or otherwise by its name."""
        before, after = self.source[max(command.start, at - _NEAR) : at], self.source[at + len(name) :][:3]
        is_evaluated = _SUBSCRIPT.search(before) or "((" in self.source[command.start : at]
        if re.search(r"\$\{?[#!]?\Z", before) or (is_evaluated and (command.name not in _ECHO or "$" in before)):
            return True
        is_option = re.search(r"(?:\A|\s)(?:-x\s+|--?)\Z", before)
        if is_option or re.match(r"\+?=(?!=)", after) or _is_message(command):
            return False
        is_test = any(word.text.startswith("[[") for word in command.words[:1])
        is_read = is_test or self._is_exported(name) or command.name in _BY_NAME
        # What is assigned may be an integer, or a name for ${!NAME}.
        words = [word.plain for word in (*command.assignments, *command.words[1:]) if word.start <= at < word.end]
        return is_read or any(word == name or word.endswith(f"={name}") for word in words)

    def _command_at(self, position: int) -> Command | None:
        """Return the script's own command at a position, None in a comment."""
        index = bisect_right(self.spans, position, key=itemgetter(0)) - 1
        return self.spans[index][2] if index >= 0 and position < self.spans[index][1] else None

    def _only_says(self, command: Command) -> bool:
        """Return whether a command only prints addresses, and what the scheduler says."""
        names = {name for word in command.words for name in NAMES.findall(word.text)}
        found = {name for name, values in self.job.assignments.items() if all(_finds(value) for value in values)}
        known = {name for name in names if name in _ADDRESSES | found or _OF_JOB.fullmatch(name)}
        return _is_said(command) and names == known

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
        left = [word for word in (*command.assignments, *words) if (word.start, word.end) not in self.edits]
        if any(word is not value.span and not word.text.startswith("-") for word in left):
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


def _is_message(command: Command) -> bool:
    return command.name in _ECHO and not command.outputs and [word.plain for word in command.words[1:2]] != ["-v"]


def _is_said(command: Command) -> bool:
    """Return whether what a command prints is for people: the output of a function may be used."""
    is_used = command.after in ("|", "|&") or command.has_frame("function", "substitution")
    return _is_message(command) and not is_used and "$(" not in _written(command)


def _written(command: Command) -> str:
    return " ".join(word.text for word in (*command.assignments, *command.words))


def _is_harmless(step: list[str], nested: list[Command]) -> bool:
    """Return whether a step starts only programs that do not use addresses."""
    if nested:
        return all(one.name in _HARMLESS for one in nested)
    for before, word in pairwise(step):
        is_value = before.startswith("-") or before == "ssh"
        if not word.startswith("-") and not (is_value and _STEP_VALUE.fullmatch(word)):
            return basename(word) in _HARMLESS
    return False


def _restarts(launch: Launch) -> bool:
    """Return whether torchrun may start all workers again, on all nodes: a static rendezvous does not."""
    restarts = launch.option("--max-restarts")
    is_given = restarts is not None and restarts.text != "0"
    return is_given and launch.program == "torchrun" and launch.has_value("--rdzv-backend", "c10d")


def _times(loop: Command, text: str) -> int | None:
    """Return how often a loop runs, None if that depends on variables."""
    if counting := _COUNTING.search(text):
        return len(range(int(counting[1]), int(counting[3]) + bool(counting[2]), int(counting[4] or 1) or 1))
    words = [word.text for word in loop.words[3:]]
    if len(words) == 1 and _RANGE.fullmatch(words[0]):
        numbers = [int(number) for number in re.findall(r"-?\d+", words[0])]
        if "{" in words[0]:  # {FIRST..LAST..STEP}, whose sign does not count
            first, last, step = [*numbers, 1][:3]
            step = (abs(step) or 1) * (1 if first <= last else -1)
        else:  # seq FIRST STEP LAST
            *before, last = numbers
            first, step = [*before, 1, 1][:2]
        return max(0, (last - first) // (step or 1) + 1)
    return None if not words or re.search(r"[$`]", " ".join(words)) else len(words)


def _finds(value: Assignment) -> bool:
    """Return whether a value only finds addresses, ports, nodes or ranks."""
    text = value.value.text
    return bool(_FINDS.search(text) or NAMES.search(text)) or text.strip("\"'").isdigit()


def lines_of(text: str) -> list[str]:
    """Return the lines of a script with their ends: a form feed, of which str.splitlines makes one, is none."""
    return re.findall(r".*\n|.+", text)


def _edited(text: str, edits: dict[tuple[int, int], str]) -> str:
    """Return the text with its edits. An emptied line is dropped, with the backslash that continued it."""
    pieces: list[str] = []
    position = 0
    for (start, end), new in sorted(edits.items()):
        if start >= position:
            pieces += [text[position:start], new or _GONE]
            position = end
    lines: list[str] = []
    for line in lines_of("".join([*pieces, text[position:]])):
        if _GONE not in line:
            lines.append(line)
        elif kept := re.fullmatch(r"[ \t\0]*(\\?)(?:#[^\n]*)?\r?\n?", line):
            if not kept[1] and lines and re.search(r"\\\r?\n\Z", lines[-1]):
                lines[-1] = re.sub(r"[ \t]*\\(\r?\n)\Z", r"\1", lines[-1])
        else:
            line = re.sub(r"(\A[ \t]*|[\"'(`])\0(?:[ \t]*\0)*[ \t]*", r"\1", line)  # noqa: PLW2901
            lines.append(re.sub(r"[ \t]*\0", "", line))
    return "".join(lines)
