"""A copy of the project with a Python of its own, in which a defect is put in and tests are run."""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mutants.defect import LIMIT_S, PROJECT

if TYPE_CHECKING:
    from mutants.defect import Defect

# pytest's exit status: all passed, some failed, none was there.
PASSED, FAILED = 0, 1
# What ends of itself after a defect gets this long to take its hosts along, in seconds.
GOODBYE_S = 10.0
_SCRIPT = """#!{python}
import sys
from mingle_hooks.cli.main import main
sys.exit(main())
"""
# Tests use the ports of the machine: each copy has them for itself, and an address, where that can be had.
_LINKS = """
ip link add eth0 type veth peer name eth1 && ip addr add 10.77.255.1/24 dev eth0 &&
for link in lo eth0 eth1; do ip link set $link up || exit; done && exec "$@"
"""
_OWN_NETWORK = ["unshare", "--net", "--", "sh", "-c", _LINKS, "sh"]


class Outcome(NamedTuple):
    """How the tests of a row ended, and what pytest printed."""

    word: str  # passed, failed, skipped, timed out, broken
    output: str


class Bench:
    """One copy. Its `mingle` is the copy's, and so is what `import mingle_hooks` gives; all else is this Python's."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self._place = place / "project"
        shutil.copytree(PROJECT, self._place, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist"))
        venv.EnvBuilder(symlinks=True).create(place / "python")
        self._python = place / "python" / "bin" / "python"
        packages = next((place / "python" / "lib").glob("python*/site-packages"))
        here = [path for path in sys.path if path.endswith("-packages")]
        (packages / "mutants.pth").write_text("\n".join([str(self._place), *here]) + "\n")
        script = self._python.with_name("mingle")
        script.write_text(_SCRIPT.format(python=self._python))
        script.chmod(0o755)
        compileall.compile_dir(self._place / "mingle_hooks", quiet=2)
        # pytest's own directories, which go with the rest; every user of a test host has to get there.
        self._mark = f"PYTEST_DEBUG_TEMPROOT={place}\0".encode()
        self._environ = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(place)}
        self._environ.pop("PYTHONPATH", None)
        self._written = 0
        self._process: subprocess.Popen[str] | None = None

    def tried(self, defect: Defect) -> Outcome:
        """Put a defect in, run its tests, and take it out again."""
        path = self._place / defect.file
        before = path.read_text(encoding="utf-8")
        self._write(path, defect.applied(self._place))
        try:
            return self.run(["-x", *defect.tests.split()], LIMIT_S)
        finally:
            self._write(path, before)

    def run(self, words: list[str], limit_s: float) -> Outcome:
        """Run pytest with these words."""
        line = [str(self._python), "-m", "pytest", "-p", "no:cacheprovider", "-q", "--timeout", "60", *words]
        process = self._process = subprocess.Popen(
            [*(_OWN_NETWORK if has_own_network() else []), *line],
            cwd=self._place,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            return Outcome("timed out", "")
        finally:
            self._end_what_is_left()
        last = output.rstrip().rpartition("\n")[2]
        if process.returncode == FAILED and "Timeout" in output and " failed" not in last:  # pytest-timeout ended it
            return Outcome("timed out", output)
        if process.returncode == PASSED:
            return Outcome("skipped" if "skipped" in last and " passed" not in last else "passed", output)
        return Outcome("failed" if process.returncode == FAILED else "broken", output)

    def stop(self) -> None:
        """End what runs."""
        if self._process is not None and self._process.poll() is None:
            _end(self._process)

    def _end_what_is_left(self) -> None:
        """End what a test has left running, as one that fails may do."""
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if self._mark in environ.read_bytes():
                    os.kill(int(environ.parent.name), signal.SIGKILL)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time that it never had, as Python takes what is compiled by time and size."""
        path.write_text(text, encoding="utf-8")
        self._written += 1
        os.utime(path, (10**9 + self._written, 10**9 + self._written))


def has_own_network() -> bool:
    """Tell whether a copy can have the ports of a machine for itself."""
    return sys.platform == "linux" and os.geteuid() == 0 and bool(shutil.which("unshare") and shutil.which("ip"))


def _end(process: subprocess.Popen[str]) -> None:
    """End pytest, which takes its hosts along where it is given the time, and what it started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GOODBYE_S)
            return
