"""One framework on three hosts: started as a person would, and seen to train as one world."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.hosts import Hosts
    from cluster.slurm import SlurmCluster

    from frameworks.rows import Row

KEY = {"MINGLE_KEY": "00112233445566778899aabbccddeeff"}
# One core each is enough, and tensorflow's and ray's own messages hide what matters.
ENV = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
# DeepSpeed compiles on the first run, and ray's workers notice the head's end after a minute.
LONGEST_S = 240.0


def on_hosts(row: Row, hosts: Hosts, iface: str, slots: tuple[int, ...]) -> str:
    """Run a row on three bare hosts; return "" where it trained, else why not."""
    env = {**KEY, **ENV, **row.env}

    def one(number: int) -> subprocess.CompletedProcess[str]:
        world = ["--id", "job", "--nodes", str(len(slots)), "--iface", iface]
        command = row.command(slots, sys.executable)
        return hosts[number].run(_alone(row, _line(world, slots[number], row, command)), env=env, timeout=LONGEST_S)

    try:
        with ThreadPoolExecutor(len(slots)) as pool:
            done = list(pool.map(one, range(len(slots))))
    except subprocess.TimeoutExpired as late:
        return f"no end within {LONGEST_S:g} s: {_last(late.stderr)}"
    finally:
        _end(set(hosts.processes()) - _daemons(hosts))
    out, err = ("".join(getattr(its, stream) for its in done) for stream in ("stdout", "stderr"))
    return seen(row, [its.returncode for its in done], out, err, row.size(slots))


def under_slurm(row: Row, slurm: SlurmCluster, iface: str, slots: tuple[int, ...]) -> str:
    """Run a row under srun; return "" where it trained, else why not."""
    env: Mapping[str, str] = {**KEY, **ENV, **row.env}
    command = row.command(slots, sys.executable)
    own = f"$(set -- {' '.join(map(str, slots))}; shift $SLURM_NODEID; echo $1)"
    line = _line(["--iface", iface], own, row, command)
    try:
        done = slurm.srun(f"-N{len(slots)}", f"-n{len(slots)}", *_alone(row, line), env=env, timeout=LONGEST_S)
    except subprocess.TimeoutExpired as late:
        return f"no end within {LONGEST_S:g} s: {_last(late.stderr)}"
    finally:
        slurm.cancel_all()
    return seen(row, [done.returncode], done.stdout, done.stderr, row.size(slots))


def seen(row: Row, codes: list[int], out: str, err: str, size: int) -> str:
    """Return the verdict, and write the end of what a failed try said to stderr."""
    why = verdict(codes, out, err, size)
    if why:
        sys.stderr.write(f"--- {row.name}\n{out[-4000:]}\n{err[-6000:]}\n---\n")
    return why


def verdict(codes: list[int], out: str, err: str, size: int) -> str:
    """Return "" where every rank of one world trained, else what happened instead."""
    trained = sorted((int(rank), int(of)) for rank, of in re.findall(r"TRAINED rank=(\d+) size=(\d+)", out))
    if any(codes):
        return f"exit status {', '.join(map(str, codes))}: {_last(err)}"
    if trained != [(rank, size) for rank in range(size)]:
        return f"{len(trained)} of {size} trained: {trained}"
    return ""


def _line(world: list[str], slots: int | str, row: Row, command: str) -> str:
    own = f"--slots {slots}" if row.per_slot else ""
    return f"exec mingle exec {shlex.join(world)} {own} {command}"


def _alone(row: Row, line: str) -> list[str]:
    """Return a shell's command; with process ids of its own, as on a host, where the framework looks at all."""
    own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if row.own_pids else []
    return [*own, "bash", "-c", line]


def _daemons(hosts: Hosts) -> set[int]:
    return {pid for pid, line in hosts.processes().items() if re.match(r"(sshd|munged|slurm|/usr/sbin/)", line)}


def _end(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _last(err: str | bytes | None) -> str:
    text = err.decode(errors="replace") if isinstance(err, bytes) else err or ""
    lines = [line for line in text.splitlines() if re.search(r"[Ee]rror|mingle:|refused|fail", line)]
    return (lines or text.splitlines() or ["nothing on stderr"])[-1][:300]
