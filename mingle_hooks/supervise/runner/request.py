"""What one `mingle run` was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.fabric.ports import DEFAULT_RANGE

if TYPE_CHECKING:
    from mingle_hooks.supervise.runner.words import Plan
    from mingle_hooks.supervise.starters import Allocation, Starter


class Agreed(NamedTuple):
    """What all hosts work out alike, where they are started by somebody else: the run's id, key and possible ports."""

    run: str
    key: bytes
    ports: tuple[int, ...]


class Request(NamedTuple):
    """The plan, and all that the state machine needs not know."""

    plan: Plan
    starter: Starter
    job: Allocation
    command: tuple[str, ...]
    options: tuple[str, ...]  # for `mingle exec`
    is_per_task: bool
    silence_s: float
    key: str | None  # of the members, where they would not find one by themselves
    is_labelled: bool
    is_quiet: bool
    log_dir: str | None
    progress: str | None  # a file that changes as the program gets further
    again: str | None = None  # a line for sh
    is_of_job: bool = False  # COMMAND, such as mpirun, is started once, here, and reaches the hosts by itself
    port_range: range = DEFAULT_RANGE  # where supervisors reach the runner
    iface: tuple[object, ...] = ()  # networks to be reached by, the preferred first
    id: str | None = None  # of the job, or of the world where a person named it
    agreed: Agreed | None = None
    keys: tuple[bytes, ...] = ()  # of those who may ask how it does, and end it
