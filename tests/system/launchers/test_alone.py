"""The ways in which people end up training alone or on a wrong address: now the right world, or no training.

Each line is typed as people type it, with an unchanged script, on a real Slurm or on bare hosts. What did not end in
the right world ends with a status other than 0, and with one line that says why.

torchrun is one that does the same by the same variables and needs no torch. The real one is started in test_readme.py,
frameworks/test_frameworks.py and test_eval_in_job_scripts.py; its own words are in docs.
"""

from __future__ import annotations

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

LAUNCHERS = "torchrun|accelerate|deepspeed|ray|horovodrun|mpirun"
PAGE = (Path(__file__).parents[3] / "docs/troubleshooting.md").read_text()
# What a launcher of MPI tells the only process that it starts.
ONE_OF_MPI = " ".join(f"OMPI_COMM_WORLD_{name}" for name in ("RANK=0", "SIZE=1", "LOCAL_RANK=0", "LOCAL_SIZE=1"))
# What sshd starts has no variables of the shell's, and none of the job's.
SSH = 'ssh() { host=$1; shift; pbs_tmrsh $host env -i HOME=$HOME PATH=/usr/bin:/bin sh -c "$*"; };'
# In the lines below, what is in capital letters stands for this.
SHORT = {
    "SRUN": "srun -N2",
    "EXEC": "mingle exec torchrun TRAIN",
    "EVAL": 'eval "$(mingle env)"',
    "BRIEF_EVAL": 'eval "$(mingle env --timeout 2)"',
    "BY_ID": "mingle exec --id a --nodes 2 torchrun TRAIN",
    "IN_POD": "KUBERNETES_SERVICE_HOST=10.0.0.1",
    "EACH_SSH": "EACH_HOST ssh $host PATH=$PATH",
    "EACH_HOST": "for host in $(sort -u $PBS_NODEFILE); do",
    "C10D": "--rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT",
    "ADDRESS": "--master-addr $MASTER_ADDR --master-port $MASTER_PORT",
    "BY_SSH": SSH,
    "AS_ONE_OF_MPI": f"env {ONE_OF_MPI}",
    "NO_JOB": "env -i PATH=$PATH HOME=$HOME",
    "TRAIN": str(TRAIN),
}


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


# One srun on two nodes.
STEPS = [
    Way("SRUN EXEC"),
    Way("SRUN bash -c 'EVAL; torchrun TRAIN'"),
    Way("SRUN bash -c 'EVAL; exec EXEC'"),
    # A program with options of its own, some of which are mingle's too.
    Way(
        "SRUN mingle exec python3 -c 'import os, sys; print(sys.argv[1:], os.environ[\"NNODES\"])' --timeout 60 --id x",
        *(0, r"\['--timeout', '60', '--id', 'x'\] 2"),
    ),
    Way(
        "SRUN env PATH=/usr/bin:/bin bash -c 'eval \"$(mingle env || echo exit 1)\"; echo SIZE=1'", 1, "mingle: command"
    ),
    # What was left over in the environment.
    Way("MASTER_ADDR=localhost SRUN EXEC", 71, "MASTER_ADDR=localhost, as exported.*unset MASTER_ADDR"),
    Way("MASTER_ADDR=node4 SRUN bash -c 'BRIEF_EVAL; torchrun TRAIN'", 71, "MASTER_ADDR=node4, .*unset MASTER_ADDR"),
    Way("MASTER_ADDR=gone SRUN EXEC", 71, "MASTER_ADDR=gone, .* cannot look up; try unset"),
    Way("NODE_RANK=0 SRUN EXEC", 76, "NODE_RANK=0, .*unset NODE_RANK"),
    Way("WORLD_SIZE=1 SRUN EXEC", 76, "WORLD_SIZE=1, .*unset WORLD_SIZE"),
    # For one node.
    Way("SRUN mingle exec accelerate launch --num_machines 1 TRAIN", 64, "--num-machines=1"),
    # Containers, and runs in a task.
    Way("SRUN NO_JOB EXEC", 64, "no job here"),
    Way("SRUN mingle run torchrun TRAIN", 65, "a task of step .*`mingle exec COMMAND` in its place"),
    Way("SRUN NO_JOB mingle run torchrun TRAIN", 64, "no job here; try salloc -N2 mingle run torchrun"),
    Way(  # the numbers of enroot's PyTorch hook
        "SRUN bash -c 'export WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID MASTER_ADDR=node1"
        " MASTER_PORT=$((SLURM_JOB_ID % 4536 + 61000)); mingle exec --explain torchrun TRAIN'",
        *(None, "enroot"),
    ),
]


@pytest.mark.parametrize("ways", parts(STEPS), ids=lambda ways: ways[0].typed)
def test_what_a_step_of_two_nodes_starts_is_in_the_world_or_ends(
    slurm: SlurmCluster, tmp_path: Path, ways: Sequence[Way]
) -> None:
    """`srun -N2 …`."""
    slurm.controller.run(["salloc", "-N2", "-n2", "bash", "-c", script(tmp_path, ways)], env=KEYED, timeout=120)
    check_all(tmp_path, ways)


# What is typed in the batch script of a job with two nodes, or in the shell of salloc; these also on another host.
ELSEWHERE = [
    Way("EXEC", 64, "put srun|srun in front: srun mingle exec torchrun"),
    Way("EVAL; srun EXEC"),
    Way("EVAL; srun torchrun TRAIN"),
]
SHELLS = [
    *ELSEWHERE,
    Way("mingle run --nodes 1 torchrun TRAIN", 64, "a run on all 2 hosts; saw 1 .--nodes"),
    Way("NO_JOB mingle run torchrun TRAIN", 64, "no job here; try salloc -N2 mingle run torchrun"),
    Way("mingle run torchrun TRAIN"),
    Way("mingle exec --no-wait torchrun TRAIN", 64, "srun in front"),
    Way("mingle exec python3 TRAIN", 64, "srun in front: srun mingle exec python3"),
    Way("BRIEF_EVAL; torchrun TRAIN", 1, "all nodes, try .*: srun mingle exec torchrun.*\n.*RendezvousTimeoutError"),
    Way("EVAL; python3 TRAIN", 1, "to train on all nodes, try .*\n(.*\n)*.*KeyError: 'RANK'"),
    # A step that has only what the script's eval gave it, with the usual options of torchrun and of people.
    Way("EVAL; srun torchrun --nnodes $SLURM_NNODES --nproc_per_node=1 --rdzv_id=$RANDOM C10D TRAIN"),
    Way("EVAL; srun bash -c 'torchrun --nnodes 2 --node-rank $SLURM_NODEID ADDRESS TRAIN'"),
    Way("EVAL; srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python3 TRAIN'"),
    Way("EVAL; srun bash -c 'EVAL; torchrun TRAIN'"),
    Way("mingle exec srun EXEC"),
]


@pytest.mark.parametrize("ways", parts(SHELLS), ids=lambda ways: ways[0].typed)
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
    lines = script(tmp_path, ELSEWHERE) + 'eval "$(mingle env)"; echo "$MASTER_ADDR $NNODES"\n'
    where = ["salloc", "-N2", "-w", "node3,node4"]
    done = slurm.controller.run([*where, "bash", "-c", lines], env=KEYED, timeout=120)
    check_all(tmp_path, ELSEWHERE)
    assert (done.returncode, done.stdout) == (0, "node3 2\n"), done
    assert "runs on node1 only" in done.stderr


def test_tasks_that_are_placed_by_hand_are_numbered_as_frameworks_number_them(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    """`srun -m arbitrary`: NODEID and PROCID have different orders, JAX and MPI go by PROCID."""
    (tmp_path / "hosts").write_text("node3\nnode1\nnode2\n")
    env = {**KEYED, "SLURM_HOSTFILE": f"{tmp_path}/hosts"}
    show = "mingle exec bash -c 'echo $SLURM_PROCID $NODE_RANK $SLURMD_NODENAME $MASTER_ADDR'"
    done = slurm.controller.run(["bash", "-c", f"srun -N3 -n3 -m arbitrary {show}"], env=env)
    assert done.returncode == 0, done
    rows = [f"{rank} {rank} node{host} 10.77.0.3" for rank, host in enumerate((3, 1, 2))]
    assert sorted(done.stdout.splitlines()) == rows


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


# On two bare hosts, each with the same line: on a login node, in a pod, or by hand.
HOSTS = [
    Way("EXEC", 64, "no job here; try srun in front, --id NAME --nodes N .*--alone"),
    Way("EVAL; torchrun TRAIN", 64, "no job here"),
    Way("mingle run torchrun TRAIN", 64, "no job here; try salloc -N2 mingle run torchrun .*; or --alone"),
    Way("PATH=${PATH%%:/usr*}; mingle run torchrun TRAIN", 64, "try mingle run --hosts node1,node2 torchrun"),
    Way(
        "RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 mingle exec --id a python3 TRAIN",
        64,
        "no job here",
    ),
    Way("IN_POD mingle exec --id a torchrun TRAIN", 64, "the number of members; saw none; try --nodes N"),
    Way("IN_POD mingle run torchrun TRAIN", 65, "`mingle exec COMMAND` on each of its hosts"),
    Way('eval "$(mingle env --id a --nodes 2)"; torchrun TRAIN'),
    Way("BY_ID"),
    Way("MASTER_ADDR=localhost BY_ID", 71, "MASTER_ADDR=localhost, .*unset MASTER_ADDR"),
    Way("NODE_RANK=0 MINGLE_TIMEOUT=3 BY_ID", 76, "unset NODE_RANK"),
    Way("NODE_RANK=1 MINGLE_TIMEOUT=2 BY_ID", 69, "rank 1, from the exported NODE_RANK.*unset NODE_RANK"),
    Way('eval "$(mingle env --id "$JOB" --nodes 2)"; torchrun TRAIN', 64, "JOB"),
]


def test_what_two_bare_hosts_start_is_in_the_world_or_ends(hosts: Callable[..., Hosts]) -> None:
    """No scheduler at all."""
    two = hosts(2)
    for way in HOSTS:
        done = two.run_all(["bash", "-c", f"exec 2>&1; {way.line()}"], env=KEYED, timeout=120)
        codes = {one.returncode for one in done}
        assert len(codes) == 1, (way, done)
        way.check(codes.pop(), "".join(one.stdout for one in done))


# What trains on one node is meant to: in jobs of these kinds, or (no job) on a laptop; and the size of each process's
# world.
ON_PURPOSE = [
    ("sbatch -N1", "EXEC", [1]),
    ("sbatch -N1", "mingle run torchrun TRAIN", [1]),
    ("sbatch -N1 --ntasks-per-node=2", "srun mingle exec --scope task python3 TRAIN", [2, 2]),
    ("sbatch -N2", "srun -N1 -n1 EXEC", [1]),
    ("sbatch -N2", "srun -N2 mingle exec --alone torchrun TRAIN", [1, 1]),
    ("sbatch -N2 --ntasks-per-node=2", "srun mingle exec --alone --scope task python3 TRAIN", [2] * 4),
    ("sbatch -N2", "mingle exec --alone torchrun TRAIN", [1]),
    ("sbatch -N2", "mingle run --alone torchrun TRAIN", [1]),
    ("sbatch -N2", "AS_ONE_OF_MPI mingle exec --alone torchrun TRAIN", [1]),
    ("", 'eval "$(mingle env --nodes 1)"; torchrun TRAIN', [1]),
    ("", "mingle run --nodes 1 torchrun TRAIN", [1]),
    ("", "mingle run --hosts localhost torchrun TRAIN", [1]),
]


@pytest.mark.parametrize("job", sorted({job for job, *_ in ON_PURPOSE}), ids=lambda job: job or "a laptop")
def test_one_node_trains_by_itself_where_that_is_meant(slurm: SlurmCluster, tmp_path: Path, job: str) -> None:
    """As a job of one node, a step on one node, or by an option of the user's."""
    rows = [(typed, sizes) for its_job, typed, sizes in ON_PURPOSE if its_job == job]
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


# In the job script of PBS on two hosts, where nothing starts on the other by itself.
INSIDE = [
    Way("EXEC", 64, "a shell that runs on node1 only; try mingle run torchrun"),
    Way("BRIEF_EVAL; torchrun TRAIN", 1, "train alone here; to train on all .*\n(.*\n)*.*RendezvousTimeoutError"),
    Way("EVAL; python3 TRAIN", 1, "KeyError: 'RANK'"),
    Way('EVAL; echo "NODE_RANK=$NODE_RANK. LOCAL_RANK=$LOCAL_RANK."', 0, "NODE_RANK=. LOCAL_RANK=0."),
    Way("mingle run --nodes 1 torchrun TRAIN", 64, "a run on all 2 hosts"),
]
# What runs on another host writes to the job's output: each of these has a job of its own.
OUTSIDE = [
    Way(
        "EVAL; EACH_HOST pbs_tmrsh $host env PATH=$PATH torchrun --nnodes $NNODES C10D --rdzv-conf $PET_RDZV_CONF"
        " TRAIN & done; wait",
    ),
    Way("BY_SSH ssh node2 PATH=$PATH EXEC", 64, "no job here"),
    Way("pbs_tmrsh node2 env PATH=$PATH mingle exec --nodes 1 torchrun TRAIN", 64, "all 2 nodes of the job"),
    Way("pbsdsh -- env PATH=$PATH EXEC"),
    Way("EACH_HOST pbs_tmrsh $host env PATH=$PATH bash -c 'EVAL; torchrun TRAIN' & done; wait"),
    Way(
        "BY_SSH umask 077; mkdir -p ~/.config/mingle; mingle key >~/.config/mingle/key;"
        " EACH_SSH mingle exec --id $PBS_JOBID --nodes 2 torchrun TRAIN & done; wait",
    ),
]


@pytest.mark.parametrize("ways", [INSIDE, *([way] for way in OUTSIDE)], ids=lambda ways: ways[0].typed)
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
