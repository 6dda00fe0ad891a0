"""A stand-in for OpenPBS on the test hosts, made from what a real one was recorded to do.

- The job script and every task get the recorded environment and nothing of their caller's: no PATH, a
  PBS_NODENUM, a hexadecimal PBS_TASKNUM, one PBS_JOBCOOKIE, and no PBS_NODEFILE in a task on the first host.
- What a task writes goes to the job's output, not to the pbs_tmrsh that started it (pbs_demux).
- pbs_tmrsh takes no signals for its task. qdel and the time limit send TERM to what runs on the first host,
  and KILL after kill_delay; when the job script ends, the sessions of all tasks are killed, on every host.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from cluster.hosts import Host, Hosts

RECORDED = Path(__file__).resolve().parents[1] / "data" / "recorded" / "openpbs-23.06.06"
KILL_DELAY_S = 10.0  # PBS's own default
TMRSH = """#!{python} -IS
import json, os, socket, sys
words = sys.argv[1:]
while words and words[0].startswith("-"):
    del words[: 2 if words[0] == "-l" else 1]
if len(words) < 2 or not all(os.environ.get(n) for n in ("PBS_ENVIRONMENT", "PBS_JOBID", "PBS_NODEFILE")):
    sys.exit(255)
mom = socket.socket(socket.AF_UNIX)
mom.connect({address!r})
mom.sendall(json.dumps([os.environ["PBS_JOBID"], *words]).encode() + b"\\n")
sys.exit(int(mom.makefile().readline() or "255"))
"""


def recorded(name: str) -> dict[str, str]:
    """Return a recorded environment."""
    lines = (RECORDED / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


@dataclass
class Job:
    """A job that runs, or ran."""

    id: str
    nodefile: Path
    output: Path
    environ: dict[str, str]  # what is the same in all of its processes
    script: subprocess.Popen[str] | None = None
    tasks: list[tuple[int, subprocess.Popen[str]]] = field(default_factory=list)  # with the host's index
    has_ended: bool = False


class PbsStandIn:
    """One queue whose jobs all run on the first `nodes` hosts, as a context manager."""

    def __init__(self, hosts: Hosts, place: Path, nodes: int, *, slots: int = 1) -> None:
        self.hosts, self.place = list(hosts)[:nodes], place
        self.lines = [host.name for host in self.hosts for _ in range(slots)]
        self.jobs: dict[str, Job] = {}
        self.address = str(place / "mom")
        self._server = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # between the start of a task and the end of its job

    def __enter__(self) -> Self:
        (self.place / "bin").mkdir()
        (self.place / "aux").mkdir()
        for name in ("pbs_tmrsh", "qsub"):
            file = self.place / "bin" / name
            text = TMRSH.format(python=os.path.realpath(sys.executable), address=self.address)
            file.write_text(text if name == "pbs_tmrsh" else '#!/bin/sh\ncat "$1" >>resubmitted\n')
            file.chmod(0o755)
        self.hosts[0].write("/etc/pbs.conf", f"PBS_HOME={self.place}\n")
        self._server.bind(self.address)
        Path(self.address).chmod(0o777)
        self._server.listen()
        self._start(self._serve)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job in self.jobs.values():
            self._end(job)
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: Any, *words: Any) -> None:  # noqa: ANN401 -- a callable and its arguments
        self._threads.append(threading.Thread(target=target, args=words))
        self._threads[-1].start()

    def _serve(self) -> None:
        while True:
            try:
                asked = self._server.accept()[0]
            except OSError:
                return  # closed
            self._start(self._task, asked)

    def _task(self, asked: socket.socket) -> None:
        with asked:
            with asked.makefile() as file:
                line = file.readline()
            task = self._spawn(*json.loads(line)) if line else None  # none: it was killed before it could ask
            if task is None:
                return
            status = task.wait()
            with suppress(BrokenPipeError):  # the job's end was also that of the pbs_tmrsh that asked
                asked.sendall(f"{status if status >= 0 else 256 - status}\n".encode())

    def _spawn(self, job_id: str, host: str, *argv: str) -> subprocess.Popen[str] | None:
        """Start a task on a host of the job, unless the job has ended."""
        job = self.jobs[job_id]
        index = [its.name for its in self.hosts].index(host)
        with self._lock:
            if job.has_ended:
                return None
            number = 2 + len(job.tasks)
            environ = recorded(f"tmrsh.0.ctl.node{min(index + 1, 2)}") | job.environ
            environ |= {"PBS_NODENUM": str(index), "PBS_TASKNUM": f"{(index << 29) + number:08X}"}
            if "PBS_NODEFILE" in environ:
                environ["PBS_NODEFILE"] = str(job.nodefile)
            task = self._run(self.hosts[index], list(argv), environ, job)
            job.tasks.append((index, task))
        return task

    def _run(self, host: Host, argv: list[str], environ: dict[str, str], job: Job) -> subprocess.Popen[str]:
        words = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *argv]
        with job.output.open("a") as out:
            return host.popen(words, user="alice", stdout=out, stderr=subprocess.STDOUT)

    def submit(self, script: str, *, cwd: str) -> str:
        """Start a job as alice and return its id."""
        job_id = f"{len(self.jobs)}.ctl"
        nodefile = self.place / "aux" / job_id
        nodefile.write_text("".join(f"{line}\n" for line in self.lines))
        file = self.place / f"{job_id}.SC"
        file.write_text(script)
        same = {"PBS_JOBID": job_id, "PBS_JOBCOOKIE": secrets.token_hex(16).upper(), "PBS_O_WORKDIR": cwd}
        job = self.jobs[job_id] = Job(job_id, nodefile, self.place / f"{job_id}.out", same)
        job.output.touch()
        environ = recorded("job.0.ctl") | same
        environ |= {"PBS_NODEFILE": str(nodefile), "PATH": f"{self.place}/bin:/usr/bin:/bin"}
        job.script = self._run(self.hosts[0], ["bash", str(file)], environ, job)
        return job_id

    def wait(self, job_id: str, timeout: float = 60.0) -> int:
        """Wait for the end of the job script, end the job everywhere, and return the script's status."""
        job = self.jobs[job_id]
        assert job.script is not None
        status = job.script.wait(timeout)
        self._end(job)
        return status

    def delete(self, job_id: str) -> None:
        """Send TERM to what runs on the first host and KILL after kill_delay: qdel and the time limit."""
        job = self.jobs[job_id]
        assert job.script is not None
        first = [job.script, *(task for index, task in job.tasks if index == 0)]
        _signal(first, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            job.script.wait(KILL_DELAY_S)
        self._end(job)

    def _end(self, job: Job) -> None:
        with self._lock:
            job.has_ended = True
        everything = [*([job.script] if job.script else []), *(task for _, task in job.tasks)]
        _signal(everything, signal.SIGKILL)
        for process in everything:
            process.wait(10)
            _await_end(process.pid)

    def output(self, job_id: str) -> str:
        """Return what the job wrote."""
        return self.jobs[job_id].output.read_text()

    def wait_for_text(self, job_id: str, text: str, seconds: float = 60.0) -> None:
        """Wait until the job's output holds a text."""
        deadline = time.monotonic() + seconds
        while text not in self.output(job_id):
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.output(job_id)}"
            time.sleep(0.1)


def _await_end(group: int) -> None:
    """Wait until nothing is left of a process group: what is killed takes a moment to go."""
    deadline = time.monotonic() + KILL_DELAY_S
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            assert time.monotonic() < deadline, f"process group {group} does not end"
            time.sleep(0.01)


def _signal(leaders: list[subprocess.Popen[str]], number: int) -> None:
    for leader in leaders:
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)
