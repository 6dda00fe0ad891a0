"""A stand-in for OpenPBS on the test hosts, made from what a real one was recorded and seen to do.

- The job script and every task get the recorded environment and nothing of their caller's: no PATH, a
  PBS_NODENUM, a hexadecimal PBS_TASKNUM, one PBS_JOBCOOKIE, and no PBS_NODEFILE in a task on the first host.
- pbs_tmrsh starts one task on a host, pbsdsh one for each line of the node file. In a job of several hosts a
  task writes to a socket, whose other end is pbs_demux in the job's own session on the first host.
- qdel and the time limit send TERM to what runs on the first host, and KILL after kill_delay. The TERM ends the
  login shell that runs the script (so qdel's status is 271) and pbs_demux, so that tasks write into the void,
  none can be started any more, and the end of one on the first host is not told. No other host is told anything.
- When the job script ends, the sessions of all tasks are killed, on every host.
"""

import ast
import os
import re
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.recorded import OPENPBS, environ as recorded

from cluster.host import USERS, Host
from cluster.hosts import Hosts
from cluster.stand_in import StandIn, await_end, kill_groups, signal_groups
from cluster.waiting import until

KILL_DELAY_S = 5.0  # half of PBS's own default, as every test of qdel waits for it
OVER_WALLTIME = -29  # the status that pbs_mom gives then


# PBS's programs: each asks its socket, a list as Python writes it, and gets a line back.
# `_socket` is what `socket` is made of: each task starts such a program, which takes a third of the time with it.
_HEAD = """#!{python} -IS
import _socket, os, sys
job, words = os.environ.get("PBS_JOBID"), sys.argv[1:]
def ask(*what):
    mom = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    mom.connect({address!r})
    mom.sendall(ascii([job, *what]).encode() + b"\\n")
    return os.fdopen(mom.detach())
def fail(status, text):
    sys.stderr.write(sys.argv[0] + ": " + text + "\\n")
    sys.exit(status)
"""
# One task on a host, which is looked up in PBS_NODEFILE: so not from a task on the first host, which has none.
_TMRSH = """
while words and words[0].startswith("-"):
    del words[: 2 if words[0] == "-l" else 1]
if len(words) < 2:
    fail(255, "usage")
if not job or "PBS_ENVIRONMENT" not in os.environ:
    fail(255, "not executing under PBS")
if "PBS_NODEFILE" not in os.environ:
    fail(255, "cannot find PBS_NODEFILE")
lines = open(os.environ["PBS_NODEFILE"]).read().split()
if words[0] not in lines:
    fail(255, "host is not a node in job")
sys.exit(int(ask("spawn", lines.index(words[0]), words[1:]).readline() or "255"))
"""
# A task for each line of the node file, which it needs not. It tells of failures and always ends with 0.
_PBSDSH = """
sys.modules["gettext"] = None  # getopt does without, and its import takes as long as Python's start
import getopt
try:
    options, words = getopt.getopt(words, "c:n:o")
except getopt.GetoptError as wrong:
    fail(1, str(wrong))
options = dict(options)
if not words:
    fail(1, "usage")
if not job or "PBS_ENVIRONMENT" not in os.environ:
    fail(1, "not executing under PBS")
lines = int(ask("lines").readline())
first = int(options.get("-n", 0))
count = 1 if "-n" in options else int(options.get("-c", lines))
asked = []
for number in range(first, first + count):
    asked.append(ask("spawn", number % lines, words))
for number, file in enumerate(asked):
    status = 0 if "-o" in options else int(file.readline() or "0")
    if status:
        print("pbsdsh: task 0x%08X exit status %d" % (number, status), flush=True)
"""
_QSUB = """
print(ask("qsub", os.path.abspath(words[-1]), os.getcwd()).readline().strip())
"""
PROGRAMS = {"pbs_tmrsh": _HEAD + _TMRSH, "pbsdsh": _HEAD + _PBSDSH, "qsub": _HEAD + _QSUB}


@dataclass
class Job:
    """A job that runs, or ran."""

    id: str
    nodefile: Path
    output: Path
    environ: dict[str, str]  # what is the same in all of its processes
    leader: subprocess.Popen[str] | None = None  # the login shell that runs the script
    tasks: list[tuple[int, subprocess.Popen[str]]] = field(default_factory=list)  # with the host's index
    streams: list[socket.socket] = field(default_factory=list)  # pbs_demux's ends
    demuxes: list[threading.Thread] = field(default_factory=list)
    limit: threading.Timer | None = None
    was_terminated: bool = False  # TERM
    was_over_limit: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def on_first(self) -> list[subprocess.Popen[str]]:
        """Return what leads the job's process groups on its first host."""
        return [*([self.leader] if self.leader else []), *(task for index, task in self.tasks if index == 0)]


class PbsStandIn(StandIn):
    """One queue whose jobs all run on the first `nodes` hosts, as a context manager."""

    def __init__(self, hosts: Hosts, place: Path, nodes: int, *, slots: int = 1) -> None:
        super().__init__(place)
        self.hosts = list(hosts)[:nodes]
        self.lines = [host.name for host in self.hosts for _ in range(slots)]
        self.jobs: dict[str, Job] = {}
        # Test hosts share /proc with those of tests at the same time, so that ids must not be the same.
        self._first_id = secrets.randbelow(10**6)

    def _programs(self) -> dict[str, str]:
        (self.place / "aux").mkdir()
        self.hosts[0].write("/etc/pbs.conf", f"PBS_HOME={self.place}\n")
        self.hosts[0].write("/etc/profile.d/pbs.sh", f"PATH=$PATH:{self.place}/bin\n")
        return PROGRAMS

    def _end_all(self) -> None:
        for job in list(self.jobs.values()):
            self._end(job)

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(BrokenPipeError, ConnectionResetError):  # the job's end is also that of who asked
            with connection.makefile() as file:
                line = file.readline()
            if not line:
                return  # killed before it could ask
            job_id, what, *words = ast.literal_eval(line)
            answers: dict[str, Callable[..., int | str | None]]
            answers = {"lines": self._count, "spawn": self._task, "qsub": self._resubmit}
            answer = answers[what](job_id, *words)
            if answer is None:
                self.jobs[job_id].over.wait(2 * KILL_DELAY_S)
            else:
                connection.sendall(f"{answer}\n".encode())

    def _count(self, _: str) -> int:
        return len(self.lines)

    def _resubmit(self, _: str, script: str, cwd: str) -> str | None:
        with suppress(RuntimeError):  # closed
            return self.submit(Path(script).read_text(), cwd=cwd)
        return None

    def _task(self, job_id: str, line: int, argv: list[str]) -> int | None:
        """Run a task to its end, and return its status; None where it is not told before the job's end."""
        job, host = self.jobs[job_id], self.lines[line]
        index = [its.name for its in self.hosts].index(host)
        with self._lock:
            if job.over.is_set() or job.was_terminated:
                return None
            number = 1 + sum(index == its for its, _ in job.tasks) + (index == 0)
            bits = 32 - len(self.lines).bit_length()  # the rest of the number is the host's
            environ = recorded(OPENPBS, f"tmrsh.0.ctl.node{min(index + 1, 2)}") | job.environ
            environ |= {"PBS_NODENUM": str(index), "PBS_TASKNUM": f"{(index << bits) + number:08X}"}
            if "PBS_NODEFILE" in environ:
                environ["PBS_NODEFILE"] = str(job.nodefile)
            task = self._run(self.hosts[index], argv, environ, job)
            job.tasks.append((index, task))
        status = task.wait()
        if job.was_terminated and index == 0:
            return None
        return status if status >= 0 else 256 - status

    def _run(self, host: Host, argv: list[str], environ: dict[str, str], job: Job) -> subprocess.Popen[str]:
        words = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *argv]
        if job.leader is None or len(self.hosts) == 1:
            with job.output.open("a") as out:
                return host.popen(words, user="alice", stdout=out, stderr=subprocess.STDOUT, umask=0o077)
        ours, its = socket.socketpair()
        with its:
            task = host.popen(words, user="alice", stdout=its, stderr=subprocess.STDOUT, umask=0o077)
        job.streams.append(ours)
        job.demuxes.append(self._start_thread(self._demux, ours, job.output))
        return task

    def _demux(self, stream: socket.socket, output: Path) -> None:
        with stream, suppress(ConnectionResetError):
            while data := stream.recv(65_536):
                with output.open("ab") as out:
                    out.write(data)

    def submit(self, script: str, *, cwd: str) -> str:
        """Start a job as alice and return its id."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("no more jobs")
            job_id = f"{self._first_id + len(self.jobs)}.ctl"
            same = {"PBS_JOBID": job_id, "PBS_JOBCOOKIE": secrets.token_hex(16).upper(), "PBS_O_WORKDIR": cwd}
            same["TMPDIR"] = f"/var/tmp/pbs.{job_id}"
            job = Job(job_id, self.place / "aux" / job_id, self.place / f"{job_id}.out", same)
            self.jobs[job_id] = job
            job.output.touch()
            job.nodefile.write_text("".join(f"{line}\n" for line in self.lines))
            file = self.place / f"{job_id}.SC"
            file.write_text(script)
            for host in self.hosts:
                directory = host.outside(same["TMPDIR"])
                directory.mkdir(mode=0o700)
                os.chown(directory, USERS["alice"], USERS["alice"])
            environ = recorded(OPENPBS, "job.0.ctl") | same
            environ |= {"PBS_NODEFILE": str(job.nodefile), "PATH": f"/usr/bin:/bin:{self.place}/bin"}
            job.leader = self._run(self.hosts[0], ["bash", "-c", 'bash "$0"; exit $?', str(file)], environ, job)
            if match := re.search(r"^#PBS -l walltime=(\d+):(\d+):(\d+)$", script, re.MULTILINE):
                hours, minutes, seconds = map(int, match.groups())
                job.limit = threading.Timer(seconds + 60 * (minutes + 60 * hours), self._overrun, [job])
                job.limit.start()
        return job_id

    def next(self, job_id: str, seconds: float = 60.0) -> str:
        """Wait for the job that was given in after this one, and return its id."""
        found = f"{int(job_id.partition('.')[0]) + 1}.ctl"
        until(lambda: found in self.jobs, lambda: f"no job after {job_id}:\n{self.output(job_id)}", seconds)
        return found

    def wait(self, job_id: str, timeout: float = 60.0) -> int:
        """Wait for the end of the job script, end the job everywhere, and return the job's status."""
        job = self.jobs[job_id]
        assert job.leader is not None
        status = job.leader.wait(timeout)
        if status < 0:  # PBS waits for what still runs on the first host
            with suppress(AssertionError):  # nor for ever
                await_end(job.on_first(), KILL_DELAY_S)
        self._end(job)
        if job.was_over_limit:
            return OVER_WALLTIME
        return status if status >= 0 else 256 - status

    def delete(self, job_id: str) -> None:
        """Delete a job and wait for its end."""
        self._terminate(self.jobs[job_id])
        self.wait(job_id)

    def _overrun(self, job: Job) -> None:
        job.was_over_limit = True
        self._terminate(job)

    def _terminate(self, job: Job) -> None:
        """Send TERM to what runs on the first host, pbs_demux too."""
        with self._lock:
            job.was_terminated = True
            for stream in job.streams:
                with suppress(OSError):  # its task has ended
                    stream.shutdown(socket.SHUT_RDWR)
            signal_groups(job.on_first(), signal.SIGTERM)

    def _end(self, job: Job) -> None:
        with self._lock:
            job.over.set()
        if job.limit:
            job.limit.cancel()
            job.limit.join()
        kill_groups([*([job.leader] if job.leader else []), *(task for _, task in job.tasks)], KILL_DELAY_S)
        for demux in job.demuxes:
            demux.join(1.0)  # the end of the output, unless somebody has left the job and holds it open

    def output(self, job_id: str) -> str:
        """Return what the job wrote."""
        return self.jobs[job_id].output.read_text()

    def wait_for_text(self, job_id: str, text: str) -> None:
        """Wait until the job's output holds a text."""
        until(lambda: text in self.output(job_id), lambda: f"no {text!r} in:\n{self.output(job_id)}")
