"""The recorded environments of real clusters, for the tests of this folder."""

from pathlib import Path

FOLDER = Path(__file__).parent.parent / "data" / "recorded"
SLURM_VERSIONS = ("slurm-22.05.8", "slurm-26.05.3")
OPENPBS = "openpbs-23.06.06"


def environ(cluster, name):
    """Return a recorded environment as a dictionary."""
    lines = (FOLDER / cluster / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def names(cluster, *kinds):
    """Return the names of all recordings of some kinds, such as task and batch."""
    return sorted(path.name for path in (FOLDER / cluster).iterdir() if path.name.split(".")[0] in kinds)
