"""The launchers: what starts the training processes. Each is one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import UsageError
from mingle_hooks.nearest import nearest

if TYPE_CHECKING:
    from mingle_hooks.launchers import Starts


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
