"""Stand-ins for the programs by which LSF, Grid Engine and Torque start a task on a host of the job.

- `blaunch HOST WORDS…` and `qrsh -inherit HOST WORDS…`: a shell on the host reads the words once more; the task's
  output comes back through the program.
- `pbsdsh -o -h HOST WORDS…`: the words are taken as they are.

Tasks get the scheduler's variables, and nothing of the caller's environment. When the job's script ends, so do they.
"""

import ast
import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cluster.hosts import Host, Hosts
from cluster.stand_in import StandIn, kill_groups
from cluster.waiting import until

SECONDS = 120.0
# `_socket` is what `socket` is made of: each task starts such a program, which takes a third of the time with it.
PROGRAM = """#!{python} -IS
import _socket, sys
words = sys.argv[1:]
if words[:{skip}] != {options!r}:
    sys.exit("unknown options: " + repr(words))
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
line = ascii(words[{skip}:]).encode() + b"\\n"
files = b"".join(file.to_bytes(4, sys.byteorder) for file in (1, 2))
line = line[server.sendmsg([line], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)]):]
if line:
    server.sendall(line)
said = b""
while part := server.recv(99):
    said += part
sys.exit(int(said or "255"))
"""


class Kind(NamedTuple):
    """What differs between the schedulers. In `job` and `task`, {…} is replaced by what the job has."""

    program: str
    options: list[str]
    job: dict[str, str]  # in the script and in every task
    task: dict[str, str]  # in the tasks only
    by_shell: bool = True


SAME = {"HOME": "/home/alice", "USER": "alice", "PATH": "{place}/bin:/usr/bin:/bin"}
LSF = {"LSB_JOBID": "7", "LSB_BATCH_JID": "7", "LSB_DJOB_HOSTFILE": "{file}", "LSB_MCPU_HOSTS": "{counted}"}
SGE = {"JOB_ID": "7", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": "{file}", "NHOSTS": "{nodes}", "NSLOTS": "{slots}"}
TORQUE = {"PBS_JOBID": "7.ctl", "PBS_NUM_NODES": "{nodes}", "PBS_NP": "{slots}", "PBS_NUM_PPN": "{each}"}
KINDS = {
    "lsf": Kind("blaunch", [], {**LSF, "LS_SUBCWD": "{place}"}, {}),
    "sge": Kind("qrsh", ["-inherit"], {**SGE, "SGE_O_WORKDIR": "{place}"}, {}),
    "torque": Kind(
        "pbsdsh",
        ["-o", "-h"],
        {**TORQUE, "PBS_NODEFILE": "{file}", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_O_WORKDIR": "{place}"},
        {"PBS_NODENUM": "{index}", "PBS_VNODENUM": "{index}", "PBS_TASKNUM": "{task}"},
        by_shell=False,
    ),
}


class RemoteStandIn(StandIn):
    """A scheduler that runs one job at a time on all of these hosts, as a context manager."""

    def __init__(self, scheduler: str, hosts: Hosts, place: Path, slots: int) -> None:
        super().__init__(place)
        self.kind, self.hosts = KINDS[scheduler], list(hosts)
        self.tasks: list[subprocess.Popen[str]] = []
        file = "/run/hostfile"  # on the first host only
        names = [host.name for host in self.hosts]
        text = "".join(f"{n} {slots} all.q@{n} <NULL>\n" if scheduler == "sge" else f"{n}\n" * slots for n in names)
        self.hosts[0].write(file, text)
        told = {"place": str(place), "file": file, "nodes": str(len(names)), "each": str(slots)}
        self._told = told | {"slots": str(len(names) * slots), "counted": " ".join(f"{name} {slots}" for name in names)}

    def _programs(self) -> dict[str, str]:
        options = self.kind.options
        return {self.kind.program: PROGRAM.replace("{skip}", str(len(options))).replace("{options!r}", repr(options))}

    def run(self, script: str, *, cancel_at: str = "") -> tuple[int, str]:
        """Run a job to its end on the first host, and return its status and output.

        Once `cancel_at` is in the output, everything on the first host gets TERM, as from bkill.
        """
        (self.place / "script").write_bytes(os.fsencode(script))
        with (self.place / "out").open("w+") as out:
            job = self._start(self.hosts[0], ["bash", f"{self.place}/script"], {}, out.fileno(), out.fileno())
            try:
                if cancel_at:
                    said = (self.place / "out").read_text
                    until(lambda: cancel_at in said(), f"no {cancel_at!r} in the output", SECONDS)
                    os.killpg(job.pid, signal.SIGTERM)
                status = job.wait(SECONDS)
            finally:
                self._end_all()
        return status, (self.place / "out").read_text()

    def _start(self, host: Host, words: list[str], task: dict[str, str], out: int, err: int) -> subprocess.Popen[str]:
        index = self.hosts.index(host)
        told = self._told | {"index": str(index), "task": str(2 + len(self.tasks))}
        environ = {name: value.format(**told) for name, value in (SAME | self.kind.job | task).items()}
        command = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *words]
        self.tasks.append(host.popen(command, user="alice", stdout=out, stderr=err))
        return self.tasks[-1]

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            # The fds come with the first byte of the line.
            data, fds, *_ = socket.recv_fds(connection, 1 << 20, 2)
            try:
                while data and not data.endswith(b"\n"):
                    data += connection.recv(1 << 20)
                with self._lock:
                    if not data or self._is_closed:
                        return
                    name, *words = ast.literal_eval(data.decode())
                    host = next(host for host in self.hosts if host.name == name)
                    task = self._start(
                        host, ["sh", "-c", " ".join(words)] if self.kind.by_shell else words, self.kind.task, *fds
                    )
            finally:
                for fd in fds:
                    os.close(fd)
            status = task.wait()
            with suppress(BrokenPipeError):  # the one who asked has ended
                connection.sendall(f"{status if status >= 0 else 128 - status}\n".encode())

    def _end_all(self) -> None:
        with self._lock:
            self._is_closed = True
        kill_groups(self.tasks, SECONDS)
