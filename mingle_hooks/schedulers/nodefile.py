"""Node files: the hosts of a job, a line for each slot (PBS, LSF, OAR) or for each host (SGE)."""

from __future__ import annotations

import os
from stat import S_ISREG

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.schedulers.hostlist import check
from mingle_hooks.values import number

# 65,536 nodes with 8 slots each and names of 30 characters. More is no node file.
LONGEST_FILE = 16 * 1024 * 1024  # bytes
# The same bound that a sum of slots has elsewhere: 65,536 nodes with 256 slots each.
MOST_SLOTS = 16_777_216

Slots = dict[str, int]


def read(path: str) -> Slots:
    """Return {host: slots} in the file's order; a host has a slot for each line that names it.

    Raises FactsError, which names the file, when it is missing, unreadable, too large, empty or
    holds anything but host names.
    """
    slots: Slots = {}
    for line in _lines(path):
        _add(slots, line, 1, path)
    return _some(slots, path)


def read_pe(path: str) -> Slots:
    """Return {host: slots} from SGE's PE_HOSTFILE, whose lines are ``host slots queue range``.

    A host that has slots in two queues has two lines. Raises FactsError as `read` does.
    """
    slots: Slots = {}
    for line in _lines(path):
        host, count, *_ = [*line.split(), "", ""]
        if (counted := number(count, most=MOST_SLOTS)) is None:
            raise _bad(path, f"{line[:80]!r}")
        _add(slots, host, counted, path)
    return _some(slots, path)


def is_readable(path: str) -> bool:
    """Tell whether this process may read a file; nobody can read one whose name no file can have."""
    try:
        return os.access(path, os.R_OK)
    except ValueError:
        return False


def _lines(path: str) -> list[str]:
    """Return the lines that hold something, without the white space around them."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _bad(path, "no regular file")
            data = file.read(LONGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise _bad(path, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > LONGEST_FILE:
        raise _bad(path, f"more than {LONGEST_FILE} bytes")
    return [line for line in map(str.strip, data.decode("ascii", "backslashreplace").split("\n")) if line]


def _without_waiting(path: str, flags: int) -> int:
    """Open as usual, but a named pipe at once: it would otherwise wait for a writer, perhaps for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _add(slots: Slots, host: str, count: int, path: str) -> None:
    if host not in slots:
        try:
            check(host)
        except FactsError as error:
            raise _bad(path, error.seen) from None
        if len(slots) == MOST_NODES:
            raise _bad(path, f"more than {MOST_NODES} hosts")
    slots[host] = slots.get(host, 0) + count


def _some(slots: Slots, path: str) -> Slots:
    if not 1 <= sum(slots.values()) <= MOST_SLOTS:
        raise _bad(path, f"{sum(slots.values())} slots")
    return slots


def _bad(path: str, seen: str) -> FactsError:
    return FactsError(
        f"a node file with a host on each line in {path}", seen, "checking that file, or --nodes and --rank"
    )
