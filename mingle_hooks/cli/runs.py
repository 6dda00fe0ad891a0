"""What `mingle ls`, `show` and `kill` share: whose runs are meant, and how they are told to people and programs."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

import click

from mingle_hooks import jsontext, keys
from mingle_hooks.cli.help import SETTINGS, Option
from mingle_hooks.cli.stdout import write
from mingle_hooks.errors import FactsError, MissingError, printable
from mingle_hooks.export.variables import own
from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.schedulers.table import detect
from mingle_hooks.settings import load
from mingle_hooks.supervise.runner import report
from mingle_hooks.supervise.worlds.finding import Runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.supervise.worlds.finding import Seen
    from mingle_hooks.supervise.worlds.registry import Entry
    from mingle_hooks.supervise.worlds.words import Failure, State

UNREACHABLE, ENDED = "unreachable", "ended"
_LONGEST_COMMAND = 60
_COLUMNS = ("ID", "STATE", "NODES", "ATTEMPT", "SINCE", "HOST", "COMMAND")

key_option = click.option(
    "--key-file", cls=Option, shown=SETTINGS["key_file"], help="File with the key that the run uses."
)
json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


def runs(key_file: str | None) -> Runs:
    """Return the user's runs, by the usual rules of keys. Raises SettingsError and SecretError."""
    users = own(os.environ)
    loaded = load(users, {"key_file": key_file})
    try:
        facts = detect(users, socket.gethostname())
    except FactsError:  # a job whose variables are of no use here
        facts = JobFacts(scheduler="none")
    held = keys.held(facts, loaded, users)
    return Runs(os.environ, [key.material for key in held], lambda text: note(text, is_quiet=loaded.quiet))


def note(text: str, *, is_quiet: bool = False) -> None:
    """Write a line to stderr."""
    if not is_quiet:
        click.echo(f"mingle: {printable(text)}", err=True)


def row(seen: Seen) -> dict[str, Any]:
    """Return what is told of a run in --json."""
    entry, state = seen
    found: dict[str, Any] = {
        "id": entry.id,
        "run": entry.run,
        "state": UNREACHABLE if state is None else state.state,
        "here": None if state is None else state.here,
        "wanted": entry.wanted if state is None else state.wanted,
        "attempt": None if state is None else state.attempt,
        "restarts": None if state is None else state.restarts,
        "began": entry.began,
        "since": None if state is None else state.since,
        "host": entry.host,
        "pid": entry.process.pid,
        "command": entry.command,
    }
    return found


def whole_row(seen: Seen) -> dict[str, Any]:
    """Return what is told of one run, with its nodes and its last failure."""
    state = seen.state
    nodes = () if state is None else state.nodes
    return {
        **row(seen),
        "nodes": [node._asdict() for node in nodes],
        "missing": [node.host for node in nodes if node.state == "missing"],
        "failure": None if state is None or state.failure is None else state.failure._asdict(),
    }


def print_json(value: object) -> None:
    """Print a line of JSON."""
    write(f"{jsontext.dumps(value)}\n")


def lines(found: Sequence[Seen]) -> list[str]:
    """Return runs as a table, with its heading."""
    return _aligned([_COLUMNS, *map(_cells, found)])


def page(seen: Seen) -> list[str]:
    """Return all that is told of one run."""
    entry, state = seen
    rows = [("id", entry.id), ("run", entry.run), ("state", UNREACHABLE if state is None else _state(state))]
    if state is not None:
        rows += [("nodes", f"{state.here} of {state.wanted}"), ("attempt", _attempt(state))]
    rows += [
        ("began", moment(entry.began)),
        ("runner", f"{entry.host}, process {entry.process.pid}"),
        ("command", entry.command),
    ]
    found = _aligned(rows)
    if state is None:
        return found
    if state.nodes:
        nodes = [
            (node.host, node.state, _or_dash(node.rank), "-" if node.since is None else moment(node.since))
            for node in state.nodes
        ]
        found += ["", *_aligned([("NODE", "STATE", "RANK", "SINCE"), *nodes])]
    return [*found, *([] if state.failure is None else ["", *_failure(state.failure)])]


def changes(last: Sequence[Seen], found: Sequence[Seen]) -> list[str]:
    """Return the lines of those that are not as they were, and of those that have ended."""
    here = {seen.entry.run for seen in found}
    ended = [[*_cells(seen)[:1], ENDED, *_cells(seen)[2:]] for seen in last if seen.entry.run not in here]
    rows = [*(_cells(seen) for seen in found if seen not in last), *ended]
    return _aligned(rows) if rows else []


def moment(at: int) -> str:
    """Return a time as people write it here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def silent(entry: Entry, path: str) -> MissingError:
    """Return the error that tells of a run that does not answer."""
    return MissingError(
        f"an answer from run {entry.id} (process {entry.process.pid} on {entry.host})",
        "none: the run was stopped or killed, or this host cannot reach it",
        f"this command on {entry.host}; if the run is gone there too, rm {path}/{entry.run}.json",
    )


def ended(entry: Entry) -> MissingError:
    """Return the error that tells of a run that has just ended."""
    return MissingError(f"run {entry.id}", "it has just ended", "`mingle ls`")


def _cells(seen: Seen) -> tuple[str, ...]:
    entry, state = seen
    return (
        entry.id,
        UNREACHABLE if state is None else state.state,
        f"{'?' if state is None else state.here}/{entry.wanted if state is None else state.wanted}",
        "-" if state is None else _or_dash(state.attempt),
        moment(entry.began),
        entry.host,
        printable(entry.command, _LONGEST_COMMAND),
    )


def _state(state: State) -> str:
    return f"{state.state} since {moment(state.since)}"


def _attempt(state: State) -> str:
    if state.attempt is None:
        return "none yet"
    return f"{state.attempt}, of at most {state.restarts}" if state.restarts else str(state.attempt)


def _failure(failure: Failure) -> list[str]:
    of = "" if failure.attempt is None else f" of attempt {failure.attempt}"
    text = report.text("failed", failure.cause) or ""
    return [f"last failure, {moment(failure.at)}{of}:", *text.removeprefix("mingle run: ").splitlines()]


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
