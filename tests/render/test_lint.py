"""The classic mistakes of multi-node scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mingle_hooks.render.job import describe
from mingle_hooks.render.launchers import LAUNCHERS
from mingle_hooks.render.lint import lint
from mingle_hooks.render.schedulers import TABLE as SCHEDULERS
from mingle_hooks.render.script import render

HERE = Path(__file__).resolve()
SCRIPTS = [*sorted(HERE.parent.glob("golden/*.sh")), *sorted(HERE.parents[2].glob("examples/*/*.sh"))]
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"


@pytest.mark.parametrize(
    ("script", "line", "mistake"),
    [
        (HEAD + "export MASTER_PORT=29500", 4, "fixed MASTER_PORT"),
        (HEAD + "srun torchrun \\\n  --master_port 29500 x.py", 5, "fixed MASTER_PORT"),
        (HEAD + "srun torchrun --rdzv-endpoint=$H:29400 x.py", 4, "fixed MASTER_PORT"),
        (HEAD + "\nMASTER_ADDR=$(hostname -i)", 5, "hostname -i"),
        (HEAD + "A=$(hostname -I | cut -d' ' -f1)", 4, "hostname -i"),
        (HEAD + "A=$(scontrol show hostnames | head -1 || echo localhost)", 4, "world of its own"),
        ("#SBATCH -N 2\n#SBATCH --ntasks-per-node=8\nsrun torchrun x.py", 2, "more than one task"),
        ("#SBATCH -N 2\n#SBATCH --ntasks=16\nsrun torchrun x.py", 2, "more than one task"),
        (HEAD + "torchrun x.py", 4, "without srun"),
        ("#PBS -l select=2:ncpus=4\ntorchrun x.py", 2, "without srun"),
        (HEAD + "export NODE_RANK=$SLURM_NODEID", 4, "first node's"),
        (HEAD + 'srun torchrun --node_rank "$SLURM_NODEID" x.py', 4, "first node's"),
        (HEAD + 'srun bash -c "torchrun --node_rank $SLURM_PROCID x.py"', 4, "first node's"),
        (HEAD + "export GLOO_SOCKET_IFNAME=^lo,docker0", 4, "exclusion"),
        (HEAD + 'eval "$(mingle env)"', 4, "unseen"),
        (HEAD + 'export A=1; eval "$(mingle env)"', 4, "unseen"),
        (HEAD + "srun bash -c 'eval \"$(mingle env)\"; python train.py'", 4, "unseen"),
        (HEAD + 'srun bash -c "eval \\"\\$(mingle env)\\"; python train.py"', 4, "unseen"),
        (HEAD + "MASTER_PORT=${MASTER_PORT:-29500}", 4, "fixed MASTER_PORT"),
        (HEAD + 'export MASTER_PORT="$((29500))"', 4, "fixed MASTER_PORT"),
        (HEAD + "srun torchrun \\\n  --nnodes=2 \\\n  --rdzv_endpoint=$H:29400 \\\n  x.py", 6, "fixed MASTER_PORT"),
        (HEAD + "A=$(hostname --ip-address)", 4, "hostname -i"),
        (HEAD + "A=$(x) || export MASTER_ADDR=127.0.0.1", 4, "world of its own"),
        (HEAD + "export TP_SOCKET_IFNAME='^lo'", 4, "exclusion"),
        (HEAD + "A=$(srun -N1 -n1 hostname)\ntorchrun x.py", 5, "without srun"),
        ("#PBS -l select=1:ncpus=4+1:ncpus=8\ntorchrun x.py", 2, "without srun"),
        ("#PBS -l nodes=2:ppn=8\npbsdsh torchrun --node_rank $PBS_NODENUM x.py", 2, "first node's"),
        (HEAD + "export RANK=${SLURM_PROCID}", 4, "first node's"),
        (HEAD + "srun --ntasks-per-node=8 torchrun x.py", 4, "more than one task"),
        ("#SBATCH --nodes=2\nsrun -N 2 -n 16 accelerate launch x.py", 2, "more than one task"),
    ],
)
def test_a_mistake_is_found_on_its_line(script: str, line: int, mistake: str) -> None:
    """Each classic mistake is named with its line and what to write instead."""
    found = lint(script)
    assert [(its.line, mistake in its.mistake, bool(its.mend)) for its in found] == [(line, True, True)]


@pytest.mark.parametrize(
    "line",
    [
        "srun bash -c 'torchrun --node_rank $SLURM_NODEID x.py'",
        "srun --ntasks-per-node=1 torchrun x.py",
        "export NCCL_SOCKET_IFNAME=^lo",
        "# MASTER_PORT=29500",
        'srun torchrun --master_port "$MASTER_PORT" x.py',
        "export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
        "echo ready # MASTER_PORT=29500",
        "srun -N2 -n2 torchrun x.py",
        'v=$(mingle env) || exit; eval "$v"',
        'srun bash -c "torchrun --node_rank \\$SLURM_NODEID x.py"',
    ],
)
def test_what_is_right_is_left_alone(line: str) -> None:
    """Lines that only look like a mistake are none."""
    assert lint(HEAD + line) == []


@pytest.mark.parametrize("word", ["x", "--rdzv_endpoint=", "||", "hostname -", "$(", "'", "eval", "MASTER_PORT=${"])
def test_a_line_of_the_largest_size_is_read_to_its_end(word: str) -> None:
    """A line of 1 MiB without blanks, which holds what mistakes begin with, has none."""
    assert lint(HEAD + word * ((1 << 20) // len(word))) == []


def test_one_node_needs_no_srun() -> None:
    """A launcher in the batch script of one node is right."""
    assert lint("#SBATCH --nodes=1\ntorchrun x.py") == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_scripts_and_examples_have_none_of_them(path: Path) -> None:
    """Nothing is found in the scripts that the project shows."""
    assert lint(path.read_text()) == []


@pytest.mark.parametrize("scheduler", [its.name for its in SCHEDULERS])
def test_generated_scripts_have_none_of_them(scheduler: str) -> None:
    """Nothing is found in any script that the project makes."""
    scripts = [render(scheduler, describe({"nodes": "2", "launcher": name}, ["train.py"])) for name in LAUNCHERS]
    assert [lint(script) for script in scripts] == [[]] * len(scripts)
