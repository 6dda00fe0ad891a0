"""Reading what asks a device: in a child, which can be left behind where the device does not answer.

A thread would not do: exec, and the end of the process, wait for one that hangs in the kernel.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import TYPE_CHECKING

from mingle_hooks.fabric.sysfs import attribute
from mingle_hooks.open_files import close_all_but

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_S = 0.5  # an mlx5 device takes a millisecond; one that is sick takes a minute
BUSY_S = 3.0  # so long where it is this node that is slow: the child does not wait for a device, but for a processor
END_S = 0.25  # and one that is killed ends at once, unless it hangs in the kernel
_SIGKILL = 9
_READ_BYTES = 1 << 16


def read(paths: Sequence[str]) -> dict[str, str] | None:
    """Return path -> its attribute, "" for what cannot be read; None where not all came in time."""
    here, there = os.pipe()
    try:
        pid = _fork()
    except OSError:
        os.close(here)
        os.close(there)
        raise
    if pid == 0:
        _tell(there, paths)
    os.close(there)
    text = None
    try:
        text = _heard(here, ANSWER_S, pid)
    finally:
        os.kill(pid, _SIGKILL)
        # One that hangs in the kernel cannot even be killed yet; it ends by itself, later.
        is_over = text is not None or _heard(here, END_S) is not None
        os.waitpid(pid, 0 if is_over else os.WNOHANG)
        os.close(here)
    values = text.split("\n") if text is not None else []
    return dict(zip(paths, values, strict=True)) if len(values) == len(paths) else None


def _tell(pipe: int, paths: Sequence[str]) -> None:
    """Write an attribute a line, and end: whatever happens, nothing of the parent's goes on here."""
    try:
        # Where it is left behind, it holds no port of a leader's, and no stream that somebody reads to its end.
        close_all_but(pipe)
        os.write(pipe, "\n".join(attribute(path).replace("\n", " ") for path in paths).encode())
    finally:
        os._exit(0)


def _heard(pipe: int, within_s: float, pid: int | None = None) -> str | None:
    """Return all that the child wrote until it ended, None where it has not by then.

    One with a `pid` that does not get a processor has longer, in steps.
    """
    data, now = b"", time.monotonic()
    deadline, last = now + within_s, now + BUSY_S
    poll = select.poll()  # knows descriptors above 1023, which select() does not
    poll.register(pipe, select.POLLIN)
    while True:
        if poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            part = os.read(pipe, _READ_BYTES)
            if not part:
                return data.decode("utf-8", "replace")
            data += part
        elif pid is None or deadline >= last or not _is_runnable(pid):
            return None
        else:
            deadline += within_s


def _is_runnable(pid: int) -> bool:
    """Tell whether a process waits for nothing but a processor: proc(5), field 3."""
    return attribute(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["R"]


def _fork() -> int:
    """Fork; where a library has loaded threads, as JAX has, it would be warned of what the child never does."""
    if "threading" not in sys.modules:
        return os.fork()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()
