"""A real OpenPBS behind the interface of the stand-in, where one is installed and this user may submit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

ASK_AGAIN_S = 1.0


def program(name: str) -> str:
    """Return the path of one of PBS's programs."""
    return f"{os.environ['PBS_EXEC']}/bin/{name}"


def missing(nodes: int) -> list[str]:
    """Return what is lacking for jobs of so many hosts."""
    if not os.environ.get("PBS_EXEC"):
        return ["a real OpenPBS (PBS_EXEC)"]
    lacks = ["a user other than root, for whom PBS runs jobs"] if os.geteuid() == 0 else []
    told = subprocess.run([program("pbsnodes"), "-a", "-F", "json"], capture_output=True, text=True, check=False)
    hosts = json.loads(told.stdout or "{}").get("nodes", {}).values()
    free = sum("free" in host.get("state", "") for host in hosts)
    return lacks + ([f"{nodes} free hosts in PBS"] if free < nodes else [])


class RealPbs:
    """Jobs of this user, as a context manager that deletes what is left of them."""

    def __init__(self, name: str) -> None:
        # In the home directory, as all hosts have that.
        self.place = Path.home() / f".mingle-test-{os.getpid()}-{name}"
        self._jobs: list[str] = []

    def __enter__(self) -> Self:
        self.place.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job in self._jobs:
            subprocess.run([program("qdel"), "-W", "force", job], capture_output=True, check=False)
        shutil.rmtree(self.place)

    def submit(self, script: str, *, cwd: str) -> str:
        """Give in a script and return the job's id."""
        output = ["-o", f"{self.place}/out.{len(self._jobs)}", "-k", "doe"]
        command = [program("qsub"), *output]
        done = subprocess.run(command, input=script, cwd=cwd, capture_output=True, text=True, check=True)
        self._jobs.append(done.stdout.strip())
        return self._jobs[-1]

    def _state(self, job: str) -> dict[str, Any]:
        told = subprocess.run(
            [program("qstat"), "-x", "-f", "-F", "json", job], capture_output=True, text=True, check=True
        )
        state: dict[str, Any] = json.loads(told.stdout)["Jobs"][job]
        return state

    def wait(self, job: str, timeout: float = 120.0) -> int:
        """Wait for a job's end and return its exit status."""
        deadline = time.monotonic() + timeout
        while (state := self._state(job))["job_state"] != "F":
            assert time.monotonic() < deadline, state
            time.sleep(ASK_AGAIN_S)
        return int(state["Exit_status"])

    def delete(self, job: str) -> None:
        """Delete a job and wait for its end."""
        subprocess.run([program("qdel"), job], capture_output=True, check=True)
        with suppress(KeyError):  # a deleted job may have no exit status
            self.wait(job)

    def output(self, job: str) -> str:
        """Return what a job wrote."""
        file = self.place / f"out.{self._jobs.index(job)}"
        return file.read_text() if file.exists() else ""

    def wait_for_text(self, job: str, text: str, seconds: float = 120.0) -> None:
        """Wait until a job's output holds a text."""
        deadline = time.monotonic() + seconds
        while text not in self.output(job):
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.output(job)}"
            time.sleep(ASK_AGAIN_S)
