"""What is lost on one of four hosts, under `mingle run` and its peers: when COMMAND has ended elsewhere, and restarted.

Each case has hosts of its own. After BACK_S what was unplugged or frozen comes back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))


from cluster.host import Host

from benchmarks.peers import PEERS, Begun, Cell, PeerError, Place, by_turns, on_hosts, shown, started, versions

HOSTS, BACK_S, LIMIT_S, LOOK_S = 4, 30.0, 60.0, 0.005
# What of a launcher is on each host: words of its command lines.
LAUNCHERS = {
    "mingle run": "__main__.py agent",
    "torchrun c10d": "bin/torchrun",
    "ft_launcher": "bin/ft_launcher",
    "srun -K": "slurmstepd: [",
    "Open MPI": "orted",
    "MPICH": "hydra_pmi_proxy",
}
# Beside peers, case -> how long each is waited for. Where a host is silent, most do so to the end: all at once.
KILLED, UNPLUGGED = "killed", "unplugged"
BESIDE = {KILLED: 20.0, UNPLUGGED: 45.0}
CASES = ("exit 7", KILLED, "launcher kill -9", UNPLUGGED, "frozen")
PARTS = ("end", "restart")
RESTARTS = ("mingle run", "torchrun static", "torchrun c10d", "ft_launcher")
# They only start COMMAND, as `mingle exec` and the recipe do, which stand for them.
NOT_BESIDE = ("COMMAND alone", "python-zeroconf", "TCPStore", "srun", "srun mingle exec")

Times = tuple[float | None, float | None]


def figures() -> dict[str, dict[str, object]]:
    """Return seconds until COMMAND has ended on the other hosts and until it runs on all again; None: not in time."""
    found, _lacks = versions()
    table: dict[str, dict[str, object]] = {
        name: {"version": found[PEERS[name].version]} for name in LAUNCHERS if PEERS[name].version in found
    }
    print(
        f"  {'':16}" + "".join(f"{case:>22}" for case in CASES) + f"   (ends, restarts; -: not within {LIMIT_S:.0f} s)"
    )
    with ProcessPoolExecutor(len(table)) as pool:
        for peer, row in zip(table, pool.map(_row, table), strict=True):
            cells = "".join(f"{'  '.join('-' if s is None else f'{s:.1f} s' for s in row[case]):>22}" for case in CASES)
            print(f"  {peer:16}{cells}   {table[peer]['version']}", flush=True)
            table[peer] |= row
    return table


def beside(here: Iterable[str]) -> dict[str, dict[str, Cell]]:
    """Return, for each case of BESIDE and tool, the seconds to the end elsewhere, and to the restart on all."""
    names = [name for name in here if name not in NOT_BESIDE]
    found = {}
    with on_hosts(HOSTS) as place:
        found[KILLED] = by_turns(names, lambda name: _told(name, KILLED, place))
    with ProcessPoolExecutor(len(names)) as pool:
        rows = dict(zip(names, pool.map(_unplugged, names), strict=True))
    found[UNPLUGGED] = by_turns(names, rows.__getitem__, turns=1)
    for case, cells in found.items():
        found[case] = {key: cells[key] for name in names for part in PARTS if (key := f"{name}: {part}") in cells}
        for name, cell in found[case].items():
            print(f"  {case:16} {name:33} {shown(cell)}", flush=True)
    return found


def _unplugged(name: str) -> dict[str, float | str]:
    with on_hosts(HOSTS) as place:
        return _told(name, UNPLUGGED, place)


def _told(name: str, case: str, place: Place) -> dict[str, float | str]:
    """Lose something, and return a time or why there is none, for each part."""
    try:
        times = once(name, case, place, BESIDE[case])
    except PeerError as why:
        return {f"{name}: {part}": str(why) for part in PARTS}
    found: dict[str, float | str] = {}
    for part, seconds in zip(PARTS, times, strict=True):
        lacks = part == "restart" and name not in RESTARTS
        why_not = "has none" if lacks else f"not within {BESIDE[case]:g} s"
        found[f"{name}: {part}"] = why_not if seconds is None else seconds
    return found


def _row(peer: str) -> dict[str, Times]:
    found: dict[str, Times] = {}
    for case in CASES:
        with on_hosts(HOSTS) as place:
            ended_s, again_s = once(peer, case, place)
            found[case] = ended_s and round(ended_s, 1), again_s and round(again_s, 1)
    return found


def once(peer: str, case: str, hosts: Place, limit_s: float = LIMIT_S) -> Times:
    """Start a peer, with a restart where it has any, and lose something of the third host."""
    with started(peer, hosts) as (place, runs, _began_s):
        lost = place.hosts[2]
        pids = {one.host: _outside(place, one) for one in place.begun()}
        others = [pid for name, pid in pids.items() if name != lost.name]
        began_s = time.monotonic()
        put_back = _lose(case, peer, lost, pids[lost.name])
        try:
            return _watch(others, place, runs, put_back, began_s, limit_s)
        finally:
            put_back()


def _outside(place: Place, begun: Begun) -> int:
    """Return the pid that a process has here, which may be another one than in its own namespace."""
    (host,) = (host for host in place.hosts if host.name == begun.host)
    for pid in host.processes():
        if any(line.split()[-1] == str(begun.pid) for line in _status(pid) if line.startswith("NSpid:")):
            return pid
    raise PeerError(f"COMMAND has ended on {begun.host}")


def _status(pid: int) -> list[str]:
    path = Path(f"/proc/{pid}/status")
    return path.read_text().splitlines() if path.exists() else []


def _lose(case: str, peer: str, host: Host, command: int) -> Callable[[], None]:
    """Lose something of a host; return what puts it back."""
    if case == UNPLUGGED:
        host.unplug()
        return host.clear_firewall
    if case == "frozen":
        pids = [*host.processes()]
        _signal(pids, signal.SIGSTOP)
        return lambda: _signal(pids, signal.SIGCONT)
    if case == "launcher kill -9":
        _signal([pid for pid, line in host.processes().items() if LAUNCHERS[peer] in line], signal.SIGKILL)
    else:
        os.kill(command, signal.SIGUSR1 if case == "exit 7" else signal.SIGKILL)
    return lambda: None


def _signal(pids: list[int], number: int) -> None:
    for pid in filter(_is_there, pids):
        os.kill(pid, number)


def _is_there(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def _watch(
    pids: list[int],
    place: Place,
    runs: list[subprocess.Popen[str]],
    put_back: Callable[[], None],
    began_s: float,
    limit_s: float,
) -> Times:
    ended_s: float | None = None
    is_back = False
    while (passed_s := time.monotonic() - began_s) < limit_s:
        if passed_s > BACK_S and not is_back:
            put_back()
            is_back = True
        if ended_s is None and not any(map(_is_there, pids)):
            ended_s = passed_s
        if len(place.begun()) >= 2 * HOSTS:
            return ended_s, passed_s
        if ended_s is not None and all(run.poll() is not None for run in runs):
            break
        time.sleep(LOOK_S)
    return ended_s, None


if __name__ == "__main__":
    figures()
