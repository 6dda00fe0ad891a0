"""A host that is out of memory: what the kernel itself says of it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from supervise.memory import EATS

if TYPE_CHECKING:
    from pathlib import Path

    from supervise.memory import Group
    from supervise.runner.places import Places

COMMAND = f"""\
[ "$NODE_RANK" = 1 ] || exec sleep 1000
echo eating
exec "{sys.executable}" eats.py
"""


def test_all_hear_that_the_kernel_killed_for_want_of_memory(places: Places, group: Group, tmp_path: Path) -> None:
    """And end with the status of what it killed."""
    (tmp_path / "eats.py").write_text(EATS)
    places.environ["GROUP_OF_node2"] = str(group.place)
    status, out, err = places.done("sh", "-c", COMMAND)
    assert (status, out) == (137, "node2: eating\n")
    assert re.search(r"node2 \(rank 1\): killed by SIGKILL after \d+ s: out of memory", err), err
