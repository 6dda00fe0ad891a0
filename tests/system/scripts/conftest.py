"""The schedulers on which job scripts are tried."""

from pathlib import Path

import pytest
from support.jobs import Jobs


@pytest.fixture(scope="session", params=["slurm", "pbs", "real-pbs", "lsf", "sge", "torque"])
def scheduler(request: pytest.FixtureRequest) -> str:
    """Start what all tests share before the guard looks at what each test leaves behind."""
    name: str = request.param
    sessions = {"slurm": "slurm_session", "real-pbs": "real_pbs_session"}
    if name in sessions:
        request.getfixturevalue(sessions[name])
    return name


@pytest.fixture
def jobs(request: pytest.FixtureRequest, scheduler: str, tmp_path: Path) -> Jobs:
    """Give the jobs of each scheduler."""
    return Jobs(scheduler, tmp_path, request)
