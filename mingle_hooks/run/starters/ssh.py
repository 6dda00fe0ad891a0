"""Plain hosts, by OpenSSH's client: user, port and keys are those of ssh_config.

Source: ssh(1), ssh_config(5).
"""

from __future__ import annotations

import shlex

from mingle_hooks.run.starters.allocation import Allocation
from mingle_hooks.run.starters.launch import Launch

CARRIES_ENVIRONMENT = False
TAKES_STDIN = True
SIGNALS_REACH_COMMAND = False
KILL_WAIT_S = 30.0  # nobody else's: that of a supervisor
# What the login on the other host makes: a user may have another name there.
KEEPS = ("SSH_", "XDG_", "DBUS_SESSION_BUS_ADDRESS", "HOME", "LOGNAME", "USER", "SHELL", "MAIL", "HOSTNAME", "TMPDIR")

# Nobody is there to type a password. No connection is shared by a master process that would be left behind, but one
# that the user has opened serves.
_SSH = ("ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "LogLevel=ERROR")


def launches(job: Allocation, hosts: tuple[str, ...], program: tuple[str, ...]) -> tuple[Launch, ...]:  # noqa: ARG001
    """Return an ssh to each host; the user's login shell reads the program's words there."""
    return tuple(Launch((*_SSH, host, remote_line(program)), (host,)) for host in hosts)


def remote_line(program: tuple[str, ...]) -> str:
    """Return one line that any login shell reads as these words, and becomes them."""
    return f"exec {shlex.join(program)}"
