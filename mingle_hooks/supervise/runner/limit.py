"""The runner's limit of open files, which is no other process's: Slurm's srun would hand it on to COMMAND."""

from __future__ import annotations

import resource

from mingle_hooks import open_files
from mingle_hooks.supervise.runner.hub import MOST_STRANGERS

# For each supervisor two connections, what its starter says, and its log.
_EACH, _OTHERS = 4, 64


class Limit:
    """Raised for so many supervisors, as far as this user may."""

    def __init__(self, supervisors: int) -> None:
        self._own = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_files.allow(_EACH * supervisors + MOST_STRANGERS + _OTHERS)

    def give_back(self) -> None:
        """Go back to the user's own limit."""
        resource.setrlimit(resource.RLIMIT_NOFILE, self._own)
