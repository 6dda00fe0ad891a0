"""Signals become bytes in a pipe: a loop reads them there, and nothing dies of one."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP")
# What stops or goes on, or does nothing unless it is asked for; Python ignores the last two.
_OTHERS = ("SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCONT", "SIGURG", "SIGWINCH", "SIGPIPE", "SIGXFSZ")
_NEVER = {signal.SIGKILL, signal.SIGSTOP, *(getattr(signal, name) for name in (*_FAULTS, *_OTHERS))}


def _wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: C has written the number into the pipe by now."""


def caught() -> set[int]:
    """Return the signals that would end a process, and SIGCHLD; what is ignored stays ignored, as nohup(1) wants."""
    numbers = {int(number) for number in signal.valid_signals()} - _NEVER
    return {number for number in numbers if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD}


def write_to(pipe: int) -> None:
    """Write the number of each signal from now on to a pipe that does not block."""
    signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    for number in caught():
        signal.signal(number, _wake)


def hold() -> None:
    """Hold all signals back around a fork."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def release() -> None:
    """Let signals come again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def forget() -> None:
    """Go back to the kernel's ways, in a child that will become another program."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - _NEVER:
        if signal.getsignal(number) is _wake:
            signal.signal(number, signal.SIG_DFL)
