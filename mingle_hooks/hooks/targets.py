"""The schedulers that hooks can be installed for: each is one line here, and a module of this folder with a TARGET."""

from __future__ import annotations

from importlib import import_module

from mingle_hooks.errors import UsageError
from mingle_hooks.hooks.plan import Hook, Target, hooks_by_name
from mingle_hooks.values import nearest

# What people type -> the module.
TARGETS = {
    "slurm": "slurm",
    "pbs": "pbs",
    "torque": "torque",
}


def target(scheduler: str) -> Target:
    """Return what is known of one scheduler. Raises UsageError."""
    if scheduler not in TARGETS:
        raise UsageError(f"one of {', '.join(TARGETS)}", repr(scheduler), nearest(scheduler, TARGETS))
    found: Target = import_module(f"{__package__}.{TARGETS[scheduler]}").TARGET
    return found


def hook(scheduler: str, name: str) -> Hook:
    """Return one hook. Raises UsageError."""
    return hooks_by_name(target(scheduler).hooks, name)
