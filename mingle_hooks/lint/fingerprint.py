"""A node in one short text: what should be alike on all nodes of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.errors import MingleError
from mingle_hooks.fabric.addresses import listed
from mingle_hooks.lint import environment, machine, software, text
from mingle_hooks.lint.network import network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mingle_hooks.fabric.addresses import Listed
    from mingle_hooks.lint.asked import Asked

SOURCES = (
    machine.kernel,
    machine.driver,
    machine.gpus,
    machine.limits,
    machine.space,
    software.versions,
    software.image,
    software.program,
    software.git,
    environment.environment,
)


def fingerprint(asked: Asked, found: Callable[[], Iterable[Listed]] = listed) -> tuple[str, str]:
    """Return the text, and the addresses of this node, which are its own. A source that fails says nothing."""
    parts: dict[str, str] = {}
    addresses = ""
    for source in SOURCES:
        try:
            parts |= source(asked)
        except (OSError, ValueError, LookupError):  # this node's files are not as any known kernel writes them
            continue
    try:
        rdma, addresses = network(asked.root, found)
        parts |= rdma
    except (OSError, ValueError, LookupError, MingleError):
        pass
    return text.dumps(parts), addresses
