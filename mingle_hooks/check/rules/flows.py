"""The rule about bandwidth: who is slower than a third of what is usual, with all that it was tried with."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from mingle_hooks.check.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.check.report import Flow, Report

# What one connection carries differs from try to try, on healthy networks by less than this.
SLOW = 1 / 3


def slow(report: Report) -> Iterator[Finding]:
    """Name hosts that send or receive slowly, whoever is at the other end; else the two between whom it is slow."""
    if not report.flows:
        return
    usual = median(flow.mbits or 0 for flow in report.flows)
    named = set()
    for host in report.here:
        sent = [flow.mbits or 0 for flow in report.flows if flow.sender == host.name]
        came = [flow.mbits or 0 for flow in report.flows if flow.receiver == host.name]
        words = [
            f"{verb} {speed(max(its))}"
            for verb, its in (("sends", sent), ("receives", came))
            if len(its) > 1 and max(its) < usual * SLOW
        ]
        if words:
            named.add(host.name)
            text = f"{host.name}: {' and '.join(words)}, {speed(usual)} is usual"
            yield Finding("network", (host.name,), text, (host.name,))
    for flow in suspects(report.flows):
        if named.isdisjoint((flow.sender, flow.receiver)):
            text = f"{flow.sender}: sends {speed(flow.mbits or 0)} to {flow.receiver}, {speed(usual)} is usual"
            yield Finding("network", (flow.sender, flow.receiver), text)


def suspects(flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
    """Return the flows that are slow, and deserve a second look by themselves."""
    usual = median(flow.mbits or 0 for flow in flows) if flows else 0
    return tuple(flow for flow in flows if (flow.mbits or 0) < usual * SLOW)


def speed(mbits: float) -> str:
    """Return a speed as people write it."""
    return f"{mbits / 1000:.1f} Gbit/s" if mbits >= 1000 else f"{mbits:.0f} Mbit/s"  # noqa: PLR2004 - a unit's size
