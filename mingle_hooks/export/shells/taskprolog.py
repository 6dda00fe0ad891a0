"""Lines that slurmstepd takes from a TaskProlog's stdout (src/slurmd/slurmstepd/task.c)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mingle_hooks.errors import UsageError


def success(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return raw lines: a quote would become part of the value; a newline raises UsageError."""
    for name, value in variables.items():
        if "\n" in value:
            raise UsageError(f"{name} without a newline, which would end the value for Slurm", value, "mingle exec")
    lines = [f"unset {name}" for name in unset]
    lines += [f"export {name}={value}" for name, value in variables.items()]
    return "".join(f"{line}\n" for line in lines)


def failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return nothing: the exit status tells."""
    return ""
