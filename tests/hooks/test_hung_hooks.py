"""PBS's and Torque's classic scripts where a program hangs: nothing of them goes on, as pbs_mom would not end it."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from on_host import with_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts

ARGUMENTS = ("12[3].ctl", "alice", "alice")
GONE_S = 8.0  # 5 s for the hook's work, 1 s more for the system log, and some for a busy machine
# A file system that comes back lets the program go on, and its caller with it. Deaf to what can be ignored.
HANGS = """#!/bin/sh
trap '' TERM HUP INT
touch /run/began
while [ ! -e /run/back ]; do sleep 0.1; done
exec /run/{tool}.own "$@"
"""


@pytest.mark.parametrize("tool", ["id", "stat"])
@pytest.mark.parametrize("script", ["pbs/prologue", "torque/prologue", "pbs/epilogue", "torque/epilogue.parallel"])
def test_nothing_goes_on_after_a_hang(hosts: Callable[..., Hosts], script: str, tool: str) -> None:
    """With a program that hangs the script ends well, nothing of it is left, and nothing is made or removed later."""
    host = with_hooks(hosts(1)[0])
    place = host.outside("/run/mingle/12[3].ctl")
    if "epilogue" in script:
        host.run(["env", "-i", "/etc/mingle/hooks/torque/prologue", *ARGUMENTS], check=True)
    before = place.exists()
    where = host.run(["sh", "-c", f"command -v {tool}"], check=True).stdout.strip()
    host.run(["cp", where, f"/run/{tool}.own"], check=True)
    host.write("/run/hangs", HANGS.format(tool=tool), mode=0o755)
    host.run(["mount", "--bind", "/run/hangs", where], check=True)
    process = host.popen(["env", "-i", f"/etc/mingle/hooks/{script}", *ARGUMENTS], cwd="/")
    try:
        deadline = time.monotonic() + GONE_S
        out, err = process.communicate(timeout=GONE_S)
        while (left := host.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    finally:
        host.outside("/run/back").touch()
        host.run(["umount", where], check=True)
    assert (process.returncode, out, err) == (0, "", "")
    assert host.outside("/run/began").exists()
    assert not left
    assert place.exists() is before is ("epilogue" in script)
