"""Ready means able to start: where one of four nodes cannot start the command, none does, and all say why."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster.hosts import Hosts
from cluster.paths import MINGLE
from cluster.slurm import SlurmCluster
from support.members import END_S, KEYED

# A directory that each host has for itself, and what is in it.
HERE = "/var/tmp/here"
PROGRAM, SCRIPT, PLACE = f"{HERE}/bin/train-here", f"{HERE}/train.sh", f"{HERE}/place"


class Fault(NamedTuple):
    """What is started everywhere, how it has to end, and what is wrong on one node."""

    command: str
    status: int
    said: str
    break_it: str = ""  # typed there beforehand
    before: str = ":"  # typed there in the shell that starts mingle


NO_INTERPRETER = f"sed -i '1s,.*,#!/opt/no python,' {PROGRAM}"
FAULTS = {
    "missing": Fault("train-here", 127, "train-here: No such file or directory (PATH=", f"rm {PROGRAM}"),
    "not executable": Fault(PROGRAM, 126, f"{PROGRAM}: Permission denied", f"chmod -x {PROGRAM}"),
    "bad interpreter": Fault(PROGRAM, 126, f"{PROGRAM}: bad interpreter: /opt/no python: No such", NO_INTERPRETER),
    "missing script": Fault(f"sh {SCRIPT}", 127, f"{SCRIPT}: No such file or directory", f"rm {SCRIPT}"),
    "closed stdout": Fault(PROGRAM, 73, "a closed or read-only one", before="exec >&-"),
    "no directory": Fault(PROGRAM, 73, "the working directory: No such file or directory", before="rmdir $PWD"),
    "read-only directory": Fault(PROGRAM, 73, f"{PLACE}: Read-only file system", f"mount -t tmpfs -o ro none {PLACE}"),
}
# Nobody's shell is on the nodes of a run: its output is the runner's, and its directory is looked for on each.
OF_A_RUN = {
    "closed stdout": FAULTS["closed stdout"]._replace(said="node1: a closed or read-only one"),
    "no directory": Fault(PROGRAM, 73, f"cannot start: {PLACE}: No such file or directory", f"rmdir {PLACE}"),
}


class Command:
    """A command on each host, which leaves a file in a directory that all share."""

    def __init__(self, hosts: Hosts, shared: Path) -> None:
        self.hosts, self._shared = hosts, shared

    def install(self, number: int = 0, fault: str = "") -> None:
        """Write it anew, and break it on one host."""
        text = f"#!/bin/sh\ntouch {self._shared}/started.$(uname -n)\n[ -z $STAYS ] || exec sleep 1000\n"
        self.remove()
        for host in self.hosts:
            host.run(["mkdir", "-p", f"{HERE}/bin", PLACE], check=True)
            for path in (PROGRAM, SCRIPT):
                host.write(path, text, mode=0o755)
        if fault:
            self.hosts[number].run(["sh", "-c", fault], check=True)

    def remove(self) -> None:
        self.hosts.run_all(["sh", "-c", f"umount -q {PLACE}; rm -rf {HERE}"])

    def started(self) -> list[str]:
        """Return the hosts on which it has been started."""
        return sorted(path.suffix for path in self._shared.glob("started.*"))


@pytest.fixture
def on_slurm(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Command]:
    command = Command(slurm.hosts, tmp_path)
    yield command
    command.remove()


def typed(fault: Fault, odd: int, *mingle: str) -> list[str]:
    """Return what each host's shell is given: `mingle exec`, after what is wrong on one of them."""
    start = f"PATH={HERE}/bin:$PATH; exec {MINGLE} exec {shlex.join(mingle)} {fault.command}"
    return ["sh", "-c", f"cd {PLACE}; [ $(uname -n) != node{odd + 1} ] || {{ {fault.before}; }}; {start}"]


def all_say(texts: Sequence[str], said: str) -> None:
    """Check that every node's last line is the same, and what it is."""
    assert len({text.splitlines()[-1] for text in texts}) == 1, texts
    assert re.match(rf"mingle: expected .*; saw {re.escape(said)}.*; try ", texts[0].splitlines()[-1]), texts


def test_no_task_of_a_step_starts_where_one_node_cannot(slurm: SlurmCluster, tmp_path: Path, on_slurm: Command) -> None:
    """By `srun mingle exec`, with --together and without; two times it is rank 0's node."""
    for odd, (name, fault) in enumerate(FAULTS.items()):
        on_slurm.install(odd % 4, fault.break_it)
        words = typed(fault, odd % 4, *(["--together"] if odd % 2 else []))
        done = slurm.srun("-N4", f"--error={tmp_path}/err.%t", *words, env=KEYED, timeout=END_S)
        assert (done.returncode, on_slurm.started()) == (fault.status, []), (name, done)
        all_say([(tmp_path / f"err.{task}").read_text() for task in range(4)], f"node{odd % 4 + 1}: {fault.said}")


def test_no_host_of_a_run_starts_where_one_cannot(slurm: SlurmCluster, on_slurm: Command) -> None:
    """The runner tells it once, with the status, and does not begin again."""
    for name, fault in {"bad interpreter": FAULTS["bad interpreter"], **OF_A_RUN}.items():
        on_slurm.install(2, fault.break_it)
        line = f"cd {PLACE}; {fault.before}; PATH={HERE}/bin:$PATH; exec {MINGLE} run --restarts 3 {fault.command}"
        done = slurm.controller.run(["salloc", "-N4", "sh", "-c", line], env=KEYED, timeout=END_S)
        assert (done.returncode, on_slurm.started()) == (fault.status, []), (name, done)
        assert fault.said in done.stderr, done.stderr
        assert "restarts:" not in done.stderr
        assert len(set(re.findall(r"^node\d: (mingle: expected .*)", done.stderr, re.MULTILINE))) <= 1, done.stderr


@pytest.mark.parametrize("starts", ["salloc -N4 MINGLE run --restarts 3", "srun -N4 MINGLE exec --together"])
def test_a_command_that_fails_only_at_its_execution_ends_the_others(
    slurm: SlurmCluster, on_slurm: Command, starts: str
) -> None:
    """Here a program of no known kind; where mingle watches, no node is left behind."""
    on_slurm.install(2, f"printf '\\177ELF\\0' >{PROGRAM}")
    words = [*starts.replace("MINGLE", str(MINGLE)).split(), PROGRAM]
    done = slurm.controller.run(words, env={**KEYED, "STAYS": "1"}, timeout=END_S)
    assert done.returncode == 126, done
    assert f"saw {PROGRAM}: Exec format error" in done.stderr, done.stderr
    assert "restarts:" not in done.stderr


@pytest.mark.parametrize(("nodes", "odd"), [(2, 3), (2, 0), (1, 1)])
def test_no_task_starts_where_one_task_of_a_node_cannot(
    slurm: SlurmCluster, tmp_path: Path, on_slurm: Command, nodes: int, odd: int
) -> None:
    """Each looks for its own command, the first of a node and the others, on one node and on several."""
    on_slurm.install()
    line = f"[ $SLURM_PROCID = {odd} ] || PATH={HERE}/bin:$PATH; exec {MINGLE} exec --scope task train-here"
    step = [f"-N{nodes}", "--ntasks-per-node=2", f"--error={tmp_path}/err.%t"]
    done = slurm.srun(*step, "sh", "-c", line, env=KEYED, timeout=END_S)
    assert (done.returncode, on_slurm.started()) == (127, []), done
    texts = [(tmp_path / f"err.{task}").read_text() for task in range(2 * nodes)]
    all_say(texts, f"node{odd // 2 + 1}: train-here: No such file or directory (PATH=")


def test_no_shell_gets_a_world_where_one_cannot_read_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`mingle env` whose output is closed on one node has nobody to print to."""
    line = f"[ $SLURM_NODEID != 2 ] || exec >&-; exec {MINGLE} env"
    where = (f"--output={tmp_path}/out.%t", f"--error={tmp_path}/err.%t")
    done = slurm.srun("-N4", *where, "sh", "-c", line, env=KEYED, timeout=END_S)
    assert done.returncode == 73, done
    all_say([(tmp_path / f"err.{task}").read_text() for task in range(4)], "node3: a closed or read-only one")
    assert "WORLD_SIZE=" not in "".join(path.read_text() for path in tmp_path.glob("out.*"))
