"""The programs that start training processes, recognised by the words of a command.

A new launcher is one line here, and one file where its command line has to be completed or checked. The table is
read for every `mingle exec`, so it holds plain tuples, and a launcher's file is loaded only for its own command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Literal, NamedTuple

from mingle_hooks import plugins
from mingle_hooks.export.frameworks import ALWAYS
from mingle_hooks.export.launchers.words import script
from mingle_hooks.job import MemberSpec
from mingle_hooks.plugins import Plugin
from mingle_hooks.world import View

Starts = Literal["node", "task", "job"]


class Launcher(NamedTuple):
    """A launcher, how often it has to be started, and what `mingle exec` adds so that it finds its nodes.

    `starts` is "node" for one that starts a node's processes itself, so once on every node; "task" for one that
    the scheduler runs, which starts a process for each task; "job" for one that reaches all nodes itself.
    `completed_by` is the file whose `options` complete its command line, `checked_by` the one whose `check` refuses
    options that leave the world, "" for none; `frameworks` are set for it too. A launcher of job scripts that starts
    it as it was typed has the same name; where there are more, `in_scripts` are all of them, the usual one first and
    then the elastic one. `instead` is what a script has for one that reaches or waits for the other nodes in a way
    that no script needs. `script_by` is the file whose FLAGS, options without a value, tell where the Python script is
    that it starts; "" where that is not certain.
    """

    name: str
    programs: tuple[str, ...]  # the command's own name, and the word that must follow it, as "accelerate launch"
    modules: tuple[str, ...]  # the same, after `python -m`
    starts: Starts
    completed_by: str = ""
    frameworks: tuple[str, ...] = ()
    checked_by: str = ""
    in_scripts: tuple[str, ...] = ()
    instead: str = ""
    script_by: str = ""


TABLE = (
    Launcher(
        "torchrun",
        ("torchrun",),
        ("torch.distributed.run", "torch.distributed.launch"),
        "node",
        frameworks=("cpu",),
        checked_by="torchrun",
        in_scripts=("torchrun", "torchrun-elastic"),
        script_by="torchrun",
    ),
    Launcher(
        "accelerate",
        ("accelerate launch", "accelerate-launch"),
        ("accelerate.commands.launch", "accelerate.commands.accelerate_cli launch"),
        "node",
        "accelerate",
        ("cpu",),
        script_by="accelerate",
    ),
    Launcher(
        "deepspeed",
        ("deepspeed",),
        ("deepspeed.launcher.runner",),
        "node",
        "deepspeed",
        ("deepspeed",),
        script_by="deepspeed",
    ),
    Launcher(
        "ray",
        ("ray start", "ray symmetric-run"),
        ("ray.scripts.scripts start", "ray.scripts.scripts symmetric-run"),
        "node",
        "ray",
        instead="ray",
    ),
    Launcher("composer", ("composer",), ("composer.cli.launcher",), "node", "", ("composer",)),
    Launcher("llamafactory", ("llamafactory-cli train", "lmf train"), (), "node", "", ("llamafactory", "cpu")),
    Launcher("swift", ("swift sft", "swift pt", "swift rlhf"), (), "node", "", ("swift", "cpu")),
    Launcher(
        "horovodrun", ("horovodrun",), ("horovod.runner.launch",), "job", "horovod", ("horovod",), instead="mpirun"
    ),
    Launcher(
        "mpirun",
        ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"),
        (),
        "job",
        frameworks=("mpi",),
    ),
    Launcher("srun", ("srun",), (), "task"),
)

# For a command that is no launcher, unless the user wants the bare world, or the other processes to be Lightning's.
OF_A_PROCESS = ("process",)

# Those of other packages, by the name of their row.
_added: dict[str, Plugin] = {}
# Programs that are no launchers, so that nobody looks for a plugin; nor are Python's and scripts.
_OTHERS = ("sh", "bash", "dash", "ksh", "zsh", "csh", "tcsh", "fish", "env", "numactl", "true", "sleep", "hostname")

# What starts a command in a container with `exec`; its options with a value are to be written as --option=value.
_CONTAINERS = (["apptainer"], ["singularity"])
# Python's own options, of which these take the next word.
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


def recognise(command: Sequence[str]) -> Launcher | None:
    """Return the launcher that a command starts, None where it starts another program."""
    found = find(command)
    return found[0] if found else None


def find(command: Sequence[str]) -> tuple[Launcher, int] | None:
    """Return the launcher that a command starts, and how many words until its own options begin."""
    before = words_before(command)
    command = command[before:]
    end = _module_at(command)
    is_module = end > 0
    name = command[end] if is_module else os.path.basename(command[0])
    second = " ".join([name, *command[end + 1 : end + 2]])
    for launcher in TABLE:
        known = launcher.modules if is_module else launcher.programs
        if name in known:
            return launcher, before + end + 1
        if second in known:
            return launcher, before + end + 2
    added = None if is_module else _of_plugin(name)
    if added is None or not {name, second}.intersection(added.programs):
        return None
    return added, before + end + (1 if name in added.programs else 2)


def words_before(command: Sequence[str]) -> int:
    """Return how many words `env NAME=VALUE…` and then `apptainer exec [--option]… IMAGE` in front are."""
    start = assignments(command)
    rest = command[start:]
    if [os.path.basename(word) for word in rest[:1]] not in _CONTAINERS or list(rest[1:2]) != ["exec"]:
        return start
    image = next((at for at in range(2, len(rest)) if not rest[at].startswith("-")), len(rest))
    return start + image + 1 if image + 1 < len(rest) else start


def assignments(command: Sequence[str]) -> int:
    """Return how many words `env NAME=VALUE…` in front are."""
    if os.path.basename(command[0]) != "env":
        return 0
    return next((at for at in range(1, len(command)) if "=" not in command[at] or command[at][0] == "-"), 0)


def _of_plugin(program: str) -> Launcher | None:
    """Return the launcher that another package adds under a program's name."""
    if program in _OTHERS or program.startswith("python") or program.endswith((".py", ".sh")):
        return None

    if (plugin := plugins.find(plugins.LAUNCHERS, program, _RETURNS)) is None:
        return None
    row: Launcher = plugin.row("LAUNCHER", Launcher)
    _added[row.name] = plugin
    return row


def _are_words(found: object) -> bool:
    return isinstance(found, tuple) and all(isinstance(word, str) for word in found)


_RETURNS = {"options": ("a tuple of strings", _are_words)}


def module(launcher: Launcher, file: str) -> ModuleType | Plugin:
    """Return the module of a launcher's row that completes or checks its command line."""
    return _added[launcher.name] if launcher.name in _added else import_module(f"{__name__}.{file}")


def script_of(launcher: Launcher, words: Sequence[str]) -> str | None:
    """Return the Python script that a launcher with these words starts; None where that is not certain."""
    if not launcher.script_by or launcher.name in _added:
        return None

    return script(words, import_module(f"{__name__}.{launcher.script_by}").FLAGS)


def _module_at(command: Sequence[str]) -> int:
    """Return where the module's name stands in `python [option]… -m module`, 0 where there is none."""
    if not os.path.basename(command[0]).startswith("python"):
        return 0
    position = 1
    while position + 1 < len(command) and command[position].startswith("-"):
        if command[position] == "-m":
            return position + 1
        position += 2 if command[position] in _WITH_VALUE else 1
    return 0


def asking(command: Sequence[str], spec: MemberSpec) -> MemberSpec:
    """Return the spec that asks for the command's own frameworks too.

    A launcher that hands rank 0's environment to other nodes gets no interface's name by itself: theirs may differ.
    """
    launcher, names = recognise(command), spec.settings.frameworks
    if launcher and launcher.starts != "node" and spec.settings.source("frameworks") == "default":
        names = tuple(name for name in names if name != ALWAYS)
    more = launcher.frameworks if launcher else OF_A_PROCESS if _has_ranks(names) else ()
    return spec._replace(settings=spec.settings._replace(frameworks=tuple(dict.fromkeys((*names, *more)))))


def placed(command: Sequence[str], spec: MemberSpec, view: View) -> View:
    """Return the view with ranks for a command that is no launcher, where each node runs one process of it."""
    place = view.place
    is_process = recognise(command) is None and _has_ranks(spec.settings.frameworks)
    if not is_process or view.scope != "node" or place.node_rank is None or view.world.size != view.world.nodes:
        return view
    return view._replace(place=place._replace(rank=place.node_rank, local_rank=0))


def is_elsewhere(command: Sequence[str], view: View) -> bool:
    """Tell whether rank 0 starts this command for all nodes, this one among them."""
    launcher = recognise(command)
    return launcher is not None and launcher.starts == "job" and (view.process or 0) > 0


def completed(command: Sequence[str], view: View, exported: Mapping[str, str]) -> tuple[str, ...]:
    """Return a launcher's command with what it needs to find its nodes; a command that needs nothing as it is.

    `exported` are the variables that it gets. What is added stands before the user's own options. Raises
    UsageError for options with which the launcher would not start this world.
    """
    found = find(command)
    is_known = None not in (view.world.nodes, view.place.node_rank, view.place.slots)
    if found is None or not found[0].completed_by or not is_known:
        return tuple(command)
    launcher, end = found
    its = module(launcher, launcher.completed_by)
    added: tuple[str, ...] = its.options(tuple(command[:end]), tuple(command[end:]), view, exported)
    return (*command[:end], *added, *command[end:])


def _has_ranks(frameworks: tuple[str, ...]) -> bool:
    return bool(frameworks) and "lightning" not in frameworks
