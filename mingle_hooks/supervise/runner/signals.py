"""The runner's signals: from before anything is started, each is a byte in a pipe, which its loop reads in time."""

from __future__ import annotations

import os
import signal

_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


def listen() -> int:
    """Return the pipe's end; what is ignored stays ignored, as nohup(1) wants, but for the ends of children."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in _HEARD:
        if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
            signal.signal(number, lambda _number, _frame: None)
    return reading
