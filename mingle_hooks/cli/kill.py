"""`mingle kill`: end a run, on all of its nodes."""

from __future__ import annotations

import click

from mingle_hooks import values
from mingle_hooks.cli import runs
from mingle_hooks.cli.help import KILL_TIMEOUT, Option
from mingle_hooks.cli.stdout import write
from mingle_hooks.errors import MissingError, UsageError
from mingle_hooks.supervise.worlds import asking

_DEFAULT_S = "60s"


@click.command()
@click.argument("name", metavar="ID")
@click.option("--now", "is_now", is_flag=True, help="End it at once, without the grace period.")
@click.option("--timeout", cls=Option, shown=KILL_TIMEOUT, default=_DEFAULT_S, help="How long to wait for its end.")
@runs.key_option
def kill(*, name: str, is_now: bool, timeout: str, key_file: str | None) -> None:
    """End a run on all of its nodes and wait until it has ended.

    The run ends as after SIGTERM, or with --now as after a second Ctrl-C. The
    exit status is 0 only if none of its processes is left.
    """
    limit_s = _seconds(timeout)
    known = runs.runs(key_file)
    way = known.one(name)
    ending = asking.kill(way, is_now=is_now, limit_s=limit_s)
    entry = way.entry
    if ending.has_hung_up and ending.status is not None:
        write(f"run {entry.id} has ended with status {ending.status}\n")
    elif known.is_gone(entry):
        write(f"run {entry.id} has ended\n")
    elif ending.is_heard and not ending.has_hung_up:
        raise MissingError(
            f"the end of run {entry.id} within {limit_s:g} s",
            f"processes still running on {entry.host} or its other nodes",
            f"`mingle kill --now {name}`" if not is_now else f"`mingle show {name}`",
        )
    else:
        raise runs.silent(entry, known.path)


def _seconds(text: str) -> float:
    try:
        return values.seconds(text)
    except UsageError as wrong:
        raise UsageError(wrong.expected, f"{wrong.seen} (--timeout)", wrong.remedy) from None
