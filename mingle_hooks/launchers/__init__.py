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
    """A launcher, how often it has to be started, and the file that completes its command line, "" for none.

    `starts` is "node" for one that starts a node's processes itself, so once on every node; "task" for one that
    the scheduler runs, which starts a process for each task; "job" for one that reaches all nodes itself.
    """

    name: str
    programs: tuple[str, ...]  # the command's own name, and the word that must follow it, as "accelerate launch"
    modules: tuple[str, ...]  # the same, after `python -m`
    starts: str
    completed_by: str = ""


TABLE = (
    Launcher("torchrun", ("torchrun",), ("torch.distributed.run", "torch.distributed.launch"), "node"),
    Launcher("accelerate", ("accelerate launch", "accelerate-launch"), ("accelerate.commands.launch",), "node"),
    Launcher("deepspeed", ("deepspeed",), ("deepspeed.launcher.runner",), "node"),
    Launcher("ray", ("ray start", "ray symmetric-run"), (), "node"),
    Launcher("horovodrun", ("horovodrun",), ("horovod.runner.launch",), "job"),
    Launcher("mpirun", ("mpirun", "mpiexec", "mpiexec.hydra", "prterun"), (), "job"),
    Launcher("srun", ("srun",), (), "task"),
)


def recognise(command: Sequence[str]) -> Launcher | None:
    """Return the launcher that a command starts, None where it starts another program."""
    program, *words = command
    is_module = os.path.basename(program).startswith("python") and words[:1] == ["-m"] and len(words) > 1
    if is_module:
        program, *words = words[1:]
    name = os.path.basename(program)
    for launcher in TABLE:
        known = launcher.modules if is_module else launcher.programs
        if name in known or " ".join([name, *words[:1]]) in known:
            return launcher
    return None
