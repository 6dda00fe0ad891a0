"""A training command as it was typed: what of it starts the processes, and what is started.

A command may be a launcher itself, such as `torchrun train.py`; the script then starts it as it was typed. `srun` and
`mingle exec` in front are what the script does by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.export import launchers
from mingle_hooks.export.frameworks import FRAMEWORKS
from mingle_hooks.export.launchers import Starts, leaves
from mingle_hooks.scripts.fields import FIELDS, quote_words
from mingle_hooks.values import nearest

# The launchers: what starts the training processes. Each is one line here.


class Launcher(NamedTuple):
    """A launcher, and how often it has to be started.

    `starts` is "node" for one that starts the node's processes itself, "task" for none, where every process
    is the scheduler's, and "job" for one that reaches all nodes itself.
    """

    name: str
    starts: Starts
    frameworks: tuple[str, ...]
    help: str
    no_python: tuple[str, ...] = ()  # the options by which it takes a program that is no Python script, as it is
    module: str = "-m"  # the option by which it takes a module's name
    starter: tuple[str, ...] = ()  # the words that start it, where the user has typed none
    restarts: str = ""  # the option that tells it how often it may start a process again

    def words(self, typed: tuple[str, ...], max_restarts: int) -> tuple[str, ...]:
        """Return the words in front of the program; those that the user typed come before our own."""
        return (*(typed or self.starter), *((f"{self.restarts}={max_restarts}",) if self.restarts else ()))


# The names of frameworks are those of `mingle env --for`.
TABLE = (
    Launcher(
        "torchrun",
        "node",
        ("torchrun",),
        "torchrun, static: a failed process ends the job",
        ("--no-python",),
        starter=("torchrun",),
    ),
    Launcher(
        "torchrun-elastic",
        "node",
        ("torchrun-elastic",),
        "torchrun, c10d: restarts up to --max-restarts times",
        ("--no-python",),
        starter=("torchrun",),
        restarts="--max-restarts",
    ),
    Launcher(
        "accelerate",
        "node",
        (),
        "accelerate launch",
        ("--no_python",),
        "--module",
        ("accelerate", "launch"),
    ),
    Launcher(
        "deepspeed",
        "node",
        ("deepspeed",),
        "deepspeed with a hostfile, without ssh",
        ("--no_local_rank", "--no_python"),  # it would put --local_rank=N before the program's own arguments
        "--module",
        ("deepspeed",),
    ),
    Launcher("mpirun", "job", (), "Open MPI's mpirun, one process per slot"),
    Launcher(
        "ray",
        "node",
        ("ray",),
        "a Ray head on the first node, workers on the others; the command is the driver",
        starter=("ray", "symmetric-run", "--"),
    ),
    Launcher("process", "task", (), "one process per task, with RANK and LOCAL_RANK"),
    Launcher("plain", "node", (), "the command once on every node, with NODE_RANK"),
)
LAUNCHERS = {launcher.name: launcher for launcher in TABLE}


def launcher(name: str) -> Launcher:
    """Return the launcher of this name; UsageError, with the nearest known name, for another."""
    if name in LAUNCHERS:
        return LAUNCHERS[name]
    raise UsageError(f"a launcher out of {', '.join(LAUNCHERS)}", name, f"--launcher {nearest(name, LAUNCHERS)}")


def program(command: tuple[str, ...], launcher: Launcher) -> tuple[str, ...]:
    """Return the words that follow the launcher: `train.py …`, `-m pkg …` or any other program with its arguments.

    A script or a module is Python's: launchers take it as it is, and for the others Python is named.
    """
    first = command[0]
    takes_python = bool(launcher.no_python)
    if first == "-m":
        return ((launcher.module,) if takes_python else ("python3", "-m")) + command[1:]
    if first.endswith(".py") and not first.startswith("-"):
        return command if takes_python else ("python3", *command)
    return (*launcher.no_python, *command) if takes_python else command


Words = tuple[str, ...]

_C10D = {"c10d", "--rdzv-backend=c10d", "--rdzv_backend=c10d"}
_WRAPPED_MOST = 4096  # words of a command that are searched for a launcher


class Command(NamedTuple):
    """What a script starts: `starter` are the user's own words for the launcher, none where the script has its own."""

    launcher: Launcher
    starter: Words
    program: Words
    frameworks: Words = ()  # what the command reads besides what its launcher tells


def read_command(typed: Words, given: str | None, default: str) -> Command:
    """Return the command of these words; `given` is --launcher, `default` what holds without it.

    Raises UsageError for a launcher in a place where it would train alone, with the line that works.
    """
    words, has_srun = _without_prefixes(typed)
    found = launchers.recognise(_named(words))
    asked = launcher(given) if given else None
    if asked and has_srun and asked.starts == "job":
        raise UsageError("one launcher", f"--launcher {given} and srun", f"leaving --launcher out, or {_line(words)}")
    if found:
        return _as_typed(words, found, asked)
    inside = _inside(words)
    if inside and asked is None:
        works = f"--launcher plain {_line(words)}, which starts the line once on every node as it is"
        raise UsageError("a launcher in front", f"{inside.name} within {quote_words(words)}", works)
    frameworks = _frameworks(inside) if inside and asked and asked.name == "plain" else ()
    return Command(asked or launcher("process" if has_srun else default), (), words, frameworks)


def check_nodes(command: Command, nodes: int) -> None:
    """Raise UsageError where the launcher's own options would leave the world of a job with so many nodes."""
    for word, following in _options(command.program) if command.starter and nodes > 1 else ():
        name, equals, value = word.partition("=")
        value = value if equals else following
        if leaves(name, value, nodes, rank=None):
            seen = f"{word if equals or name == '--standalone' else f'{name} {value}'}, as on a single node"
            raise UsageError(f"a launcher for {nodes} nodes", seen, f"it without {name}, which the script sets")


def _without_prefixes(typed: Words) -> tuple[Words, bool]:
    """Return the words behind `srun` and `mingle exec`, and whether there was an srun."""
    words, has_srun = typed, False
    while words:
        names = [os.path.basename(word) for word in words[:2]]
        length = 1 if names[0] == "srun" else 2 if names == ["mingle", "exec"] else 0
        if not length:
            return words, has_srun
        has_srun = has_srun or length == 1
        rest = words[length:]
        words = rest[1:] if rest[:1] == ("--",) else rest
        if words is rest and rest and rest[0].startswith("-"):
            raise _options_refused(" ".join(names[:length]), rest)
    raise UsageError("a training command", quote_words(typed), f"{quote_words([*typed, 'train.py'])}")


def _options_refused(prefix: str, words: Words) -> UsageError:
    """Return the error for options of what the script starts by itself, with the line that works where it is known."""
    options, rest = _ours(words)
    if prefix == "srun" and rest and not rest[0].startswith("-"):
        works = f"{quote_words(options)} {_line(('srun', *rest))}"
    else:
        works = "the command alone behind --, and options of `mingle template` for what they ask"
    return UsageError(f"{prefix} without options of its own", quote_words((prefix, *words)), works)


def _ours(words: Words) -> tuple[Words, Words]:
    """Return the options in front that are fields of a job too, with their values, and the rest."""
    place = 0
    while place < len(words):
        long, equals, _ = words[place].partition("=")
        field = next(
            (its for its in FIELDS.values() if long == its.option or (its.short and its.short == long[:2])), None
        )
        if field is None:
            break
        alone = bool(equals) or field.kind == "flag" or long not in (field.option, field.short)
        place += 1 if alone else 2
    return words[:place], words[place:]


def _named(words: Words) -> Words:
    """Return the words from the program's name on: behind `env NAME=VALUE`, and without Python's own options."""
    if words[0] == "-m":
        return ("python3", *words)
    words = words[launchers.assignments(words) :] or words
    if not os.path.basename(words[0]).startswith("python"):
        return words
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c"):
        at += 2 if words[at] in ("-W", "-X") else 1
    behind = words[at:]
    return (words[0], *behind) if behind[:1] == ("-m",) else behind or words


def _as_typed(words: Words, found: launchers.Launcher, asked: Launcher | None) -> Command:
    starter, rest = _parted(words, found)
    if not rest:
        raise UsageError("a training command", quote_words(words), f"-- {quote_words([*words, 'train.py'])}")
    own = found.in_scripts or ((found.name,) if found.name in LAUNCHERS else ())
    is_plain = asked.name == "plain" if asked else not (own or found.instead)
    if is_plain and found.starts == "node":
        return Command(LAUNCHERS["plain"], (), words, _frameworks(found))
    if found.instead:
        works = f"--launcher {found.instead} {_line(_program(rest) or ('train.py',))}"
        raise UsageError("the training command", quote_words(words), works)
    fitting = own or ("plain",)
    if asked and asked.name not in fitting:
        works = f"leaving --launcher out, or {_line(_program(rest) or rest)}"
        raise UsageError(f"a --launcher that starts {found.name}", f"--launcher {asked.name}", works)
    if found.starts == "job":
        return _of_job(rest, LAUNCHERS[fitting[0]])
    elastic = len(fitting) > 1 and any(word in _C10D for pair in _options(rest) for word in pair)
    return Command(asked or LAUNCHERS[fitting[elastic]], starter, rest)


def _of_job(rest: Words, by: Launcher) -> Command:
    """Return the command that mpirun starts; its options are MPI's own, and the script has what it needs."""
    if rest[0].startswith("-"):
        number, program = rest[1:2], rest[2:]
        works = f"--launcher {by.name} and the program behind --, with --ntasks for the number of processes"
        if rest[0] in ("-n", "-np", "--n", "--np") and program and not program[0].startswith("-"):
            works = f"-n {quote_words(number)} --launcher {by.name} {_line(program)}"
        raise UsageError(f"{by.name} without options of its own", quote_words((by.name, *rest)), works)
    nested = launchers.recognise(_named(rest)) or _inside(rest)
    if nested:
        raise UsageError("one launcher", f"{by.name} and {nested.name}", _line(rest))
    return Command(by, (), rest)


def _parted(words: Words, found: launchers.Launcher) -> tuple[Words, Words]:
    """Return the words that are the launcher's name, and the rest."""
    ends = (
        end
        for end in range(launchers.assignments(words) + 1, len(words) + 1)
        if launchers.recognise(_named(words[:end])) == found
    )
    end = next(ends, len(words))
    return (("python3",) if words[0] == "-m" else ()) + words[:end], words[end:]


def _options(rest: Words) -> Iterator[tuple[str, str]]:
    """Return each word before the program, with the one that follows it."""
    for place, word in enumerate(rest):
        if word.endswith(".py") or word in ("-m", "--module"):
            return
        yield word, rest[place + 1] if place + 1 < len(rest) else ""


def _program(rest: Words) -> Words:
    """Return the program within a launcher's words, from the script or the -m on; none where it is not known."""
    if not rest[0].startswith("-"):
        return rest
    return next((rest[at:] for at, word in enumerate(rest) if word.endswith(".py") or word == "-m"), ())


def _inside(words: Words) -> launchers.Launcher | None:
    """Return a launcher that another program starts: numactl, a shell, a profiler. A script's arguments are its own."""
    if words[0] == "-m" or words[0].endswith(".py") or os.path.basename(words[0]).startswith("python"):
        return None
    parts = [part.strip("\"';()&|") for word in words[1:_WRAPPED_MOST] for part in word.split()][:_WRAPPED_MOST]
    found = (launchers.recognise(parts[at : at + 3]) for at in range(len(parts)))
    return next((its for its in found if its and its.starts == "node"), None)


def _frameworks(found: launchers.Launcher) -> Words:
    if found.starts != "node":
        return ()
    return (found.name,) if found.name in FRAMEWORKS else found.frameworks


def _line(words: Words) -> str:
    return f"-- {quote_words(words)}"
