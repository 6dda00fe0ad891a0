"""`mingle check`: the odd node, by name, before the first step."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mingle_hooks import values
from mingle_hooks.check.report import Report, report_page, table_lines, with_finding
from mingle_hooks.cli.help import CHECK, Grouped, Option, settings_options
from mingle_hooks.cli.plain import write_stderr, write_stdout
from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from mingle_hooks.check.bisect import Trials


_LIMIT = "10m"
EXAMPLES = """\
mingle check                               # in a job
mingle check --hosts a,b,c --bandwidth     # without a scheduler, by ssh
mingle check --html check.html             # also write a page
mingle check --command "all_reduce_bench"  # find the failing host
sbatch --exclude="$(mingle check --exclude --hosts node[1-16])" job.sh"""
_TEXTS = {
    "hosts": "Check these hosts, by ssh. [default: all hosts of the job]",
    "bandwidth": "Also measure bandwidth between hosts; takes about 3 s more.",
    "start": "Time limit for the start of a probe on each host.",
    "timeout": "Time limit of the check after that. [default: 5 s for up to 16 hosts, 15 s for 256]",
    "command": "Then run this command on ever fewer hosts, to find the one or two that make it fail.",
    "limit": "A run of the command that takes longer counts as failed.",
    "html": "Write the result as a single HTML page.",
    "exclude": "Print only the hosts to leave out, in the form of sbatch --exclude.",
    "force": "Let --exclude name more than a quarter of the hosts.",
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
    start: str | None,
    timeout: str | None,
    command: str | None,
    limit: str,
    html: str | None,
    is_bandwidth: bool,
    is_exclude: bool,
    is_force: bool,
    is_json: bool,
    **settings: Any,
) -> int:
    """Find hosts that differ or cannot reach the others.

    Each host reports its hardware and software and probes the others on every
    network that they share. The exit status is 0 if all is well, 69 if a host
    is missing, 71 for a problem between hosts or one that no host is to blame
    for, 76 for a problem on a host that --exclude names.
    """
    from mingle_hooks.check.session import check_request, run_check

    trials = None if command is None else _trials(command, settings, hosts, limit)
    found = run_check(check_request(settings, hosts, timeout, start, is_bandwidth=is_bandwidth))._replace(
        is_forced=is_force
    )
    if trials is not None and found.here:
        found = with_finding(found, trials.findings(tuple(host.name for host in found.here)))
    _print(found, is_exclude=is_exclude, is_json=is_json)
    if html is not None:
        _write_page(found, html)
    return found.status


def _trials(command: str, settings: dict[str, Any], hosts: str | None, limit: str) -> Trials:
    from mingle_hooks.check.bisect import Trials

    try:
        words = tuple(shlex.split(command))
    except ValueError as wrong:
        raise UsageError(
            "a command as a shell reads it", f"{command} ({wrong})", "--command 'all_reduce_bench -n 8'"
        ) from None
    if not words:
        raise UsageError("a command", "none (--command)", "--command all_reduce_bench")
    return Trials.of(words, settings, hosts, limit, lambda line: write_stderr(f"mingle check: {line}\n"))


def _print(found: Report, *, is_exclude: bool, is_json: bool) -> None:
    if is_exclude:
        write_stdout(f"{fold(found.exclude)}\n" if found.exclude else "")
    elif is_json:
        write_stdout(f"{values.to_json(found.to_json())}\n")
    else:
        write_stdout("".join(f"{line}\n" for line in table_lines(found)))


def _write_page(found: Report, path: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(report_page(found))
    except OSError as error:
        raise PlaceError("to write the page", f"{path}: {error.strerror}", "another --html") from None
