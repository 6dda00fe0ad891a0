"""Rendered hooks, every shell, recorded files, and hooks on a test host."""

import contextlib
import functools
import hashlib
import hmac
import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from cluster.hosts import Host
from support.executables import executable
from support.needs import need
from support.recorded import FOLDER

from mingle_hooks.hooks.files import Chain, Site, render_hook as render
from mingle_hooks.hooks.targets import TARGETS, hook

HOOKS = tuple(its for target in TARGETS.values() for its in target.hooks.values())
SHELLS = {
    "dash": ["dash"],
    "bash": ["bash"],
    "bash-sh": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
    "ksh": ["ksh"],
}
FULL = Site(
    cluster="lab", partitions=("gpu", "all"), hosts=("node1", "node2"), opt_in="mingle", interfaces=("ib0", "lo"),
    host_suffix="-ib",
)  # fmt: skip
OBSERVE = Site(observe=True)
CHAIN = Chain("/opt/site's own/prolog", "/etc/slurm/task_prolog.d")
SITES = {"plain": (Site(), Chain()), "full": (FULL, CHAIN), "observe": (OBSERVE, Chain())}
PET = {f"PET_{name}" for name in ("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT")}


def shell(name: str) -> list[str]:
    """Return the command of a shell, or skip loudly where this machine lacks it."""
    need(SHELLS[name][0])
    return SHELLS[name]


def recorded(pattern: str) -> list[Path]:
    """Return the recorded files of all versions that match."""
    return sorted(FOLDER.glob(pattern))


def written(directory: Path, scheduler: str, name: str, site: Site = SITES["plain"][0]) -> Path:
    """Render a hook into a file that can be run."""
    return executable(directory / name, render(hook(scheduler, name), site))


def exported(script: Path, env: Mapping[str, str], command: list[str]) -> dict[str, str]:
    """Run a TaskProlog and return what Slurm would set; fail on any other output."""
    done = subprocess.run([*command, script], env=dict(env), capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr == ""
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    assert {word for word, _, _ in lines} <= {"export", "unset"}
    return dict(rest.partition("=")[::2] for word, _, rest in lines if word == "export")


SITE_KEY = "36" * 16 + "5c" * 8 + "00ff" * 4  # the octets that HMAC's pads turn into NUL, and others
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "61001", "SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_RESTART_COUNT": "0"}


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


def run_hook(host: Host, name: str, *argv: str, env: dict[str, str] | None = None) -> None:
    """Run a hook as its scheduler would, with no PATH and nothing but what is given; it succeeds and says nothing.

    What it leaves running in its process group is ended, as slurmd does.
    """
    given = [f"{key}={value}" for key, value in (JOB if env is None else env).items()]
    script = f"/etc/mingle/hooks/{name}"
    process = host.popen(["env", "-i", *given, script, *argv], cwd="/")
    try:
        out, err = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert (process.returncode, out, err) == (0, "", "")


def run_hooks(host: Host, calls: Iterable[tuple[str, tuple[str, ...], dict[str, str]]], after: str) -> None:
    """Run hooks one after the other: name, arguments and environment of each; all succeed and say nothing.

    `after` is shell, which succeeds after each of them where it did what it should.
    """
    lines = []
    for name, argv, env in calls:
        line = shlex.join(["env", "-i", *map("=".join, env.items()), f"/etc/mingle/hooks/{name}", *argv])
        lines.append(f"{line} </dev/null && {after} || {{ printf '%s\\n' {shlex.quote(line)}; exit 1; }}")
    done = host.run(["sh", "-s"], input="\n".join(lines), timeout=240, cwd="/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def started_at(host: Host, pid: int) -> str:
    """Return when a process on a host started, in clock ticks since boot, as its user records it beside the pid."""
    return host.run(["cat", f"/proc/{pid}/stat"]).stdout.rpartition(")")[2].split()[19]


def key_of(job: str, uid: str = "61001", restarts: str = "0", cluster: str = "lab") -> str:
    """Return the job's key as Python makes it."""
    text = f"mingle job key 1|cluster|{cluster}|{job}|{uid}|{restarts}"
    return hmac.new(bytes.fromhex(SITE_KEY), text.encode(), hashlib.sha256).hexdigest()
