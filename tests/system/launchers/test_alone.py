"""The ways in which people end up training alone or on a wrong address: now the right world, or no training.

Each line is typed as people type it, with an unchanged script, on a real Slurm or on bare hosts. What did not end in
the right world ends with a status other than 0, and with one line that says why.

torchrun is one that does the same by the same variables and needs no torch. The real one is started in test_readme.py,
frameworks/test_frameworks.py and test_eval_in_job_scripts.py; its own words are in docs.
"""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from light import BIN, TRAIN
from support.members import KEYED

from mingle_hooks.files import toml

LAUNCHERS = "torchrun|accelerate|deepspeed|ray|horovodrun|mpirun"
PAGE = (Path(__file__).parents[3] / "docs/troubleshooting.md").read_text()
TABLE = toml((Path(__file__).parents[2] / "data/ways.toml").read_bytes())
SHORT: dict[str, str] = {**TABLE["short"], "TRAIN": str(TRAIN)}


class Way(NamedTuple):
    """What is typed, and what comes of it: a status and one clear line, or (None) the right world."""

    typed: str
    code: int | None = None
    says: str = ""

    def line(self) -> str:
        """Return what the shell gets, with the tests' torchrun on PATH."""
        typed = self.typed
        for name, text in SHORT.items():
            typed = re.sub(rf"\b{name}\b", lambda _, text=text: text, typed)  # type: ignore[misc]
        return f"PATH={BIN}:$PATH; {typed}"

    def check(self, code: int, said: str, *, size: int = 2) -> None:
        """Fail unless there was the right world, every process of it in it, or none and one clear line."""
        seen = (self.typed, code, said)
        sizes = re.findall(r"\bSIZE=(\d+)", said)
        assert (code, sizes) == ((0, [str(size)] * size) if self.code is None else (self.code, [])), seen
        assert re.search(self.says, said), seen
        assert not self.code or is_on_page(said), seen
        assert "/mingle_hooks/" not in said, seen  # no traceback of ours


def is_on_page(said: str) -> bool:
    """Tell whether docs/troubleshooting.md has the first message: its first words, or the variable that it saw."""
    message = re.search(r"mingle: (expected .*)", said) or re.search(r"mingle: (.*)", said)
    assert message, said
    words = (re.escape(word) for word in re.split(r"[;(]", message[1])[0].split()[:4])
    begins = re.sub(f"{LAUNCHERS}|python3", r"\\S+", r"\s".join(words))
    begins = re.sub(r"\d+", r"\\d+", begins)
    variable = re.search(r"; saw ([A-Z_]+)=", message[1])
    return bool(re.search(begins, PAGE)) or bool(variable and f"`{variable[1]}`" in PAGE)


def parts(ways: Sequence[Way], size: int = 14) -> list[Sequence[Way]]:
    """Return the ways in parts, so many for one job, whose start would take longer than a way does."""
    return [ways[at : at + size] for at in range(0, len(ways), size)]


def script(place: Path, ways: Sequence[Way]) -> str:
    """Return a script that runs each line in a shell of its own and stores its output and status."""
    return "".join(
        f"bash -c {shlex.quote(way.line())} >{place}/out.{number} 2>&1 </dev/null\necho $? >{place}/status.{number}\n"
        for number, way in enumerate(ways)
    )


def results(place: Path, count: int) -> list[tuple[int, str]]:
    """Return the status and the output of each line of `script`."""
    return [(int((place / f"status.{n}").read_text()), (place / f"out.{n}").read_text()) for n in range(count)]


def check_all(place: Path, ways: Sequence[Way], more: str = "") -> None:
    """Check the results of `script`; `more` is what all of its lines have written elsewhere."""
    for way, (code, said) in zip(ways, results(place, len(ways)), strict=True):
        way.check(code, said + more)


WAYS = {where: [Way(**way) for way in ways] for where, ways in TABLE["ways"].items()}


@pytest.mark.parametrize("ways", parts(WAYS["steps"]), ids=lambda ways: ways[0].typed)
def test_what_a_step_of_two_nodes_starts_is_in_the_world_or_ends(
    slurm: SlurmCluster, tmp_path: Path, ways: Sequence[Way]
) -> None:
    """`srun -N2 …`."""
    slurm.controller.run(["salloc", "-N2", "-n2", "bash", "-c", script(tmp_path, ways)], env=KEYED, timeout=120)
    check_all(tmp_path, ways)


@pytest.mark.parametrize("ways", parts(WAYS["elsewhere"] + WAYS["shells"]), ids=lambda ways: ways[0].typed)
def test_what_the_batch_script_of_two_nodes_starts_is_in_the_world_or_ends(
    slurm: SlurmCluster, tmp_path: Path, ways: Sequence[Way]
) -> None:
    """`sbatch -N2`, and the lines are all that the script does."""
    job = slurm.submit(script(tmp_path, ways), "-N2", "-n2", f"--output={tmp_path}/output", env=KEYED)
    slurm.wait(job, timeout=120)
    check_all(tmp_path, ways)


def test_what_sallocs_shell_on_another_host_starts_is_in_the_world_or_ends(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`salloc -N2 -w node3,node4` given on node1.

    Seen: MASTER_ADDR was the login node's own address, and srun handed it to all.
    """
    lines = script(tmp_path, WAYS["elsewhere"]) + 'eval "$(mingle env)"; echo "$MASTER_ADDR $NNODES"\n'
    where = ["salloc", "-N2", "-w", "node3,node4"]
    done = slurm.controller.run([*where, "bash", "-c", lines], env=KEYED, timeout=120)
    check_all(tmp_path, WAYS["elsewhere"])
    assert (done.returncode, done.stdout) == (0, "node3 2\n"), done
    assert "runs on node1 only" in done.stderr


def test_a_launcher_in_each_of_several_tasks_of_a_node_does_not_start(slurm: SlurmCluster, tmp_path: Path) -> None:
    """It starts the processes of a node itself; a node that has just one task does not wait for the others."""
    rows = [(scope, tasks) for scope in ("", "--scope task") for tasks in ("--ntasks-per-node=2", "-n3", "-n4")]
    lines = [f"srun -N2 {tasks} mingle exec {scope} torchrun TRAIN" for scope, tasks in rows]
    ways = [Way(line, 64, "--ntasks-per-node=1") for line in lines]
    slurm.controller.run(["salloc", "-N2", "-n4", "bash", "-c", script(tmp_path, ways)], env=KEYED)
    check_all(tmp_path, ways)


def test_a_shell_of_ssh_on_a_jobs_node_fails_at_once(slurm: SlurmCluster) -> None:
    """It has the job's number, by hand or by sshd, and no step: seen to wait for its deadline."""
    host = slurm.hosts[1]
    for typed in ('eval "$(mingle env)"', f"mingle exec torchrun {TRAIN}"):
        done = host.run(["bash", "-c", f"{typed} 2>&1; echo SIZE=1"], env={**KEYED, "SLURM_JOB_ID": "7"}, timeout=20)
        assert "srun --jobid=7 --overlap in front" in done.stdout + done.stderr, done


def test_what_two_bare_hosts_start_is_in_the_world_or_ends(hosts: Callable[..., Hosts]) -> None:
    """No scheduler at all."""
    two = hosts(2)
    for way in WAYS["hosts"]:
        line, is_refused = ["bash", "-c", f"exec 2>&1; {way.line()}"], way.code in (64, 65)  # before anybody is called
        done = [two[0].run(line, env=KEYED)] if is_refused else two.run_all(line, env=KEYED, timeout=120)
        codes = {one.returncode for one in done}
        assert len(codes) == 1, (way, done)
        way.check(codes.pop(), "".join(one.stdout for one in done))


@pytest.mark.parametrize("job", TABLE["on_purpose"], ids=lambda job: job or "a laptop")
def test_one_node_trains_by_itself_where_that_is_meant(slurm: SlurmCluster, tmp_path: Path, job: str) -> None:
    """As a job of one node, a step on one node, or by an option of the user's."""
    rows = TABLE["on_purpose"][job]
    lines = script(tmp_path, [Way(typed) for typed, _ in rows])
    if job:
        state = slurm.wait(slurm.submit(lines, *job.split()[1:], f"--output={tmp_path}/output", env=KEYED))
        assert state == "COMPLETED", slurm.logs()
    else:
        slurm.hosts[3].run(["bash", "-c", lines], env=KEYED, check=True)
    for (typed, sizes), (code, said) in zip(rows, results(tmp_path, len(rows)), strict=True):
        assert (code, [int(size) for size in re.findall(r"\bSIZE=(\d+)", said)]) == (0, sizes), (typed, said)
        ranks = sorted(int(rank) for rank in re.findall(r"\bRANK=(\d+)", said))
        assert ranks == sorted([*range(sizes[0])] * (len(sizes) // sizes[0])), (typed, said)


@pytest.mark.parametrize("ways", [WAYS["inside"], *([way] for way in WAYS["outside"])], ids=lambda ways: ways[0].typed)
def test_what_a_job_script_of_pbs_starts_is_in_the_world_or_ends(
    any_pbs: Callable[..., Any], tmp_path: Path, ways: Sequence[Way]
) -> None:
    """Under the stand-in, and under a real OpenPBS where there is one."""
    pbs = any_pbs(2)
    tmp_path.chmod(0o1777)
    head = "#!/bin/bash\n#PBS -l select=2:ncpus=1\n#PBS -l place=scatter\n"
    path = f"PATH={Path(sys.executable).parent}:$PATH; export PATH OMP_NUM_THREADS=1\n"
    job = pbs.submit(head + path + script(tmp_path, ways), cwd=str(pbs.place))
    pbs.wait(job, 120)
    check_all(tmp_path, ways, pbs.output(job))
