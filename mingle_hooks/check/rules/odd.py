"""Rules about what should be alike: the odd host in each thing."""

from __future__ import annotations

from mingle_hooks.check.majority import split
from mingle_hooks.check.report import Finding
from mingle_hooks.schedulers.hostlist import fold
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mingle_hooks.check.report import Host, Report

_TABLE: tuple[tuple[str, Callable[[Host], str]], ...] = (
    ("kernel", lambda host: host.kernel),
    ("GPUs", lambda host: "unknown" if host.gpus is None else str(host.gpus)),
    ("memlock", lambda host: "unlimited" if host.memlock_kb is None else f"{host.memlock_kb} KiB"),
)


def odd(report: Report) -> Iterator[Finding]:
    """Name who differs from three quarters of the others; nobody is blamed where there is no such majority."""
    for what, read in _TABLE:
        yield from differences(what, {host.name: read(host) for host in report.here}, "node")


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
