"""Rules about one host by itself: whether it is there, its clock, its directories, its GPUs."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from mingle_hooks.check.report import Finding
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.check.report import Report, Space

# A clock is off where its whole interval is beyond this, in seconds.
_CLOCK_S = 1.0
# A directory is full where less is free than both, or than the least.
_FULL_MB, _FULL_SHARE = 64, 0.02


def missing(report: Report) -> Iterator[Finding]:
    """Name the hosts of which nothing was heard."""
    for host in report.hosts:
        if host.missing is not None:
            yield Finding("missing", (host.name,), f"{host.name}: {host.missing}", (host.name,))


def twice(report: Report) -> Iterator[Finding]:
    """Name hosts that are one machine under two names."""
    machines: dict[str, tuple[str, ...]] = {}
    for host in report.here:
        machines[host.identity] = (*machines.get(host.identity, ()), host.name)
    for names in machines.values():
        if len(names) > 1:
            yield Finding("node", names, f"{fold(names)}: one machine under {len(names)} names", names[1:])


def clocks(report: Report) -> Iterator[Finding]:
    """Name hosts whose clock differs from the others'."""
    known = {host.name: host.clock for host in report.here if host.clock is not None}
    if not known:
        return
    # Of intervals that all hold the same time no one begins after others end, however long a busy host's is.
    least, most = (median(ends) for ends in zip(*known.values(), strict=True))
    usual = (least + most) / 2
    for name, (low, high) in known.items():
        if low - most > _CLOCK_S or high - least < -_CLOCK_S:
            off_s = (low + high) / 2 - usual
            text = f"{name}: its clock is {abs(off_s):.1f} s {'ahead' if off_s > 0 else 'behind'}"
            yield Finding("node", (name,), text, (name,))


def spaces(report: Report) -> Iterator[Finding]:
    """Name directories that are full, or do not answer; one that all hosts share is nobody's own."""
    seen: dict[tuple[str, str], list[str]] = {}
    for host in report.here:
        for its in host.spaces:
            if (trouble := _trouble(its)) is not None:
                seen.setdefault((its.path, trouble), []).append(host.name)
    for (path, trouble), names in seen.items():
        blamed = tuple(names) if len(names) < len(report.here) or len(names) == 1 else ()
        yield Finding("node", tuple(names), f"{fold(names)}: {path} {trouble}", blamed)


def _trouble(its: Space) -> str | None:
    if its.free_mb is None or its.total_mb is None:
        return "does not answer"
    if its.free_mb >= _FULL_MB or (its.total_mb and its.free_mb > its.total_mb / 2):
        return None
    return f"is full: {its.free_mb} of {its.total_mb} MiB are free"


def kernels(report: Report) -> Iterator[Finding]:
    """Name hosts whose kernel has no room for so many neighbours; where most have none, none is the odd one."""
    full = tuple(host.name for host in report.here if host.refused)
    if full:
        most = max(host.refused for host in report.here)
        text = f"{fold(full)}: the kernel's neighbour table is full; up to {most} hosts are out of reach"
        blamed = full if len(full) * 2 < len(report.here) else ()
        yield Finding("node", blamed, f"{text} (net.ipv4.neigh.default.gc_thresh3)", blamed)


def faults(report: Report) -> Iterator[Finding]:
    """Name what hosts say of their own GPUs."""
    for host in report.here:
        for fault in host.faults:
            yield Finding("node", (host.name,), f"{host.name}: {fault}", (host.name,))
