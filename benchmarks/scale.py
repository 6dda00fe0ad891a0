"""From the last member's arrival to the last answer, with many simulated members on this machine.

The leader is a process with the real `meet`; the members are real check-ins on real sockets, in processes of thousands
(see crowd.py). "last": all others are in and wait when the last one arrives. "at once": all arrive within half a
second, and the clock runs from the first. The clock stops when the last of all has COMMIT. The leader's own share is
told by its processor time and memory, which do not depend on who else uses this machine's processors.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.crowd import ADDRESS, FINGERPRINT, KEY, STORM_S, TIMEOUT_S, World, be_crowd
from mingle_hooks.job import member_spec
from mingle_hooks.rendezvous import rendezvous
from mingle_hooks.rendezvous.member import Request
from mingle_hooks.rendezvous.roster import AdvertisedAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

Figures = dict[str, float | None]

SIZES = (64, 1024, 4096, 16_384)
LAST, ROSTER, AT_ONCE = ARRIVALS = ("last", "last, with the roster", "at once")
# In seconds, from the last arrival, or the first of those at once, to the last answer.
LIMITS_S = {
    LAST: {1024: 0.12, 4096: 0.45, 16_384: 1.6},
    ROSTER: {1024: 0.3, 4096: 1.0, 16_384: 4.0},
    AT_ONCE: {1024: 1.0, 4096: 3.0, 16_384: 10.0},
}
# A member's memory in the leader, and how its processor time may grow from the second size to the largest.
LIMIT_KB, LIMIT_GROWTH = 10.0, 1.3
# Members in one process.
A_CROWD = 2048
# Before the last one comes, the others come at the same rate to worlds of all sizes, so many seconds after each other.
STEP_S = 0.0005
# Open files that a leader needs beyond one a member: for those who try addresses at the moment, and for itself.
SPARE_FILES = 2048
# As on a node with two networks; the benchmark's members take these for that.
OFFERS = (AdvertisedAddress(ADDRESS), AdvertisedAddress("127.0.0.2"))
# Ports for one run after the other: what the run before left in TIME_WAIT is out of the way.
PORTS = range(23_000, 23_900)


class Run(NamedTuple):
    """One world."""

    seconds: float
    leader_s: float  # of the processors' time, the leader's in these seconds
    members_s: float  # and all members'
    cpu_s: float  # of the leader, in all
    kilobytes: float  # of the leader, at its most, beyond what it had at the beginning


def endpoint(world: World, pipe: Connection) -> None:
    """Be rank 0 of N, and tell what that took."""
    options = {"id": world.name, "nodes": world.nodes, "rank": 0, "via": "master", "master": f"{ADDRESS}:{world.port}"}
    request = Request(
        member_spec({}, {**options, "slots": 1}),
        KEY,
        "node0",
        "here",
        TIMEOUT_S,
        node_facts=(lambda: (FINGERPRINT, "10.0.0.0=400G,mtu4092")) if FINGERPRINT else None,
    )
    rendezvous.advertised_addresses = lambda prefer, environ: (OFFERS, None)  # noqa: ARG005 - by the name that it has there
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew (proc(5))
    before_kb, before_s = _memory_kb("VmRSS"), time.process_time()
    rendezvous.meet(request, SimpleNamespace(progress=lambda _progress: None, note=lambda _note: None, explain=None))
    pipe.send((time.process_time() - before_s, _memory_kb("VmHWM") - before_kb))


def _memory_kb(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _cpu_s(pid: int | None) -> float:
    """Return the processor time that another process has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _idle(pid: int | None) -> None:
    """Wait until a process has nothing to do: it sleeps, and used less than a hundredth of a tenth of a second."""
    before = _cpu_s(pid)
    while True:
        time.sleep(0.1)
        after, state = _cpu_s(pid), Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if after - before < 0.001 and state == "S":
            return
        before = after


class Crowds:
    """The processes of members of one world."""

    def __init__(self, world: World, members: Callable[[World, range, Connection], None]) -> None:
        self.pipes: list[Connection] = []
        self.processes: list[SpawnProcess] = []
        self._deadline = time.monotonic() + TIMEOUT_S
        self._ranks = [range(low, min(low + A_CROWD, world.nodes)) for low in range(1, world.nodes, A_CROWD)]
        for ranks in self._ranks:
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("spawn").Process(
                daemon=True, target=members, args=(world, ranks, theirs)
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def come(self, at: float, step_s: float, but_last: int = 0) -> None:
        """Have all come but the last, in turn from each process."""
        for number, (pipe, ranks) in enumerate(zip(self.pipes, self._ranks, strict=True)):
            last = len(ranks) - (but_last if number == len(self.pipes) - 1 else 0)
            pipe.send((0, last, at + number * step_s, step_s * len(self.pipes)))

    def last(self) -> float:
        """Have the last one come, and return when."""
        at = time.monotonic()
        self.pipes[-1].send((len(self._ranks[-1]) - 1, None, at, 0.0))
        return at

    def wait(self, word: str, fewer: int = 0) -> float:
        """Wait until all of each process but `fewer` of the last say so; return when the last did."""
        latest = 0.0
        for number, (pipe, ranks) in enumerate(zip(self.pipes, self._ranks, strict=True)):
            wanted = len(ranks) - (fewer if number == len(self.pipes) - 1 else 0)
            while True:
                while not pipe.poll(1.0):
                    self._check(word)
                said, count, when = pipe.recv()
                if said == word and count == wanted:
                    break
            latest = max(latest, when)
        return latest

    def _check(self, word: str) -> None:
        if time.monotonic() > self._deadline or not all(process.is_alive() for process in self.processes):
            raise TimeoutError(f"no {word!r} within {TIMEOUT_S:g} s, or a process has ended by an error")

    def close(self) -> None:
        """Have them end."""
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except BrokenPipeError:
                pass  # it has ended by an error, which it has printed
        for process in self.processes:
            process.join(5.0)
            process.terminate()


def once(
    nodes: int,
    number: int,
    how: str,
    leader: Callable[[World, Connection], None] = endpoint,
    members: Callable[[World, range, Connection], None] = be_crowd,
) -> Run:
    """Form one world of N, and return what it took; others may be its leader and members (checkin.py)."""
    port = PORTS[(os.getpid() + number) % len(PORTS)]
    world = World(f"benchmark-{os.getpid()}-{number}", nodes, port, wants_roster=how == ROSTER)
    ours, theirs = multiprocessing.Pipe()
    crowds = Crowds(world, members)
    process = multiprocessing.get_context("spawn").Process(daemon=True, target=leader, args=(world, theirs))
    process.start()
    crowds.processes.append(process)
    theirs.close()
    try:
        crowds.wait("ready")
        time.sleep(0.5)
        _idle(process.pid)
        if how == AT_ONCE:
            began = time.monotonic() + 0.2
            crowds.come(began, STORM_S / nodes)
        else:
            crowds.come(time.monotonic(), STEP_S, but_last=1)
            crowds.wait("in", fewer=1)
            _idle(process.pid)
        used_s = [_cpu_s(one.pid) for one in crowds.processes]
        if how != AT_ONCE:
            began = crowds.last()
        seconds = crowds.wait("formed") - began
        *members_s, leader_s = (_cpu_s(one.pid) - s for one, s in zip(crowds.processes, used_s, strict=True))
        cpu_s, kilobytes = ours.recv()
    finally:
        crowds.close()
    return Run(seconds, leader_s, sum(members_s), cpu_s, kilobytes)


def allowed(sizes: Sequence[int]) -> Sequence[int]:
    """Return the sizes that this machine can hold, by the open files that it allows; say so where not all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(sizes) + SPARE_FILES
    if hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, wanted))
        except (ValueError, OSError):  # only root may, and not in every container
            most = hard - SPARE_FILES
            print(f"  {hard} open files are allowed on this machine (ulimit -Hn): worlds of up to {most} members")
            sizes = tuple(dict.fromkeys(min(nodes, most) for nodes in sizes))
    return sizes


def _row(nodes: int, how: str, runs: list[Run]) -> Figures:
    def median(part: Callable[[Run], float]) -> float:
        return statistics.median(map(part, runs))

    return {
        "seconds": median(lambda run: run.seconds),
        "min": min(run.seconds for run in runs),
        "max": max(run.seconds for run in runs),
        "limit": LIMITS_S[how].get(nodes),
        "leader's processor seconds of these": median(lambda run: run.leader_s),
        "members' processor seconds of these": median(lambda run: run.members_s),
        "leader's processor ms a member": median(lambda run: run.cpu_s) / nodes * 1e3,
        "leader's KB a member": median(lambda run: run.kilobytes) / nodes,
    }


def _printed(cells: Iterable[object]) -> None:
    widths = (8, 23, 9, 9, 9, 7, 12, 12, 12, 10)
    print("  " + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def _said(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _growth(found: dict[str, Figures]) -> None:
    """Print how a member's cost to the leader grows from 1,024 members to the largest world."""
    for how in ARRIVALS:
        costs = [row["leader's processor ms a member"] for name, row in found.items() if name.endswith(f" {how}")]
        first = found.get(f"1024 {how}", {}).get("leader's processor ms a member")
        if first and costs[-1]:
            print(f"  {how}: a member's cost grows {costs[-1] / first:.2f} times (limit {LIMIT_GROWTH})")


def figures(sizes: Sequence[int] = SIZES, runs: int = 3, arrivals: Sequence[str] = ARRIVALS) -> dict[str, Figures]:
    """Return, for each N and way to come, the medians of several runs."""
    sizes = allowed(sizes)
    backlog = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    print(f"  {os.cpu_count()} processors for leader and members, {backlog} connections wait in the kernel (somaxconn)")
    print(f"  the leader's memory a member at most {LIMIT_KB:g} KB")
    _printed(
        [
            "members",
            "how they come",
            "median s",
            "min",
            "max",
            "limit",
            "leader's s",
            "members' s",
            "ms a member",
            "KB a m.",
        ]
    )
    found = {}
    number = 0
    for how in arrivals:
        taken: dict[int, list[Run]] = {nodes: [] for nodes in sizes}
        for _ in range(runs):  # sizes in turn: what else this machine does meanwhile meets all alike
            for nodes in sizes:
                number += 1
                taken[nodes].append(once(nodes, number, how))
        for nodes in sizes:
            row = found[f"{nodes} {how}"] = _row(nodes, how, taken[nodes])
            _printed([nodes, how, *map(_said, row.values())])
    _growth(found)
    return found


if __name__ == "__main__":
    figures()
