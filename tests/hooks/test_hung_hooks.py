"""PBS's and Torque's classic scripts where a program hangs: nothing of them goes on, as pbs_mom would not end it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from on_host import with_hooks

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from cluster.host import Host
    from cluster.hosts import Hosts

ARGUMENTS = ("12[3].ctl", "alice", "alice")
PLACE = "/run/mingle/12[3].ctl"
SCRIPTS = ("pbs/prologue", "torque/prologue", "pbs/epilogue", "torque/epilogue.parallel")
GONE_S = 60.0  # what hangs does so until it is let go
# A file system that comes back lets the program go on, and its caller with it. Deaf to what can be ignored.
HANGS = """#!/bin/sh
trap '' TERM HUP INT
touch /run/began
while [ ! -e /run/back ]; do sleep 0.1; done
exec /run/{tool}.own "$@"
"""


@pytest.mark.parametrize("tool", ["id", "stat"])
def test_nothing_goes_on_after_a_hang(hosts: Callable[..., Hosts], tool: str) -> None:
    """With a program that hangs a script ends well, nothing of it is left, and nothing is made or removed later."""
    some = hosts(len(SCRIPTS))
    with_hooks(some[0])  # in /etc, which all share: once, before any is run
    running = [_started(host, script, tool) for host, script in zip(some, SCRIPTS, strict=True)]
    for host, script, process in zip(some, SCRIPTS, running, strict=True):
        out, err = process.communicate(timeout=GONE_S)
        assert (process.returncode, out, err) == (0, "", ""), script
        deadline = time.monotonic() + GONE_S
        while (left := host.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, script
        assert host.outside("/run/began").exists(), script
        host.outside("/run/back").touch()
        assert host.outside(PLACE).exists() is ("epilogue" in script), script


def _started(host: Host, script: str, tool: str) -> subprocess.Popen[str]:
    if "epilogue" in script:
        host.run(["env", "-i", "/etc/mingle/hooks/torque/prologue", *ARGUMENTS], check=True)
    assert host.outside(PLACE).exists() is ("epilogue" in script)
    where = host.run(["sh", "-c", f"command -v {tool}"], check=True).stdout.strip()
    host.run(["cp", where, f"/run/{tool}.own"], check=True)
    host.write("/run/hangs", HANGS.format(tool=tool), mode=0o755)
    host.run(["mount", "--bind", "/run/hangs", where], check=True)
    return host.popen(["env", "-i", f"/etc/mingle/hooks/{script}", *ARGUMENTS], cwd="/")
