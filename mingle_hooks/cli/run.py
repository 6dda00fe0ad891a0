"""`mingle run`: run COMMAND on all hosts of the job as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from mingle_hooks.cli import main
from mingle_hooks.cli.help import ONLY_PRINTED, RUN, Grouped, Option, settings_options
from mingle_hooks.run import planning
from mingle_hooks.run.planning import Options, Request

# The command line of `mingle run`, read without click where it is plain.

# An option that may be repeated is not plain; nor is what only `mingle env` and a member know.
_REPEATED = ("start_option",)
_NOT_OURS = ("nodes", "rank", "no_wait", "shell", "on_failure", "together")
_OWN = {f"--{name.replace('_', '-')}": name for name in Options._fields if name not in _REPEATED}
_OWN_FLAGS = {option: name for option, name in _OWN.items() if Options._field_defaults[name] is False}
_FLAGS = {option: name for option, name in main.FLAGS.items() if name not in _NOT_OURS} | _OWN_FLAGS
_TEXTS_runline = {option: name for option, name in main.OPTIONS.items() if name not in _NOT_OURS} | {
    option: name for option, name in _OWN.items() if option not in _OWN_FLAGS
}


def read_run(arguments: Sequence[str]) -> Request | None:
    """Return what `mingle run` with these arguments asks for; None where click has to look at them.

    Raises what `planning.request` raises.
    """
    found = main.split_call(arguments, _FLAGS, _TEXTS_runline)
    if found is None:
        return None
    given, command = found
    command = command[1:] if command[:1] == ("--",) else command
    return run_request(command, given) if command else None


def run_request(command: tuple[str, ...], given: Mapping[str, object]) -> Request:
    """Return what these options ask for, by name. Raises what `planning.request` raises."""
    own = {name: value for name, value in given.items() if name in Options._fields}
    members = {name: value for name, value in given.items() if name not in own}
    settings = {name: value for name, value in members.items() if name not in ("explain", "verbatim", "keep_key")}
    return planning.plan_request(command, Options(**own), settings, run_words(members))  # type: ignore[arg-type]


def run_words(options: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as `mingle exec` takes them."""
    known = {name: option for option, name in {**main.OPTIONS, **main.FLAGS}.items()}
    given = {known[name]: value for name, value in options.items() if value not in (None, False)}
    return tuple(option if value is True else f"{option}={value}" for option, value in given.items())


EXAMPLES = """\
mingle run torchrun train.py               # last line of a job script
mingle run --restarts 3 torchrun train.py  # restart after failures
mingle run --hosts a,b torchrun train.py   # without a scheduler, by ssh"""
_COMMON = (
    "hosts",
    "nodes",
    "spares",
    "restarts",
    "stall",
    "limit",
    "warn",
    "log_dir",
    "no_label",
    "slots",
    "scope",
    "timeout",
    "alone",
)
# What the run itself says to each member, and what is only printed.
_WITHOUT = ("nodes", "rank", "no_wait", "together", *ONLY_PRINTED)
_TEXTS = {
    "hosts": "Run on these hosts, by ssh. [default: all hosts of the job]",
    "nodes": "Number of hosts that train; A:B waits for at least A and takes up to B.",
    "spares": "Number of extra hosts that replace lost ones.",
    "window": "With --nodes A:B, how long to wait for more than A hosts.",
    "restarts": "How often to restart after a failure.",
    "progress": "A file that changes as training advances, such as a checkpoint. If the same failure occurs three more"
    " times without a change, mingle stops restarting.",
    "grace": "Time between SIGTERM and SIGKILL. [default: 2 s less than the scheduler's]",
    "silence": "A host that sends no heartbeat for this long is lost.",
    "stall": "If no rank writes anything for this long, print the stacks of all Python processes and end with 75.",
    "limit": "End after this time, with status 75. [default: the scheduler's limit, if --warn is given]",
    "warn": "Warn COMMAND this long before the limit.",
    "warn_signal": "The signal of the warning; it goes to the processes that handle it.",
    "again": "A shell line to run at the end if another try makes sense: after status 75 or a warning, unless four"
    " runs in a row formed no world.",
    "start_option": "An option for the scheduler's starter (srun), such as --container-image=IMAGE.",
    "no_label": "Do not prefix output lines with the host.",
    "log_dir": "Write one log file per member and events.jsonl to this directory.",
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


@click.command(
    name="run",
    cls=Grouped,
    examples=EXAMPLES,
    common=_COMMON,
    context_settings={"allow_interspersed_args": False},
)
@_run_options
@partial(settings_options, without=_WITHOUT)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARG]...")
def run(*, command: tuple[str, ...], **options: Any) -> int:
    """Run COMMAND on all hosts of the job as one.

    If COMMAND fails on one host, or a host is lost, it ends on all. The exit
    status is that of the first failure, or 75 if a host or the network failed.
    Put options of mingle before COMMAND.
    """
    from mingle_hooks.run.runner import run_command

    return run_command(run_request(command, options))
