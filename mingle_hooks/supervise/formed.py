"""How `mingle exec` tells the supervisor that started it of the world, just before it becomes COMMAND."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks import jsontext
from mingle_hooks.errors import UsageError
from mingle_hooks.values import number

if TYPE_CHECKING:
    from mingle_hooks.export.view import View

MOST_BYTES = 4096


def tell(descriptor: str, view: View) -> None:
    """Write the world to the pipe of this number, and close it. Raises UsageError."""
    pipe = number(descriptor, least=3, most=1 << 20)
    where = {"addr": view.world.master_addr, "port": view.world.master_port}
    world = {"nodes": view.world.nodes or 1, **where, "spent": view.spent}
    try:
        os.write(-1 if pipe is None else pipe, jsontext.dumps(world).encode())
        os.close(-1 if pipe is None else pipe)
    except OSError:
        raise UsageError("a supervisor's pipe", f"none in MINGLE_RUN_FORMED={descriptor}", "to unset it") from None
