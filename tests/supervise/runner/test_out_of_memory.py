"""A host that is out of memory: what the kernel itself says of it."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from needs import skip_for_want_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from supervise.runner.places import Places

LIMIT_BYTES = 128 << 20
# Mount and files of the limits, of both versions of control groups.
VERSIONS = {
    "/sys/fs/cgroup/memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "/sys/fs/cgroup": ("memory.max",),
}
EATS = """\
[ "$NODE_RANK" = 1 ] || exec sleep 1000
echo eating
exec python3 -c 'b"x" * (1 << 30)'
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """Give a control group with little memory."""
    made = None
    for mount, files in VERSIONS.items():
        place = Path(mount) / f"mingle-{uuid.uuid4().hex[:12]}"
        try:
            place.mkdir()
        except OSError:
            continue
        if all((place / file).exists() for file in files):
            made = place
            for file in files:
                (place / file).write_text(str(LIMIT_BYTES))
            break
        place.rmdir()
    if made is None:
        skip_for_want_of(["a control group with a limit of memory"])
        return
    try:
        yield made
    finally:
        made.rmdir()


def test_all_hear_that_the_kernel_killed_for_want_of_memory(places: Places, group: Path) -> None:
    """And end with the status of what it killed."""
    places.environ["GROUP_OF_node2"] = str(group)
    status, out, err = places.done("sh", "-c", EATS)
    assert (status, out) == (137, "node2: eating\n")
    assert re.search(r"node2 \(rank 1\): killed by SIGKILL after \d+ s: out of memory", err), err
