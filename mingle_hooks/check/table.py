"""The report as a table for people: a line for each host, then the findings and the verdict."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from mingle_hooks.check import verdict
from mingle_hooks.check.rules.flows import speed
from mingle_hooks.errors import printable
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mingle_hooks.check.report import Host, Report

_COLUMNS = ("HOST", "STATE", "ADDRESS", "IFACE", "MTU", "RTT", "LOST", "GPUS", "SHM", "TMP")
_GIB = 1024
# Beyond so many lines only hosts that something was found about are in the table.
_MOST_ROWS = 64
# Findings beyond so many are counted.
_MOST_LINES = 32


def lines(report: Report) -> list[str]:
    """Return the whole of it."""
    about = named(report)
    shown = [host for host in report.hosts if len(report.hosts) <= _MOST_ROWS or host.name in about]
    rows = [cells(report, host, is_named=host.name in about) for host in shown]
    table = _aligned([columns(report), *rows]) if rows else []
    hidden = len(report.hosts) - len(shown)
    rest = [f"and {hidden} hosts without findings"] if hidden else []
    return [*table, *rest, *_told(report)]


def named(report: Report) -> set[str]:
    """Return the hosts about which something is to mend."""
    return {host for finding in report.findings if not finding.is_note for host in finding.hosts}


def columns(report: Report) -> tuple[str, ...]:
    """Return the heading."""
    return (*_COLUMNS, "SENDS", "RECEIVES") if report.flows else _COLUMNS


def _told(report: Report) -> list[str]:
    found = [f"{'note' if its.is_note else 'BAD':5}{printable(its.text)}" for its in report.findings[:_MOST_LINES]]
    if len(report.findings) > _MOST_LINES:
        found.append(f"and {len(report.findings) - _MOST_LINES} more (--json)")
    leave = [f"--exclude={fold(report.exclude)}"] if report.exclude else []
    return ["", *found, *leave, verdict.words(report)]


def cells(report: Report, host: Host, *, is_named: bool) -> tuple[str, ...]:
    """Return one host's line."""
    state = "missing" if host.missing is not None else "BAD" if is_named else "ok"
    best = host.addresses[0] if host.addresses else None
    rtts = [pair.rtt_us for pair in report.pairs if host.name in (pair.one, pair.other) and pair.rtt_us is not None]
    spaces = {its.path: its.free_mb for its in host.spaces}
    found = (
        host.name,
        state,
        best.address if best else "-",
        best.iface if best else "-",
        _or_dash(best.mtu if best else None),
        f"{median(rtts) / 1000:.2f} ms" if rtts else "-",
        lost(report, host.name),
        _or_dash(host.gpus),
        *(_space(spaces.get(path)) for path in ("/dev/shm", "/tmp")),  # noqa: S108 - what is looked at
    )
    if not report.flows:
        return found
    sent = [flow.mbits or 0 for flow in report.flows if flow.sender == host.name]
    came = [flow.mbits or 0 for flow in report.flows if flow.receiver == host.name]
    return (*found, *(speed(max(its)) if its else "-" for its in (sent, came)))


def lost(report: Report, host: str) -> str:
    """Return which part of a host's datagrams was lost, both ways."""
    mine = [pair for pair in report.pairs if host in (pair.one, pair.other)]
    sent = sum(pair.sent + pair.sent_back for pair in mine)
    return f"{100 * (sent - sum(pair.there + pair.back for pair in mine)) / sent:.0f} %" if sent else "-"


def _space(free_mb: int | None) -> str:
    if free_mb is None:
        return "-"
    return f"{free_mb / _GIB:.0f} GiB" if free_mb >= _GIB else f"{free_mb} MiB"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
