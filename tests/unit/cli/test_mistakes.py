"""A value that is none of those there are: one line with all of them and the nearest, before anything is done."""

import os
import re
from pathlib import Path

import pytest
from forked import Forked
from support.members import KEYED
from support.recorded import STEP

PAGES = (("slrum", "slurm"), ("tutorail", "tutorial"), ("kubernets", "kubernetes"), ("xyz", "help"))
# What is typed -> (what the line names, what it advises).
MISTAKES = {
    "env --id a --nodes 1 --slots gpu": ("gpus, tasks or cpus", "gpus"),
    "env --id a --nodes 1 --scope process": ("node or task", "task"),
    "env --id a --nodes 1 --port-hold maybe": ("on or off; saw 'maybe' (--port-hold)", "off"),
    "env --id a --nodes 1 --on-failure x": ("exit or status", "exit"),
    "env --id a --nodes 1 --via hosts,multicat": ("master, hosts, directory, multicast", "--via multicast"),
    "env --id a --nodes 1 --shell powershell": ("sh, dash, bash,", "--shell sh"),
    "env --id a --nodes 1 --for pytorch": ("torchrun, torchrun-elastic, accelerate,", "--for torchrun"),
    "exec --id a --nodes 1 --scope tasks true": ("node or task", "task"),
    "template slurm --launcher deepsped -- train.py": ("accelerate, deepspeed, mpirun", "--launcher deepspeed"),
    "env --id a --nodes 2 --order gcp --no-wait --master a": ("for --order; saw --no-wait", "leaving out one of them"),
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
    "run --alone --hosts a true": ("only this host with --alone; saw --hosts, --nodes or --spares", "one of the two"),
    "run --hosts a,b --nodes 1 true": (
        "a run on all 2 hosts; saw 1 (--nodes)",
        "no --nodes, --spares 1, or --alone to train on this host only",
    ),
    "run --hosts a --start-option x true": (
        "a starter that takes options, which is srun",
        "leaving --start-option out",
    ),
    "hosts --hosts a --write-etc": ("one of --hosts, --write-etc and --remove-etc", "one at a time"),
    "hosts --hosts a --format etc": ("a format without addresses, for --hosts; saw etc", "--format mpi"),
    "check --hosts localhost --command '": ("a command as a shell reads it", "--command 'all_reduce_bench -n 8'"),
    "check --hosts a,a": ("each host once in --hosts; saw a more than once", "--hosts with each name once"),
    "check --hosts a --command mpirun": (
        "a command that mingle starts on each host",
        "what it starts there, such as the program after its options",
    ),
    "kill --timeout soon a": ("saw 'soon' (--timeout)", "300, 90s, 5m or 1h30m"),
    "python3 train.py": ("saw python3", "`mingle exec python3`"),
    "template slrum -- train.py": ("saw slrum", "`mingle template slurm`"),
    **{
        f"docs {typed}": (f"a page that `mingle docs` lists; saw {typed}", f"`mingle docs {page}`")
        for typed, page in PAGES
    },
    "hooks render slurm prlog": ("prolog, epilog, taskprolog,", "mingle hooks render slurm prolog"),
}


# On a login node.
WITHOUT_JOB = (
    "saw no job here",
    "srun in front, --id NAME --nodes N on each of N hosts, or --alone for this host only",
)
MISTAKES |= dict.fromkeys(("env", "env --id a", "exec true", "exec torchrun train.py"), WITHOUT_JOB)


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_answered_with_the_valid_values_and_the_nearest(
    forked: Forked, words: str, tmp_path: Path
) -> None:
    """With the code for options that cannot be used; on a login node the error is that there is no job."""
    names, advice = MISTAKES[words]
    line = answered(forked, words, {}, 64, tmp_path)
    assert names in line
    assert line.endswith(f"; try {advice}\n")


def answered(forked: Forked, words: str, variables: dict[str, str], code: int, home: Path) -> str:
    """Return the one line of a call that fails with this code, and exports nothing."""
    done = forked.run(*words.split(), env={"PATH": os.environ["PATH"], "HOME": str(home), **variables})
    assert (done.returncode, "export" in done.stdout) == (code, False)
    assert re.fullmatch(r"mingle: expected [^\n]+; saw [^\n]+; try [^\n]+\n", done.stderr)
    return done.stderr


TWO = "env --id a --nodes 2"


@pytest.mark.parametrize(
    ("words", "variables", "code", "names"),
    [
        ("env", {**STEP, "SLURM_NODEID": "2", "SLURM_PROCID": "0"}, 65, "a node rank of 0 to 1; saw 2 (SLURM_NODEID)"),
        ("env --no-wait", {**STEP, "SLURM_NODEID": "0", "SLURM_PROCID": "0", "NODE_RANK": "1"}, 64, "saw NODE_RANK=1"),
        (f"{TWO} --iface nosuch0", KEYED, 71, "an address on nosuch0"),
        (TWO, {}, 77, "`umask 077; mkdir -p"),
        ("env --id a", {"MINGLE_NODES": "four"}, 78, "'four' (MINGLE_NODES)"),
        (TWO, {"MINGLE_ON_FAILURE": "x"}, 78, "exit or status; saw 'x' (MINGLE_ON_FAILURE); try exit"),
    ],
)
def test_what_else_is_wrong_has_a_code_of_its_own(
    forked: Forked, words: str, variables: dict[str, str], code: int, names: str, tmp_path: Path
) -> None:
    """The scheduler's variables, the network, the key and the settings."""
    assert names in answered(forked, words, variables, code, tmp_path)
