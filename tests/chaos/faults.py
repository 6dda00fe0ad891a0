"""How each fault is made on a host, and mended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cluster.host import Host, clean_env, enter, kill_group
from cluster.network import NETWORKS, port_name
from cluster.paths import PROJECT

from chaos.schedules import Fault

DATA = PROJECT / "tests/data"
# In the command lines of what belongs to the first job, of what only starts it, and of the second job.
ITS = ("bin/mingle ", "__main__.py agent", "train.sh", "0.000771")
NOT_ITS = ("task.sh", "eval.sh", "--id second", " second ")
STARTERS = {"srun", "salloc", "nsenter", "setpriv", "env", "ssh"}


def members(host: Host) -> list[int]:
    """Return the processes of the first job on a host: mingle's and COMMAND's, not those that started them."""
    return [
        pid
        for pid, line in sorted(host.processes().items())
        if any(word in line for word in ITS)
        and not any(word in line for word in NOT_ITS)
        and Path(line.split()[0]).name not in STARTERS
    ]


def make(fault: Fault, host: Host, home: str, clocks: Path) -> tuple[int, Callable[[], None]]:
    """Make a fault on a host; return how many processes it struck, and what mends it.

    `home` is the directory that all hosts share, and which a full disk may be; `clocks` has a file for each host's.
    """
    if fault.kind in ("kill", "replace"):
        return _kill(fault, host), _nothing
    return _stop(host) if fault.kind == "stop" else (0, _of_host(fault, host, home, clocks))


def _of_host(fault: Fault, host: Host, home: str, clocks: Path) -> Callable[[], None]:
    """Make a fault of a whole host; return what mends it."""
    if fault.kind == "delay":
        return _delay(host, fault.amount)
    if fault.kind == "clock":
        clock = clocks / host.name  # which a full disk does not hold
        clock.write_text(str(fault.amount))
        return partial(clock.unlink, missing_ok=True)
    if fault.kind == "full":
        fill, empty = ("full_disk", "empty_disk") if fault.where == "own" else (f"fill {home}", _EMPTY.format(home))
        _break(host, fill)
        return partial(_break, host, empty)
    if fault.kind == "unplug":
        host.unplug()
    elif fault.kind == "loss":
        host.lose(fault.amount)
    return host.clear_firewall


_EMPTY = "rm -f {0}/filler {0}/proof; mount -o remount,size=50% {0}"


def _nothing() -> None:
    return


def _kill(fault: Fault, host: Host) -> int:
    """Kill one of a job's processes on a host; all of them, where it is to be replaced."""
    found = members(host)
    if fault.kind == "kill" and found:
        found = [found[int(fault.amount * len(found))]]
    return sum(_signal(pid, signal.SIGKILL) for pid in found)


def _stop(host: Host) -> tuple[int, Callable[[], None]]:
    stopped = [pid for pid in members(host) if _signal(pid, signal.SIGSTOP)]

    def go_on() -> None:
        for pid in stopped:
            _signal(pid, signal.SIGCONT)

    return len(stopped), go_on


def _signal(pid: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _delay(host: Host, by_s: float) -> Callable[[], None]:
    """Pass all that a host sends and receives through a program that holds it up: these kernels may lack netem."""
    assert host.hosts._holder is not None
    switch, passing = enter(host.hosts._holder.pid), []
    for iface in NETWORKS:
        port, slow, end = port_name(iface, host.number), f"s{iface}{host.number}", f"t{iface}{host.number}"
        lines = [f"link add {slow} type veth peer name {end}", f"link set {slow} up"]
        host.hosts.ip([*lines, f"link set {end} master br-{iface} up", f"link set {port} nomaster"])
        argv = [*switch, sys.executable, "-IS", str(DATA / "delay.py"), port, slow, str(by_s)]
        passing.append(subprocess.Popen(argv, start_new_session=True, text=True, env=clean_env("root", "/")))

    def mend() -> None:
        for its in passing:
            kill_group(its)
            its.wait()
        for iface in NETWORKS:
            port = port_name(iface, host.number)
            host.hosts.ip([f"link set {port} master br-{iface}", f"link del s{iface}{host.number}"])

    return mend


def _break(host: Host, call: str) -> None:
    host.run(["sh", "-euc", f". {DATA}/breakages.sh; {call}"], check=True)
