"""The recorded environments of real clusters, for the tests of the schedulers."""

import shlex
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "data" / "recorded"
SLURM_VERSIONS = ("slurm-22.05.8", "slurm-26.05.3")
OPENPBS = "openpbs-23.06.06"


def environ(cluster: str, name: str) -> dict[str, str]:
    """Return a recorded environment as a dictionary."""
    pairs = (line.split("=", 1) for line in (FOLDER / cluster / name).read_text().splitlines())
    return {name: value for name, value in pairs}  # noqa: C416 - dict() has no types here


def names(cluster: str, *kinds: str) -> list[str]:
    """Return the names of all recordings of some kinds, such as task and batch."""
    return sorted(path.name for path in (FOLDER / cluster).iterdir() if path.name.split(".")[0] in kinds)


def assigned(text: str) -> dict[str, str]:
    """Return an environment from assignments as a shell has them; a value with spaces stands in quotes."""
    return dict(pair.split("=", 1) for pair in shlex.split(text))  # type: ignore[misc]


# Slurm's variables of a step of two nodes with a task each, without a task's own numbers.
STEP = assigned(
    "SLURM_JOB_ID=5 SLURM_JOB_NODELIST=node[1-2] SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_NUM_NODES=2"
    " SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_LOCALID=0"
)
