"""Hostile text in options, variables and the host's own name never runs and is never printed raw."""

from pathlib import Path

import pytest
from cluster.hosts import Hosts
from forked import Forked
from support.members import KEYED, all_evaluated, evaluating, members, one_world

from mingle_hooks.settings import TABLE

# Runs in a shell, ends words and quotes; and what moves a terminal's cursor, sets its title, ends a line.
PLAIN = "a'b\"c `touch x` $(touch x) ;touch x;& |tee x >x \\ !x *"
RAW = "\x1b[2J\x1b]0;x\x07\n$(touch x)\rb\x9b31m"
# What is set for every case; each case then replaces one of these, or adds one.
SLURM = {
    **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "SLURMD_NODENAME"), "node1"),
    **dict.fromkeys(("SLURM_STEP_ID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), "0"),
    **dict.fromkeys(("SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"), "1"),
    **dict.fromkeys(("SLURM_RESTART_COUNT", "SLURM_HET_SIZE", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE"), "1"),
    "SLURM_JOB_ID": "5",
}
PBS = ("PBS_JOBID", "PBS_NODEFILE", "PBS_NODENUM", "PBS_TASKNUM", "PBS_JOBCOOKIE")
OTHERS = (
    *("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "NNODES", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MINGLE_KEY"),
    *("CUDA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "MINGLE_EXPORTS", "MINGLE_WORLD"),
    *("OMPI_COMM_WORLD_RANK", "LSB_HOSTS", "PE_HOSTFILE", "FLUX_JOB_ID", "OAR_NODEFILE", "PALS_RANKID"),
    "JOB_COMPLETION_INDEX",
)
Call = tuple[list[str], dict[str, str]]


@pytest.mark.parametrize("text", [PLAIN, RAW], ids=["plain", "raw"])
def test_text_that_a_user_or_a_scheduler_can_fill_never_runs_nor_prints_raw(
    four: Hosts, forked: Forked, tmp_path: Path, text: str
) -> None:
    """Every option, setting and scheduler variable, one after the other, in a shell that evals."""
    host = four[0]
    options = [setting.option for setting in TABLE if setting.option and setting.name not in ("quiet", "insecure")]
    names = [*SLURM, *PBS, *OTHERS, *(setting.variable for setting in TABLE if setting.variable)]

    def by_option(option: str) -> Call:
        return ["--id", "job", "--nodes", "1", "--for", "torchrun", "--explain", option, text], KEYED

    def by_variable(name: str) -> Call:
        base = SLURM if name in SLURM else {"MINGLE_ID": "job", "MINGLE_NODES": "1"}
        pbs = {"PBS_JOBID": "7", "PBS_NODENUM": "0"} if name in PBS else {}
        return ["--explain", "--timeout", "1"], {**KEYED, **base, **pbs, name: text}

    results = all_evaluated(forked, host, tmp_path, [*map(by_option, options), *map(by_variable, names)])
    for name, done in zip([*options, *names], results, strict=True):
        assert done.stdout == "", name
        assert done.returncode in (0, 64, 65, 69, 71, 73, 77, 78), (name, done)
        assert all(line.isprintable() for line in done.stderr.split("\n")), (name, done.stderr)
        assert "Traceback" not in done.stderr, (name, done.stderr)
    assert not host.outside("/root/x").exists()


def test_a_host_whose_name_is_hostile_takes_part_under_a_plain_one(four: Hosts) -> None:
    """As rank 0 and as another, with a roster that every member gets."""
    code = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"
    names = [PLAIN, RAW]
    results = members(
        list(four)[:2],
        lambda number: [
            *("unshare", "--uts", "python3", "-c", code, names[number][:60]),
            *evaluating("--id", "job", "--nodes", "2", "--rank", str(number), "--for", "tensorflow", "--quiet"),
        ],
    )
    worlds = one_world(results)
    assert [done.stderr for done in results] == ["", ""]
    assert not four[0].outside("/root/x").exists()
    assert "$(" not in worlds[0]["TF_CONFIG"]
