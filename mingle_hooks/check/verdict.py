"""The verdict: what every rule finds, what is worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check.report import STATUSES
from mingle_hooks.check.rules import addresses, flows, hosts, multicast, names, odd, paths

if TYPE_CHECKING:
    from mingle_hooks.check.report import Finding, Report

RULES = (
    *(hosts.missing, hosts.twice, addresses.clashes, addresses.absent, paths.reach, paths.ports, paths.loss),
    *(addresses.mtus, paths.sizes, addresses.speeds, flows.slow, names.own, names.others, multicast.multicast),
    *(hosts.faults, hosts.spaces, hosts.clocks, hosts.kernels, odd.odd, addresses.bridges, paths.times, paths.unknown),
)


def judged(report: Report) -> Report:
    """Return the report with its findings: notes last, and before them in the order of their statuses."""
    return added(report, tuple(finding for rule in RULES for finding in rule(report)))


def added(report: Report, more: tuple[Finding, ...]) -> Report:
    """Return the report with more findings."""
    order = [*STATUSES]
    found = sorted((*report.findings, *more), key=lambda its: (its.is_note, order.index(its.kind)))
    return report._replace(findings=tuple(found))


def words(report: Report) -> str:
    """Return the last line."""
    count, here = len(report.hosts), len(report.here)
    pairs = len({(pair.one, pair.other) for pair in report.pairs})
    among = f"{count} host{'s' * (count != 1)}" if here == count else f"{here} of {count} hosts"
    ways = f", {pairs} pair{'s' * (pairs != 1)} on {len(report.networks)} network{'s' * (len(report.networks) != 1)}"
    some = f" (each with {report.others} others)" if report.others is not None else ""
    what = f"{among}{ways if pairs else ''}{some} in {report.took_s:.1f} s"
    bad = sum(not finding.is_note for finding in report.findings)
    but = ", except for what is not known" if report.unknown else ""
    return f"{what}: " + (f"all is well{but}" if not bad else f"{bad} finding{'s' * (bad != 1)}")
