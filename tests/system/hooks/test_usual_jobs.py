"""Usual job scripts on a real Slurm: what each does is the same with the hooks as without."""

import py_compile
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster.slurm import SlurmCluster
from support import usual_programs

TABLE = Path(__file__).parents[2] / "data" / "usual_jobs.txt"
PROGRAMS = ("torchrun", "accelerate", "deepspeed", "lightning", "mpirun", "orted", "spawn", "trainer", "env_init")
PLACE = "/home/alice/usual"
# Compiled once, and not by each of hundreds of starts.
PROGRAM = f"import sys\nsys.path.append({PLACE!r})\nimport usual_programs\nusual_programs.main()\n"
GPUS = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"}
WAITS = ("srun: Job ", "srun: Step created ")  # that a step has to wait for another, and no more
SWITCH = "/etc/mingle/disabled"
# Each job's own output, and its number; they run side by side as far as there is room.
SUBMIT = """
cd "$1" && rm -f *.out *.id
for job in *.sh; do
  case $(head -n 1 $job) in
    '#!'*) sbatch --parsable -o ${job%.sh}.%a.out $job >${job%.sh}.id ;;
    *) sh ./$job >${job%.sh}.out ;;
  esac || exit
done
"""


class UsualJob(NamedTuple):
    """One of the table: its script and the sorted lines that it prints."""

    name: str
    script: str
    prints: list[str]


def read(text: str) -> list[UsualJob]:
    """Return the jobs of the table."""
    found = []
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        script, _, prints = rest.partition("\n--\n")
        found.append(UsualJob(name, f"{script}\n", sorted(prints.split("\n\n")[0].splitlines())))
    return found


JOBS = read(TABLE.read_text())


def outputs(slurm: SlurmCluster) -> dict[str, list[str]]:
    """Run all jobs at the same time and return what each printed, sorted, with its port as in the table."""
    slurm.controller.run(["sh", "-c", SUBMIT, "sh", PLACE], user="alice", env=GPUS | with_programs(slurm), check=True)
    # A heterogeneous job of which Slurm could start one part only begins again after two minutes.
    slurm.wait_idle(200.0)
    place, found = slurm.controller.outside(PLACE), {}
    for number, job in enumerate(JOBS):
        texts = [path.read_text() for path in place.glob(f"{number:02}.*out")]
        lines = [line for text in texts for line in text.splitlines() if not line.startswith(WAITS)]
        identity = place / f"{number:02}.id"
        own_port = str(10_000 + int(identity.read_text()[-5:])) if identity.exists() else ""
        found[job.name] = sorted(line.replace(f" {own_port} ", " {port} ") if own_port else line for line in lines)
    return found


def with_programs(slurm: SlurmCluster) -> dict[str, str]:
    """Return a PATH on which the stand-ins come first."""
    path = slurm.controller.run(["sh", "-c", "echo $PATH"], user="alice", check=True).stdout.strip()
    return {"PATH": f"{PLACE}:{path}"}


@pytest.mark.timeout(240)
def test_usual_jobs_do_the_same_with_the_hooks(hooked: SlurmCluster) -> None:
    """First with the kill switch, as without hooks, and then with them; the table is read as a whole."""
    assert len(JOBS) == TABLE.read_text().count("\n== ") >= 20
    assert all(job.prints and job.script.strip() for job in JOBS)
    host = hooked.controller
    host.run(["mkdir", PLACE], user="alice", check=True)
    try:
        for number, job in enumerate(JOBS):
            host.write(f"{PLACE}/{number:02}.sh", job.script, user="alice")
        py_compile.compile(usual_programs.__file__, cfile=str(host.outside(f"{PLACE}/usual_programs.pyc")))
        for program in PROGRAMS:
            host.write(f"{PLACE}/{program}", f"#!{sys.executable} -IS\n{PROGRAM}", mode=0o755)
        hooked.hosts.run_all(["touch", SWITCH])
        without = outputs(hooked)
        hooked.hosts.run_all(["rm", "-f", SWITCH])
        assert without == {job.name: job.prints for job in JOBS}
        assert outputs(hooked) == without
    finally:
        host.run(["rm", "-rf", PLACE], check=True)
