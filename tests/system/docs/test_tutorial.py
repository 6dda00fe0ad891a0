"""docs/tutorial.md: each command as it stands, and every line that is shown below it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from documents import BIN, ROOT, find, says
from light import BIN as LIGHT_BIN, VENV

PAGE = "tutorial.md"
# Which nodes a job gets, their addresses, ports, sizes and times, and when a slow machine first says who is missing.
DIFFERS = r"\bafter \d s|\bnode[\d[\]-]+|\b10(?:\.\d+){3}|\bport \d+|\d+ [GM]iB|\d+\.\d+ m?s|\d+ %"
# The script averages by sockets here: importing torch takes seconds in each process.
TRAIN = f"""
import runpy, sys
sys.argv += ["--backend", "sockets"]
runpy.run_path({str(ROOT / "examples/train.py")!r}, run_name="__main__")
"""


def shown(mark: str) -> list[tuple[str, list[str]]]:
    """Return the commands of the block that holds the mark, each with the lines below it."""
    parts = re.split(r"^\$ ", find(PAGE, mark).text, flags=re.MULTILINE)[1:]
    return [(command, output.splitlines()) for command, _, output in (part.partition("\n") for part in parts)]


def missing(output: str, lines: list[str]) -> list[str]:
    """Return the lines that the output lacks, whatever differs from run to run."""
    patterns = [re.sub(DIFFERS, "…", line) for line in lines if line]
    return [line for line in patterns if not says(output, line)]


def place(directory: Path) -> dict[str, str]:
    """Put the script there, and return the environment in which it is started."""
    directory.chmod(0o1777)
    (directory / "train.py").write_text(TRAIN)
    return {"PATH": f"{LIGHT_BIN}:{BIN}:/usr/bin:/bin"}


def test_two_nodes_train_on_one_machine_and_one_alone_does_not(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Two are one world; one says what is shown and ends with 69."""
    env, host = place(tmp_path), hosts(1)[0]
    *before, (line, output) = shown("--id laptop")
    lines = "\n".join([*(command for command, _ in before), line, "wait"])
    done = host.run(["bash", "-c", lines], user="alice", env=env, cwd=tmp_path, timeout=120)
    assert not missing(done.stdout, output), done
    ((line, output),) = shown("--id alone")
    done = host.run(["bash", "-c", f"{before[0][0]}\n{line}"], user="alice", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    assert not missing(done.stderr, output), done


def test_the_lines_for_slurm_train(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The script as job.sh, the line with srun, and the check."""
    env = place(tmp_path)
    (tmp_path / "job.sh").write_text(find(PAGE, "#SBATCH").text)
    (submit, _), (_, output) = shown("sbatch")
    ((line, trained),) = shown("srun -N2")
    ((check, checked),) = shown("mingle check")

    def run(text: str) -> str:
        words = ["bash", "-c", text]
        done = slurm.controller.run(words, user="alice", env=env, cwd=tmp_path, timeout=120, check=True)
        return done.stdout + done.stderr

    job = run(submit).split()[-1]
    assert slurm.wait(job, 120) == "COMPLETED"
    assert not missing((tmp_path / f"slurm-{job}.out").read_text(), output)
    (tmp_path / "checkpoint.json").unlink()
    assert not missing(run(line), trained)
    assert not missing(run(check), checked)


def test_the_lines_for_pbs_train(any_pbs: Callable[..., Any], tmp_path: Path) -> None:
    """The script that mingle writes, given to qsub."""
    env = place(tmp_path) | {"VIRTUAL_ENV": str(VENV)}
    (template, _), _, (_, output) = shown("qsub")
    pbs = any_pbs(2)
    pbs.hosts[0].run(["bash", "-c", template], env=env, cwd=tmp_path, check=True)
    job = pbs.submit((tmp_path / "job.pbs").read_text(), cwd=str(tmp_path))
    assert pbs.wait(job, 120) == 0, pbs.output(job)
    assert not missing(pbs.output(job), output), pbs.output(job)
