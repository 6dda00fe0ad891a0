"""`mingle run`: run COMMAND on all hosts of the job as one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mingle_hooks.cli import runline
from mingle_hooks.cli.help import ONLY_PRINTED, RUN, Grouped, Option
from mingle_hooks.cli.options import settings_options

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = """\
mingle run torchrun train.py               # the body of a job script
mingle run --restarts 3 torchrun train.py  # which begins again
mingle run --hosts a,b torchrun train.py   # anywhere, by ssh"""
# What the run itself says to each member, and what is only printed.
_WITHOUT = ("nodes", "rank", "no_wait", "together", *ONLY_PRINTED)
_TEXTS = {
    "hosts": "Run on these hosts, by ssh; by default on all hosts of the job.",
    "nodes": "How many hosts train; with A:B at least A, and up to B that come within the window.",
    "spares": "So many hosts wait, and take the rank of a lost one.",
    "window": "How long hosts beyond the least are waited for.",
    "restarts": "Begin again so often after a failure.",
    "progress": "A file that changes as the program gets further, such as its checkpoint: what fails three times more"
    " in the same way without that is not begun again.",
    "grace": "How long COMMAND has between SIGTERM and SIGKILL; by default 2 s less than the scheduler gives.",
    "silence": "A host that gives no sign of life for so long is lost.",
    "stall": "Where no rank has written anything for so long, take the stacks of all Python processes (py-spy, or"
    " faulthandler by SIGABRT), and end with status 75.",
    "limit": "End so long after the beginning, with status 75; by default what the scheduler tells, where --warn is"
    " given.",
    "warn": "Warn COMMAND so long before the limit.",
    "warn_signal": "The signal that warns; it reaches those processes that handle it.",
    "again": "A line for sh, run at the end where trying again makes sense: with status 75, or after the warning;"
    " not where no world has formed four times in a row.",
    "start_option": "An option for what the scheduler starts programs with (srun), such as --container-image=IMAGE.",
    "no_label": "Pass output on as it is, without the host in front of each line.",
    "log_dir": "Write a file for each member there, and what becomes of the run into events.jsonl.",
}


def _run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that only it has."""
    for name in reversed([*_TEXTS]):
        kind: dict[str, Any] = {} if RUN[name].metavar else {"is_flag": True, "default": False}
        kind |= {"default": "USR1"} if name == "warn_signal" else {}
        kind |= {"multiple": True} if name == "start_option" else {}
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, name, cls=Option, shown=RUN[name], help=_TEXTS[name], **kind)(command)
    return command


@click.command(name="run", cls=Grouped, examples=EXAMPLES, context_settings={"allow_interspersed_args": False})
@_run_options
@partial(settings_options, without=_WITHOUT)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARG]...")
def run(*, command: tuple[str, ...], **options: Any) -> int:
    """Run COMMAND on all hosts of the job as one.

    One `mingle exec` on each host, started by the scheduler's own means. When
    one fails, or a host is lost, all end; the status is the first failure's, 75
    where a host or the network failed and trying again makes sense, 130 or 143
    where somebody stopped it. Options stand before COMMAND; all after it is its
    own.
    """
    from mingle_hooks.supervise.runner.run import run as begin

    return begin(runline.request(command, options))
