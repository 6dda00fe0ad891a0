"""The runner's limit of open files, which is no other process's: Slurm's srun would hand it on to COMMAND."""

from __future__ import annotations

import resource

from mingle_hooks import open_files
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# For each supervisor two connections, what its starter says, and its log; and for what is this process's own, with
# some strangers: where they are more, the oldest goes.
_EACH, _OTHERS = 4, 512


class Limit:
    """Raised for so many supervisors, as far as this user may."""

    def __init__(self, supervisors: int) -> None:
        self._own = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._is_raised = open_files.allow(_EACH * supervisors + _OTHERS) > self._own[0]

    @property
    def prepare(self) -> Callable[[], None] | None:
        """What each process that is started has to do first, None where it has the user's limit as it is.

        With anything to do there, starting one takes several milliseconds more.
        """
        return self.give_back if self._is_raised else None

    def give_back(self) -> None:
        """Go back to the user's own limit."""
        resource.setrlimit(resource.RLIMIT_NOFILE, self._own)
