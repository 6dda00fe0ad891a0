"""Fixtures for the tests of mingle run: a runner for an agent, and runs that are served."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_runner import Runner
from served import Served


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """Give a runner that has not started its agent yet."""
    with Runner(tmp_path) as made:
        yield made


@pytest.fixture
def agent(runner: Runner) -> Runner:
    """Give a runner whose agent has connected."""
    runner.supervise()
    return runner


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return what serves runs in this process."""
    serving = Served(tmp_path / "state" / "mingle" / "runs")
    yield serving
    serving.close()
