"""The ways in which people end up training alone or on a wrong address: now the right world, or no training.

Each line is typed as people type it, with an unchanged script, on a real Slurm or on bare hosts. What did not end in
the right world ends with a status other than 0, and with one line that says why.

torchrun is one that does the same by the same variables and needs no torch. The real one is started in test_readme.py,
frameworks/test_networks.py and test_unchanged_scripts.py; its own words are in docs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from light import BIN, TRAIN
from members import KEYED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.hosts import Hosts
    from cluster.slurm import SlurmCluster

EXEC = "mingle exec torchrun TRAIN"
# A program with options of its own, some of which are mingle's too.
SHOW = "python3 -c 'import os, sys; print(sys.argv[1:], os.environ[\"NNODES\"])' --timeout 60 --id x"


class Way(NamedTuple):
    """What is typed, what was left over in the environment, and what comes of it: None is the right world."""

    typed: str
    code: int | None
    says: str = ""
    env: Mapping[str, str] = {}

    def line(self, before: str = "") -> str:
        """Return what the shell gets: the PATH with the tests' torchrun, and what was typed behind `before`."""
        return f"PATH={BIN}:$PATH; {before}" + self.typed.replace("TRAIN", str(TRAIN))


def ids(table: Mapping[str, Way]) -> list[object]:
    """Return the table's rows as parameters, each with its name."""
    return [pytest.param(way, id=name) for name, way in table.items()]


def check(way: Way, code: int, said: str, *, size: int = 2) -> None:
    """Fail unless there was the right world, every process of it in it, or none and one clear line."""
    sizes = re.findall(r"\bSIZE=(\d+)", said)
    if way.code is None:
        assert (code, sizes) == (0, [str(size)] * size), said
    else:
        assert (code, sizes) == (way.code, []), said
    assert re.search(way.says, said), said
    assert "/mingle_hooks/" not in said  # no traceback of ours


# One srun on two nodes.
STEPS = {
    "torchrun after exec": Way(EXEC, None),
    "torchrun after eval": Way("bash -c 'eval \"$(mingle env)\"; torchrun TRAIN'", None),
    "eval that is followed by exec": Way("bash -c 'eval \"$(mingle env)\"; exec mingle exec torchrun TRAIN'", None),
    "the program's own options": Way(f"mingle exec {SHOW}", 0, r"\['--timeout', '60', '--id', 'x'\] 2"),
    "python -c": Way("mingle exec python3 -c 'print(1)'", 0, "1"),
    "a mistyped option": Way("bash -c 'eval \"$(mingle env --timout 10m)\"; torchrun TRAIN'", 64, "--timout"),
    "no mingle on PATH": Way(
        "env PATH=/usr/bin:/bin bash -c 'eval \"$(mingle env || echo exit 1)\"; echo SIZE=1'", 1, "mingle: command not"
    ),
    "a leftover MASTER_ADDR=localhost": Way(
        EXEC, 71, "MASTER_ADDR=localhost, as it was exported.*unset MASTER_ADDR",
        {"MASTER_ADDR": "localhost"},
    ),
    "a leftover MASTER_ADDR of another node": Way(
        "bash -c 'eval \"$(mingle env)\"; torchrun TRAIN'", 71, "MASTER_ADDR=node4, .*unset MASTER_ADDR",
        {"MASTER_ADDR": "node4"},
    ),
    "a leftover MASTER_ADDR that nobody knows": Way(
        EXEC, 71, "MASTER_ADDR=gone, .* cannot look up; try unset", {"MASTER_ADDR": "gone"}
    ),
    "a leftover NODE_RANK=0": Way(EXEC, 76, "NODE_RANK=0, .*unset NODE_RANK", {"NODE_RANK": "0"}),
    "a leftover NODE_RANK=1": Way(EXEC, 76, "NODE_RANK=1, .*unset NODE_RANK", {"NODE_RANK": "1"}),
    "a leftover NNODES=1": Way(EXEC, 64, "NNODES=1, .*unset NNODES", {"NNODES": "1"}),
    "a leftover WORLD_SIZE=1": Way(EXEC, 76, "WORLD_SIZE=1, .*unset WORLD_SIZE", {"WORLD_SIZE": "1"}),
    "a leftover LOCAL_WORLD_SIZE=0": Way(EXEC, 64, "unset LOCAL_WORLD_SIZE", {"LOCAL_WORLD_SIZE": "0"}),
    "a leftover MASTER_PORT=0": Way(EXEC, 64, "unset MASTER_PORT", {"MASTER_PORT": "0"}),
    "a leftover PET_NNODES=1": Way(EXEC, 64, "PET_NNODES=1, .*unset PET_NNODES", {"PET_NNODES": "1"}),
    "torchrun --standalone": Way("mingle exec torchrun --standalone TRAIN", 64, "--standalone"),
    "torchrun for one node": Way("mingle exec torchrun --nnodes=1 --nproc_per_node 2 TRAIN", 64, "--nnodes=1"),
    "torchrun with another master": Way(
        "mingle exec torchrun --nnodes 2 --node-rank 0 --master-addr localhost TRAIN", 64, "--node-rank|--master-addr"
    ),
    "the numbers of enroot's PyTorch hook": Way(
        "bash -c 'export WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID MASTER_ADDR=node1"
        " MASTER_PORT=$((SLURM_JOB_ID % 4536 + 61000)); mingle exec --explain torchrun TRAIN'", None, "enroot",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", ids(STEPS))
def test_what_a_step_of_two_nodes_starts_is_in_the_world_or_ends(slurm: SlurmCluster, way: Way) -> None:
    """`srun -N2 …`."""
    line = f"{way.line('srun -N2 ')} 2>&1"
    done = slurm.controller.run(["bash", "-c", line], env={**KEYED, **way.env}, timeout=120)
    check(way, done.returncode, done.stdout)


# What is typed in the batch script of a job with two nodes, or in the shell of salloc.
SHELLS = {
    "exec without srun": Way(EXEC, 64, "put srun|srun in front: srun mingle exec torchrun"),
    "exec without srun, not to wait": Way("mingle exec --no-wait torchrun TRAIN", 64, "srun in front"),
    "python without srun": Way("mingle exec python3 TRAIN", 64, "srun in front: srun mingle exec python3"),
    "torchrun after eval without srun": Way(
        'eval "$(mingle env --timeout 2)"; torchrun TRAIN',
        1,
        "to train on all nodes: .*: srun mingle exec torchrun.*\n.*RendezvousTimeoutError",
    ),
    "python after eval without srun": Way(
        'eval "$(mingle env)"; python3 TRAIN', 1, "to train on all nodes: .*\n(.*\n)*.*KeyError: 'RANK'"
    ),
    "torchrun in a step that only got the shell's values": Way('eval "$(mingle env)"; srun torchrun TRAIN', None),
    "torchrun in such a step with the options for c10d": Way(
        'eval "$(mingle env)"; srun torchrun --nnodes $SLURM_NNODES --nproc_per_node=1 --rdzv_id=$RANDOM'
        " --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT TRAIN",
        None,
    ),
    "torchrun in such a step with the options for static rendezvous": Way(
        'eval "$(mingle env)"; srun bash -c \'torchrun --nnodes 2 --node-rank $SLURM_NODEID'
        " --master-addr $MASTER_ADDR --master-port $MASTER_PORT TRAIN'",
        None,
    ),
    "torchrun in such a step with the batch shell's own rank": Way(
        'eval "$(mingle env)"; srun torchrun --nnodes 2 --node_rank=$SLURM_NODEID'
        " --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT TRAIN",
        None,
    ),
    "torchrun in such a step with a head node of the script's own": Way(
        'eval "$(mingle env)"; nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) ); head_node=${nodes[0]};'
        ' head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address);'
        " srun torchrun --nnodes $SLURM_NNODES --rdzv_backend c10d --rdzv_endpoint $head_node_ip:29500 TRAIN",
        None,
    ),
    "python in such a step with Slurm's ranks": Way(
        "eval \"$(mingle env)\"; srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python3 TRAIN'", None
    ),
    "eval again in such a step": Way(
        'eval "$(mingle env)"; srun bash -c \'eval "$(mingle env)"; torchrun TRAIN\'', None
    ),
    "a step that asks again": Way('eval "$(mingle env)"; srun mingle exec torchrun TRAIN', None),
    "exec of srun": Way("mingle exec srun mingle exec torchrun TRAIN", None),
}


@pytest.mark.parametrize("way", ids(SHELLS))
def test_what_the_batch_script_of_two_nodes_starts_is_in_the_world_or_ends(
    slurm: SlurmCluster, tmp_path: Path, way: Way
) -> None:
    """`sbatch -N2`, and the line is all that the script does."""
    script = f"{way.line()}\necho status=$? >{tmp_path}/status"
    job = slurm.submit(script, "-N2", "-n2", f"--output={tmp_path}/output", env=KEYED)
    slurm.wait(job, timeout=120)
    status = int((tmp_path / "status").read_text().partition("=")[2])
    check(way, status, (tmp_path / "output").read_text())


ELSEWHERE = ("exec without srun", "a step that asks again", "torchrun in a step that only got the shell's values")


@pytest.mark.parametrize("way", ids({name: SHELLS[name] for name in ELSEWHERE}))
def test_what_sallocs_shell_on_another_host_starts_is_in_the_world_or_ends(slurm: SlurmCluster, way: Way) -> None:
    """`salloc -N2 -w node3,node4` given on node1."""
    line = f"({way.line()}) 2>&1"
    done = slurm.controller.run(["salloc", "-N2", "-w", "node3,node4", "bash", "-c", line], env=KEYED, timeout=120)
    check(way, done.returncode, done.stdout)


def test_sallocs_shell_gets_the_address_of_the_jobs_first_host_and_not_its_own(slurm: SlurmCluster) -> None:
    """Seen: MASTER_ADDR was the login node's own address, and srun handed it to all."""
    where = ["salloc", "-N2", "-w", "node3,node4", "bash", "-c"]
    done = slurm.controller.run([*where, 'eval "$(mingle env)"; echo "$MASTER_ADDR $NNODES"'], env=KEYED)
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
    assert sorted(done.stdout.splitlines()) == [
        "0 0 node3 10.77.0.3",
        "1 1 node1 10.77.0.3",
        "2 2 node2 10.77.0.3",
    ]


@pytest.mark.parametrize("tasks", ["--ntasks-per-node=2", "-n3", "-n4"])
@pytest.mark.parametrize("scope", ["", "--scope task"])
def test_a_launcher_in_each_of_several_tasks_of_a_node_does_not_start(
    slurm: SlurmCluster, scope: str, tasks: str
) -> None:
    """It starts the processes of a node itself; a node that has just one task does not wait for the others."""
    line = f"srun -N2 {tasks} mingle exec {scope} torchrun {TRAIN} 2>&1"
    done = slurm.controller.run(["bash", "-c", line], env=KEYED)
    check(Way("", 64, "--ntasks-per-node=1"), done.returncode, done.stdout)


def test_a_shell_of_ssh_on_a_jobs_node_is_told_at_once(slurm: SlurmCluster) -> None:
    """It has the job's number, by hand or by sshd, and no step: seen to wait for its deadline."""
    host = slurm.hosts[1]
    for typed in ('eval "$(mingle env)"', f"mingle exec torchrun {TRAIN}"):
        done = host.run(["bash", "-c", f"{typed} 2>&1; echo SIZE=1"], env={**KEYED, "SLURM_JOB_ID": "7"}, timeout=20)
        assert "srun --jobid=7 --overlap in front" in done.stdout + done.stderr, done


# On two bare hosts, each with the same line.
HOSTS = {
    "torchrun after eval": Way('eval "$(mingle env --id a --nodes 2)"; torchrun TRAIN', None),
    "torchrun after exec": Way("mingle exec --id a --nodes 2 torchrun TRAIN", None),
    "another job's address": Way(
        "mingle exec --id a --nodes 2 torchrun TRAIN", 71, "MASTER_ADDR=localhost, .*unset MASTER_ADDR",
        {"MASTER_ADDR": "localhost"},
    ),
    "another job's rank": Way("mingle exec --id a --nodes 2 torchrun TRAIN", 76, "unset NODE_RANK", {"NODE_RANK": "0"}),
    "a rank that nobody leads": Way(
        "mingle exec --id a --nodes 2 --timeout 2 torchrun TRAIN", 69, "rank 1, by NODE_RANK.*unset NODE_RANK",
        {"NODE_RANK": "1"},
    ),
    "no number of nodes": Way('eval "$(mingle env --id a)"; torchrun TRAIN', 64, "--nodes N"),
    "an id that the shell has not set": Way('eval "$(mingle env --id "$JOB" --nodes 2)"; torchrun TRAIN', 64, "JOB"),
}  # fmt: skip


@pytest.mark.parametrize("way", ids(HOSTS))
def test_what_two_bare_hosts_start_is_in_the_world_or_ends(hosts: Callable[..., Hosts], way: Way) -> None:
    """No scheduler at all."""
    results = hosts(2).run_all(["bash", "-c", f"exec 2>&1; {way.line()}"], env={**KEYED, **way.env}, timeout=120)
    codes = {done.returncode for done in results}
    assert len(codes) == 1, results
    check(way, codes.pop(), "".join(done.stdout for done in results))


# In the job script of PBS on two hosts, where nothing starts on the other by itself.
PBS = {
    "exec in the job script": Way(EXEC, 64, "a shell that runs on node1 only; .*mingle template pbs -- torchrun"),
    "torchrun after eval in the job script": Way(
        'eval "$(mingle env --timeout 2)"; torchrun TRAIN',
        1,
        "without these variables would train alone; to train on all nodes: .*\n(.*\n)*.*RendezvousTimeoutError",
    ),
    "torchrun by pbs_tmrsh with the shell's values": Way(
        'eval "$(mingle env)"; for host in $(sort -u $PBS_NODEFILE); do pbs_tmrsh $host env PATH=$PATH torchrun'
        " --nnodes $NNODES --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT TRAIN & done; wait",
        None,
    ),
    "exec by pbsdsh": Way(f"pbsdsh -- env PATH=$PATH {EXEC}", None),
    "eval by pbs_tmrsh": Way(
        "for host in $(sort -u $PBS_NODEFILE); do"
        " pbs_tmrsh $host env PATH=$PATH bash -c 'eval \"$(mingle env)\"; torchrun TRAIN' & done; wait",
        None,
    ),
}


@pytest.mark.parametrize("way", ids(PBS))
def test_what_a_job_script_of_pbs_starts_is_in_the_world_or_ends(any_pbs: Callable[..., Any], way: Way) -> None:
    """Under the stand-in, and under a real OpenPBS where there is one."""
    pbs = any_pbs(2)
    head = "#!/bin/bash\n#PBS -l select=2:ncpus=1\n#PBS -l place=scatter\n"
    path = f"PATH={Path(sys.executable).parent}:$PATH; export PATH OMP_NUM_THREADS=1\n"
    job = pbs.submit(f"{head}{path}{way.line()}\n", cwd=str(pbs.place))
    check(way, pbs.wait(job, 120), pbs.output(job))


def test_the_table_is_long_enough() -> None:
    """At least twenty ways."""
    assert len(STEPS) + len(SHELLS) + len(HOSTS) + len(PBS) >= 20
