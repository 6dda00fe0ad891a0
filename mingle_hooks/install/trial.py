"""One run of one hook, tried out."""

from __future__ import annotations

from typing import NamedTuple

# The hooks bound themselves at 12 s; this is for a machine that is itself in trouble.
PATIENCE_S = 30.0


class Trial(NamedTuple):
    """One run of one hook."""

    hook: str
    environment: str
    status: int
    milliseconds: float
    said: tuple[str, ...]  # what the job would get, line by line, or what the hook put into its directory
