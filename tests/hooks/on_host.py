"""What the tests of root's hooks share: hooks on a host, run as their scheduler would, and the key they shall make."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
import shlex
import signal
from typing import TYPE_CHECKING

from rendered import HOOKS

from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.files import render_hook as render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.hosts import Host

SITE_KEY = "36" * 16 + "5c" * 8 + "00ff" * 4  # the octets that HMAC's pads turn into NUL, and others
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": "61001",
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_JOB_RESTART_COUNT": "0",
}


def with_hooks(host: Host) -> Host:
    """Put the site's key and every hook of a plain site on a host."""
    host.write("/etc/mingle/key", SITE_KEY + "\n", mode=0o400)
    for path, text in _texts().items():
        host.write(path, text, mode=0o755)
    return host


@functools.cache
def _texts() -> dict[str, str]:
    shells = [each for each in HOOKS if each.template.endswith(".sh.j2")]
    return {f"/etc/mingle/hooks/{each.scheduler}/{each.name}": render(each, Site()) for each in shells}


def without_mount(host: Host) -> None:
    """Let root's hooks mount nothing, as where slurmd runs in a container: a job's directory is then on /run itself."""
    host.write("/run/no-mount", "#!/bin/sh\nexit 32\n", mode=0o755)
    host.run(["sh", "-c", 'mount --bind /run/no-mount "$(command -v mount)"'], check=True)


def run(host: Host, name: str, *argv: str, env: dict[str, str] | None = None, command: tuple[str, ...] = ()) -> None:
    """Run a hook as its scheduler would, with no PATH and nothing but what is given; it succeeds and says nothing.

    What it leaves running in its process group is ended, as slurmd does.
    """
    given = [f"{key}={value}" for key, value in (JOB if env is None else env).items()]
    script = f"/etc/mingle/hooks/{name}"
    process = host.popen(["env", "-i", *given, *command, script, *argv], cwd="/")
    try:
        out, err = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert (process.returncode, out, err) == (0, "", "")


def run_all(host: Host, calls: Iterable[tuple[str, tuple[str, ...], dict[str, str]]], after: str) -> None:
    """Run hooks one after the other: name, arguments and environment of each; all succeed and say nothing.

    `after` is shell, which succeeds after each of them where it did what it should.
    """
    lines = []
    for name, argv, env in calls:
        line = shlex.join(["env", "-i", *map("=".join, env.items()), f"/etc/mingle/hooks/{name}", *argv])
        lines.append(f"{line} </dev/null && {after} || {{ printf '%s\\n' {shlex.quote(line)}; exit 1; }}")
    done = host.run(["sh", "-s"], input="\n".join(lines), timeout=240, cwd="/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def key_of(job: str, uid: str = "61001", restarts: str = "0", cluster: str = "lab") -> str:
    """Return the job's key as Python makes it."""
    text = f"mingle job key 1|cluster|{cluster}|{job}|{uid}|{restarts}"
    return hmac.new(bytes.fromhex(SITE_KEY), text.encode(), hashlib.sha256).hexdigest()
