"""The hostfile of the deepspeed launcher, with each host once (read in deepspeed 0.19, launcher/runner.py)."""

from __future__ import annotations

from mingle_hooks.export.hostfiles.mpi import text

__all__ = ["text"]
