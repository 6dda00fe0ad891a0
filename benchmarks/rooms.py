"""What a world costs its leader's host far beyond one machine room: measured where this machine can, else computed.

Processor time, memory and seconds are those of `scale`, at most 16,384 members on real sockets. A line through them
gives the figures of larger worlds, with its error. Packets are counted in a network namespace of their own, for smaller
worlds: they are the same for each member. The roster's size is exact at any N. Run as root, for the namespaces.
`python -m benchmarks plots` writes the saved figures into docs/scale.md.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import plots, scale
from mingle_hooks import values
from mingle_hooks.rendezvous import messages
from mingle_hooks.rendezvous.rendezvous import SPARE_DESCRIPTORS
from mingle_hooks.schedulers.facts import MOST_NODES

RESULTS = Path(__file__).parent / "results"
MEASURED = (1024, 4096, 16_384)
COMPUTED = (16_384, MOST_NODES, 100_000)
# Worlds whose packets are counted, and one that comes at once to a short queue, the kernels' default, and a long one.
COUNTED = (64, 256, 1024)
CROWD, BACKLOGS = 1024, (16, 128, 4096)
RACK = 64
# Slurm's TreeWidth by default (slurm.conf(5) of 23.11): so many daemons are served by each.
TREE_WIDTH = 16
GIGABIT_BYTES = 125e6
# What the kernel keeps for a connected socket that epoll watches: the caches in /proc/slabinfo.
CACHES = ("TCP", "sock_inode_cache", "dentry", "filp", "eventpoll_epi", "eventpoll_pwq")

Figures = dict[str, float]


class Line(NamedTuple):
    """A cost of N members, first + each * N, and how far it is from the figures that gave it."""

    first: float
    each: float
    error: float  # the largest, as a part of the figure
    held_out: float  # the largest world's figure against the line through the smaller ones

    def at(self, nodes: float) -> float:
        """Return the cost of N members."""
        return self.first + self.each * nodes


def line(points: Sequence[tuple[float, float]]) -> Line:
    """Return the line with the least sum of squared relative errors: a small world counts as much as a large one."""
    first, each = _least(points)
    smaller_first, smaller_each = _least(points[:-1])
    errors = [abs(first + each * nodes - cost) / cost for nodes, cost in points]
    nodes, cost = points[-1]
    return Line(first, each, max(errors), (smaller_first + smaller_each * nodes) / cost - 1)


def _least(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Solve the two normal equations of cost / cost = first / cost + each * nodes / cost."""
    a = sum(1 / cost**2 for _, cost in points)
    b = sum(nodes / cost**2 for nodes, cost in points)
    c = sum((nodes / cost) ** 2 for nodes, cost in points)
    p, q = sum(1 / cost for _, cost in points), sum(nodes / cost for nodes, cost in points)
    each = (a * q - b * p) / (a * c - b * b)
    return (p - each * b) / a, each


def packed_roster(nodes: int) -> int:
    """Return the bytes of the roster that a member gets, of hosts with names and addresses as on a large cluster."""
    rows = [[rank, f"node{rank:06}", f"10.{rank >> 16}.{rank >> 8 & 255}.{rank & 255}", 8] for rank in range(nodes)]
    return len(messages.pack_roster(values.to_json(rows).encode()))


def costs(rows: dict[str, Figures]) -> dict[str, Line]:
    """Return the lines through what `scale` has measured."""

    def through(how: str, cost: Callable[[int, Figures], float]) -> Line:
        return line([(nodes, cost(nodes, rows[f"{nodes} {how}"])) for nodes in MEASURED])

    return {
        "leader's processor s": through(scale.LAST, lambda n, row: row["leader's processor ms a member"] * n / 1e3),
        "leader's memory MB": through(scale.LAST, lambda n, row: row["leader's KB a member"] * n / 1e3),
        "s after the last arrival": through(scale.LAST, lambda _, row: row["seconds"]),
        "its processor s": through(scale.LAST, lambda _, row: row["leader's processor seconds of these"]),
    }


def computed(nodes: int, lines: dict[str, Line], member: Figures, socket_bytes: int) -> Figures:
    """Return what N members cost their leader's host: without a roster, and with one at 10 Gb/s."""
    roster = packed_roster(nodes)
    return {
        **{name: its.at(nodes) for name, its in lines.items()},
        "descriptors": nodes + SPARE_DESCRIPTORS,
        "kernel's socket MB": nodes * socket_bytes / 1e6,
        "packets": nodes * member["packets"],
        "MB on the network": nodes * member["bytes"] / 1e6,
        "packed roster KB": roster / 1e3,
        "rosters GB": roster * nodes / 1e9,
        "rosters s at 10 Gb/s": roster * nodes / (10 * GIGABIT_BYTES),
    }


def relayed(nodes: int, each: int, lines: dict[str, Line]) -> Figures:
    """Return the same with relays that each gather so many members, and are the only members of the leader."""
    relays = math.ceil(nodes / each)
    last, roster = lines["its processor s"], packed_roster(nodes)
    return {
        "members of a relay": each,
        "sockets of the leader": relays,
        "processor s after the last arrival": last.at(relays) + last.at(each),
        "rosters GB from the leader": roster * relays / 1e9,
        "rosters s at 10 Gb/s": roster * (relays + each) / (10 * GIGABIT_BYTES),
    }


def by_daemons(nodes: int) -> Figures:
    """Return what the scheduler's own daemons would do for PMIx: the fence gives each host all hosts' data."""
    roster = packed_roster(nodes)
    return {
        "sockets of the leader": 0,
        "daemons in a chain": math.ceil(math.log(nodes, TREE_WIDTH)),
        "rosters GB from rank 0's host": roster * TREE_WIDTH / 1e9,
    }


# In a namespace of its own, where a world's packets are all that there are.


def _counters() -> Figures:
    found: Figures = {}
    for path in ("/proc/net/snmp", "/proc/net/netstat"):
        lines = [row.split() for row in Path(path).read_text().splitlines()]
        for names, numbers in zip(lines[::2], lines[1::2], strict=True):
            found |= (
                dict(zip(names[1:], map(float, numbers[1:]), strict=True)) if names[0] in ("Tcp:", "TcpExt:") else {}
            )
    (loopback,) = (row.split() for row in Path("/proc/net/dev").read_text().splitlines() if row.split()[0] == "lo:")
    return found | {"bytes": float(loopback[1]), "packets": float(loopback[2])}


def _alone(nodes: int, how: str, backlog: int) -> None:
    """Form one world, and print what the kernel has counted, as JSON."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/core/somaxconn").write_text(str(backlog))
    before = _counters()
    run = scale.once(nodes, 0, how)
    after = _counters()
    names = ("packets", "bytes", "RetransSegs", "ListenDrops", "PassiveOpens")
    print(json.dumps({"seconds": run.seconds, **{name: after[name] - before[name] for name in names}}))


def counted(nodes: int, how: str, backlog: int) -> Figures:
    """Return the packets, bytes and drops of one world, with so long a queue of connections (somaxconn)."""
    argv = ["unshare", "-n", sys.executable, "-m", "benchmarks.rooms", str(nodes), how, str(backlog)]
    done = subprocess.run(argv, cwd=RESULTS.parents[1], stdout=subprocess.PIPE, text=True, check=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def kernel() -> dict[str, int]:
    """Return the bytes of a socket in this kernel."""
    sizes = {row.split()[0]: int(row.split()[3]) for row in Path("/proc/slabinfo").read_text().splitlines()[2:]}
    return {name: sizes[name] for name in CACHES if name in sizes}


def figures() -> dict[str, Any]:
    """Return the lines and their errors, and the figures of large worlds."""
    lines = costs(json.loads((RESULTS / "scale.json").read_text())["figures"])
    for name, its in lines.items():
        print(
            f"  {name}: {its.first:.3g} + {its.each * 1e3:.3g} per 1,000 members; off by {its.error:.0%} at most;",
            end=" ",
        )
        print(f"the line through the smaller worlds misses {MEASURED[-1]} by {its.held_out:+.0%}")
    packets = {nodes: counted(nodes, scale.AT_ONCE, max(BACKLOGS)) for nodes in COUNTED}
    for nodes, found in packets.items():
        print(f"  {nodes} members: {found['packets'] / nodes:.1f} packets, {found['bytes'] / nodes:.0f} bytes each")
    # On a busy machine members call again, as hosts of their own would not; else two connections each suffice.
    calm = max((nodes for nodes in packets if packets[nodes]["PassiveOpens"] <= 2 * nodes), default=min(packets))
    member = {name: packets[calm][name] / calm for name in ("packets", "bytes")}
    queues = {str(backlog): counted(CROWD, scale.AT_ONCE, backlog) for backlog in BACKLOGS}
    for backlog, found in queues.items():
        print(f"  {CROWD} at once, somaxconn {backlog}: {found['seconds']:.2f} s, {found['ListenDrops']:.0f} drops")
    caches = kernel()
    worlds = {str(nodes): computed(nodes, lines, member, sum(caches.values())) for nodes in COMPUTED}
    for size, world in worlds.items():
        print(f"  {size}: " + ", ".join(f"{name} {value:,.4g}" for name, value in world.items()))
    most = max(COMPUTED)
    return {
        "lines": {name: its._asdict() for name, its in lines.items()},
        "counted": {str(nodes): found for nodes, found in packets.items()},
        "somaxconn": queues,
        "bytes of a socket": caches,
        "computed": worlds,
        "relays": {name: relayed(most, each, lines) for name, each in (("rack", RACK), ("root", math.isqrt(most) + 1))},
        "pmix": by_daemons(most),
    }


# The table of docs/scale.md.

PAGE = RESULTS.parents[1] / "docs" / "scale.md"
ROWS = (
    ("leader's CPU, s", "leader's processor s", ".0f"),
    ("its memory, MB", "leader's memory MB", ".0f"),
    ("kernel's, MB", "kernel's socket MB", ".0f"),
    ("last arrival to last answer, s", "s after the last arrival", ".1f"),
    ("million packets", "packets", ".1f"),
    ("roster, KB", "packed roster KB", ".0f"),
    ("all rosters, GB", "rosters GB", ".1f"),
    ("these at 10 Gb/s, s", "rosters s at 10 Gb/s", ".1f"),
)


def tables(found: dict[str, Any]) -> str:
    """Return what stands between the marks of docs/scale.md, from the figures that were saved."""
    worlds = found["computed"]
    rows = [["nodes", *(f"{int(nodes):,}" for nodes in worlds)], ["-"] + ["-:"] * len(worlds)]
    for label, name, form in ROWS:
        million = 1e6 if name == "packets" else 1
        rows.append([label, *(format(world[name] / million, form) for world in worlds.values())])
    most = max(map(int, worlds))
    direct = worlds[str(most)]
    others = [["nodes per relay", "connections of rank 0", "rosters, s"], ["-:"] * 3]
    others.append(["none", f"{most:,}", f"{direct['rosters s at 10 Gb/s']:.1f}"])
    for its in found["relays"].values():
        cells = its["members of a relay"], its["sockets of the leader"], its["rosters s at 10 Gb/s"]
        others.append([f"{cells[0]:.0f}", f"{cells[1]:,.0f}", f"{cells[2]:.1f}"])
    return f"{plots.table(rows)}\n\n{plots.table(others)}\n\n"


def write() -> None:
    """Write the saved figures into docs/scale.md."""
    found = json.loads((RESULTS / "rooms.json").read_text())["figures"]
    PAGE.write_text(plots.between(PAGE.read_text(), tables(found)))


if __name__ == "__main__":
    _alone(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
