"""Stand-ins for the programs by which LSF, Grid Engine and Torque start a task on a host of the job.

- `blaunch HOST WORDS…` and `qrsh -inherit HOST WORDS…`: a shell on the host reads the words once more; the task's
  output comes back through the program.
- `pbsdsh -o -h HOST WORDS…`: the words are taken as they are.

Tasks get the scheduler's variables, and nothing of the caller's environment. When the job's script ends, so do they.
"""

from __future__ import annotations

import ast
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path
    from types import TracebackType

    from cluster.hosts import Host, Hosts
    from typing_extensions import Self

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


class RemoteStandIn:
    """A scheduler that runs one job at a time on all of these hosts, as a context manager."""

    def __init__(self, scheduler: str, hosts: Hosts, place: Path, slots: int) -> None:
        self.kind, self.hosts, self.place, self.slots = KINDS[scheduler], list(hosts), place, slots
        self.tasks: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()  # between the start of a task and the end of its job
        self._has_ended = False
        self._threads: list[threading.Thread] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._address = str(place / "server")
        file = "/run/hostfile"  # on the first host only
        names = [host.name for host in self.hosts]
        text = "".join(f"{n} {slots} all.q@{n} <NULL>\n" if scheduler == "sge" else f"{n}\n" * slots for n in names)
        self.hosts[0].write(file, text)
        told = {"place": str(place), "file": file, "nodes": str(len(names)), "each": str(slots)}
        self._told = told | {"slots": str(len(names) * slots), "counted": " ".join(f"{name} {slots}" for name in names)}

    def __enter__(self) -> Self:
        program = self.place / "bin" / self.kind.program
        program.parent.mkdir(exist_ok=True)
        options = self.kind.options
        python = os.path.realpath(sys.executable)
        program.write_text(PROGRAM.format(python=python, skip=len(options), options=options, address=self._address))
        program.chmod(0o755)
        self._server.bind(self._address)
        (self.place / "server").chmod(0o777)
        self._server.listen()
        self._threads.append(threading.Thread(target=self._serve))
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(SECONDS)

    def run(self, script: str, *, cancel_at: str = "") -> tuple[int, str]:
        """Run a job to its end on the first host, and return its status and output.

        Once `cancel_at` is in the output, everything on the first host gets TERM, as from bkill.
        """
        (self.place / "script").write_bytes(os.fsencode(script))
        with (self.place / "out").open("w+") as out:
            job = self._start(self.hosts[0], ["bash", f"{self.place}/script"], {}, out.fileno(), out.fileno())
            try:
                if cancel_at:
                    self._await_text(cancel_at)
                    os.killpg(job.pid, signal.SIGTERM)
                status = job.wait(SECONDS)
            finally:
                self._end()
        return status, (self.place / "out").read_text()

    def _await_text(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in (self.place / "out").read_text():
            assert time.monotonic() < deadline, f"no {text!r} in the output"
            time.sleep(0.1)

    def _start(self, host: Host, words: list[str], task: dict[str, str], out: int, err: int) -> subprocess.Popen[str]:
        index = self.hosts.index(host)
        told = self._told | {"index": str(index), "task": str(2 + len(self.tasks))}
        environ = {name: value.format(**told) for name, value in (SAME | self.kind.job | task).items()}
        command = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *words]
        self.tasks.append(host.popen(command, user="alice", stdout=out, stderr=err))
        return self.tasks[-1]

    def _serve(self) -> None:
        while True:
            try:
                asked = self._server.accept()[0]
            except OSError:
                return  # closed
            self._threads.append(threading.Thread(target=self._task, args=[asked]))
            self._threads[-1].start()

    def _task(self, asked: socket.socket) -> None:
        with asked:
            # The fds come with the first byte of the line.
            data, fds, *_ = socket.recv_fds(asked, 1 << 20, 2)
            try:
                while data and not data.endswith(b"\n"):
                    data += asked.recv(1 << 20)
                with self._lock:
                    if not data or self._has_ended:
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
                asked.sendall(f"{status if status >= 0 else 128 - status}\n".encode())

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True
        for task in self.tasks:
            with suppress(ProcessLookupError):
                os.killpg(task.pid, signal.SIGKILL)
            task.wait(SECONDS)
            await_end(task.pid)


def await_end(group: int) -> None:
    """Wait until nothing is left of a process group: what is killed takes a moment to go."""
    deadline = time.monotonic() + SECONDS
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            assert time.monotonic() < deadline, f"process group {group} does not end"
            time.sleep(0.01)
