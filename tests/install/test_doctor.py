"""`mingle hooks doctor`: what is installed, what is wrong with the mend for each, and what a job would get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mingle_hooks.cli.hooks import hooks
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.verify import preview_job as preview
from mingle_hooks.hooks.verify import why_nothing

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

OURS = "/etc/mingle/hooks/slurm"


def call(root: Path, *argv: str) -> Result:
    """Run `mingle hooks` below root."""
    return CliRunner().invoke(hooks, [*argv, "--root", str(root)], catch_exceptions=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node image with Slurm's hooks installed, and a slurm.conf that does not name them yet."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("ClusterName=x\n")
    call(tmp_path, "install", "slurm", "--yes")
    return tmp_path


def test_it_tells_what_is_wrong_and_how_to_mend_it(root: Path) -> None:
    """Every finding that is no note has its mend, in one column."""
    done = call(root, "doctor")
    assert done.exit_code == 1
    assert f"does not say Prolog={OURS}/prolog; fix: this line there: Prolog={OURS}/prolog" in done.stdout
    bad = [line for line in done.stdout.splitlines() if line.startswith("BAD")]
    assert len(bad) >= 4
    assert all("; fix: " in line for line in bad)
    assert len({line.index("does not say") for line in bad if "does not say" in line}) == 1


def test_it_tells_what_a_job_here_would_get(root: Path) -> None:
    """The variables of a task, worked out by the hook itself with this site's settings."""
    (root / "etc/mingle/mingle.toml").write_text('port_range = "21000-21999"\nhost_suffix = "-ib"\n')
    shown = call(root, "doctor").stdout
    assert "  export RANK=1\n" in shown
    assert "-ib\n" in shown
    assert "  export MASTER_PORT=21620\n" in shown


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("observe = true", "hooks.observe"), ('hosts = ["elsewhere"]', "elsewhere"), ('opt_in = "please"', "please")],
)
def test_it_tells_why_a_job_here_would_get_nothing(root: Path, setting: str, reason: str) -> None:
    """A site that keeps the hooks from acting is reminded of how."""
    (root / "etc/mingle/mingle.toml").write_text(f"[hooks]\n{setting}\n")
    shown = call(root, "doctor").stdout.partition("would get:\n")[2]
    assert shown.startswith("  nothing\n")
    assert reason in shown


def test_the_kill_switch_is_the_one_below_root(root: Path) -> None:
    """In a node image with the kill switch a job would get nothing, whatever this machine has."""
    (root / "etc/mingle/disabled").touch()
    shown = call(root, "doctor").stdout.partition("would get:\n")[2]
    assert shown == f"  nothing\n  {root}/etc/mingle/disabled is there\n"


@pytest.mark.parametrize(("host", "suffix"), [("-odd", ""), ("", "x"), ("naïve", ""), ("n" * 252, "-ib")])
def test_a_host_whose_name_the_hook_does_not_take_is_told(host: str, suffix: str) -> None:
    """A name that no job gets anything under is the reason that is told."""
    site = Site(host_suffix=suffix)
    assert preview(site, host) == ()
    assert [reason for reason in why_nothing(site, host) if "not a host name that the hook accepts" in reason]


def test_after_all_mends_it_is_content(root: Path) -> None:
    """With the lines in slurm.conf and a key there is nothing to mend, and the status is 0."""
    lines = call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:]
    (root / "etc/slurm/slurm.conf").write_text("\n".join(lines))
    (root / "etc/mingle/key").write_text("ab" * 32)
    (root / "etc/mingle/key").chmod(0o400)
    done = call(root, "doctor")
    assert (done.exit_code, "BAD" in done.stdout) == (0, False)
