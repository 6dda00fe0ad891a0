"""`eval "$(mingle env)"` in a job script of several nodes, and what the real torchrun makes of it.

test_alone.py has many more lines, with a torchrun that needs no torch.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from members import KEYED, evaluating, parsed
from needs import only_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts
    from cluster.slurm import SlurmCluster

BIN = Path(sys.executable).parent
TRAIN = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()}\\n".encode())
dist.destroy_process_group()
"""
# The same without torch, whose import in each process takes longer than the rest: torchrun itself meets by it.
COUNTED = """
import os
os.write(1, f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n".encode())
"""
ACCELERATED = """
import os
from accelerate import Accelerator
its = Accelerator()
os.write(1, f"rank {its.process_index} of {its.num_processes}\\n".encode())
"""
JAX = """
import os
import jax
jax.distributed.initialize()
os.write(1, f"rank {jax.process_index()} of {jax.process_count()}\\n".encode())
jax.distributed.shutdown()
"""
# What a job script of Slurm on the first of two nodes has.
SCRIPT = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "2",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURMD_NODENAME": "node1",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}
LOCALHOST = "127.0.0.1 localhost\n"
OTHER = "10.77.0.2 node2\n"


class Names(NamedTuple):
    """What node1's /etc/hosts says, whether torchruns can reach each other by their names, and Gloo by this host's."""

    text: str
    lead: bool
    own: bool = False


NAMES = {
    "every host's address": Names(f"{LOCALHOST}10.77.0.1 node1\n{OTHER}", lead=True, own=True),
    "Debian's": Names(f"{LOCALHOST}127.0.1.1 node1\n{OTHER}", lead=True),
    "the others only": Names(LOCALHOST + OTHER, lead=True),
    "nobody": Names(LOCALHOST, lead=False),
    "this host only": Names(f"{LOCALHOST}127.0.1.1 node1\n", lead=False),
    "this host as localhost": Names(f"127.0.0.1 localhost node1\n{OTHER}", lead=False),
    "the other as this one": Names(f"{LOCALHOST}127.0.0.1 node2\n", lead=False),
}


@pytest.mark.parametrize("names", [pytest.param(names, id=name) for name, names in NAMES.items()])
def test_torchrun_gets_c10d_only_where_names_lead_to_the_other_nodes(hosts: Callable[..., Hosts], names: Names) -> None:
    """c10d's first node announces its host's name; where the others cannot look it up, they would hang.

    Gloo binds to that name's address. Where it has none that others reach, all get this host's interface: without it
    Gloo fails on every node.
    """
    first = hosts(2)[0]
    first.write("/etc/hosts", names.text)
    done = first.run([*evaluating("--timeout", "7", then="env")], env=KEYED | SCRIPT, check=True)
    found = parsed(done.stdout)
    if names.lead:
        assert found["PET_RDZV_ENDPOINT"] == f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}"
        assert found["PET_RDZV_CONF"] == "is_host=1,join_timeout=7,read_timeout=7"
    else:
        assert "mingle run torchrun train.py" in found["PET_NODE_RANK"]
        assert "PET_RDZV_ENDPOINT" not in found
    assert ("PET_NODE_RANK" in found) != names.lead
    assert found.get("GLOO_SOCKET_IFNAME") == (None if names.own else "eth0")


@pytest.mark.parametrize(
    ("env", "processes"),
    [
        ({}, "1"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "gpu"),
        ({"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1"}, None),
        ({"PET_NPROC_PER_NODE": "3"}, "3"),
    ],
    ids=["one task", "GPUs", "uneven tasks", "the user's"],
)
def test_torchrun_is_told_how_many_processes_only_where_it_holds_on_every_node(
    hosts: Callable[..., Hosts], env: dict[str, str], processes: str | None
) -> None:
    """Other nodes may have another number of GPUs: torchrun counts them itself."""
    done = hosts(2)[0].run([*evaluating(then="env")], env=KEYED | SCRIPT | env, check=True)
    found = parsed(done.stdout)
    assert found["PET_NNODES"] == "2"
    assert found.get("PET_NPROC_PER_NODE") == processes


@pytest.mark.parametrize(
    ("env", "options", "local_rank"),
    [
        ({}, (), "0"),
        ({"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"}, (), None),
        ({}, ("--for", "lightning"), None),
    ],
    ids=["one task", "two tasks", "Lightning"],
)
def test_a_local_rank_is_told_only_where_it_holds_in_every_task(
    hosts: Callable[..., Hosts], env: dict[str, str], options: tuple[str, ...], local_rank: str | None
) -> None:
    """By it a script for accelerate asks for its rank; one for Lightning starts no processes."""
    done = hosts(2)[0].run([*evaluating(*options, then="env")], env=KEYED | SCRIPT | env, check=True)
    found = parsed(done.stdout)
    assert (found.get("LOCAL_RANK"), found.get("RANK")) == (local_rank, None)


PLAIN = "srun torchrun train.py"
C10D = (
    "srun torchrun --nnodes $SLURM_NNODES --rdzv-id $RANDOM --rdzv-backend c10d"
    " --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT counted.py"
)
STATIC = (
    "srun bash -c 'torchrun --nnodes 2 --node-rank $SLURM_NODEID --master-addr $MASTER_ADDR"
    " --master-port $MASTER_PORT counted.py'"
)
RANKS = "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py'"
# On CPUs accelerate takes no notice of its ranks unless it is told to.
MACHINES = (
    "ACCELERATE_USE_CPU=true srun bash -c 'accelerate launch --multi_gpu --num_machines 2 --num_processes 2"
    " --machine_rank $SLURM_PROCID --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT accelerated.py'"
)


# Slurm's names are on eth0: on ib0 torchrun itself finds no host by them.
@only_with("torch")
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--iface ib0", PLAIN),
        *(("", line) for line in (C10D, STATIC, RANKS, MACHINES, "srun python train_jax.py")),
    ],
    ids=["plain", "c10d", "static", "ranks", "accelerate", "JAX"],
)
def test_a_real_program_on_every_node_is_in_one_world(
    slurm: SlurmCluster, tmp_path: Path, options: str, line: str
) -> None:
    """The usual lines behind the eval."""
    assert ran(slurm, tmp_path, options, line) == (0, ["rank 0 of 2", "rank 1 of 2"])


@only_with("torch")
def test_gloo_reaches_the_others_where_a_hosts_own_name_is_127_0_1_1(slurm: SlurmCluster, tmp_path: Path) -> None:
    """As Debian's installer writes it; all-reduce is done by Gloo."""
    names = "".join(f"10.77.0.{host.number} {host.name}\n" for host in slurm.hosts)
    before = [host.outside("/etc/hosts").read_text() for host in slurm.hosts]
    for host in slurm.hosts:
        its = names.replace(f"10.77.0.{host.number} ", "127.0.1.1 ")
        host.write("/etc/hosts", LOCALHOST + its)
    try:
        assert ran(slurm, tmp_path, "", PLAIN) == (0, ["rank 0 of 2", "rank 1 of 2"])
    finally:
        for host, text in zip(slurm.hosts, before, strict=True):
            host.write("/etc/hosts", text)


NO_RANK = "environment variable RANK expected, but not set"
NO_RANK_OF_CPUS = "ValueError: .*none: start it on every node of this job: mingle run accelerate launch"
ALONE = {
    "torchrun train.py": "RendezvousTimeoutError",
    "python train.py": NO_RANK,
    "accelerate launch accelerated.py": NO_RANK,
    "srun accelerate launch accelerated.py": NO_RANK,
    "srun accelerate launch --cpu accelerated.py": NO_RANK_OF_CPUS,
}


@only_with("torch")
@pytest.mark.parametrize("line", ALONE)
def test_a_real_program_that_would_train_alone_ends(slurm: SlurmCluster, tmp_path: Path, line: str) -> None:
    """A torchrun waits for the others as long as `mingle env` would; who needs a rank has none."""
    assert ran(slurm, tmp_path, "--timeout 2", line) == (1, [])
    said = (tmp_path / "output").read_text()
    assert re.search("to train on all nodes, try srun in front: srun mingle exec torchrun", said)
    assert re.search(ALONE[line], said), said


def ran(slurm: SlurmCluster, place: Path, options: str, line: str) -> tuple[int, list[str]]:
    """Return the status of a line in the job script of two nodes, behind its eval, and what the training said."""
    for name, text in (
        ("train.py", TRAIN),
        ("counted.py", COUNTED),
        ("accelerated.py", ACCELERATED),
        ("train_jax.py", JAX),
    ):
        (place / name).write_text(text)
    path = f"export PATH={BIN}:$PATH OMP_NUM_THREADS=1 JAX_PLATFORMS=cpu\n"
    script = f'{path}eval "$(mingle env {options})"\n{line}\necho $? >status\n'
    where = ("-N2", "--ntasks-per-node=1", f"--output={place}/output")
    job = slurm.submit(script, *where, env=KEYED, cwd=str(place))
    state = slurm.wait(job, timeout=120)
    text = (place / "output").read_text()
    assert state == "COMPLETED", text
    return int((place / "status").read_text()), sorted(re.findall(r"rank \d of \d", text))
