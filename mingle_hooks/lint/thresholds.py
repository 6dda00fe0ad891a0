"""What is compared with a number, or with every other member's, and not by majority: space, clocks, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.lint import words
from mingle_hooks.lint.finding import Finding
from mingle_hooks.lint.majority import MAJORITY
from mingle_hooks.lint.text import FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mingle_hooks.lint.finding import Compared, Group

CLOCK_S = 1.0  # a clock is odd only where all of what it may be is further off
SPACES = ("shm", "tmp")
# An address that more than this share of the members have, and more than two, is inside of each host, as docker's is.
MOST_SHARE = 0.25


def space(groups: Iterable[Group]) -> list[Finding]:
    """Name whose memory file system or /tmp is full."""
    full = {name: [h for g in groups if g.parts.get(name) == FULL for h in g.hosts] for name in SPACES}
    return [
        Finding(name, tuple(hosts), f"{words.some(hosts)}: {words.label(name)} is full")
        for name, hosts in full.items()
        if hosts
    ]


def clocks(members: Sequence[Compared]) -> list[Finding]:
    """Name whose clock is more than a second off from that of nearly all."""
    told = [(member.host, *member.clock) for member in members if member.clock is not None]
    if not told or max(low for _, low, _ in told) - min(high for _, _, high in told) <= CLOCK_S:
        return []
    middles = sorted((low + high) / 2 for _, low, high in told)
    middle = middles[len(middles) // 2]
    ahead = {host: low - middle for host, low, high in told if low - middle > CLOCK_S}
    behind = {host: middle - high for host, low, high in told if middle - high > CLOCK_S}
    rest = len(told) - len(ahead) - len(behind)
    if rest < MAJORITY * len(told):
        first, last = min(told, key=lambda its: its[1]), max(told, key=lambda its: its[1])
        text = f"no majority for clock: {last[0]} is {last[1] - first[2]:.1f} s ahead of {first[0]}"
        return [Finding("clock", (), text)]
    return [
        Finding("clock", tuple(off), f"{words.some([*off])}: clock {_amount(off.values())} {way} {words.others(rest)}")
        for off, way in ((ahead, "ahead of"), (behind, "behind"))
        if off
    ]


def addresses(members: Sequence[Compared]) -> list[Finding]:
    """Tell which hosts have one address among them; what many of them have is a network inside of each."""
    owners: dict[str, list[str]] = {}
    for member in members:
        for word in member.addresses.split():
            owners.setdefault(word.partition("=")[0], []).append(member.host)
    return [
        Finding("address", tuple(dict.fromkeys(hosts)), f"{words.some(hosts)}: {address} on each of them")
        for address, hosts in owners.items()
        if len(hosts) <= max(2, MOST_SHARE * len(members)) and 1 < len(set(hosts)) < len(members)
    ]


def reach(unreached: Iterable[tuple[str, Sequence[str]]], count: int) -> list[Finding]:
    """Name who alone keeps a world of so many members off a better network of rank 0's, the best of them."""
    best = {tuple(hosts): address for address, hosts in reversed([*unreached])}
    return [
        Finding(
            "network",
            hosts,
            f"{words.some(hosts)}: does not reach rank 0 at {address}, {words.others(count - len(hosts))} do",
        )
        for hosts, address in best.items()
        if count - len(hosts) >= MAJORITY * count
    ]


def _amount(seconds: Iterable[float]) -> str:
    """Return `5.0 s` or `2.0 to 5.0 s`."""
    low, high = min(seconds), max(seconds)
    return f"{low:.1f} s" if high - low < 0.1 else f"{low:.1f} to {high:.1f} s"  # noqa: PLR2004 - what is shown
