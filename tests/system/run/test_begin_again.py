"""A training that loses hosts and goes on from its checkpoint, on bare hosts."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from cluster.host import Host
from cluster.hosts import Hosts
from cluster.paths import MINGLE
from cluster.ssh import ssh
from cluster.waiting import until

TRAIN = Path(__file__).resolve().parents[3] / "examples" / "train.py"
PATIENCE_S = 60.0


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
        until(lambda: len(self._begins()) > attempt, lambda: self.text)
        name, step = self._begins()[attempt]
        until(lambda: self._step() >= int(step) + 4, lambda: self.text)
        return next(host for host in self.hosts if host.name == name)

    def _begins(self) -> list[tuple[str, str]]:
        return re.findall(r"^(node\d+): rank 0 of 2 begins at step (\d+)", self.text, re.MULTILINE)

    def _step(self) -> int:
        path = self._place / "checkpoint.json"
        return json.loads(path.read_text())[0] if path.exists() else 0

    def end(self) -> int:
        return self._run.wait(timeout=PATIENCE_S)


def kill_agent(host: Host) -> None:
    os.kill(min(pid for pid, line in host.processes().items() if "__main__.py agent" in line), signal.SIGKILL)


def test_a_training_loses_rank_0_s_host_in_each_of_three_attempts(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """A spare takes its rank; when that is lost the first one is taken again, and after two failures no more."""
    run = Run(hosts(4), tmp_path, "--spares", "1", "--restarts", "3", steps=170)
    first = run.begun(0)
    kill_agent(first)
    spare = run.begun(1)
    assert (first.name, spare.name) == ("node2", "node4")
    spare.unplug()
    assert run.begun(2) == first
    spare.clear_firewall()
    first.unplug()
    assert run.end() == 0, run.text
    first.clear_firewall()
    assert "2 processes at step 170: y = 3.000 x + 1.000" in run.text
    for host in (first, spare):
        assert run.text.count(f"mingle run: {host.name} (rank 0): no sign of life for") == 1
    begins = re.findall(r"^(node\d): rank (\d) of 2 begins at step (\d+)", run.text, re.MULTILINE)
    assert {name: rank for name, rank, _ in begins[-2:]} == {"node3": "1", "node4": "0"}
    steps = [int(step) for _, _, step in begins]
    assert steps == sorted(steps)
    assert len(set(steps)) == 4, steps
