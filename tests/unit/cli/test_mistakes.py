"""A value that is none of those there are: one line with all of them and the nearest, before anything is done."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from forked import Forked

# What is typed -> (what the line names, what it advises).
MISTAKES = {
    "env --id a --nodes 1 --slots all": ("gpus, tasks or cpus", "gpus"),
    "env --id a --nodes 1 --slots gpu": ("gpus, tasks or cpus", "gpus"),
    "env --id a --nodes 1 --scope process": ("node or task", "task"),
    "env --id a --nodes 1 --on-failure x": ("exit or status", "exit"),
    "env --id a --nodes 1 --via xyz": ("master, hosts, directory, multicast", "--via master"),
    "env --id a --nodes 1 --via hosts,multicat": ("master, hosts, directory, multicast", "--via multicast"),
    "env --id a --nodes 1 --shell powershell": ("sh, dash, bash,", "--shell sh"),
    "env --id a --nodes 1 --for pytorch": ("torchrun, torchrun-elastic, accelerate,", "--for torchrun"),
    "exec --id a --nodes 1 --scope tasks true": ("node or task", "task"),
    "template slurm --launcher x -- train.py": ("torchrun, torchrun-elastic, accelerate,", "--launcher torchrun"),
    "template slurm --launcher deepsped -- train.py": ("accelerate, deepspeed, mpirun", "--launcher deepspeed"),
    "env --id a --timout 5": ("an option of `mingle env`; saw --timout", "--timeout"),
    "exec --timout 5 true": ("an option of `mingle exec`; saw --timout", "--timeout"),
    "exec --id a": ("COMMAND [ARG]... after `mingle exec`; saw none", "`mingle exec --help`"),
    "env --id": ("options of `mingle env`; saw --id, which requires an argument", "`mingle env --help`"),
    "env --id a here": ("options of `mingle env`; saw unexpected extra argument (here)", "`mingle env --help`"),
    "hosts --format pbs": ("one of etc, mpi, mpich,", "`mingle hosts --format etc`"),
    "hosts --format mpi4": ("saw mpi4", "`mingle hosts --format mpi`"),
    "hooks install slrum": ("one of slurm, pbs, torque; saw slrum", "`mingle hooks install slurm`"),
    "completion zhs": ("one of bash, zsh, fish; saw zhs", "`mingle completion zsh`"),
    "hooks install": ("one of slurm, pbs, torque; saw none", "`mingle hooks install slurm`"),
    "doctor": (
        "env, exec, run, check, ls, show, kill, hosts, key, template, hooks, schema, docs, completion; saw doctor",
        "`mingle hooks doctor`",
    ),
    "slurm -- torchrun train.py": ("saw slurm", "`mingle template slurm`"),
    "evn": ("saw evn", "`mingle env`"),
    "evn --help": ("saw evn", "`mingle env`"),
    "exce true": ("saw exce", "`mingle exec`"),
    "hooks instal": ("saw instal", "`mingle hooks install`"),
    "launch true": ("saw launch", "`mingle run`"),
    "run --restart 3 true": ("an option of `mingle run`; saw --restart", "--restarts"),
    "run --alone --grace soon true": ("a time from 1 s to 7 days; saw 'soon' (--grace)", "300, 90s, 5m or 1h30m"),
    "run --nodes 2 true": ("2 hosts that train; saw 1 of them", "a smaller --nodes or --spares, or more hosts"),
    "run --alone --warn 60 true": ("a time limit to warn about; saw none from the scheduler", "--limit 4h"),
    "python3 train.py": ("saw python3", "`mingle exec python3`"),
    "template slrum -- train.py": ("saw slrum", "`mingle template slurm`"),
    "hooks render slurm prlog": ("prolog, epilog, taskprolog,", "mingle hooks render slurm prolog"),
}


# On a login node.
NO_JOB = ("env", "env --id a", "exec true", "exec torchrun train.py")
WITHOUT_JOB = "srun in front, --id NAME --nodes N on each of N hosts, or --alone for this host only"


@pytest.mark.parametrize("words", [*MISTAKES, *NO_JOB])
def test_a_mistake_is_answered_with_the_valid_values_and_the_nearest(
    forked: Forked, words: str, tmp_path: Path
) -> None:
    """With the code for options that cannot be used; on a login node the error is that there is no job."""
    done = forked.run(*words.split(), env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    names, advice = MISTAKES.get(words, ("saw no job here", WITHOUT_JOB))
    assert done.returncode == 64
    assert re.fullmatch(r"mingle: expected [^\n]+; saw [^\n]+; try [^\n]+\n", done.stderr)
    assert names in done.stderr
    assert done.stderr.endswith(f"; try {advice}\n")
    assert "export" not in done.stdout
