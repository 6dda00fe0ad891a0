"""Commands as people type them: launchers, srun and mingle exec in front."""

from __future__ import annotations

import shlex

import pytest

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render


def body(command: str, scheduler: str = "slurm", **options: object) -> str:
    """Return the script of a job on four nodes."""
    return render(scheduler, describe({"nodes": "4", **options}, shlex.split(command)))


@pytest.mark.parametrize(
    ("command", "line", "frameworks"),
    [
        ("torchrun train.py --lr 1", "  torchrun train.py --lr 1\n", "torchrun"),
        ("torchrun --nproc-per-node 2 -m pkg", "  torchrun --nproc-per-node 2 -m pkg\n", "torchrun"),
        ("/opt/x/bin/torchrun 'a b.py'", "  /opt/x/bin/torchrun 'a b.py'\n", "torchrun"),
        ("env A=1 torchrun train.py", "  env A=1 torchrun train.py\n", "torchrun"),
        ("torchrun --rdzv-backend=c10d train.py", "torchrun --max-restarts=3 --rdzv-b", "torchrun-elastic"),
        ("torchrun --rdzv_backend c10d train.py", "torchrun --max-restarts=3 --rdzv_b", "torchrun-elastic"),
        ("torchrun train.py c10d", "  torchrun train.py c10d\n", "torchrun"),
        ("python -m torch.distributed.run x.py", "  python -m torch.distributed.run x.py\n", "torchrun"),
        ("python3 -u -W ignore -m torch.distributed.run x.py", "-m torch.distributed.run x.py\n", "torchrun"),
        ("env A=1 python -u /opt/bin/torchrun x.py", "  env A=1 python -u /opt/bin/torchrun x.py\n", "torchrun"),
        ("-m torch.distributed.run x.py", "  python3 -m torch.distributed.run x.py\n", "torchrun"),
        ("python3.12 -m torch.distributed.launch x.py", "torch.distributed.launch x.py\n", "torchrun"),
        (
            "accelerate launch --mixed_precision bf16 train.py",
            "  accelerate launch --mixed_precision bf16 train.py\n",
            "nccl",
        ),
        ("accelerate-launch x.py", "  accelerate-launch x.py\n", "nccl"),
        ("deepspeed train.py --deepspeed", "  deepspeed train.py --deepspeed\n", "deepspeed"),
        ("srun torchrun train.py", "  torchrun train.py\n", "torchrun"),
        ("mingle exec torchrun train.py", "  torchrun train.py\n", "torchrun"),
        ("srun mingle exec -- torchrun train.py", "  torchrun train.py\n", "torchrun"),
        ("srun python train.py", "  python train.py\n", "--scope task"),
        ("mingle exec python train.py", "  torchrun --no-python python train.py\n", "torchrun"),
        ("mpirun python train.py", "mingle exec --scope task --for nccl,gloo python train.py\n", "nccl"),
    ],
)
def test_a_launcher_is_started_as_it_was_typed(command: str, line: str, frameworks: str) -> None:
    """It is not nested in another, the user's words stay, and mingle sets what it reads."""
    script = body(command)
    assert line in script
    assert f" {frameworks}" in script.partition("exec mingle run")[2]
    assert "no-python torchrun" not in script


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "torque", "lsf", "sge"])
def test_srun_and_mpirun_are_the_scripts_to_start(scheduler: str) -> None:
    """One process for each task under srun, and Open MPI's ranks under mpirun, whatever the scheduler."""
    assert body("srun python train.py", scheduler) == body("python train.py", scheduler, launcher="process")
    assert body("mpirun train.py", scheduler) == body("train.py", scheduler, launcher="mpirun")


@pytest.mark.parametrize("command", ["torchrun train.py", "srun torchrun train.py", "env A=1 torchrun train.py"])
@pytest.mark.parametrize("launcher", ["torchrun", "torchrun-elastic", "plain"])
def test_a_launcher_that_agrees_is_no_contradiction(command: str, launcher: str) -> None:
    """--launcher torchrun-elastic says how, and plain leaves the line as it is; both read what mingle sets."""
    script = body(command, launcher=launcher)
    restarts = "--max-restarts=3 " if launcher == "torchrun-elastic" else ""
    assert f"torchrun {restarts}train.py\n" in script
    assert "torchrun" in script.partition("--for ")[2].partition(" ")[0]


@pytest.mark.parametrize(
    ("command", "launcher", "remedy"),
    [
        ("torchrun train.py", "process", "-- train.py"),
        ("torchrun train.py", "mpirun", "-- train.py"),
        ("torchrun --nproc-per-node 2 train.py", "accelerate", "-- train.py"),
        ("accelerate launch train.py", "torchrun", "leaving --launcher out"),
        ("deepspeed train.py", "ray", "leaving --launcher out"),
        ("srun python train.py", "mpirun", "-- python train.py"),
        ("mpirun python train.py", "torchrun", "leaving --launcher out"),
        ("srun -N 2 -n8 --gres=gpu:2 python train.py", None, "-N 2 -n8 --gres=gpu:2 -- srun python train.py"),
        ("srun --exclusive torchrun train.py", None, "--exclusive -- srun torchrun train.py"),
        ("srun --mpi=pmix python train.py", None, "the command alone behind --"),
        ("mingle exec --for jax python train.py", None, "the command alone behind --"),
        ("mpirun -np 8 python train.py", None, "-n 8 --launcher mpirun -- python train.py"),
        ("mpirun --bind-to none python train.py", None, "--launcher mpirun and the program"),
        ("mpirun torchrun train.py", None, "-- torchrun train.py"),
        ("horovodrun -np 4 python train.py", None, "--launcher mpirun -- train.py"),
        ("ray start --head", None, "--launcher ray -- train.py"),
        ("torchrun", None, "-- torchrun train.py"),
        ("accelerate launch", None, "-- accelerate launch train.py"),
        ("srun", None, "srun train.py"),
        ("numactl -N 0 torchrun train.py", None, "--launcher plain -- numactl -N 0 torchrun train.py"),
        ("bash -c 'cd x; torchrun train.py'", None, "--launcher plain -- bash -c 'cd x; torchrun train.py'"),
        ("srun nsys profile torchrun train.py", None, "--launcher plain -- nsys profile torchrun train.py"),
        ("torchrun --standalone train.py", None, "without --standalone"),
        ("torchrun --nnodes=1:2 train.py", None, "without --nnodes"),
        ("torchrun --node-rank 0 train.py", None, "without --node-rank"),
        ("torchrun --master_addr=localhost train.py", None, "without --master_addr"),
        ("accelerate launch --main_process_ip 127.0.0.1 train.py", None, "without --main_process_ip"),
        ("torchrun --nnodes=1 train.py", None, "without --nnodes"),
        ("torchrun --nnodes 2 train.py", None, "without --nnodes"),
        ("accelerate launch --num_machines 2 train.py", None, "without --num_machines"),
    ],
)
def test_what_would_train_alone_is_refused_with_what_works(command: str, launcher: str | None, remedy: str) -> None:
    """A contradiction, or a launcher where the script cannot lead it, is one line that says what to type."""
    with pytest.raises(UsageError) as refused:
        body(command, **({"launcher": launcher} if launcher else {}))
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    "command",
    [
        "train.py --launcher torchrun",
        "python3 train.py deepspeed",
        "-m pkg torchrun",
        "./run.sh",
        "python3",
        "python3 -u",
        "env",
        "env A=1",
        "python3 -c 'import torchrun'",
        "torchrun --nnodes=4 train.py",
        "torchrun --nnodes=1:4 train.py",
        "torchrun train.py --standalone --nnodes 1",
    ],
)
def test_the_programs_own_arguments_are_its_own(command: str) -> None:
    """Nothing is read into what follows the script."""
    assert body(command)


def test_plain_leads_a_launcher_within_another_program() -> None:
    """The line is as it was typed, with the variables that its launcher reads."""
    script = body("numactl -N 0 torchrun train.py", launcher="plain")
    assert "mingle run --for nccl,gloo,torchrun --slots 1 " in script
    assert "\n  numactl -N 0 torchrun train.py\n" in script


def test_the_settings_launcher_does_not_contradict() -> None:
    """A default is for commands that say nothing."""
    script = render("slurm", describe({}, ["torchrun", "train.py"], default_launcher="process"))
    assert "\n  torchrun train.py\n" in script


def test_one_task_of_a_typed_launcher_is_all_gpus() -> None:
    """Who types torchrun and one task for each node, as sbatch wants it, means all its GPUs, and CPUs for all."""
    options: dict[str, object] = {"ntasks-per-node": "1", "gpus-per-node": "4", "cpus-per-task": "32"}
    script = body("torchrun train.py", **options)
    assert "--slots 4" in script
    assert "#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=32\n" in script
    with pytest.raises(UsageError, match="--cpus-per-task 32"):
        body("torchrun train.py", **(options | {"cpus-per-task": "30"}))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun --nproc-per-node 2 src/train.py", "train"),
        ("python -m torch.distributed.run -m pkg.train", "pkg_train"),
        ("python3 -u train.py x", "train"),
        ("srun ./run", "run"),
    ],
)
def test_a_job_is_named_after_what_is_trained(command: str, name: str) -> None:
    """The launcher's name says nothing."""
    assert describe({}, shlex.split(command)).job_name == name
