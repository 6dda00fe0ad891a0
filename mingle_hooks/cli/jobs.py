"""The commands about a job: `mingle env`, `exec` and `hosts`; `run` and `check`; and `ls`, `show` and `kill`."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from mingle_hooks import values
from mingle_hooks.cli import commands
from mingle_hooks.cli.answer import Flags, ProgressPrinter, execute, print_variables
from mingle_hooks.cli.commands import CHECK, RUN, SETTINGS, Grouped, Option, own_options, settings_options
from mingle_hooks.errors import FactsError, MissingError, PlaceError, UsageError, printable
from mingle_hooks.export import hostfiles
from mingle_hooks.export.variables import own
from mingle_hooks.files import write_stderr, write_stdout
from mingle_hooks.job import member_spec, world_id
from mingle_hooks.joining import held_keys, members_of, named_members
from mingle_hooks.run.starters import listed
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import JobFacts, fold
from mingle_hooks.settings import EXEC_ONLY, NOT_FOR_RUN, OUTPUT_ONLY, load

# `mingle hosts`, and `env` with unusual options, run on every node: what only `run`, `ls`, `show` and `kill` need takes
# 50 ms, and is loaded there.
if TYPE_CHECKING:
    from mingle_hooks.run.status import Failure, Runs, RunStatus

# `mingle env`: print the variables.

_ENV_EXAMPLES = """\
eval "$(mingle env || echo exit 1)"; torchrun train.py   # sh, bash, zsh
mingle env --shell fish | source                         # fish
eval "`mingle env --shell csh`"                          # csh, tcsh"""


@click.command(cls=Grouped, examples=_ENV_EXAMPLES, common=(*commands.COMMON, "shell", "key_file", "explain"))
@partial(settings_options, without=EXEC_ONLY)
def env(*, explain: bool, no_wait: bool, **options: Any) -> None:
    """Print the variables of this node for eval.

    If no world forms, nothing is set and eval ends the script. An interactive
    shell stays open.
    """
    print_variables(options, Flags(explain, no_wait))


# `mingle exec`: set the variables, then become COMMAND.

_EXEC_EXAMPLES = """\
srun mingle exec torchrun train.py               # in a Slurm job
mingle exec --id a --nodes 4 torchrun train.py   # on each of 4 machines
srun mingle exec --scope task python train.py    # one process per task"""


@click.command(
    name="exec",
    cls=Grouped,
    examples=_EXEC_EXAMPLES,
    common=(*commands.COMMON, "together", "verbatim", "key_file", "explain"),
    context_settings={"allow_interspersed_args": False},
)
@partial(settings_options, hidden=OUTPUT_ONLY)
@commands.command_argument
def exec(*, command: tuple[str, ...], **options: Any) -> int:  # noqa: A001 - the command's own name
    """Set the variables, then become COMMAND.

    Put options of mingle before COMMAND. If no world forms, COMMAND is not
    started. Launchers that read no variables get the world as options; --explain
    prints the resulting command line.
    """
    flags = Flags(*(options.pop(name) for name in Flags._fields))
    return execute(command, options, flags)


# `mingle hosts`: print the hosts of the world as other programs read them.

_HOSTS_EXAMPLES = """\
mingle hosts --format mpi > hostfile         # in a job script
mingle hosts --hosts 'node[1-4]' --slots 8   # without a scheduler
srun mingle hosts --write-etc                # as root, in containers
srun mingle hosts --remove-etc"""
_WITHOUT_HOSTS = ("frameworks", "no_wait", "explain", *OUTPUT_ONLY, *EXEC_ONLY)


@click.command(
    cls=Grouped, examples=_HOSTS_EXAMPLES, common=("format", "hosts", "write_etc", "remove_etc", "id", "nodes", "slots")
)
@partial(own_options, table=commands.FORMAT, format={"default": "mpi", "type": click.Choice([*hostfiles.FORMATS])})
@click.option("--hosts", cls=Option, shown=RUN["hosts"], help="Use these hosts instead of the job's.")
@click.option("--write-etc", is_flag=True, help="Add them to /etc/hosts, in a marked block.")
@click.option("--remove-etc", is_flag=True, help="Remove the block of this world from /etc/hosts.")
@partial(settings_options, without=_WITHOUT_HOSTS)
def hosts(*, format: str, hosts: str | None, write_etc: bool, remove_etc: bool, **options: Any) -> None:  # noqa: A002
    """Print the hosts of the world, for MPI and other programs.

    Names and slots come from the scheduler if it provides them. For the
    formats with addresses (etc, json), run this command on every node: the
    members exchange them.
    """
    if (hosts is not None) + write_etc + remove_etc > 1:
        raise UsageError("one of --hosts, --write-etc and --remove-etc", "more", "one at a time")
    if remove_etc:
        _remove_etc(options)
    elif hosts is not None:
        if hostfiles.FORMATS[format].addresses == "needed":
            raise UsageError("a format without addresses, for --hosts", format, "--format mpi")
        write_stdout(hostfiles.text(format, named_members(listed(hosts), load(own(os.environ), options))))
    else:
        _list_members("etc" if write_etc else format, options, is_written=write_etc)


def _list_members(name: str, options: Mapping[str, object], *, is_written: bool) -> None:
    """Print the members, or write them into /etc/hosts."""
    spec = member_spec(os.environ, options)
    with ProgressPrinter(sys.stderr, quiet=spec.settings.quiet) as observer:
        found = members_of(spec, observer, hostfiles.FORMATS[name].addresses)
    text = hostfiles.text(name, (*found.members, *(found.by_own_names if name == "etc" else ())))
    if is_written:
        hostfiles.write_etc_hosts(spec.attempt.id, text)
    else:
        write_stdout(text)


def _remove_etc(options: Mapping[str, object]) -> None:
    user_environ = own(os.environ)
    settings = load(user_environ, options)
    facts = detect(user_environ, socket.gethostname(), asks_plugins=settings.id is None)
    hostfiles.write_etc_hosts(world_id(settings, facts), "")


# `mingle run`: run COMMAND on all hosts as one.

_RUN_EXAMPLES = """\
mingle run torchrun train.py               # last line of a job script
mingle run --restarts 3 torchrun train.py  # restart after failures
mingle run --hosts a,b torchrun train.py   # without a scheduler, by ssh"""
_RUN_COMMON = (
    *("hosts", "nodes", "spares", "restarts", "stall", "limit", "warn", "log_dir", "no_label"),
    *("slots", "scope", "timeout", "alone"),
)


@click.command(
    name="run",
    cls=Grouped,
    examples=_RUN_EXAMPLES,
    common=_RUN_COMMON,
    context_settings={"allow_interspersed_args": False},
)
@partial(own_options, table=RUN, warn_signal={"default": "USR1"}, start_option={"multiple": True})
@partial(settings_options, without=NOT_FOR_RUN)
@commands.command_argument
def run(*, command: tuple[str, ...], **options: Any) -> int:
    """Run COMMAND on all hosts of the job as one.

    If COMMAND fails on one host, or a host is lost, it ends on all. The exit
    status is that of the first failure, or 75 if a host or the network failed.
    Put options of mingle before COMMAND.
    """
    from mingle_hooks.run import start

    return start.run(command, options)


# `mingle check`: find the node that differs before training starts.

_CHECK_EXAMPLES = """\
mingle check                               # in a job
mingle check --hosts a,b,c --bandwidth     # without a scheduler, by ssh
mingle check --html check.html             # also write a page
mingle check --command "all_reduce_bench"  # find the failing host
sbatch --exclude="$(mingle check --exclude --hosts node[1-16])" job.sh"""


@click.command(name="check", cls=Grouped, examples=_CHECK_EXAMPLES)
@partial(own_options, table=CHECK, limit={"default": "10m"})
@partial(settings_options, only=("iface", "port_range"))
def check(*, command: str | None, bandwidth: bool, exclude: bool, force: bool, json: bool, **more: str | None) -> int:
    """Find hosts that differ or cannot reach the others.

    Each host reports its hardware and software and probes the others on every
    network that they share. The exit status is 0 if all is well, 69 if a host
    is missing, 71 for a problem between hosts or one that no host is to blame
    for, 76 for a problem on a host that --exclude names.
    """
    # Only this command needs the package, which takes 20 ms to import.
    from mingle_hooks.check.report import report_page, table_lines, with_findings
    from mingle_hooks.check.session import Trials, check_request, run_check
    from mingle_hooks.run.start import Options

    hosts, start, timeout, limit, html = (more.pop(name) for name in ("hosts", "start", "timeout", "limit", "html"))
    trials = None
    if command is not None:
        options = Options(hosts=hosts, limit=limit)
        trials = Trials(_split_command(command), options, more, lambda line: write_stderr(f"mingle check: {line}\n"))
    request = check_request(more, hosts, timeout, start, is_bandwidth=bandwidth)
    found = run_check(request)._replace(is_forced=force)
    if trials is not None and found.here:
        found = with_findings(found, trials.findings(tuple(host.name for host in found.here)))
    if exclude:
        write_stdout(f"{fold(found.exclude)}\n" if found.exclude else "")
    elif json:
        print_json(found.to_json())
    else:
        _print(table_lines(found))
    if html is not None:
        try:
            with open(html, "w", encoding="utf-8") as file:
                file.write(report_page(found, request.job.job_id, time.strftime("%Y-%m-%d %H:%M:%S %z")))
        except OSError as error:
            raise PlaceError("to write the page", f"{html}: {error.strerror}", "another --html") from None
    return found.status


def _split_command(command: str) -> tuple[str, ...]:
    try:
        arguments = tuple(shlex.split(command))
    except ValueError as wrong:
        seen, remedy = f"{command} ({wrong})", "--command 'all_reduce_bench -n 8'"
        raise UsageError("a command as a shell reads it", seen, remedy) from None
    if not arguments:
        raise UsageError("a command", "none (--command)", "--command all_reduce_bench")
    return arguments


# `mingle ls`, `show` and `kill`: finding runs, and showing them as text and JSON.

_LONGEST_COMMAND = 60
_COLUMNS = ("ID", "STATE", "NODES", "ATTEMPT", "SINCE", "HOST", "COMMAND")
_WATCH_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"
# Only in the file, or in `mingle show`.
_HIDDEN = ("process", "addresses", "listeners", "nodes", "failure")

json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


def find_runs() -> Runs:
    """Return the user's runs. Raises SettingsError without a home, and for invalid settings."""
    from mingle_hooks.run.status import Runs

    is_quiet = load(own(os.environ), {}).quiet
    # Once for each text: what watches, or waits for an end, reads all files again and again.
    return Runs(os.environ, cache(lambda text: None if is_quiet else note(text)))


def note(text: str) -> None:
    """Write a line to stderr."""
    click.echo(f"mingle: {printable(text)}", err=True)


def run_row(run: RunStatus) -> dict[str, Any]:
    """Return a run as a row of --json."""
    return {**{name: value for name, value in run._asdict().items() if name not in _HIDDEN}, "pid": run.process.pid}


def whole_run_row(run: RunStatus) -> dict[str, Any]:
    """Return a run with its nodes and its last failure, for --json."""
    return {
        **run_row(run),
        "nodes": [node._asdict() for node in run.nodes],
        "missing": [node.host for node in run.nodes if node.state == "missing"],
        "failure": None if run.failure is None else run.failure._asdict(),
    }


def print_json(value: object) -> None:
    """Print a line of JSON."""
    write_stdout(f"{values.to_json(value)}\n")


def run_page(run: RunStatus) -> list[str]:
    """Return the text of `mingle show`: the run, its nodes and its last failure."""
    found = _aligned(
        [
            *(("id", run.id), ("run", run.run)),
            ("state", f"{_state(run)} since {moment(run.since)}"),
            *(("nodes", f"{run.here} of {run.wanted}"), ("attempt", _attempt(run))),
            ("began", moment(run.began)),
            ("runner", f"{run.host}, process {run.process.pid}"),
            ("command", run.command),
        ]
    )
    nodes = [
        (node.host, node.state, _or_dash(node.rank), "-" if node.since is None else moment(node.since))
        for node in run.nodes
    ]
    failure = [] if run.failure is None else ["", *_failure(run.failure)]
    return [*found, "", *_aligned([("NODE", "STATE", "RANK", "SINCE"), *nodes]), *failure]


def _table(found: Sequence[RunStatus]) -> list[str]:
    return _aligned([_COLUMNS, *map(_cells, found)])


def moment(at: int) -> str:
    """Return a local time from seconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _state(run: RunStatus) -> str:
    return run.state if run.status is None else f"{run.state} ({run.status})"


def _cells(run: RunStatus) -> tuple[str, ...]:
    command = printable(run.command, _LONGEST_COMMAND)
    nodes, attempt = f"{run.here}/{run.wanted}", _or_dash(run.attempt)
    return run.id, _state(run), nodes, attempt, moment(run.began), run.host, command


def _attempt(run: RunStatus) -> str:
    if run.attempt is None:
        return "none yet"
    return f"{run.attempt}, of at most {run.restarts}" if run.restarts else str(run.attempt)


def _failure(failure: Failure) -> list[str]:
    from mingle_hooks.run import attempt

    of = "" if failure.attempt is None else f" of attempt {failure.attempt}"
    text = attempt.event_text("failed", failure.cause) or ""
    return [f"last failure, {moment(failure.at)}{of}:", *text.removeprefix("mingle run: ").splitlines()]


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows in columns; nothing of no rows."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _print(lines: list[str], before: str = "") -> None:
    if lines:
        write_stdout(before + "".join(f"{line}\n" for line in lines))


# `mingle ls`: the runs of this user that form or run.


@click.command(name="ls")
@click.option("--all", "is_all", is_flag=True, help="Also list runs that have ended within a week.")
@click.option("--watch", is_flag=True, help="Refresh every 2 s; without a terminal, print changes.")
@json_option
def ls(*, is_all: bool, watch: bool, is_json: bool) -> None:
    """List your runs.

    NODES is the number of nodes that have joined and the number expected.
    Attempts count from 0. A silent run has not renewed its file for 35 s: it
    is stopped, or cut off from your home directory. A killed run has ended
    without a word, as by kill -9.
    """
    known = find_runs()

    def look() -> list[RunStatus]:
        return [run for run in known.all() if is_all or run.is_live]

    found = look()
    redraws = watch and not is_json and sys.stdout.isatty()
    if is_json:
        print_json([*map(run_row, found)])
    elif found or redraws:
        _print(_table(found), before=_CLEAR * redraws)
    elif not watch:
        note("no runs")
    while watch:
        time.sleep(_WATCH_S)
        last, found = found, look()
        if redraws:
            _print(_table(found), before=_CLEAR)
        elif not is_json:
            gone = {run.run for run in last} - {run.run for run in found}
            rows = map(_cells, [*found, *(run for run in known.all() if run.run in gone)])
            _print(_aligned([row for row in rows if row not in map(_cells, last)]))
        elif found != last:
            print_json([*map(run_row, found)])


# `mingle show`: one run, with its nodes and its last failure.


@click.command()
@click.argument("name", metavar="ID")
@click.option("--watch", is_flag=True, help="Print it again after each change, until the run ends.")
@json_option
def show(*, name: str, watch: bool, is_json: bool) -> None:
    """Show one run: its nodes, who is missing, and its last failure.

    ID is the id of the job or of the run, or its beginning. Runs that have
    ended can be shown for a week.
    """
    known = find_runs()
    last, run = None, known.one(name)
    while True:
        if run != last and is_json:
            print_json(whole_run_row(run))
        elif run != last:
            _print(run_page(run), before=_CLEAR * (watch and sys.stdout.isatty()))
        if not (watch and run.is_live):
            return
        time.sleep(_WATCH_S)
        last, run = run, known.one(run.run)


# `mingle kill`: end a run, on all of its nodes.


@click.command()
@click.argument("name", metavar="ID")
@click.option("--now", "is_now", is_flag=True, help="End it at once, without the grace period.")
@click.option("--timeout", cls=Option, shown=commands.KILL_TIMEOUT, default="60s", help="How long to wait for its end.")
@click.option("--key-file", cls=Option, shown=SETTINGS["key_file"], help="File with the key that the run uses.")
def kill(*, name: str, is_now: bool, timeout: str, key_file: str | None) -> None:
    """End a run on all of its nodes and wait until it has ended.

    The run ends as after SIGTERM, or with --now as after a second Ctrl-C. If it
    does not answer, its job is cancelled. The exit status is 0 only if the run
    has ended.
    """
    from mingle_hooks.run import start, status

    limit_s = start.option_seconds(timeout, "--timeout", 0.0)
    until = time.monotonic() + limit_s
    known = find_runs()
    run = known.one(name)
    ending = status.Ending(is_accepted=False)
    if not run.has_ended:
        ending = status.kill_run(run, _held_keys(key_file), is_now=is_now, limit_s=limit_s)
        if ending.status is not None:
            run = run._replace(state="ended", status=ending.status)
        elif not ending.is_accepted and run.process.machine == status.runs_here():
            _send_signals(run, is_now=is_now)
        elif not ending.is_accepted:
            _cancel(run)
    while not run.has_ended and not (run := known.one(run.run)).has_ended:
        if time.monotonic() > until:
            remedy = f"`mingle kill --now {name}`" if ending.is_accepted and not is_now else f"`mingle show {name}`"
            seen = f"processes still running on {run.host} or its other nodes" if ending.is_accepted else "no answer"
            raise MissingError(f"the end of run {run.id} within {limit_s:g} s", seen, remedy)
        time.sleep(_LOOK_S)
    how = "" if run.status is None else f" with status {run.status}"
    if run.state == "killed":
        how = f": its process on {run.host} was killed"
    write_stdout(f"run {run.id} has ended{how}\n")


_LOOK_S, _CANCEL_S = 0.2, 30.0


def _send_signals(run: RunStatus, *, is_now: bool) -> None:
    """Send a run of this host that does not answer the signals of a person at its terminal."""
    from mingle_hooks.run.processes import catches_signal

    pid, numbers, names = run.process.pid, [signal.SIGTERM], "SIGTERM"
    if is_now and catches_signal(pid, signal.SIGINT):  # a script's run in the background ignores it
        numbers, names = [signal.SIGINT] * 2, "SIGINT twice"
    note(f"run {run.id} does not answer; sending {names} to process {pid}")
    for number in numbers:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)
        time.sleep(_LOOK_S)


def _held_keys(key_file: str | None) -> list[bytes]:
    """Return the keys that this user has, by the usual rules. Raises SettingsError and SecretError."""
    user_environ = own(os.environ)
    loaded = load(user_environ, {"key_file": key_file})
    try:
        facts = detect(user_environ, socket.gethostname())
    except FactsError:  # the job's variables are not needed here
        facts = JobFacts(scheduler="none")
    return [key.material for key in held_keys(facts, loaded, user_environ)]


def _cancel(run: RunStatus) -> None:
    """Let the scheduler end the job of a run that does not answer. Raises MissingError."""
    import subprocess

    from mingle_hooks.run.starters import cancel_argv

    argv = cancel_argv(run.scheduler, run.job or "", os.environ)
    expected = f"an answer from run {run.id} (process {run.process.pid} on {run.host})"
    seen = "none: the run was stopped or killed, or this host cannot reach it"
    if not argv:
        raise MissingError(expected, seen, f"this command on {run.host}")
    note(f"run {run.id} does not answer; running {shlex.join(argv)}")
    try:
        done = subprocess.run(argv, check=False, timeout=_CANCEL_S)  # noqa: S603 - the scheduler's command
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(expected, f"{seen}; {error}", f"`{shlex.join(argv)}`") from None
    if done.returncode != 0:
        raise MissingError(expected, f"{seen}; {argv[0]} ended with {done.returncode}", f"`{shlex.join(argv)}`")
