"""The programs that start training processes, recognised by the words of a command.

A new launcher is one line here, and one file where its command line has to be completed. The table is read for
every `mingle exec`, so it holds plain tuples, and a launcher's file is loaded only for its own command.
"""

from __future__ import annotations

import os

from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Launcher(NamedTuple):
    """A launcher, how often it has to be started, and what `mingle exec` adds so that it finds its nodes.

    `starts` is "node" for one that starts a node's processes itself, so once on every node; "task" for one that
    the scheduler runs, which starts a process for each task; "job" for one that reaches all nodes itself.
    `completed_by` is the file that completes its command line, "" for none; `frameworks` are set for it too.
    """

    name: str
    programs: tuple[str, ...]  # the command's own name, and the word that must follow it, as "accelerate launch"
    modules: tuple[str, ...]  # the same, after `python -m`
    starts: str
    completed_by: str = ""
    frameworks: tuple[str, ...] = ()


TABLE = (
    Launcher("torchrun", ("torchrun",), ("torch.distributed.run", "torch.distributed.launch"), "node", "", ("cpu",)),
    Launcher(
        "accelerate",
        ("accelerate launch", "accelerate-launch"),
        ("accelerate.commands.launch", "accelerate.commands.accelerate_cli launch"),
        "node",
        "accelerate",
        ("cpu",),
    ),
    Launcher("deepspeed", ("deepspeed",), ("deepspeed.launcher.runner",), "node", "deepspeed", ("deepspeed",)),
    Launcher(
        "ray",
        ("ray start", "ray symmetric-run"),
        ("ray.scripts.scripts start", "ray.scripts.scripts symmetric-run"),
        "node",
        "ray",
    ),
    Launcher("composer", ("composer",), ("composer.cli.launcher",), "node", "", ("composer",)),
    Launcher("llamafactory", ("llamafactory-cli train", "lmf train"), (), "node", "", ("llamafactory", "cpu")),
    Launcher("swift", ("swift sft", "swift pt", "swift rlhf"), (), "node", "", ("swift", "cpu")),
    Launcher("horovodrun", ("horovodrun",), ("horovod.runner.launch",), "job", "horovod", ("horovod",)),
    Launcher("mpirun", ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), (), "job", "", ("mpi",)),
    Launcher("srun", ("srun",), (), "task"),
)

# Python's own options, of which these take the next word.
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


def recognise(command: Sequence[str]) -> Launcher | None:
    """Return the launcher that a command starts, None where it starts another program."""
    found = find(command)
    return found[0] if found else None


def find(command: Sequence[str]) -> tuple[Launcher, int] | None:
    """Return the launcher that a command starts, and how many words name it."""
    end = _module_at(command)
    is_module = end > 0
    name = command[end] if is_module else os.path.basename(command[0])
    second = " ".join([name, *command[end + 1 : end + 2]])
    for launcher in TABLE:
        known = launcher.modules if is_module else launcher.programs
        if name in known:
            return launcher, end + 1
        if second in known:
            return launcher, end + 2
    return None


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
