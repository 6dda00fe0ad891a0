"""What the tests of the hooks share: rendered hooks, every shell, recorded environments."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from needs import need

from mingle_hooks.hooks.apply import TARGETS, hook, target
from mingle_hooks.hooks.files import Chain, Site
from mingle_hooks.hooks.files import render_hook as render

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDED = Path(__file__).parent.parent / "data" / "recorded"
HOOKS = tuple(its for scheduler in TARGETS for its in target(scheduler).hooks)
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


def shell(name: str) -> list[str]:
    """Return the command of a shell, or skip loudly where this machine lacks it."""
    need(SHELLS[name][0])
    return SHELLS[name]


def recorded(pattern: str) -> list[Path]:
    """Return the recorded files of all versions that match."""
    return sorted(RECORDED.glob(pattern))


def environ(path: Path) -> dict[str, str]:
    """Return a recorded environment."""
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())


def written(directory: Path, scheduler: str, name: str, site: Site = SITES["plain"][0]) -> Path:
    """Render a hook into a file that can be run."""
    path = directory / name
    path.write_text(render(hook(scheduler, name), site))
    path.chmod(0o755)
    return path


def exported(script: Path, env: Mapping[str, str], command: list[str]) -> dict[str, str]:
    """Run a TaskProlog and return what Slurm would set; fail on any other output."""
    done = subprocess.run([*command, script], env=dict(env), capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr == ""
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    assert {word for word, _, _ in lines} <= {"export", "unset"}
    return dict(rest.partition("=")[::2] for word, _, rest in lines if word == "export")
