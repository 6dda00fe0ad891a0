"""Several tasks of one node, in processes of their own, get one answer or one error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from gathering import PATIENCE_S

from mingle_hooks.errors import ConflictError, MissingError, NetworkError, PlaceError
from mingle_hooks.rendezvous import siblings

if TYPE_CHECKING:
    from pathlib import Path

ANSWER = {"rank": 3, "addr": "10.0.0.1", "roster": [[0, "n", "10.0.0.1", 1]] * 1000}
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="for want of root, which alone can be others")
OTHER = """
import json, sys
from mingle_hooks.errors import MingleError
from mingle_hooks.rendezvous import siblings
try:
    print(json.dumps(siblings.other(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
except MingleError as error:
    print(error)
    sys.exit(error.exit_code)
"""
FIRST = """
import sys, time
from mingle_hooks.rendezvous import siblings
def meet(left_s):
    print("meeting", flush=True)
    time.sleep(60)
siblings.first(sys.argv[1], int(sys.argv[2]), 60.0, meet)
"""


class Tasks:
    """Processes that end with the test."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def start(self, script: str, *arguments: object, **options: int) -> subprocess.Popen[str]:
        """Start one."""
        command = [sys.executable, "-c", script, *map(str, arguments)]
        self.all.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options))  # type: ignore[call-overload]
        return self.all[-1]

    def ends(self) -> list[tuple[int, str]]:
        """Return exit code and output of each, in order."""
        return [(p.wait(PATIENCE_S), p.stdout.read() if p.stdout else "") for p in self.all]

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in self.all:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Name a directory that is not there yet."""
    return str(tmp_path / "shared")


def silent(_left_s: float) -> dict[str, object]:
    """Stand for a meeting that must not take place."""
    raise AssertionError


def test_all_tasks_get_the_first_ones_answer_and_nothing_stays(directory: str) -> None:
    """Whoever comes first."""
    with Tasks() as tasks:
        tasks.start(OTHER, directory, 1, 20)
        asked: list[float] = []

        def meet(left_s: float) -> dict[str, object]:
            asked.append(left_s)
            return dict(ANSWER)

        tasks.start(OTHER, directory, 2, 20)
        assert siblings.first(directory, 3, 20.0, meet) == ANSWER
        assert len(asked) == 1
        assert 0 < asked[0] <= 20
        assert [(code, json.loads(text)) for code, text in tasks.ends()] == [(0, ANSWER)] * 2
    assert not os.path.exists(directory)


def test_an_error_is_everybodys(directory: str) -> None:
    """With its exit code and its words."""

    def meet(_left_s: float) -> dict[str, object]:
        raise NetworkError("a", "b'\"$(x)", "c")

    with Tasks() as tasks:
        tasks.start(OTHER, directory, 1, 20)
        with pytest.raises(NetworkError, match="expected a; saw b"):
            siblings.first(directory, 2, 20.0, meet)
        assert tasks.ends() == [(71, "expected a; saw b'\"$(x); try c\n")]
    assert not os.path.exists(directory)


def test_a_task_that_is_missing_fails_those_who_came(directory: str) -> None:
    """And nobody checks in."""
    with Tasks() as tasks:
        tasks.start(OTHER, directory, 2, 20)
        deadline = time.monotonic() + PATIENCE_S
        with pytest.raises(MissingError, match=r"missing: local rank 1,? ?3?"):
            siblings.first(directory, 4, 3.0, silent)
        assert time.monotonic() < deadline
        ((code, text),) = tasks.ends()
        assert code == 69
        assert "local rank" in text
    assert not os.path.exists(directory)


@pytest.mark.parametrize("rank", [1, 3])
def test_a_local_rank_twice_or_beyond_fails_everybody(directory: str, rank: int) -> None:
    """Also the one that is too many, as far as it has come."""
    with Tasks() as tasks:
        tasks.start(OTHER, directory, 1, 2)
        tasks.start(OTHER, directory, rank, 2)
        with pytest.raises(ConflictError, match="once"):
            siblings.first(directory, 3, 20.0, silent)
        codes = {code for code, _ in tasks.ends()}
        assert 76 in codes
        assert codes <= {76, 69}  # 69: it came after the first task had gone


def test_two_first_tasks_are_one_too_many_and_the_earlier_one_goes_on(directory: str) -> None:
    """Its socket is not taken away."""
    with Tasks() as tasks:
        first = tasks.start(FIRST, directory, 2)
        while not os.path.exists(f"{directory}/{siblings.SOCKET}") or not siblings._is_served(
            f"{directory}/{siblings.SOCKET}"
        ):
            time.sleep(0.01)
        with pytest.raises(ConflictError, match="local rank 0"):
            siblings.first(directory, 2, 5.0, silent)
        tasks.start(OTHER, directory, 1, 20)
        assert first.stdout is not None
        assert first.stdout.readline() == "meeting\n"


def test_a_first_task_that_is_killed_ends_the_others_and_hinders_no_next_try(directory: str) -> None:
    """What it left is taken over."""
    with Tasks() as tasks:
        first = tasks.start(FIRST, directory, 2)
        other = tasks.start(OTHER, directory, 1, 20)
        assert first.stdout is not None
        assert first.stdout.readline() == "meeting\n"
        first.kill()
        assert other.wait(PATIENCE_S) == 69
        assert os.path.exists(f"{directory}/{siblings.SOCKET}")
        tasks.start(OTHER, directory, 1, 20)
        assert siblings.first(directory, 2, 20.0, lambda _left_s: dict(ANSWER)) == ANSWER
        assert tasks.all[-1].stdout is not None
        assert json.loads(tasks.all[-1].stdout.read()) == ANSWER
    assert not os.path.exists(directory)


def test_what_connects_and_is_no_sibling_is_passed_over(directory: str) -> None:
    """Garbage, silence that ends, and numbers that are none."""
    with Tasks() as tasks:
        hello = "import socket, sys, time\nfor said in (b'', b'x', b'-1', b'99999999', b'\\xb2'):\n"
        hello += " s = socket.socket(socket.AF_UNIX)\n while s.connect_ex(sys.argv[1]): time.sleep(0.01)\n"
        hello += " s.send(said); s.close()\n"
        tasks.start(hello, f"{directory}/{siblings.SOCKET}")

        def meet(_left_s: float) -> dict[str, object]:
            return dict(ANSWER)

        tasks.start(OTHER + "\n", directory, 1, 20)
        assert siblings.first(directory, 2, 20.0, meet) == ANSWER


@ROOT_ONLY
@pytest.mark.parametrize("harm", ["owner", "mode", "link"])
def test_a_directory_that_somebody_else_made_is_not_used(directory: str, tmp_path: Path, harm: str) -> None:
    """Neither by the first task nor by the others."""
    if harm == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        os.symlink(tmp_path / "real", directory)
    else:
        os.mkdir(directory, 0o700)
    if harm == "owner":
        os.chown(directory, 61001, 61001)
    elif harm == "mode":
        os.chmod(directory, 0o755)  # noqa: S103 - the harm
    with pytest.raises(PlaceError, match="others can"):
        siblings.first(directory, 2, 1.0, silent)
    with pytest.raises(MissingError, match="first task"):
        siblings.other(directory, 1, 0.1)


def test_a_path_too_long_for_a_socket_is_said_to_be(tmp_path: Path) -> None:
    """Job ids may be long."""
    directory = str(tmp_path / ("x" * 100))
    with pytest.raises(PlaceError, match="too long"):
        siblings.first(directory, 2, 1.0, silent)


def test_a_task_that_hangs_up_early_costs_the_others_nothing(directory: str) -> None:
    """They still get their answer."""

    def meet(_left_s: float) -> dict[str, object]:
        tasks.all[1].wait(PATIENCE_S)
        return dict(ANSWER)

    with Tasks() as tasks:
        tasks.start(OTHER, directory, 1, 20)
        late = "import sys, time, socket\ns = socket.socket(socket.AF_UNIX)\n"
        late += "while s.connect_ex(sys.argv[1]): time.sleep(0.01)\ns.send(b'2\\n')\n"
        tasks.start(late, f"{directory}/{siblings.SOCKET}")
        assert siblings.first(directory, 3, 20.0, meet) == ANSWER
        assert tasks.ends()[0][0] == 0
