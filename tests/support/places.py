"""Hosts for `mingle run` on this machine: an ssh that starts its command here, whatever the host's name."""

import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.paths import MINGLE
from cluster.waiting import until
from executables import executable
from running import running

SSH = Path(__file__).parents[1] / "data/ssh/here.sh"
# A bound on what hangs, not a measure.
PATIENCE_S = 30.0


def path_without(program: str) -> str:
    """Return this process's PATH, but for the folders that have this program."""
    return os.pathsep.join(at for at in os.environ["PATH"].split(os.pathsep) if not Path(at, program).exists())


def without_world(said: str) -> str:
    """Return what was said but for the line on each world, whose port is another each time."""
    lines = said.splitlines(keepends=True)
    return "".join(line for line in lines if not (line.startswith("mingle run: ") and " are one world, " in line))


class Places:
    """Runs of one test: all of their processes have a mark in their environment."""

    def __init__(self, place: Path) -> None:
        self.names = "node1,node2,node3"
        self.place, self.mark = place, f"MARK={uuid.uuid4().hex}"
        self._runs: list[subprocess.Popen[str]] = []
        ssh = executable(place / "bin" / "ssh", SSH.read_text())
        gone = ("MINGLE_", "SLURM_", "PBS_")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
        self.environ |= {"PATH": f"{ssh.parent}:{MINGLE.parent}:{os.environ['PATH']}", "HOME": str(place)}
        self.environ["MARK"] = self.mark.partition("=")[2]
        # No name server knows these hosts, and multicast would take each agent longer to load than all else.
        meeting = place / "meeting"
        meeting.mkdir()
        self.environ |= {"MINGLE_VIA": "directory", "MINGLE_DIRECTORY": str(meeting)}

    def start(self, *words: str, hosts: str | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start `mingle run` with these words; where the hosts are none, here alone."""
        names = self.names if hosts is None else hosts
        where = ("--hosts", names) if names else ("--alone",)
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        argv = [str(MINGLE), "run", *where, *words]
        run = subprocess.Popen(argv, cwd=self.place, env=self.environ, text=True, **streams)
        self._runs.append(run)
        return run

    def done(self, *words: str, **options: Any) -> tuple[int, str, str]:
        """Run it to its end; return its status, stdout and stderr."""
        return self.end(self.start(*words, **options))

    def end(self, run: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Wait for the end of a run, of which nothing may be left."""
        out, err = run.communicate(timeout=PATIENCE_S)
        self.until(lambda: not self.processes(), "something is left")
        return run.returncode, out, without_world(err)

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until something holds."""
        until(holds, lambda: f"{what}: {self.processes()}", PATIENCE_S)

    def begun(self, *ranks: int, attempt: int = 0) -> None:
        """Wait until COMMAND of these ranks has made its file."""
        for rank in ranks:
            self.until((self.place / f"begun.{rank}.{attempt}").exists, f"rank {rank} has not begun")

    def processes(self) -> dict[int, str]:
        """Return the command lines of all processes of this test's runs."""
        return running(lambda environ: self.mark.encode() in environ.split(b"\0"))

    def agent(self, host: str) -> list[int]:
        """Return the warden and the agent of a host."""
        words = f"__main__.py agent --host {host} "
        return sorted(pid for pid, line in self.processes().items() if words in line and " -I " in line)

    def close(self) -> None:
        """End what a failed test left."""
        for run in self._runs:
            run.kill()
            run.communicate()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
