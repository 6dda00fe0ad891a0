"""Ready means able to start: where one of four nodes cannot start the command, none does, and all say why."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from members import KEYED, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.host import Host
    from cluster.hosts import Hosts
    from cluster.slurm import SlurmCluster

BIN = Path(sys.executable).parent
MINGLE = str(BIN / "mingle")
ODD = 2  # the place among the hosts of the one that cannot start
# A directory that each host has for itself, and what stands in it.
HERE = "/var/tmp/here"  # noqa: S108 - of a test host
PROGRAM, SCRIPT = f"{HERE}/bin/train-here", f"{HERE}/train.sh"
# Far above what any of this takes, and far below the deadline for members that wait.
PATIENCE_S = 40.0


class Fault(NamedTuple):
    """What is wrong on one node, what is started everywhere, and how it has to end."""

    command: str
    status: int
    said: str
    break_it: str = ""  # in a shell on that node, beforehand
    before: str = ""  # in the shell that starts mingle there
    is_of_shell: bool = False  # so that `mingle run`, which starts no shell on the nodes, cannot have it there


FAULTS = {
    "missing": Fault("train-here", 127, "train-here: No such file or directory (PATH=", f"rm {PROGRAM}"),
    "not executable": Fault(PROGRAM, 126, f"{PROGRAM}: Permission denied", f"chmod -x {PROGRAM}"),
    "bad interpreter": Fault(
        PROGRAM,
        126,
        f"{PROGRAM}: bad interpreter: /opt/no python: No such file or directory",
        f"sed -i '1s,.*,#!/opt/no python,' {PROGRAM}",
    ),
    "missing script": Fault(f"sh {SCRIPT}", 127, f"{SCRIPT}: No such file or directory", f"rm {SCRIPT}"),
    "closed stdout": Fault(PROGRAM, 73, "a closed or read-only one", "", "exec >&-", is_of_shell=True),
    "no directory": Fault(
        PROGRAM, 73, "the working directory: No such file or directory", "", "cd $(mktemp -d); rmdir $PWD", True
    ),
}


@pytest.fixture
def broken() -> Iterator[Callable[[Hosts, Fault, Path], None]]:
    """Put a command on each host that leaves a file named after it, and break it on one of them."""
    made: list[Hosts] = []

    def make(its: Hosts, fault: Fault, place: Path) -> None:
        made[:] = [its]
        for number, host in enumerate(its):
            for path in (PROGRAM, SCRIPT):
                host.run(["mkdir", "-p", str(Path(path).parent)], check=True)
                host.write(path, f"#!/bin/sh\ntouch {place}/started.{host.name}\n", mode=0o755)
            if number == ODD and fault.break_it:
                host.run(["sh", "-c", fault.break_it], check=True)

    yield make
    for its in made:
        its.run_all(["rm", "-rf", HERE])


def line_of(fault: Fault, *mingle: str) -> list[str]:
    """Return a shell's command line that starts `mingle exec` on a host, after what breaks it on one of them."""
    start = f"PATH={HERE}/bin:$PATH; exec {MINGLE} exec {shlex.join(mingle)} {fault.command}"
    return ["sh", "-c", f"[ $(uname -n) != node{ODD + 1} ] || {{ {fault.before or ':'}; }}; {start}"]


def all_said(texts: Sequence[str], fault: Fault, place: Path) -> None:
    """Check that every node said the same, and that none has started the command."""
    last = {text.splitlines()[-1] if text else "" for text in texts}
    assert len(last) == 1, texts
    line = last.pop()
    assert line.startswith("mingle: expected "), line
    assert f"saw node{ODD + 1}: {fault.said}" in line, line
    assert list(place.glob("started.*")) == []


@pytest.mark.parametrize("options", [(), ("--together",)], ids=["exec", "together"])
def test_no_task_of_a_step_starts_where_one_node_cannot(
    slurm: SlurmCluster, tmp_path: Path, broken: Callable[..., None], options: tuple[str, ...]
) -> None:
    """By `srun mingle exec`, with --together and without."""
    for name, fault in FAULTS.items():
        broken(slurm.hosts, fault, tmp_path)
        began = time.monotonic()
        done = slurm.srun("-N4", f"--error={tmp_path}/err.%t", *line_of(fault, *options), env=KEYED, timeout=PATIENCE_S)
        print(f"srun {options} {name}: {time.monotonic() - began:.2f} s")  # noqa: T201 - a figure
        assert done.returncode == fault.status, (name, done)
        all_said([(tmp_path / f"err.{task}").read_text() for task in range(4)], fault, tmp_path)


def test_no_host_starts_without_a_scheduler_where_one_cannot(
    hosts: Callable[..., Hosts], tmp_path: Path, broken: Callable[..., None]
) -> None:
    """They elect rank 0 by multicast, and the last one comes late."""
    four = hosts(4)
    for name, fault in FAULTS.items():
        broken(four, fault, tmp_path)
        words = line_of(fault, "--id", name.replace(" ", "-"), "--nodes", "4", "--via", "multicast")
        processes = [host.popen(words, env=KEYED) for host in [*four][:3]]
        time.sleep(0.4)
        began = time.monotonic()
        processes.append(four[3].popen(words, env=KEYED))
        results = [process.communicate(timeout=PATIENCE_S) for process in processes]
        print(f"bare {name}: {time.monotonic() - began:.2f} s after the last start")  # noqa: T201 - a figure
        assert [process.returncode for process in processes] == [fault.status] * 4, (name, results)
        all_said([err for _, err in results], fault, tmp_path)
