"""Launchers, recognised by the words of a command."""

from __future__ import annotations

import shlex
import socket

import pytest

from mingle_hooks.export.launchers import find, is_first_host, recognise
from mingle_hooks.schedulers.facts import JobFacts


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ("torchrun train.py", "torchrun", 1),
        ("/opt/venv/bin/torchrun train.py", "torchrun", 1),
        ("python -m torch.distributed.run train.py", "torchrun", 3),
        ("python3.11 -u -X dev -m torch.distributed.launch train.py", "torchrun", 6),
        ("accelerate launch train.py", "accelerate", 2),
        ("accelerate-launch train.py", "accelerate", 1),
        ("python -m accelerate.commands.launch train.py", "accelerate", 3),
        ("python -m accelerate.commands.accelerate_cli launch train.py", "accelerate", 4),
        ("deepspeed train.py", "deepspeed", 1),
        ("composer train.py", "composer", 1),
        ("llamafactory-cli train config.yaml", "llamafactory", 2),
        ("swift sft --model x", "swift", 2),
        ("ray start --block", "ray", 2),
        ("ray symmetric-run -- python train.py", "ray", 2),
        ("horovodrun python train.py", "horovodrun", 1),
        ("mpiexec.hydra ./train", "mpirun", 1),
        ("srun ./train", "srun", 1),
        ("apptainer exec --nv --bind=/data a.sif accelerate launch train.py", "accelerate", 7),
        ("/usr/bin/singularity exec a.sif python -m torch.distributed.run train.py", "torchrun", 6),
    ],
)
def test_a_launcher_is_known_by_its_own_name_or_its_module_s(line: str, name: str, words: int) -> None:
    """Whatever path and options of Python stand before it."""
    launcher = find(shlex.split(line))
    assert launcher is not None
    assert (launcher[0].name, launcher[1]) == (name, words)


@pytest.mark.parametrize(
    "line",
    [
        "python train.py",
        "python torchrun",
        "python -m torch.distributed.runner train.py",
        "python -X -m torch.distributed.run",
        "python -m",
        "python",
        "accelerate config",
        "accelerate",
        "ray stop",
        "bash -c torchrun",
        "my-torchrun train.py",
        "apptainer exec a.sif python train.py",
        "apptainer exec torchrun",
        "apptainer run a.sif torchrun train.py",
    ],
)
def test_any_other_program_is_none(line: str) -> None:
    """A launcher's name as an argument makes none."""
    assert recognise(shlex.split(line)) is None


@pytest.mark.parametrize(
    ("name", "host", "hosts", "is_first"),
    [
        ("node1", None, ("node1", "node2"), True),
        ("node1.cluster", None, ("node1",), True),
        ("node1", None, ("node1.cluster",), True),
        ("login", None, ("node1",), False),
        ("login", "node1", ("node1",), True),
        ("node1", "node2", ("node1", "node2"), False),
        ("node1", "node1.other", ("node1.cluster",), False),
        ("node1", None, (), False),
    ],
)
def test_the_first_host_is_the_one_that_the_scheduler_or_else_its_short_name_tells(
    name: str, host: str | None, hosts: tuple[str, ...], *, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell of salloc may be on a login host."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert is_first_host(JobFacts("slurm", host=host, hosts=hosts)) is is_first
