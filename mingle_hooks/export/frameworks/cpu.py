"""A node without any accelerator: accelerate trains each process alone there unless it is told to use the CPU.

Read in accelerate 1.15, state.py: without a device that it knows it takes the processes of a world for separate
ones, and says nothing.
"""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return the switch where there is nothing else to train on."""
    return {"ACCELERATE_USE_CPU": "true"} if view.is_cpu_only else {}
