"""Why an attempt failed: the status that tells it, and whether trying again makes sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.errors import (
    ConflictError,
    FactsError,
    MingleError,
    PlaceError,
    SecretError,
    SettingsError,
    UsageError,
)

if TYPE_CHECKING:
    from typing import Literal

    from mingle_hooks.supervise.protocol.messages import Ended

    # ended: COMMAND did; unformed: it never began; silent, gone: its supervisor; absent: a supervisor never came;
    # stalled: nobody wrote.
    Kind = Literal["ended", "unformed", "silent", "gone", "absent", "stalled"]

# EX_TEMPFAIL of sysexits.h: the infrastructure failed, and trying again makes sense.
INFRASTRUCTURE = 75
SIGNALLED = 128
# What `mingle exec` says before COMMAND begins, and says again however often it is asked; 126, 127: no such program.
_MISTAKES = {
    error.exit_code
    for error in (MingleError, UsageError, FactsError, PlaceError, ConflictError, SecretError, SettingsError)
} | {126, 127}
# Lines of an error by which it is known again.
SAME_LINES = 5


class Cause(NamedTuple):
    """The first failure of an attempt."""

    kind: Kind
    host: str
    rank: int | None
    after_s: float  # since the attempt began; where none has, since the run
    status: int = INFRASTRUCTURE
    signal: int | None = None
    is_oom: bool = False
    silent_s: float | None = None
    tail: str = ""

    @property
    def may_help(self) -> bool:
        """Whether another attempt may end otherwise."""
        return self.kind != "unformed" and not (self.kind == "ended" and self.status in (126, 127))

    @property
    def is_of_host(self) -> bool:
        """Whether it counts against its host."""
        return self.may_help and self.kind != "stalled"

    @property
    def likeness(self) -> tuple[object, ...] | None:
        """Return what two failures of the program share that are the same; None where it was not the program."""
        if self.kind != "ended":
            return None
        return (self.status, self.signal, self.is_oom, _error_lines(self.tail))


def of_ended(ended: Ended, host: str, rank: int, after_s: float) -> Cause:
    """Return the cause that a COMMAND's end is."""
    status = SIGNALLED + ended.signal if ended.signal is not None else ended.status
    if not ended.formed:
        status = status if status in _MISTAKES else INFRASTRUCTURE
        return Cause("unformed", host, rank, after_s, status, tail=ended.tail)
    return Cause("ended", host, rank, after_s, status, ended.signal, ended.is_oom, tail=ended.tail)


def _error_lines(tail: str) -> tuple[str, ...]:
    """Return the first lines of the error in what COMMAND wrote last; numbers differ from run to run."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if "traceback" in line.lower() or "error" in line.lower()), None)
    found = lines[-SAME_LINES:] if first is None else lines[first : first + SAME_LINES]
    return tuple("".join("0" if letter.isdigit() else letter for letter in line) for line in found)
