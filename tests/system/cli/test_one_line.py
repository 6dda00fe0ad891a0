"""Where all nodes end for the same reason, the job's output has it once."""

import re

import pytest
from cluster.slurm import SlurmCluster

from mingle_hooks.schedulers.facts import expand

LACKING = "no-such-command: No such file or directory"


def lines(text: str) -> list[str]:
    """Return mingle's own lines."""
    return [line for line in text.splitlines() if "mingle: expected" in line]


STEP = ("srun", "-N4", "--kill-on-bad-exit=1", "mingle", "exec", "no-such-command")
OF_TASKS = ("srun", "-N4", "--ntasks-per-node=2", "--kill-on-bad-exit=1", "mingle", "exec", "--scope", "task", STEP[-1])


@pytest.mark.parametrize("words", [STEP, OF_TASKS, ("salloc", "-N4", "mingle", "run", STEP[-1])], ids=" ".join)
def test_the_reason_of_all_nodes_is_shown_once(slurm: SlurmCluster, words: tuple[str, ...]) -> None:
    """Rank 0, or the runner, prints it, also where Slurm ends the step at the first failure."""
    done = slurm.controller.run([*words], user="alice", timeout=90)
    assert done.returncode == 127
    assert done.stderr.count(LACKING) == 1, done.stderr
    assert words[0] == "salloc" or len(lines(done.stderr)) == 1


def test_a_member_with_a_reason_of_its_own_prints_it(slurm: SlurmCluster) -> None:
    """The one node that has another key says so, and the others say who is missing."""
    line = '[ "$SLURM_NODEID" != 2 ] || export MINGLE_KEY=$(mingle key); exec mingle exec --timeout 3 true'
    done = slurm.controller.run(
        ["bash", "-c", f"MINGLE_KEY=$(mingle key) srun -N3 bash -c '{line}'"], user="alice", timeout=60
    )
    assert done.returncode == 77
    assert len(lines(done.stderr)) == 2, done.stderr


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["exec", "--nope", "true"], "saw --nope"),
        (["exec", "--timeout", "soon", "true"], "saw 'soon' (--timeout)"),
        (["hosts", "--format", "pbs"], "saw pbs"),
    ],
)
def test_srun_shows_a_mistake_in_the_options_once(slurm: SlurmCluster, words: list[str], seen: str) -> None:
    """Task 0 prints it; each task ends with the status."""
    step = ["srun", "-N4", "--ntasks-per-node=2", "mingle", *words]
    done = slurm.controller.run(step, user="alice", timeout=60)
    assert len(lines(done.stderr)) == 1, done.stderr
    assert seen in lines(done.stderr)[0]
    failed = re.findall(r"tasks? ([0-9,-]+): Exited with exit code 64", done.stderr)
    assert sorted(task for text in failed for task in expand(f"[{text}]")) == list("01234567"), done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "if [ $SLURM_PROCID = 0 ]; then mingle exec --timeout 3 true; else mingle exec --nope true; fi; exit $?",
        'words=("--timeout 3" --nope); mingle exec ${words[SLURM_PROCID]} true',  # bash becomes mingle
        "[ $SLURM_PROCID = 0 ] || export MINGLE_TIMEOUT=soon; exec mingle exec --timeout 3 true",
    ],
    ids=["option", "option, by exec", "variable"],
)
def test_a_mistake_that_the_first_task_does_not_make_is_shown(slurm: SlurmCluster, line: str) -> None:
    """A script may give other words to each task, and each node has an environment of its own."""
    done = slurm.controller.run(["srun", "-N2", "bash", "-c", line], user="alice", timeout=60)
    assert [text for text in lines(done.stderr) if "--nope" in text or "soon" in text], done.stderr
