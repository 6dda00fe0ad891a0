"""A training that loses hosts and goes on from its checkpoint, on bare hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cluster.host import Host
from cluster.hosts import Hosts
from cluster.ssh import ssh

Hosted = Callable[..., Hosts]

MINGLE = Path(sys.executable).parent / "mingle"
TRAIN = Path(__file__).resolve().parents[3] / "examples" / "train.py"
PATIENCE_S = 60.0
RIGHT = "2 processes at step {steps}: y = 3.000 x + 1.000"


class Run:
    """A run of train.py, from a host that takes no part, on two of the others."""

    def __init__(self, hosts: Hosts, place: Path, *words: str, steps: int) -> None:
        self.hosts, self._place = hosts, place
        shutil.copy(TRAIN, place)
        names = ",".join(host.name for host in [*hosts][1:])
        argv = [str(MINGLE), "run", "--hosts", names, "--nodes", "2", "--grace", "1", "--silence", "3", *words]
        train = f"python3 train.py --backend sockets --steps {steps} --pause 0.02 --save-every 1"
        argv += train.split()
        env = {"PATH": f"{ssh(hosts, place)}:{MINGLE.parent}:/usr/bin:/bin", "HOME": "/root"}
        with (place / "out").open("w") as out:
            self._run = hosts[0].popen(argv, env=env, cwd=str(place), stdout=out, stderr=subprocess.STDOUT)

    @property
    def text(self) -> str:
        return (self._place / "out").read_text()

    def begun(self, attempt: int) -> Host:
        """Wait until an attempt has trained for a while; return rank 0's host."""
        end = time.monotonic() + PATIENCE_S
        while len(begins := self._begins()) <= attempt:
            assert time.monotonic() < end, self.text
            time.sleep(0.05)
        step = int(begins[attempt][1])
        while self._step() < step + 4:
            assert time.monotonic() < end, self.text
            time.sleep(0.05)
        return next(host for host in self.hosts if host.name == begins[attempt][0])

    def says(self, text: str) -> None:
        """Wait until a line has this text."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < end, self.text
            time.sleep(0.05)

    def _begins(self) -> list[tuple[str, str]]:
        return re.findall(r"^(node\d+): rank 0 of 2 begins at step (\d+)", self.text, re.MULTILINE)

    def _step(self) -> int:
        path = self._place / "checkpoint.json"
        return json.loads(path.read_text())[0] if path.exists() else 0

    def end(self) -> int:
        return self._run.wait(timeout=PATIENCE_S)


def kill_supervisor(host: Host) -> None:
    os.kill(min(pid for pid, line in host.processes().items() if "__main__.py agent" in line), signal.SIGKILL)


def test_rank_0_s_host_is_lost_in_each_of_five_attempts(hosts: Hosted, tmp_path: Path) -> None:
    run = Run(hosts(5), tmp_path, "--spares", "2", "--restarts", "5", steps=130)
    lost = []
    for attempt in range(5):
        host = run.begun(attempt)
        lost.append(host.name)
        kill_supervisor(host)
    assert run.end() == 0, run.text
    assert RIGHT.format(steps=130) in run.text
    assert all(lost.count(name) <= 2 for name in lost), "a host that failed twice is not taken again"
    starts = [int(step) for step in re.findall(r"rank 0 of 2 begins at step (\d+)", run.text)]
    assert starts == sorted(set(starts))
    assert run.text.count("begins at step 0\n") == 2


def test_a_spare_takes_the_rank_of_a_host_that_is_unplugged(hosts: Hosted, tmp_path: Path) -> None:
    run = Run(hosts(4), tmp_path, "--spares", "1", "--restarts", "1", steps=130)
    first = run.begun(0)
    assert first.name == "node2"
    first.unplug()
    assert run.end() == 0, run.text
    first.clear_firewall()
    assert RIGHT.format(steps=130) in run.text
    assert run.text.count("mingle run: node2 (rank 0): no sign of life for") == 1
    ranks = dict(re.findall(r"^(node\d): rank (\d) of 2 begins at step [1-9]", run.text, re.MULTILINE))
    assert ranks == {"node3": "1", "node4": "0"}


def test_a_host_that_is_unplugged_for_a_while_comes_back(hosts: Hosted, tmp_path: Path) -> None:
    run = Run(hosts(3), tmp_path, "--restarts", "1", steps=130)
    run.begun(0)
    lost = run.hosts[2]
    lost.unplug()
    run.says(f"mingle run: {lost.name} cannot be reached: called again for up to")
    lost.clear_firewall()
    assert run.end() == 0, run.text
    assert RIGHT.format(steps=130) in run.text
    ranks = dict(re.findall(r"^(node\d): rank (\d) of 2 begins at step [1-9]", run.text, re.MULTILINE))
    assert ranks == {"node2": "0", "node3": "1"}
