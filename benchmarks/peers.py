"""`mingle` beside other tools, in one run: until COMMAND runs on 2 to 16 hosts, what a lost host does, and check-in.

Hosts are network namespaces of this machine, and share its processors. All tools take turns, with the same COMMAND.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from cluster.paths import BIN, MINGLE
from cluster.slurm import SlurmCluster
from cluster.ssh import ssh

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = str(BIN / "python3")
WORK = [PYTHON, str(PROGRAMS / "work.py")]
SIZES = (2, 4, 8, 16)
# A cell gets so many turns, but no more after so long: what imports much takes a quarter of a minute on 16 hosts.
TURNS, ENOUGH_S = 3, 5.0
LIMIT_S, END_S, LOOK_S = 90.0, 5.0, 0.01
FAILURE = re.compile(r"error|exception|timed out|failed to|cannot", re.IGNORECASE)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
KEY = "6d696e676c65" * 5 + "0000"  # of no world but these
ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "HOME": "/root",
    "MINGLE_KEY": KEY,
    "PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin",
}
PORTS = itertools.count(29_000)  # below those that the kernel gives away
HOSTS, SSH, SRUN = "every host starts it", "one host starts all, by ssh", "srun starts all"

Cell = dict[str, Any]  # its raw values, their median, or why it failed


@dataclass(frozen=True)
class Place:
    """One start of one peer: a directory that all hosts see, and a port that is used once."""

    hosts: Hosts
    path: Path
    port: int

    @property
    def size(self) -> int:
        """The number of hosts."""
        return len(self.hosts)

    @property
    def names(self) -> str:
        """The hosts' names, as most launchers want them."""
        return ",".join(host.name for host in self.hosts)

    @property
    def head(self) -> str:
        """The first host's address."""
        return self.hosts[0].addr()

    def begun(self) -> list[Begun]:
        """Return where COMMAND runs, or ran."""
        path = self.path / "begun"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [Begun(int(pid), host, int(size), float(at), float(since)) for pid, host, size, at, since in rows]

    def log(self) -> str:
        """Return the last line that tells of a failure, else the last of all, for each host that printed any."""
        texts = [COLOURS.sub("", path.read_text(errors="replace")).strip() for path in sorted(self.path.glob("out.*"))]
        lines = [text.splitlines() for text in texts if text]
        told = [next((line for line in reversed(its) if FAILURE.search(line)), its[-1]) for its in lines]
        return " | ".join(line.strip()[:200] for line in dict.fromkeys(told))[:400]


class Begun(NamedTuple):
    """A line of programs/work.py."""

    pid: int
    host: str
    size: int
    at_s: float
    since_s: float


class Peer(NamedTuple):
    """A tool, who starts it, and its command line on the host of a rank."""

    starts: str
    line: Callable[[Place, int], list[str]]
    version: str  # of VERSIONS


def _torch(program: str, *more: str) -> Callable[[Place, int], list[str]]:
    def line(place: Place, rank: int) -> list[str]:
        found = {"{rank}": str(rank), "{head}": place.head, "{port}": str(place.port)}
        words = [
            program,
            f"--nnodes={place.size}",
            "--nproc-per-node=1",
            "--max-restarts=1",
            *more,
            "--no-python",
            *WORK,
        ]
        for mark, value in found.items():
            words = [word.replace(mark, value) for word in words]
        return words

    return line


def _ray(place: Place, _rank: int) -> list[str]:
    ray = ["ray", "symmetric-run", "--address", f"{place.head}:{place.port}", "--min-nodes", str(place.size)]
    few = ["--num-cpus=1", "--object-store-memory=80000000"]
    return [*OWN_PIDS, *ray, *few, "--", PYTHON, str(PROGRAMS / "tasks.py")]


# Ray looks for other Rays among all processes, and these hosts have those of one machine.
OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", '"$@"; exit $?', "bash")
C10D = ("--rdzv-backend=c10d", "--rdzv-id=1", "--rdzv-endpoint={head}:{port}")
STATIC = ("--node-rank={rank}", "--master-addr={head}", "--master-port={port}")
RECIPE = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1) MASTER_PORT=29500 exec "$@"'
HYDRA = ("-launcher", "ssh", "-iface", "eth0", "-ppn", "1")
OPEN_MPI = ("--allow-run-as-root", "--mca", "oob_tcp_if_include", "eth0", "-x", "UP")
EXEC = [str(MINGLE), "exec"]

PEERS = {
    "COMMAND alone": Peer(HOSTS, lambda _place, _rank: WORK, "python"),
    "mingle exec": Peer(
        HOSTS, lambda place, _rank: [*EXEC, "--id", f"b{place.port}", "--nodes", str(place.size), *WORK], "mingle"
    ),
    "python-zeroconf": Peer(
        HOSTS, lambda place, _rank: [PYTHON, str(PROGRAMS / "services.py"), str(place.size)], "zeroconf"
    ),
    "TCPStore": Peer(
        HOSTS,
        lambda place, rank: [PYTHON, str(PROGRAMS / "store.py"), place.head, *map(str, (place.port, rank, place.size))],
        "torch",
    ),
    "torchrun static": Peer(HOSTS, _torch("torchrun", *STATIC), "torch"),
    "torchrun c10d": Peer(HOSTS, _torch("torchrun", *C10D), "torch"),
    "ft_launcher": Peer(HOSTS, _torch("ft_launcher", "--ignore-missing-fault-tol-cfg", *C10D), "nvidia-resiliency-ext"),
    "Ray": Peer(HOSTS, _ray, "ray"),
    "mingle run": Peer(
        SSH,
        lambda place, _rank: [str(MINGLE), "run", "--hosts", place.names, "--restarts=1", "--silence=15,15", *WORK],
        "mingle",
    ),
    "Open MPI": Peer(SSH, lambda place, _rank: ["mpirun.openmpi", "--host", place.names, *OPEN_MPI, *WORK], "Open MPI"),
    "MPICH": Peer(SSH, lambda place, _rank: ["mpirun.mpich", "-hosts", place.names, *HYDRA, *WORK], "MPICH"),
    "srun": Peer(SRUN, lambda place, _rank: ["srun", f"-N{place.size}", *WORK], "Slurm"),
    "srun -K": Peer(SRUN, lambda place, _rank: ["srun", "-K", f"-N{place.size}", *WORK], "Slurm"),
    "scontrol recipe": Peer(
        SRUN, lambda place, _rank: ["srun", f"-N{place.size}", "bash", "-c", RECIPE, "bash", *WORK], "Slurm"
    ),
    "srun mingle exec": Peer(SRUN, lambda place, _rank: ["srun", f"-N{place.size}", *EXEC, *WORK], "mingle"),
}
# Waits of a program that has loaded its library already: a training program imports torch in any case.
WITHOUT_WORLD = {"COMMAND alone"}
IMPORTED = {"TCPStore": "TCPStore, imported"}
# What tells a version, and what installs the tool.
PACKAGES = ("torch", "ray", "zeroconf", "nvidia-resiliency-ext")
OUTSIDE = {
    "Open MPI": (("mpirun.openmpi", "--version"), "openmpi-bin"),
    "MPICH": (("mpirun.mpich", "--version"), "mpich"),
    "Slurm": (("slurmctld", "-V"), "slurmctld slurmd slurm-client munge"),
}


def versions() -> tuple[dict[str, str], dict[str, str]]:
    """Return the version of each tool that is here, and what installs each other one."""
    found, lacks = {"mingle": metadata.version("mingle-hooks"), "python": platform.python_version()}, {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            lacks[name] = f"pip install {name}"
    for name, (words, package) in OUTSIDE.items():
        if program := shutil.which(words[0], path=f"{os.environ['PATH']}:/usr/sbin"):
            said = subprocess.run([program, *words[1:]], capture_output=True, text=True, check=True).stdout.split()
            found[name] = next(word for word in said if word[0].isdigit())
        else:
            lacks[name] = f"apt-get install {package}"
    return found, lacks


def machine() -> dict[str, object]:
    """Return what this machine is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processors": os.cpu_count(),
        "processor": next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown"),
        "memory_gib": round(pages / 2**30, 1),
        "kernel": platform.release(),
    }


def figures() -> dict[str, object]:
    """Return the machine, the versions, and the seconds of each part, raw and as medians."""
    from benchmarks import checkin, losses  # they use the above

    found, lacks = versions()
    for name, how in lacks.items():
        print(f"  {name} is not here, and left out: {how}")
    here = [name for name, peer in PEERS.items() if peer.version in found]
    return {
        "machine": machine(),
        "versions": found,
        "not_here": lacks,
        "start": start_figures(here),
        "loss": losses.beside(here),
        "check_in": checkin.figures(found),
    }


def start_figures(here: Iterable[str], sizes: Iterable[int] = SIZES) -> dict[str, dict[str, Cell]]:
    """Return, for each number of hosts and tool, the seconds from its start until COMMAND runs on all in one world."""
    found = {}
    for size in sizes:
        with on_hosts(size) as place:
            found[str(size)] = by_turns((name for name in here if name != "srun -K"), lambda name: _start(name, place))
            for name, cell in found[str(size)].items():
                print(f"  start on {size:2} hosts  {name:33} {shown(cell)}", flush=True)
    return found


def by_turns(
    keys: Iterable[str], measure: Callable[[str], Mapping[str, float | str]], turns: int = TURNS
) -> dict[str, Cell]:
    """Measure all in turn, as a machine that slows down slows all; return each row's seconds, or why it has none."""
    spent_s, rows, failed = dict.fromkeys(keys, 0.0), dict[str, list[float]](), dict[str, str]()
    for _ in range(turns):
        for key in [key for key, its_s in spent_s.items() if its_s < ENOUGH_S]:
            began_s = time.monotonic()
            try:
                measured = measure(key)
                if all(isinstance(seconds, str) for seconds in measured.values()):
                    spent_s[key] = ENOUGH_S  # nothing more is to be seen
                for name, seconds in measured.items():
                    if isinstance(seconds, str):
                        failed[name] = seconds
                    else:
                        rows.setdefault(name, []).append(round(seconds, 6))
            except PeerError as why:
                failed[key] = str(why)
                spent_s[key] = ENOUGH_S
            spent_s[key] += time.monotonic() - began_s
    found: dict[str, Cell] = {
        name: {"raw_s": raw, "median_s": round(statistics.median(raw), 6)} for name, raw in rows.items()
    }
    for key, reason in failed.items():
        found[key] = {**found.get(key, {}), "failed": reason}
    return found


def shown(cell: Cell) -> str:
    """Return a cell in a line."""
    seconds = f"{cell['median_s']:8.3f} s of {len(cell['raw_s'])}" if "median_s" in cell else ""
    return f"{seconds}  {cell.get('failed', '')}"


class PeerError(Exception):
    """A tool did not do what is measured; the text says why."""


@contextmanager
def on_hosts(size: int) -> Iterator[Place]:
    """Give hosts, with a Slurm if it is here, and a directory that they share."""
    has_slurm = shutil.which("slurmctld", path="/usr/sbin:/usr/bin")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)  # before the hosts look at it
        with Hosts(size, share=[name]) as hosts, SlurmCluster(hosts) if has_slurm else nullcontext():
            ssh(hosts, Path(name))
            yield Place(hosts, Path(name), 0)


@contextmanager
def started(name: str, place: Place) -> Iterator[tuple[Place, list[subprocess.Popen[str]], float]]:
    """Start a tool and wait until COMMAND runs on all hosts in one world; give since when; end all after."""
    peer, port = PEERS[name], next(PORTS)
    its = replace(place, path=place.path / str(port), port=port)
    its.path.mkdir(mode=0o777)
    before = {*place.hosts.processes()}
    env = {**ENV, "UP": str(its.path), "PATH": f"{place.path}/bin:{ENV['PATH']}"}
    lines = [peer.line(its, rank) for rank in range(place.size if peer.starts == HOSTS else 1)]
    began_s = time.monotonic()
    runs = []
    for rank, line in enumerate(lines):
        with (its.path / f"out.{rank}").open("w") as out:
            options: dict[str, Any] = {"cwd": str(its.path), "stdout": out, "stderr": subprocess.STDOUT}
            runs.append(place.hosts[rank].popen(line, env=env, **options))
    try:
        while len(begun := its.begun()) < place.size:
            if time.monotonic() - began_s > LIMIT_S:
                raise PeerError(f"COMMAND runs on {len(begun)} of {place.size} hosts after {LIMIT_S:g} s: {its.log()}")
            if all(run.poll() is not None for run in runs) and len(its.begun()) < place.size:
                raise PeerError(f"it has ended: {its.log()}")
            time.sleep(LOOK_S)
        yield its, runs, began_s
    finally:
        _end(its, runs, before)


def _start(name: str, place: Place) -> dict[str, float]:
    with started(name, place) as (its, _runs, began_s):
        begun = its.begun()
        if name not in WITHOUT_WORLD and {one.size for one in begun} != {place.size}:
            raise PeerError(f"worlds of {sorted(one.size for one in begun)}")
        last_s = max(one.at_s for one in begun)
        found = {name: last_s - began_s}
        if name in IMPORTED:
            found[IMPORTED[name]] = last_s - max(one.since_s for one in begun)
        return found


def _end(place: Place, runs: list[subprocess.Popen[str]], before: set[int]) -> None:
    """Have COMMAND end, and kill what is left a while later."""
    (place.path / "end").touch()
    until_s = time.monotonic() + END_S
    while left := {*place.hosts.processes()} - before:
        if time.monotonic() > until_s:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for run in runs:
        run.wait(END_S)
    if "slurmctld" in " ".join(place.hosts.processes().values()):
        while place.hosts[0].run(["squeue", "--noheader"]).stdout and time.monotonic() < until_s + LIMIT_S:
            time.sleep(0.05)


if __name__ == "__main__":
    figures()
