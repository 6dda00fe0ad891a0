"""`eval "$(mingle env)"` in a job script of several nodes, and what the real torchrun makes of it.

test_alone.py has many more lines, with a torchrun that needs no torch.
"""

import re
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from cluster.paths import BIN
from cluster.slurm import SlurmCluster
from needs import only_with
from support.members import KEYED, evaluating, parsed
from support.recorded import assigned

# Without torch, whose import in each process takes longer than the rest: torchrun itself meets by it.
COUNTED = """
import os
os.write(1, f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n".encode())
"""
JAX = """
import os
import jax
jax.distributed.initialize()
os.write(1, f"rank {jax.process_index()} of {jax.process_count()}\\n".encode())
jax.distributed.shutdown()
"""
# What a job script of Slurm on the first of two nodes has.
SCRIPT = assigned(
    "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node[1-2] SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=1(x2)"
    " SLURMD_NODENAME=node1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0"
)
LOCALHOST = "127.0.0.1 localhost\n"
OTHER = "10.77.0.2 node2\n"


def evaluated(four: Hosts, *options: str, **env: str) -> dict[str, str]:
    """Return what the job script on the first of two nodes gets."""
    return parsed(four[0].run(evaluating(*options), env={**KEYED, **SCRIPT, **env}, check=True).stdout)


@pytest.mark.parametrize("leads", [True, False], ids=["Debian's names", "this host's name only"])
def test_torchrun_gets_c10d_only_where_names_lead_to_the_other_nodes(four: Hosts, *, leads: bool) -> None:
    """c10d's first node announces its host's name; where the others cannot look it up, they would hang.

    Gloo binds to that name's address. Where it has none that others reach, all get this host's interface: without it
    Gloo fails on every node.
    """
    before = four[0].outside("/etc/hosts").read_text()
    four[0].write("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 node1\n{'10.77.0.2 node2' if leads else ''}\n")
    found = evaluated(four, "--timeout", "7")
    four[0].write("/etc/hosts", before)
    if leads:
        assert found["PET_RDZV_ENDPOINT"] == f"{found['MASTER_ADDR']}:{found['MASTER_PORT']}"
        assert found["PET_RDZV_CONF"] == "is_host=1,join_timeout=7,read_timeout=7"
    else:
        assert "mingle run torchrun train.py" in found["PET_NODE_RANK"]
        assert "PET_RDZV_ENDPOINT" not in found
    assert ("PET_NODE_RANK" in found) != leads
    assert found["GLOO_SOCKET_IFNAME"] == "eth0"


@pytest.mark.parametrize(
    ("env", "options", "processes", "local_rank"),
    [
        ({}, (), "1", "0"),
        ({"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1"}, (), None, None),
        ({}, ("--for", "lightning"), "1", None),
    ],
    ids=["one task", "uneven tasks", "Lightning"],
)
def test_processes_and_local_rank_are_set_only_where_they_hold_on_every_node(
    four: Hosts, env: dict[str, str], options: tuple[str, ...], processes: str | None, local_rank: str | None
) -> None:
    """Other nodes may have other GPUs: torchrun counts them. By LOCAL_RANK accelerate would ask for its rank."""
    found = evaluated(four, *options, **env)
    seen = [found.get(name) for name in ("PET_NPROC_PER_NODE", "LOCAL_RANK", "RANK")]
    assert seen == [processes, local_rank, None]
    assert found["PET_NNODES"] == "2"


PLAIN = "srun torchrun counted.py"
C10D = (
    "srun torchrun --nnodes $SLURM_NNODES --rdzv-id $RANDOM --rdzv-backend c10d"
    " --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT counted.py"
)
STATIC = (
    "srun bash -c 'torchrun --nnodes 2 --node-rank $SLURM_NODEID --master-addr $MASTER_ADDR"
    " --master-port $MASTER_PORT counted.py'"
)
MACHINES = (
    "srun bash -c 'accelerate launch --multi_gpu --num_machines 2 --num_processes 2"
    " --machine_rank $SLURM_PROCID --main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT counted.py'"
)


# Slurm's names are on eth0: on ib0 torchrun itself finds no host by them.
@only_with("torch")
@pytest.mark.parametrize(
    ("options", "line"),
    [("--iface ib0", PLAIN), *(("", line) for line in (C10D, STATIC, MACHINES, "srun python train_jax.py"))],
    ids=["plain", "c10d", "static", "accelerate", "JAX"],
)
def test_a_real_program_on_every_node_is_in_one_world(
    slurm: SlurmCluster, tmp_path: Path, options: str, line: str
) -> None:
    """The usual lines behind the eval; test_messages.py has what programs say that would train alone."""
    (tmp_path / "counted.py").write_text(COUNTED)
    (tmp_path / "train_jax.py").write_text(JAX)
    script = f'export PATH={BIN}:$PATH OMP_NUM_THREADS=1 JAX_PLATFORMS=cpu\neval "$(mingle env {options})"\n{line}'
    where = ("-N2", "--ntasks-per-node=1", f"--output={tmp_path}/output")
    state = slurm.wait(slurm.submit(script, *where, env=KEYED, cwd=str(tmp_path)), timeout=120)
    text = (tmp_path / "output").read_text()
    assert (state, sorted(re.findall(r"rank \d of \d", text))) == ("COMPLETED", ["rank 0 of 2", "rank 1 of 2"]), text
