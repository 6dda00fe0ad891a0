"""What is lost on one of four hosts, under `mingle run` and its peers: when COMMAND has ended elsewhere, and restarted.

Each case has hosts of its own. After BACK_S what was unplugged or frozen comes back.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from cluster.host import Host
from cluster.hosts import Hosts
from cluster.paths import MINGLE
from cluster.slurm import SlurmCluster
from cluster.ssh import ssh
from cluster.waiting import until

HOSTS, BACK_S, LIMIT_S, LOOK_S = 4, 30.0, 60.0, 0.02
# COMMAND, which fails by USR1. It has no children: some peers wait for all that hold its output.
WORK = """\
import os, signal, socket
signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
with open(os.environ["UP"] + "/begun", "a") as file:
    file.write(f"{os.getpid()} {socket.gethostname()}\\n")
while True:
    signal.pause()
"""
# What of a launcher is on each host: words of its command lines.
LAUNCHERS = {
    "mingle run": "__main__.py agent",
    "torchrun c10d": "bin/torchrun",
    "ft_launcher": "bin/ft_launcher",
    "srun -K": "slurmstepd: [",
    "mpirun": "orted",
}
CASES = ("exit 7", "COMMAND kill -9", "launcher kill -9", "unplugged", "frozen")


def versions() -> dict[str, str]:
    """Return the version of each peer that is here."""
    found = {"mingle run": metadata.version("mingle-hooks")}
    for name, package in (("torchrun c10d", "torch"), ("ft_launcher", "nvidia-resiliency-ext")):
        try:
            found[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            print(f"  {name} is not here: pip install {package}")
    for name, *words in (("srun -K", "slurmctld", "-V"), ("mpirun", "mpirun", "--version")):
        if program := shutil.which(words[0], path=f"{os.environ['PATH']}:/usr/sbin"):
            said = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=True).stdout
            found[name] = said.split("\n")[0].split()[-1]
        else:
            print(f"  {name} is not here: {words[0]}")
    return found


def figures() -> dict[str, dict[str, object]]:
    """Return seconds until COMMAND has ended on the other hosts and until it runs on all again; None: not in time."""
    peers = versions()
    table: dict[str, dict[str, object]] = {peer: {"version": version} for peer, version in peers.items()}
    print(
        f"  {'':16}" + "".join(f"{case:>22}" for case in CASES) + f"   (ends, restarts; -: not within {LIMIT_S:.0f} s)"
    )
    with ProcessPoolExecutor(len(peers)) as pool:
        for peer, row in zip(peers, pool.map(_row, peers), strict=True):
            table[peer] |= row
            shown = "".join(f"{'  '.join('-' if s is None else f'{s:.1f} s' for s in row[case]):>22}" for case in CASES)
            print(f"  {peer:16}{shown}   {peers[peer]}", flush=True)
    return table


Times = tuple[float | None, float | None]


def _row(peer: str) -> dict[str, Times]:
    return {case: _once(peer, case) for case in CASES}


def _once(peer: str, case: str) -> Times:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.chmod(0o777)
        (place / "work.py").write_text(WORK)
        hosts = stack.enter_context(Hosts(HOSTS, share=[place]))
        if peer == "srun -K":
            stack.enter_context(SlurmCluster(hosts))
        runs = list(_start(peer, hosts, place))
        until(lambda: len(_begun(place)) == HOSTS, lambda: [run.poll() for run in runs], 120.0)
        lost = hosts[2]
        others = [pid for pid, name in _begun(place) if name != lost.name]
        put_back = _lose(case, peer, lost, {name: pid for pid, name in _begun(place)}[lost.name])
        return _watch(others, place, runs, put_back)


def _start(peer: str, hosts: Hosts, place: Path) -> Iterator[subprocess.Popen[str]]:
    """Start COMMAND on all hosts, with a restart where the peer has any."""
    work, names = ["python3", f"{place}/work.py"], ",".join(host.name for host in hosts)
    env = {"UP": str(place), "HOME": "/root", "PATH": f"{MINGLE.parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
    rendezvous = f"--rdzv-backend c10d --rdzv-id 1 --rdzv-endpoint {hosts[0].addr()}:29400 --max-restarts 1"
    elastic = ["--nnodes", str(HOSTS), "--nproc-per-node", "1", *rendezvous.split(), "--no-python", *work]
    lines = {
        "mingle run": [str(MINGLE), "run", "--hosts", names, "--restarts", "1", "--silence", "15,15", *work],
        "torchrun c10d": ["torchrun", *elastic],
        "ft_launcher": ["ft_launcher", "--ignore-missing-fault-tol-cfg", *elastic],
        "srun -K": ["srun", "-K", f"-N{HOSTS}", *work],
        "mpirun": ["mpirun", "--allow-run-as-root", "--host", names, "--mca", "oob_tcp_if_include", "eth0", "-x", "UP"],
    }
    if peer in ("mingle run", "mpirun"):
        env["PATH"] = f"{ssh(hosts, place)}:{env['PATH']}"
        lines["mpirun"] += work
    starts = [*hosts] if peer in ("torchrun c10d", "ft_launcher") else [hosts[0]]
    for host in starts:
        out = (place / f"out.{host.name}").open("w")
        yield host.popen(lines[peer], env=env, cwd=str(place), stdout=out, stderr=subprocess.STDOUT)


def _begun(place: Path) -> list[tuple[int, str]]:
    path = place / "begun"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(int(pid), name) for pid, name in rows]


def _lose(case: str, peer: str, host: Host, command: int) -> Callable[[], None]:
    """Lose something of a host; return what puts it back."""
    if case == "unplugged":
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


def _watch(pids: list[int], place: Path, runs: list[subprocess.Popen[str]], put_back: Callable[[], None]) -> Times:
    began = time.monotonic()
    ended_s: float | None = None
    is_back = False
    while (passed_s := time.monotonic() - began) < LIMIT_S:
        if passed_s > BACK_S and not is_back:
            put_back()
            is_back = True
        if ended_s is None and not any(map(_is_there, pids)):
            ended_s = passed_s
        if len(_begun(place)) >= 2 * HOSTS:
            return ended_s, passed_s
        if ended_s is not None and all(run.poll() is not None for run in runs):
            break
        time.sleep(LOOK_S)
    return ended_s, None


if __name__ == "__main__":
    figures()
