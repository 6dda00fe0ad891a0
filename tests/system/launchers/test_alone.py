"""The ways in which people end up training alone or on a wrong address: now the right world, or no training.

Each line is typed as people type it, with an unchanged script, on a real Slurm or on bare hosts. What did not end in
the right world ends with a status other than 0, and with one line that says why.

torchrun is one that does the same by the same variables and needs no torch. The real one is started in test_readme.py,
frameworks/test_networks.py and test_eval_in_job_scripts.py; its own words are in docs.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from light import BIN, TRAIN
from support.members import KEYED

LAUNCHERS = "torchrun|accelerate|deepspeed|ray|horovodrun|mpirun"
PAGE = (Path(__file__).parents[3] / "docs/troubleshooting.md").read_text()
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
        """Return what the shell gets: the PATH with the tests' torchrun, what was left over, and what was typed."""
        exports = "".join(f"export {name}={value}; " for name, value in self.env.items())
        return f"PATH={BIN}:$PATH; {exports}{before}" + self.typed.replace("TRAIN", str(TRAIN))


def parts(table: Mapping[str, Way], size: int = 14) -> list[list[str]]:
    """Return the names of the table's rows, so many for one job, whose start would take longer than a row does."""
    names = [*table]
    return [names[at : at + size] for at in range(0, len(names), size)]


def script(place: Path, lines: Sequence[str]) -> str:
    """Return a script that runs each of these lines in a shell of its own and stores its output and status."""
    return "".join(
        f"bash -c {shlex.quote(line)} >{place}/out.{number} 2>&1 </dev/null\necho $? >{place}/status.{number}\n"
        for number, line in enumerate(lines)
    )


def results(place: Path, count: int) -> list[tuple[int, str]]:
    """Return the status and the output of each line of `script`."""
    return [(int((place / f"status.{n}").read_text()), (place / f"out.{n}").read_text()) for n in range(count)]


def check(name: str, way: Way, code: int, said: str, *, size: int = 2) -> None:
    """Fail unless there was the right world, every process of it in it, or none and one clear line."""
    sizes = re.findall(r"\bSIZE=(\d+)", said)
    if way.code is None:
        assert (code, sizes) == (0, [str(size)] * size), (name, said)
    else:
        assert (code, sizes) == (way.code, []), (name, said)
    assert re.search(way.says, said), (name, said)
    assert not way.code or is_on_page(said), (name, said)
    assert "/mingle_hooks/" not in said, (name, said)  # no traceback of ours


def is_on_page(said: str) -> bool:
    """Tell whether docs/troubleshooting.md has the first message: its first words, or the variable that it saw."""
    message = re.search(r"mingle: (expected .*)", said) or re.search(r"mingle: (.*)", said)
    assert message, said
    words = (re.escape(word) for word in re.split(r"[;(]", message[1])[0].split()[:4])
    begins = re.sub(f"{LAUNCHERS}|python3", r"\\S+", r"\s".join(words))
    begins = re.sub(r"\d+", r"\\d+", begins)
    variable = re.search(r"; saw ([A-Z_]+)=", message[1])
    return bool(re.search(begins, PAGE)) or bool(variable and f"`{variable[1]}`" in PAGE)


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
        EXEC, 71, "MASTER_ADDR=localhost, as exported.*unset MASTER_ADDR",
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
    "for one node": Way(
        "mingle exec --nodes 1 python3 TRAIN", 64, r"all 2 nodes of the job \(slurm\); saw 1 \(--nodes\).*--alone"
    ),
    "for one node, with an id": Way("mingle exec --id x --nodes 1 torchrun TRAIN", 64, "out --nodes, or --alone"),
    "eval for one node": Way("bash -c 'eval \"$(mingle env --nodes 1)\"; torchrun TRAIN'", 64, "leaving out --nodes"),
    "for one node, without waiting": Way("mingle exec --no-wait --nodes 1 python3 TRAIN", 64, "leaving out --nodes"),
    "a leftover MINGLE_NODES=1": Way(EXEC, 64, r"saw 1 \(MINGLE_NODES\); try unset", {"MINGLE_NODES": "1"}),
    "a replica's numbers": Way(
        EXEC, 76, "unset WORLD_SIZE", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}
    ),
    "torch.distributed.run for one node": Way(
        "mingle exec python3 -m torch.distributed.run --nnodes 1 TRAIN", 64, "--nnodes=1"
    ),
    "torchrun at localhost, as it is": Way(
        "mingle exec --verbatim torchrun --rdzv-endpoint localhost:29500 TRAIN", 64, "--rdzv-endpoint=localhost"
    ),
    "accelerate for one machine": Way("mingle exec accelerate launch --num_machines 1 TRAIN", 64, "--num-machines=1"),
    "accelerate without machines": Way("mingle exec --verbatim accelerate launch TRAIN", 64, "leaving out --verbatim"),
    "deepspeed for one node": Way("mingle exec deepspeed --num_nodes 1 TRAIN", 64, "--num-nodes=1"),
    "ray at localhost": Way("mingle exec ray start --address=localhost:6379", 64, "--address=localhost"),
    "horovodrun with one process": Way("mingle exec horovodrun -np 1 python3 TRAIN", 64, "-np 2 or more"),
    "mpirun with one process": Way("mingle exec mpirun -n 1 python3 TRAIN", 64, "-n 2 or more"),
    "a container that hides Slurm": Way("env -i PATH=$PATH HOME=$HOME mingle exec torchrun TRAIN", 64, "no job here"),
    "run in a task": Way("mingle run torchrun TRAIN", 65, "a task of step .*`mingle exec COMMAND` in its place"),
    "run in a task that hides Slurm": Way(
        "env -i PATH=$PATH HOME=$HOME mingle run torchrun TRAIN", 64, "no job here; try salloc -N2 mingle run torchrun"
    ),
    "the numbers of enroot's PyTorch hook": Way(
        "bash -c 'export WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID MASTER_ADDR=node1"
        " MASTER_PORT=$((SLURM_JOB_ID % 4536 + 61000)); mingle exec --explain torchrun TRAIN'", None, "enroot",
    ),
}  # fmt: skip


@pytest.mark.parametrize("names", parts(STEPS), ids=lambda names: names[0])
def test_what_a_step_of_two_nodes_starts_is_in_the_world_or_ends(
    slurm: SlurmCluster, tmp_path: Path, names: list[str]
) -> None:
    """`srun -N2 …`."""
    lines = script(tmp_path, [STEPS[name].line("srun -N2 ") for name in names])
    slurm.controller.run(["salloc", "-N2", "-n2", "bash", "-c", lines], env=KEYED, timeout=120)
    for name, (code, said) in zip(names, results(tmp_path, len(names)), strict=True):
        check(name, STEPS[name], code, said)


# What a launcher of MPI tells the only process that it starts.
ONE_OF_MPI = " ".join(f"OMPI_COMM_WORLD_{name}" for name in ("RANK=0", "SIZE=1", "LOCAL_RANK=0", "LOCAL_SIZE=1"))
# What is typed in the batch script of a job with two nodes, or in the shell of salloc.
SHELLS = {
    "exec for one node": Way(
        "mingle exec --nodes 1 python3 TRAIN", 64, r"all 2 nodes of the job \(slurm\); saw 1 \(--nodes\)"
    ),
    "eval for one node": Way('eval "$(mingle env --nodes 1)"; torchrun TRAIN', 64, "leaving out --nodes"),
    "exec with a leftover MINGLE_NODES=1": Way(f"MINGLE_NODES=1 {EXEC}", 64, "unset MINGLE_NODES"),
    "run for one node": Way("mingle run --nodes 1 torchrun TRAIN", 64, "a run on all 2 hosts; saw 1 .--nodes"),
    "run with a leftover MINGLE_NODES=1": Way(
        "MINGLE_NODES=1 mingle run torchrun TRAIN", 64, r"saw 1 \(MINGLE_NODES\); try unset MINGLE_NODES"
    ),
    "run of torchrun for one node": Way("mingle run torchrun --nnodes=1 TRAIN", 64, "--nnodes=1"),
    "run of one process of mpirun": Way("mingle run mpirun -np 1 python3 TRAIN", 64, "-np 2 or more"),
    "run without the job's variables": Way(
        "env -i PATH=$PATH HOME=$HOME mingle run torchrun TRAIN", 64, "no job here; try salloc -N2 mingle run torchrun"
    ),
    "one process of mpirun": Way(
        f"env {ONE_OF_MPI} mingle exec python3 TRAIN", 64, r"all 2 nodes of the job .slurm.mpi.*a process on every node"
    ),
    "run": Way("mingle run torchrun TRAIN", None),
    "exec without srun": Way(EXEC, 64, "put srun|srun in front: srun mingle exec torchrun"),
    "exec without srun, not to wait": Way("mingle exec --no-wait torchrun TRAIN", 64, "srun in front"),
    "python without srun": Way("mingle exec python3 TRAIN", 64, "srun in front: srun mingle exec python3"),
    "torchrun after eval without srun": Way(
        'eval "$(mingle env --timeout 2)"; torchrun TRAIN',
        1,
        "to train on all nodes, try .*: srun mingle exec torchrun.*\n.*RendezvousTimeoutError",
    ),
    "python after eval without srun": Way(
        'eval "$(mingle env)"; python3 TRAIN', 1, "to train on all nodes, try .*\n(.*\n)*.*KeyError: 'RANK'"
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
    "python in such a step with an address and a port of the script's own": Way(
        'eval "$(mingle env)"; export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        " MASTER_PORT=$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4)) WORLD_SIZE=$SLURM_NTASKS;"
        " srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python3 TRAIN'",
        None,
    ),
    "torchrun in such a step by a launcher in a variable": Way(
        'eval "$(mingle env)"; MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1) MASTER_PORT=6000;'
        ' LAUNCHER="torchrun --nproc_per_node 1 --nnodes $SLURM_NNODES --master_addr $MASTER_ADDR'
        ' --master_port $MASTER_PORT"; srun --jobid $SLURM_JOBID bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID TRAIN"',
        None,
    ),
    "eval again in such a step": Way(
        'eval "$(mingle env)"; srun bash -c \'eval "$(mingle env)"; torchrun TRAIN\'', None
    ),
    "a step that asks again": Way('eval "$(mingle env)"; srun mingle exec torchrun TRAIN', None),
    "exec of srun": Way("mingle exec srun mingle exec torchrun TRAIN", None),
}


@pytest.mark.parametrize("names", parts(SHELLS), ids=lambda names: names[0])
def test_what_the_batch_script_of_two_nodes_starts_is_in_the_world_or_ends(
    slurm: SlurmCluster, tmp_path: Path, names: list[str]
) -> None:
    """`sbatch -N2`, and the lines are all that the script does."""
    lines = script(tmp_path, [SHELLS[name].line() for name in names])
    slurm.wait(slurm.submit(lines, "-N2", "-n2", f"--output={tmp_path}/output", env=KEYED), timeout=120)
    for name, (code, said) in zip(names, results(tmp_path, len(names)), strict=True):
        check(name, SHELLS[name], code, said)


ELSEWHERE = ("exec without srun", "a step that asks again", "torchrun in a step that only got the shell's values")


def test_what_sallocs_shell_on_another_host_starts_is_in_the_world_or_ends(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`salloc -N2 -w node3,node4` given on node1."""
    lines = script(tmp_path, [SHELLS[name].line() for name in ELSEWHERE])
    where = ["salloc", "-N2", "-w", "node3,node4"]
    slurm.controller.run([*where, "bash", "-c", lines], env=KEYED, timeout=120)
    for name, (code, said) in zip(ELSEWHERE, results(tmp_path, len(ELSEWHERE)), strict=True):
        check(name, SHELLS[name], code, said)


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


def test_a_launcher_in_each_of_several_tasks_of_a_node_does_not_start(slurm: SlurmCluster, tmp_path: Path) -> None:
    """It starts the processes of a node itself; a node that has just one task does not wait for the others."""
    rows = [(scope, tasks) for scope in ("", "--scope task") for tasks in ("--ntasks-per-node=2", "-n3", "-n4")]
    lines = [f"srun -N2 {tasks} mingle exec {scope} torchrun {TRAIN}" for scope, tasks in rows]
    slurm.controller.run(["salloc", "-N2", "-n4", "bash", "-c", script(tmp_path, lines)], env=KEYED)
    for line, (code, said) in zip(lines, results(tmp_path, len(lines)), strict=True):
        check(line, Way("", 64, "--ntasks-per-node=1"), code, said)


def test_a_shell_of_ssh_on_a_jobs_node_is_told_at_once(slurm: SlurmCluster) -> None:
    """It has the job's number, by hand or by sshd, and no step: seen to wait for its deadline."""
    host = slurm.hosts[1]
    for typed in ('eval "$(mingle env)"', f"mingle exec torchrun {TRAIN}"):
        done = host.run(["bash", "-c", f"{typed} 2>&1; echo SIZE=1"], env={**KEYED, "SLURM_JOB_ID": "7"}, timeout=20)
        assert "srun --jobid=7 --overlap in front" in done.stdout + done.stderr, done


# On two bare hosts, each with the same line.
HOSTS = {
    "exec on a login node": Way(EXEC, 64, "no job here; try srun in front, --id NAME --nodes N .*--alone"),
    "eval on a login node": Way('eval "$(mingle env)"; torchrun TRAIN', 64, "no job here"),
    "run on a login node": Way(
        "mingle run torchrun TRAIN", 64, "no job here; try salloc -N2 mingle run torchrun .*; or --alone"
    ),
    "run of python on a login node": Way("mingle run python3 TRAIN", 64, "salloc -N2 mingle run python3"),
    "run of mpirun on a login node": Way("mingle run mpirun -np 4 python3 TRAIN", 64, "salloc -N2 mingle run mpirun"),
    "run with a leftover MINGLE_NODES=1": Way("mingle run torchrun TRAIN", 64, "no job here", {"MINGLE_NODES": "1"}),
    "run where no scheduler is": Way(
        "PATH=${PATH%%:/usr*}; mingle run torchrun TRAIN", 64, "try mingle run --hosts node1,node2 torchrun"
    ),
    "exec with what a trial left over": Way(
        "mingle exec --id a torchrun TRAIN", 64, "no job here",
        {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"},
    ),
    "run with what a trial left over": Way(
        "mingle run torchrun TRAIN", 64, "no job here", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    ),
    "a leftover NNODES=1": Way("mingle exec --id a torchrun TRAIN", 64, "unset NNODES, or --alone", {"NNODES": "1"}),
    "a pod without its number": Way(
        "mingle exec --id a torchrun TRAIN", 64, "the number of members; saw none; try --nodes N",
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
    ),
    "run in a pod": Way(
        "mingle run torchrun TRAIN", 65, "`mingle exec COMMAND` on each of its hosts",
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
    ),
    "torchrun after eval": Way('eval "$(mingle env --id a --nodes 2)"; torchrun TRAIN', None),
    "torchrun after exec": Way("mingle exec --id a --nodes 2 torchrun TRAIN", None),
    "another job's address": Way(
        "mingle exec --id a --nodes 2 torchrun TRAIN", 71, "MASTER_ADDR=localhost, .*unset MASTER_ADDR",
        {"MASTER_ADDR": "localhost"},
    ),
    "another job's rank": Way("mingle exec --id a --nodes 2 torchrun TRAIN", 76, "unset NODE_RANK", {"NODE_RANK": "0"}),
    "a rank that nobody leads": Way(
        "mingle exec --id a --nodes 2 --timeout 2 torchrun TRAIN", 69,
        "rank 1, from the exported NODE_RANK.*unset NODE_RANK", {"NODE_RANK": "1"},
    ),
    "no number of nodes": Way('eval "$(mingle env --id a)"; torchrun TRAIN', 64, "--nodes N"),
    "an id that the shell has not set": Way('eval "$(mingle env --id "$JOB" --nodes 2)"; torchrun TRAIN', 64, "JOB"),
}  # fmt: skip


def test_what_two_bare_hosts_start_is_in_the_world_or_ends(hosts: Callable[..., Hosts]) -> None:
    """No scheduler at all."""
    two = hosts(2)
    for name, way in HOSTS.items():
        done = two.run_all(["bash", "-c", f"exec 2>&1; {way.line()}"], env=KEYED, timeout=120)
        codes = {one.returncode for one in done}
        assert len(codes) == 1, (name, done)
        check(name, way, codes.pop(), "".join(one.stdout for one in done))


# In a batch script, on the first of two hosts; its scheduler does not tell the script from what runs on all hosts.
SCRIPTS = {
    "LSF": {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "node1 1 node2 1"},
    "SGE": {"JOB_ID": "7", "SGE_TASK_ID": "undefined", "NHOSTS": "2", "PE_HOSTFILE": "HOSTFILE"},
    "OAR": {"OAR_JOB_ID": "7", "OAR_NODEFILE": "NODEFILE"},
}


@pytest.mark.parametrize("scheduler", SCRIPTS)
def test_what_any_batch_script_starts_waits_for_the_other_host_and_ends(
    hosts: Callable[..., Hosts], tmp_path: Path, scheduler: str
) -> None:
    """And for one node it does not begin."""
    (tmp_path / "NODEFILE").write_text("node1\nnode2\n")
    (tmp_path / "HOSTFILE").write_text("node1 1 q UNDEFINED\nnode2 1 q UNDEFINED\n")
    files = {value: str(tmp_path / value) for value in ("NODEFILE", "HOSTFILE")}
    env = {**KEYED, **{name: files.get(value, value) for name, value in SCRIPTS[scheduler].items()}}
    host = hosts(2)[0]
    for way in (
        Way("mingle exec --timeout 1 torchrun TRAIN", 69, "saw 1, missing node2"),
        Way("mingle exec --nodes 1 torchrun TRAIN", 64, f"all 2 nodes of the job .{scheduler.lower()}"),
        Way("mingle run --nodes 1 torchrun TRAIN", 64, "a run on all 2 hosts"),
    ):
        done = host.run(["bash", "-c", f"exec 2>&1; {way.line()}"], env=env, timeout=60)
        check(scheduler, way, done.returncode, done.stdout)


# What trains on one node is meant to.
ON_PURPOSE = {
    "a job of one node": ("sbatch -N1", EXEC, [1]),
    "a run in a job of one node": ("sbatch -N1", "mingle run torchrun TRAIN", [1]),
    "one node said of a job of one node": ("sbatch -N1", "mingle exec --nodes 1 torchrun TRAIN", [1]),
    "one task for each GPU": ("sbatch -N1 --ntasks-per-node=2", "srun mingle exec --scope task python3 TRAIN", [2, 2]),
    "a step on one node": ("sbatch -N2", f"srun -N1 -n1 {EXEC}", [1]),
    "each node by itself": ("sbatch -N2", "srun -N2 mingle exec --alone torchrun TRAIN", [1, 1]),
    "each node's tasks by themselves": (
        "sbatch -N2 --ntasks-per-node=2", "srun mingle exec --alone --scope task python3 TRAIN", [2] * 4
    ),
    "the batch script's node by itself": ("sbatch -N2", "mingle exec --alone torchrun TRAIN", [1]),
    "its eval": ("sbatch -N2", 'eval "$(mingle env --alone)"; torchrun TRAIN', [1]),
    "a run on its node by itself": ("sbatch -N2", "mingle run --alone torchrun TRAIN", [1]),
    "one process of mpirun by itself": ("sbatch -N2", f"env {ONE_OF_MPI} mingle exec --alone torchrun TRAIN", [1]),
    "a laptop's eval": ("", 'eval "$(mingle env --nodes 1)"; torchrun TRAIN', [1]),
    "a laptop's exec": ("", "mingle exec --alone torchrun TRAIN", [1]),
    "a laptop's run": ("", "mingle run --alone torchrun TRAIN", [1]),
    "a laptop's run of one host": ("", "mingle run --nodes 1 torchrun TRAIN", [1]),
    "a laptop's run of this host": ("", "mingle run --hosts localhost torchrun TRAIN", [1]),
}  # fmt: skip


@pytest.mark.parametrize("job", sorted({job for job, *_ in ON_PURPOSE.values()}), ids=lambda job: job or "a laptop")
def test_one_node_trains_by_itself_where_that_is_meant(slurm: SlurmCluster, tmp_path: Path, job: str) -> None:
    """As a job of one node, a step on one node, or by an option of the user's."""
    rows = [(typed, sizes) for its_job, typed, sizes in ON_PURPOSE.values() if its_job == job]
    lines = script(tmp_path, [Way(typed, 0).line() for typed, _ in rows])
    if job:
        state = slurm.wait(slurm.submit(lines, *job.split()[1:], f"--output={tmp_path}/output", env=KEYED))
        assert state == "COMPLETED", slurm.logs()
    else:
        slurm.hosts[3].run(["bash", "-c", lines], env=KEYED, check=True)
    for (typed, sizes), (code, said) in zip(rows, results(tmp_path, len(rows)), strict=True):
        assert (code, [int(size) for size in re.findall(r"\bSIZE=(\d+)", said)]) == (0, sizes), (typed, said)
        ranks = sorted(int(rank) for rank in re.findall(r"\bRANK=(\d+)", said))
        assert ranks == sorted([*range(sizes[0])] * (len(sizes) // sizes[0])), (typed, said)


# What sshd starts has no variables of the shell's, and none of the job's.
SSH = 'ssh() { host=$1; shift; pbs_tmrsh $host env -i HOME=$HOME PATH=/usr/bin:/bin sh -c "$*"; }; '
# In the job script of PBS on two hosts, where nothing starts on the other by itself.
PBS = {
    "exec in the job script": Way(EXEC, 64, "a shell that runs on node1 only; try mingle run torchrun"),
    "torchrun after eval in the job script": Way(
        'eval "$(mingle env --timeout 2)"; torchrun TRAIN',
        1,
        "variables would train alone here; to train on all nodes, try .*\n(.*\n)*.*RendezvousTimeoutError",
    ),
    "torchrun by pbs_tmrsh with the shell's values": Way(
        'eval "$(mingle env)"; for host in $(sort -u $PBS_NODEFILE); do pbs_tmrsh $host env PATH=$PATH torchrun'
        " --nnodes $NNODES --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT"
        " --rdzv-conf $PET_RDZV_CONF TRAIN & done; wait",
        None,
    ),
    "python after eval in the job script": Way('eval "$(mingle env)"; python3 TRAIN', 1, "KeyError: 'RANK'"),
    "eval in the job script": Way(
        'eval "$(mingle env)"; echo "NODE_RANK=$NODE_RANK. LOCAL_RANK=$LOCAL_RANK."', 0, "NODE_RANK=. LOCAL_RANK=0."
    ),
    "torchrun by ssh with a number for each host": Way(
        SSH + 'eval "$(mingle env)"; rank=0; for host in $(sort -u $PBS_NODEFILE); do ssh $host PATH=$PATH torchrun'
        " --nnodes $NNODES --node-rank $rank --master-addr $MASTER_ADDR --master-port $MASTER_PORT TRAIN &"
        " rank=$((rank + 1)); done; wait",
        None,
    ),
    "python by ssh with a number for each host": Way(
        SSH + 'eval "$(mingle env)"; rank=0; for host in $(sort -u $PBS_NODEFILE); do ssh $host PATH=$PATH RANK=$rank'
        " WORLD_SIZE=$NNODES MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT python3 TRAIN &"
        " rank=$((rank + 1)); done; wait",
        None,
    ),
    "exec by ssh": Way(SSH + "ssh node2 PATH=$PATH mingle exec torchrun TRAIN", 64, "no job here"),
    "exec for one node in the job script": Way("mingle exec --nodes 1 torchrun TRAIN", 64, "all 2 nodes of the job"),
    "run for one node in the job script": Way("mingle run --nodes 1 torchrun TRAIN", 64, "a run on all 2 hosts"),
    "exec on one of the hosts": Way(
        "pbs_tmrsh node2 env PATH=$PATH mingle exec --nodes 1 torchrun TRAIN", 64, "all 2 nodes of the job"
    ),
    "exec by pbsdsh": Way(f"pbsdsh -- env PATH=$PATH {EXEC}", None),
    "eval by pbs_tmrsh": Way(
        "for host in $(sort -u $PBS_NODEFILE); do"
        " pbs_tmrsh $host env PATH=$PATH bash -c 'eval \"$(mingle env)\"; torchrun TRAIN' & done; wait",
        None,
    ),
    "exec by ssh with an id": Way(
        SSH + "umask 077; mkdir -p ~/.config/mingle; mingle key >~/.config/mingle/key;"
        " for host in $(sort -u $PBS_NODEFILE); do ssh $host PATH=$PATH mingle exec --id $PBS_JOBID --nodes 2"
        " torchrun TRAIN & done; wait",
        None,
    ),
}


# What runs on another host writes to the job's output: each of these rows has a job of its own.
OUTSIDE = [[name] for name, way in PBS.items() if re.search("pbs_tmrsh|pbsdsh|ssh", way.typed)]
INSIDE = [name for name in PBS if [name] not in OUTSIDE]


@pytest.mark.parametrize("names", [INSIDE, *OUTSIDE], ids=lambda names: names[0])
def test_what_a_job_script_of_pbs_starts_is_in_the_world_or_ends(
    any_pbs: Callable[..., Any], tmp_path: Path, names: list[str]
) -> None:
    """Under the stand-in, and under a real OpenPBS where there is one."""
    pbs = any_pbs(2)
    tmp_path.chmod(0o1777)
    head = "#!/bin/bash\n#PBS -l select=2:ncpus=1\n#PBS -l place=scatter\n"
    path = f"PATH={Path(sys.executable).parent}:$PATH; export PATH OMP_NUM_THREADS=1\n"
    job = pbs.submit(head + path + script(tmp_path, [PBS[name].line() for name in names]), cwd=str(pbs.place))
    pbs.wait(job, 120)
    for name, (code, said) in zip(names, results(tmp_path, len(names)), strict=True):
        check(name, PBS[name], code, said + pbs.output(job))


def test_the_table_is_long_enough() -> None:
    """At least 25 ways to train alone that are refused, and six to do so on purpose."""
    ways = [*STEPS.values(), *SHELLS.values(), *HOSTS.values(), *PBS.values()]
    assert sum(bool(way.code) for way in ways) >= 25
    assert len(ON_PURPOSE) >= 6
