"""`mingle hooks simulate --runs`: hooks in hostile environments, without programs, on file systems at fault."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from needs import only_with

from mingle_hooks.cli.hooks import hooks
from mingle_hooks.hooks import simulate as apart
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.simulate import storm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = only_with("root", "namespaces")
RUNS = 15  # of each scheduler's hooks, in every run of the tests
NO_FAULTS = apart.Faults("nothing wrong", {})


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "torque"])
def test_no_hook_fails_or_writes_elsewhere_whatever_goes_wrong(scheduler: str) -> None:
    """Some runs of a seed that is another each time; many more are for `--runs 10000`."""
    seed = random.randrange(1 << 31)  # noqa: S311 - no secret
    bad = [trial for trial in storm(scheduler, Site(), RUNS, seed) if trial.status or trial.said]
    assert bad == [], f"mingle hooks simulate {scheduler} --runs {RUNS} --seed {seed}"


def test_the_same_seed_makes_the_same_runs() -> None:
    """So that what fails can be looked at."""
    once, again = ([trial[:2] for trial in storm("slurm", Site(), 5, 3)] for _ in range(2))
    assert once == again
    done = CliRunner().invoke(hooks, ["simulate", "slurm", "--runs", "5", "--seed", "3"], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout.startswith("5 runs, seed 3: none failed, the slowest ")


def test_a_run_shows_its_status_and_what_it_writes_elsewhere(tmp_path: Path) -> None:
    """And nothing of it is left on this machine."""
    apart.prepare_isolated(str(tmp_path))
    script = 'touch /run/mine /tmp/.mine run/other; [ "$(cat run/state/x)" = before ] && exit 3'
    before = ["sh", "-c", "mkdir state; echo before >state/x"]
    found = apart.run_isolated(str(tmp_path), before, ["sh", "-c", f"cd {tmp_path}; {script}"], NO_FAULTS)
    assert found.status == 3
    assert sorted(found.outside) == sorted(["/run/mine", "/tmp/.mine", f"{tmp_path}/run/other"])  # noqa: S108
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("place", list(apart.PLACES)[1:])
def test_what_is_said_to_be_wrong_is_wrong(tmp_path: Path, place: str) -> None:
    """Each place by what cannot be done there, which can be done where nothing is wrong."""
    apart.prepare_isolated(str(tmp_path))
    script = f"cd {tmp_path}/run && mkdir state && for i in 1 2 3 4 5; do seq 999 >state/$i || exit; done"
    for each, status in ((place, True), ("nothing wrong", False)):
        found = apart.run_isolated(str(tmp_path), [], ["sh", "-c", script], apart.Faults(each, {}))
        assert (found.status != 0) is status


def test_programs_are_broken(tmp_path: Path) -> None:
    """Each in its way, also the one that breaks them."""
    apart.prepare_isolated(str(tmp_path))
    for how, status in (("is missing", 127), ("fails", 3)):
        script = f'for tool; do "$tool"; [ $? = {status} ] || exit 99; done; exit {status}'
        faults = apart.Faults("nothing wrong", dict.fromkeys(apart.TOOLS, how))
        found = apart.run_isolated(str(tmp_path), [], ["sh", "-c", script, "sh", *apart.TOOLS], faults)
        assert found.status == status, how
    one = apart.Faults("nothing wrong", {"stat": "fails"})  # and the others work
    assert apart.run_isolated(str(tmp_path), [], ["sh", "-c", "id && cat && stat"], one).status == 3
    hangs = apart.Faults("nothing wrong", {"mount": "hangs"})
    assert apart.run_isolated(str(tmp_path), [], ["timeout", "0.1", "mount"], hangs).status == 124
