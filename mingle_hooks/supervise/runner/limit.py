"""The runner's limit of open files, which is no other process's: Slurm's srun would hand it on to COMMAND."""

from __future__ import annotations

import resource

from mingle_hooks import open_files

# For each supervisor two connections, what its starter says, and its log; and for what is this process's own, with
# some strangers: where they are more, the oldest goes.
_EACH, _OTHERS = 4, 512


class Limit:
    """Raised for so many supervisors, as far as this user may."""

    def __init__(self, supervisors: int) -> None:
        self._own = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_files.allow(_EACH * supervisors + _OTHERS)
        self._raised = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._is_raised = self._raised != self._own

    def __enter__(self) -> None:
        """Go back to the user's own limit, which a process that is started now has, too."""
        self.give_back()

    def __exit__(self, *_error: object) -> None:
        if self._is_raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._raised)

    def give_back(self) -> None:
        """Go back to the user's own limit."""
        if self._is_raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._own)
