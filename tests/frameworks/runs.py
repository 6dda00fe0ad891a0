"""One framework on three hosts: started as a person would, and seen to train as one world."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from cluster.host import Host
from cluster.hosts import Hosts
from cluster.paths import LEAN
from cluster.slurm import SlurmCluster

from frameworks.rows import ALIKE, REJOIN, Row

KEY = {"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2}
# One core each is enough, and tensorflow's and ray's own messages hide what matters.
ENV = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", **LEAN}
LATE = 124  # as timeout(1) says
# torch 2.13's builds for CPUs end so in one of ten processes, when all is done, without mingle too; torchrun then
# waits for the others. Such a try says nothing, and is made again.
OF_TORCH = "terminate called without an active exception"
TRIES = 4
# By then all three have taken steps together.
WELL_UNDER_WAY = "STEP 5"
SSHD = "/usr/sbin/sshd"
KEYS = """mkdir -p -m 700 ~/.ssh && cd ~/.ssh || exit
[ -e id_ed25519 ] || ssh-keygen -q -t ed25519 -N "" -f id_ed25519 && cp id_ed25519.pub authorized_keys"""
CONFIG = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"


class Seen(NamedTuple):
    """How a try ended on all hosts."""

    codes: list[int]
    out: str
    err: str

    def verdict(self, size: int) -> str:
        """Return "" where every rank of one world trained, else what happened instead."""
        lines = re.findall(r"TRAINED rank=(\d+) size=(\d+)", self.out)
        trained = sorted((int(rank), int(of)) for rank, of in lines)
        if any(self.codes) and not (OF_TORCH in self.err and len(trained) == size):
            return f"exit status {', '.join(map(str, self.codes))}: {_last(self.err)}"
        if trained != [(rank, size) for rank in range(size)]:
            return f"{len(trained)} of {size} trained: {trained}"
        return OF_TORCH if any(self.codes) else ""


def on_hosts(row: Row, hosts: Hosts, iface: str, slots: tuple[int, ...]) -> str:
    """Run a row on three bare hosts; return "" where it trained, else why not."""
    env = {**KEY, **ENV, **row.env}
    command = row.command(slots, sys.executable)

    def one(number: int) -> Seen:
        world = ["--id", "job", "--nodes", str(len(slots)), "--iface", iface]
        return ended(hosts[number], _alone(row, _line(world, slots[number], row, command)), env, row.longest_s)

    return tried(row.name, partial(on_all, hosts, one), row.size(slots))


def on_all(hosts: Hosts, one: Callable[[int], Seen]) -> Seen:
    """Run a try on each host, by its number from 0, and return how it ended on all, with nothing left of it."""
    try:
        with ThreadPoolExecutor(len(hosts)) as pool:
            done = list(pool.map(one, range(len(hosts))))
    finally:
        end_all(hosts)
    codes = [code for its in done for code in its.codes]
    return Seen(codes, "".join(its.out for its in done), "".join(its.err for its in done))


def under_slurm(row: Row, slurm: SlurmCluster, iface: str, slots: tuple[int, ...]) -> str:
    """Run a row under srun; return "" where it trained, else why not."""
    own = f"$(set -- {' '.join(map(str, slots))}; shift $SLURM_NODEID; echo $1)"
    line = _line(["--iface", iface], own, row, row.command(slots, sys.executable))
    words = ["srun", f"-N{len(slots)}", f"-n{len(slots)}", *_alone(row, line)]

    def run() -> Seen:
        try:
            return ended(slurm.controller, words, {**KEY, **ENV, **row.env}, row.longest_s)
        finally:
            slurm.cancel_all()

    return tried(row.name, run, row.size(slots))


def tried(name: str, run: Callable[[], Seen], size: int) -> str:
    """Return the verdict of a try, and write the end of what a failed one said to stderr."""
    why = ""
    for _ in range(TRIES):
        seen = run()
        why = seen.verdict(size)
        if not why:
            return ""
        sys.stderr.write(f"--- {name}: {why}\n{seen.out[-4000:]}\n{seen.err[-6000:]}\n---\n")
        if why != OF_TORCH:
            break
    return why


def ended(host: Host, words: list[str], env: Mapping[str, str], longest_s: float) -> Seen:
    """Run a command on a host for so long at most, and return how it ended."""
    try:
        done = host.run(words, env=env, timeout=longest_s)
    except subprocess.TimeoutExpired as late:
        return Seen([LATE], *(str(text or "") for text in (late.stdout, late.stderr)))
    return Seen([done.returncode], done.stdout, done.stderr)


def _line(world: list[str], slots: int | str, row: Row, command: str) -> str:
    own = f"--slots {slots}" if row.per_slot else ""
    return f"exec mingle exec {shlex.join(world)} {own} {command}"


def _alone(row: Row, line: str) -> list[str]:
    """Return a shell's command; with process ids of its own, as on a host, where the framework looks at all."""
    own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if row.own_pids else []
    return [*own, "bash", "-c", line]


def end_all(hosts: Hosts | Host) -> None:
    """End what a try has left running, daemons excepted."""
    for pid, line in hosts.processes().items():
        if not re.match(r"(sshd|munged|slurm|/usr/sbin/)", line):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _last(err: str | bytes | None) -> str:
    text = err.decode(errors="replace") if isinstance(err, bytes) else err or ""
    lines = [line for line in text.splitlines() if re.search(r"[Ee]rror|mingle:|refused|fail", line)]
    return (lines or text.splitlines() or ["nothing on stderr"])[-1][:300]


def serve_ssh(hosts: Hosts) -> None:
    """Start sshd on every host, if there is one, with a key that all know, for launchers that reach others."""
    if shutil.which(SSHD) is None:
        return
    hosts[0].run(["sh", "-c", KEYS], check=True)
    hosts[0].write("/root/.ssh/config", CONFIG, mode=0o600)
    for host in hosts:
        host.run(["sh", "-c", 'mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N "" -f /run/sshd/key'], check=True)
        options = ["-o", "UsePAM=no", "-o", "PidFile=none"]
        host.popen([SSHD, "-D", "-h", "/run/sshd/key", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def with_one_killed(hosts: Hosts) -> str:
    """Train elastically, kill one of three hosts' processes and start it again; return "" where all came to the end."""
    world, command = f"--id elastic --nodes {len(ALIKE)} --rank", REJOIN.command(ALIKE, sys.executable)
    return rejoined(hosts, lambda number: f"exec mingle exec {world} {number} {command}", {**KEY, **ENV})


def rejoined(hosts: Hosts, line: Callable[[int], str], env: Mapping[str, str]) -> str:
    """Run the line of each of three hosts as `with_one_killed` does; return "" where all came to the end."""
    return tried(REJOIN.name, partial(_rejoined, hosts, line, env), len(ALIKE))


def _rejoined(hosts: Hosts, line: Callable[[int], str], env: Mapping[str, str]) -> Seen:
    def start(number: int) -> subprocess.Popen[str]:
        return hosts[number].popen(["bash", "-c", line(number)], env=env)

    first, second, third = (start(number) for number in range(len(ALIKE)))
    assert first.stdout is not None
    assert any(line.startswith(WELL_UNDER_WAY) for line in first.stdout)
    end_all(hosts[2])
    third.wait()
    ended = [first, second, start(2)]
    try:
        said = [its.communicate(timeout=REJOIN.longest_s) for its in ended]
    except subprocess.TimeoutExpired as late:
        return Seen([LATE], "", str(late))
    return Seen([its.returncode for its in ended], *("".join(its[stream] for its in said) for stream in (0, 1)))
