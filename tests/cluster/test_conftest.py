from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

from cluster.paths import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from cluster.hosts import Hosts

# Without what would be a third of its start, numpy's import for one.
QUICKLY = ("-p", "no:randomly", "-p", "no:hypothesispytest")
LEAVES = {
    "left threads behind": "import threading, time\ndef test(): threading.Timer(2, print).start()",
    "left child processes behind": "import os\ndef test(): os.posix_spawn('/bin/sleep', ['sleep', '2'], {})",
    "left sockets open": "import socket\ndef test(): globals()['s'] = socket.socket()",
}


def run_pytest(directory: Path, body: str, *before: str, options: str = "-q") -> subprocess.CompletedProcess[str]:
    """Run one test file under this project's conftest and settings, by the words that come `before`."""
    (directory / "test_it.py").write_text(body)
    settings = ["-c", str(PROJECT / "pyproject.toml"), "--rootdir", str(directory), "-p", "no:cacheprovider"]
    settings += QUICKLY
    return subprocess.run(
        [*before, sys.executable, "-m", "pytest", options, *settings, "-p", "conftest", str(directory / "test_it.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(PROJECT / "tests")},
    )


def test_a_test_that_leaves_something_behind_fails(tmp_path: Path) -> None:
    """The guard fails a test that leaves a thread, a process or a socket, and says which."""
    bodies = [
        body.replace("def test()", f"def test_{n}()") for n, body in enumerate([*LEAVES.values(), "def test(): pass"])
    ]
    done = run_pytest(tmp_path, "\n".join(bodies))
    parts = re.split(r"^_+ ERROR at teardown of test_(\d) _+$", done.stdout, flags=re.MULTILINE)
    told = {
        int(number): text.partition("short test summary")[0]
        for number, text in zip(*[iter(parts[1:])] * 2, strict=True)
    }
    assert sorted(told) == list(range(len(LEAVES)))
    for number, complaint in enumerate(LEAVES):
        assert f"AssertionError: the test {complaint}: " in told[number]
    assert "4 passed, 3 errors" in done.stdout
    assert done.returncode == 1


def test_skips_for_want_of_something_are_counted_at_the_very_end(tmp_path: Path) -> None:
    """The last lines of a run say what could not be tested, and for want of what."""
    body = "import needs\nmoonless = needs.only_with('a-moon')\n"
    body += "def test_one(): needs.need('a-moon')\n@moonless\ndef test_two(): pass"
    done = run_pytest(tmp_path, body)
    assert "NOT EVERYTHING WAS TESTED" in done.stdout
    assert "SKIPPED FOR WANT OF: a-moon (2 tests)" in "\n".join(done.stdout.splitlines()[-2:])
    assert done.returncode == 0


def test_what_passes_only_when_run_again_is_named_at_the_end(tmp_path: Path) -> None:
    """With what failed; one that fails each time fails."""
    body = "runs = []\ndef test_late():\n    runs.append(1)\n    assert len(runs) == 2, 'too late'\n"
    done = run_pytest(tmp_path, body, options="--reruns=2")
    assert (done.returncode, done.stdout.count("RUN AGAIN: test_it.py::test_late")) == (0, 1), done.stdout
    assert "AssertionError: too late" in done.stdout
    assert "1 passed, 1 rerun in" in done.stdout
    done = run_pytest(tmp_path, body.replace("== 2", "== 4"), options="--reruns=2")
    assert (done.returncode, done.stdout.count("RUN AGAIN: ")) == (1, 2), done.stdout
    assert "1 failed, 2 rerun in" in done.stdout


def test_no_test_waits_for_what_counts_its_runs(pytestconfig: pytest.Config) -> None:
    """pytest-rerunfailures says two words in a row, and the kernel held back the second for 40 ms, in each test."""
    # By its path, as the last conftest.py that was imported has the name.
    conftest = pytestconfig.pluginmanager.get_plugin(str(PROJECT / "tests" / "conftest.py"))
    assert conftest
    with socket.socket() as sock:
        conftest.pytest_configure(SimpleNamespace(failures_db=SimpleNamespace(sock=sock)))
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_in_the_background_programs_hear_what_ends_them_all_the_same(tmp_path: Path) -> None:
    """As in `nohup make test &`, which ignores that, and hands on what it ignores."""
    body = "import subprocess\ndef test():\n"
    body += "    for name in ('INT', 'HUP', 'QUIT'):\n"
    body += "        assert subprocess.run(['sh', '-c', f'kill -{name} $$; echo on'], stdout=-1).stdout == b''\n"
    done = run_pytest(tmp_path, body, "env", "--ignore-signal=INT,HUP,QUIT")
    assert done.returncode == 0, done.stdout


def test_a_user_who_is_not_root_gets_loud_skips_and_no_failure(hosts: Callable[..., Hosts], alice: str) -> None:
    """Without root the tests that need hosts or Slurm are skipped for want of it."""
    its = PROJECT / "tests" / "cluster" / "test_slurm_cluster.py"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICKLY, str(its)]
    done = hosts(1)[0].run(argv, user=alice, timeout=120)
    assert "SKIPPED FOR WANT OF: root (13 tests)" in done.stdout
    assert done.returncode == 0
