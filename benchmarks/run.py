"""What `mingle run` adds to a job: its start, its end, what it relays, and what it is while nothing happens."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster

MINGLE = Path(sys.executable).parent / "mingle"
HOSTS, TURNS = 8, 9
# Inside one job, as both commands take turns: when the last COMMAND began after the line was typed, and when the line
# was over after the last had ended.
DRIVER = """
import json, subprocess, sys, time
from pathlib import Path
place, turns, lines = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
say = 'date +%s%N >{0}/begin.$NODE_RANK; sleep 0.2; date +%s%N >{0}/end.$NODE_RANK'.format(place)
def stamps(name):
    return max(int(path.read_text()) for path in place.glob(name + '.*')) / 1e9
turned = []
for _ in range(turns):
    turn = {}
    for name, line in lines.items():
        began = time.time()
        subprocess.run([*line, 'sh', '-c', say], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        over = time.time()
        turn[name] = [stamps('begin') - began, over - stamps('end')]
    turned.append(turn)
(place / 'told').write_text(json.dumps(turned))
"""
LINES = {
    "srun mingle exec": ["srun", "--ntasks-per-node=1", str(MINGLE), "exec"],
    "mingle run": [str(MINGLE), "run"],
}
GIGABYTE = 10**9
LINE = b"x" * 99 + b"\n"
# An ssh that starts what it is told on this machine, whatever the host's name.
SSH = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done\nshift\nexec sh -c "$*"\n'
IDLE_S = 20.0


def figures() -> dict[str, dict[str, float]]:
    """Return seconds of start and end, processor time of a gigabyte, and memory and processor time at rest."""
    return {**_start_and_end(), **_relayed(), **_at_rest()}


def _start_and_end() -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        (place / "driver.py").write_text(DRIVER)
        with Hosts(HOSTS, share=[place]) as hosts, SlurmCluster(hosts) as slurm:
            words = f"{sys.executable} {place}/driver.py {place} {TURNS} '{json.dumps(LINES)}'"
            job = slurm.submit(words, f"--nodes={HOSTS}", f"--output={place}/out", user="alice", cwd=name)
            state = slurm.wait(job, timeout=300)
            if state != "COMPLETED":
                raise RuntimeError((place / "out").read_text())
        turns = json.loads((place / "told").read_text())
    found = {}
    for at, what in enumerate(("start", "end")):
        taken = {line: [turn[line][at] for turn in turns] for line in LINES}
        more = statistics.median(turn["mingle run"][at] - turn["srun mingle exec"][at] for turn in turns)
        found[f"{what} on {HOSTS} hosts, s"] = {
            **{line: statistics.median(its) for line, its in taken.items()},
            "more": more,
        }
        shown = "   ".join(f"{line} {statistics.median(its) * 1e3:6.0f} ms" for line, its in taken.items())
        print(f"  {what:6} on {HOSTS} hosts: {shown}   more: {more * 1e3:.0f} ms")
    return found


def _relayed() -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "text").write_bytes(LINE * (GIGABYTE // 100 // len(LINE)))
        (place / "ssh").write_text(SSH)
        (place / "ssh").chmod(0o755)
        write = f'[ "$NODE_RANK" = 1 ] || for i in $(seq 100); do cat {place}/text; done'
        alone = _processor_time(["sh", "-c", f"NODE_RANK=0; {write}"], place)
        found = {}
        for options in ([], ["--no-label"]):
            line = [str(MINGLE), "run", "--hosts", "node1,node2", *options, "sh", "-c", write]
            taken = statistics.median(_processor_time(line, place) - alone for _ in range(3))
            found["--no-label" if options else "labelled"] = taken
            print(f"  a gigabyte relayed, {'--no-label' if options else 'labelled':10}: {taken:5.2f} s of a processor")
    return {"a gigabyte relayed, s of a processor": found}


def _processor_time(argv: list[str], place: Path) -> float:
    """Return the seconds of a processor of a command and all that it started and waited for."""
    env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
    before = os.times()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _at_rest() -> dict[str, dict[str, float]]:
    run = subprocess.Popen([str(MINGLE), "run", "--alone", "sleep", "3600"], stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(2.0)
        warden = _child(run.pid)
        pids = {"runner": run.pid, "warden": warden, "supervisor": _child(warden)}
        before = {name: _ticks(pid) for name, pid in pids.items()}
        time.sleep(IDLE_S)
        share = {name: (_ticks(pid) - before[name]) / os.sysconf("SC_CLK_TCK") / IDLE_S for name, pid in pids.items()}
        memory = {name: _resident(pid) for name, pid in pids.items()}
    finally:
        run.terminate()
        run.wait()
    for name in pids:
        print(f"  at rest: {name:10} {memory[name]:5.1f} MB   {share[name]:.2%} of a processor")
    return {"memory, MB": memory, "share of a processor at rest": share}


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _resident(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    figures()
