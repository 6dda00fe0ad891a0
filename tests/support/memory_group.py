"""A control group with little memory, in which the kernel kills a process that takes more."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LIMIT_BYTES = 128 << 20
# A program that takes more than that; of all in its group it is the one that the kernel kills.
EATS = "open('/proc/self/oom_score_adj', 'w').write('1000')\nb'x' * (1 << 30)\n"
# A bound on what hangs, not a measure.
PATIENCE_S = 20.0
# Goes in, out and in again, says where it is, and eats.
_TRIES = """\
echo $$ >"$1/cgroup.procs" && echo $$ >"$2/cgroup.procs" && echo $$ >"$1/cgroup.procs" || exit 1
cat /proc/self/cgroup
exec "$3" -I -S -c "$4"
"""


class Version(NamedTuple):
    """A version of control groups: where they are, what stands in their files of limits, and who counts the killed."""

    mount: Path
    controller: str  # as /proc/self/cgroup names it
    limits: dict[str, int]  # in the order of writing; without the first there are none
    counts: str


VERSIONS = (
    Version(
        Path("/sys/fs/cgroup/memory"),
        "memory",
        {"memory.limit_in_bytes": LIMIT_BYTES, "memory.memsw.limit_in_bytes": LIMIT_BYTES},
        "memory.oom_control",
    ),
    Version(Path("/sys/fs/cgroup"), "", {"memory.max": LIMIT_BYTES, "memory.swap.max": 0}, "memory.events"),
)


class Group:
    """One control group; `remove` has to come at the end, whatever happens."""

    def __init__(self, version: Version) -> None:
        self.place = version.mount / f"mingle-{uuid.uuid4().hex[:12]}"
        self._version, self._outside = version, _own(version)

    def make(self) -> bool:
        """Make it; tell whether the kernel kills in it, and says so where mingle looks: a process of ours tries it."""
        words = ["sh", "-c", _TRIES, "sh", str(self.place), str(self._outside), sys.executable, EATS]
        try:
            self.place.mkdir()
            for number, (name, limit) in enumerate(self._version.limits.items()):
                if (self.place / name).exists():
                    (self.place / name).write_text(str(limit))
                elif not number:
                    return False
            before = self._killed()
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            is_found = any(line.endswith(f":/{self.place.name}") for line in done.stdout.splitlines())
            return done.returncode == -signal.SIGKILL and is_found and self._killed() > before
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return False

    def take(self, pids: Iterable[int], place: Path | None = None) -> None:
        """Move processes in, or to another place; what they start is there too."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                ((place or self.place) / "cgroup.procs").write_text(str(pid))

    def let_out(self, pids: Iterable[int]) -> None:
        """Move processes to where this one is."""
        self.take(pids, self._outside)

    def remove(self) -> None:
        """Let all out, and remove it. Raises OSError where the kernel does not, for long."""
        deadline = time.monotonic() + PATIENCE_S
        while self.place.exists():
            with contextlib.suppress(OSError):
                self.let_out(map(int, (self.place / "cgroup.procs").read_text().split()))
            try:
                self.place.rmdir()
            except OSError:  # busy for as long as the kernel has to do with what ended
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _killed(self) -> int:
        lines = (self.place / self._version.counts).read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _own(version: Version) -> Path:
    """Return this process's group, the outermost where it does not show."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            controllers, _, path = line.partition(":")[2].partition(":")
            found = version.mount / path.lstrip("/")
            if version.controller in controllers.split(",") and (found / "cgroup.procs").exists():
                return found
    return version.mount


@contextlib.contextmanager
def little() -> Iterator[Group | None]:
    """Give a group with a limit, gone at the end; None where there is none to be had."""
    for version in VERSIONS:
        made = Group(version)
        try:
            if made.make():
                yield made
                return
        finally:
            made.remove()
    yield None
