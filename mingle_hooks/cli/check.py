"""`mingle check`: the odd node, by name, before the first step."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mingle_hooks import jsontext
from mingle_hooks.check import verdict
from mingle_hooks.cli import stderr
from mingle_hooks.cli.help import CHECK, Grouped, Option
from mingle_hooks.cli.options import settings_options
from mingle_hooks.cli.stdout import write
from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.check.report import Report
    from mingle_hooks.check.trials import Trials

_LIMIT = "10m"
EXAMPLES = """\
mingle check                               # in a job script or shell
mingle check --hosts a,b,c --bandwidth     # anywhere, by ssh
mingle check --html check.html             # a page to look at
mingle check --command "all_reduce_bench"  # who makes it fail
sbatch --exclude="$(mingle check --exclude --hosts node[1-16])" job.sh"""
_TEXTS = {
    "hosts": "Check these hosts, by ssh; by default all hosts of the job, without one this host alone.",
    "bandwidth": "Also let each host send to two others, which shows the slow ones; it takes about 3 s more.",
    "timeout": "How long all of it may take; by default 5 s for up to 16 hosts, 15 s for 256.",
    "command": "Then run this command, as `mingle run` does, on ever fewer of the hosts, until the one or the two that"
    " make it fail are known.",
    "limit": "A run of the command that takes longer has failed.",
    "html": "Write a page with all of it, which needs nothing else.",
    "exclude": "Print only the hosts to leave out, as sbatch --exclude takes them.",
    "json": "Print JSON.",
}
_SETTINGS = ("iface", "port_range")


def _own_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name in reversed([*_TEXTS]):
        kind: dict[str, Any] = {} if CHECK[name].metavar else {"is_flag": True, "default": False}
        kind |= {"default": _LIMIT} if name == "limit" else {}
        parameter = f"is_{name}" if "is_flag" in kind else name
        command = click.option(f"--{name}", parameter, cls=Option, shown=CHECK[name], help=_TEXTS[name], **kind)(
            command
        )
    return command


@click.command(name="check", cls=Grouped, examples=EXAMPLES)
@_own_options
@partial(settings_options, only=_SETTINGS)
def check(
    *,
    hosts: str | None,
    timeout: str | None,
    command: str | None,
    limit: str,
    html: str | None,
    is_bandwidth: bool,
    is_exclude: bool,
    is_json: bool,
    **settings: Any,
) -> int:
    """Look for the node that differs, or does not reach the others.

    A probe on each host, started by the scheduler's own means, says what the
    host is, and probes the others on each network that they share. The status
    is 0 where all is well, 69 where a host is missing, 71 for what is wrong
    between hosts, 76 for what is wrong on one.
    """
    from mingle_hooks.check.asked import asked
    from mingle_hooks.check.session import check as begin

    trials = None if command is None else _trials(command, settings, hosts, limit)
    found = begin(asked(settings, hosts, timeout, is_bandwidth=is_bandwidth))
    if trials is not None and found.here:
        found = verdict.added(found, trials.findings(tuple(host.name for host in found.here)))
    _print(found, is_exclude=is_exclude, is_json=is_json)
    if html is not None:
        _write_page(found, html)
    return found.status


def _trials(command: str, settings: dict[str, Any], hosts: str | None, limit: str) -> Trials:
    from mingle_hooks.check.trials import Trials

    try:
        words = tuple(shlex.split(command))
    except ValueError as wrong:
        raise UsageError(
            "a command as a shell reads it", f"{command} ({wrong})", "--command 'all_reduce_bench -n 8'"
        ) from None
    if not words:
        raise UsageError("a command", "none (--command)", "--command all_reduce_bench")
    return Trials.of(words, settings, hosts, limit, lambda line: stderr.write(f"mingle check: {line}\n"))


def _print(found: Report, *, is_exclude: bool, is_json: bool) -> None:
    if is_exclude:
        write(f"{fold(found.exclude)}\n" if found.exclude else "")
    elif is_json:
        write(f"{jsontext.dumps(found.to_json())}\n")
    else:
        from mingle_hooks.check import table

        write("".join(f"{line}\n" for line in table.lines(found)))


def _write_page(found: Report, path: str) -> None:
    from mingle_hooks.check import page

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page.html(found))
    except OSError as error:
        raise PlaceError("to write the page", f"{path}: {error.strerror}", "another --html") from None
