"""Where each variable that mingle exports is read: the newest release of its framework, the file, and its text.

`make test` sees that no name is missing, `make frameworks` that each text stands in that file of what is installed.
"""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from mingle_hooks.files import toml


class Read(NamedTuple):
    """One place where a variable is read."""

    package: str  # as pip knows it, or the project's name where it is no package for pip
    version: str  # the newest when this was read
    file: str  # in the package, or in the project's source
    text: str  # as it stands there


# Names of mingle's own are for the user's command line, and Kubeflow's two for user code.
OWN = ("MINGLE_",)
FOR_USER_CODE = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "DMLC_TRACKER_PORT", "DMLC_TRACKER_URI", "DMLC_NUM_WORKER")
FOR_USER_CODE += ("DMLC_TASK_ID",)
READS = {name: Read(*its) for name, its in toml(Path(__file__).with_suffix(".toml").read_bytes()).items()}


def unread() -> list[str]:
    """Return a line for each text that is not where it was read, of what is installed."""
    lines = []
    for name, read in READS.items():
        with suppress(PackageNotFoundError):
            path = str(distribution(read.package).locate_file(read.file))
            with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as its:  # libraries are large
                lines += [f"{name}: {read.text} is not in {read.file}"] if its.find(read.text.encode()) < 0 else []
    return lines
