"""Rules about what should be alike: the odd host in each thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.check.majority import split
from mingle_hooks.check.report import Finding
from mingle_hooks.lint.compare import compare
from mingle_hooks.lint.finding import KINDS, Compared
from mingle_hooks.schedulers.hostlist import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mingle_hooks.check.report import Report

# Of these the check knows more than a fingerprint tells, and has rules of their own.
_OWN = ("shm", "tmp")


def odd(report: Report) -> Iterator[Finding]:
    """Name who differs from three quarters of those of its kind; nobody is blamed where there is no such majority."""
    members = [Compared(host.name, host.fingerprint) for host in report.here]
    for found in compare(members):
        if found.field not in _OWN:
            hosts = found.hosts or tuple(host.name for host in report.here)
            yield Finding("node", hosts, found.text, found.hosts, is_note=found.field == KINDS)


def differences(what: str, said: Mapping[str, str], kind: str) -> Iterator[Finding]:
    """Make findings of how hosts differ in one thing."""
    found = split(said)
    if found is None:
        return
    if not found.usual:
        parts = "; ".join(f"{fold(hosts)} {value}" for value, hosts in found.odd.items())
        hosts = tuple(said)
        yield Finding("network" if kind == "network" else "node", hosts, f"no majority for {what}: {parts}")
        return
    rest = "the other" if found.agreed == 1 else f"{found.agreed} others"
    for value, hosts in found.odd.items():
        text = f"{fold(hosts)}: {what} {value}, {rest} {found.usual}"
        yield Finding("network" if kind == "network" else "node", hosts, text, hosts)
