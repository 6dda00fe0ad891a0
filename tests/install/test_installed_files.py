"""What installing makes of files that are there already, and what it leaves to root alone."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

import pytest
from needs import only_with
from test_install import OURS, call, conf, program

from mingle_hooks.hooks.apply import hook
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.files import render_hook as render

if TYPE_CHECKING:
    from pathlib import Path


@only_with("root")
@pytest.mark.parametrize("spoil", [lambda path: os.chown(path, 1, -1), lambda path: path.chmod(0o644)])
def test_installing_mends_owner_and_mode(tmp_path: Path, spoil: object) -> None:
    """A file with the right text and another owner could have another text soon."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    conf(tmp_path, "ClusterName=x")
    call(tmp_path, "install", "slurm", "--yes")
    path = tmp_path / OURS.lstrip("/") / "prolog"
    spoil(path)  # type: ignore[operator]
    assert f"replace {tmp_path}{OURS}/prolog" in call(tmp_path, "install", "slurm", "--yes").stdout
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (0, 0o755)


@pytest.mark.parametrize("line", ["enabled=false", "enabled=False"])
def test_a_prologue_that_a_hook_shadows_no_more_is_not_told(tmp_path: Path, line: str) -> None:
    """pbs_mom runs the classic one beside a hook that is switched off."""
    program(tmp_path, "/var/spool/pbs/mom_priv/hooks/other.HK", f"event=execjob_prologue\n{line}\n")
    assert "hook other" not in call(tmp_path, "install", "pbs", "--yes").stderr


@pytest.mark.parametrize(
    ("scheduler", "names"),
    [
        ("pbs", ["epilogue", "prologue"]),
        ("torque", ["epilogue", "epilogue.parallel", "prologue", "prologue.parallel"]),
    ],
)
def test_the_classic_scripts_are_root_s_alone(tmp_path: Path, scheduler: str, names: list[str]) -> None:
    """pbs_mom runs none that others may write; Torque has two more, for the other nodes of a job."""
    place = tmp_path / "var/spool" / scheduler / "mom_priv"
    place.mkdir(parents=True)
    call(tmp_path, "install", scheduler, "--yes")
    assert sorted(path.name for path in place.iterdir()) == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o700}


@pytest.mark.parametrize("name", ["prolog", "taskprolog", "launch"])
def test_a_hook_says_the_checksum_of_its_other_lines(name: str) -> None:
    """By which a person, or a tool of the site's, sees that nobody has changed it."""
    text = render(hook("pbs" if name == "launch" else "slurm", name), Site())
    (line,) = (line for line in text.splitlines(keepends=True) if "sha256 of the other lines: " in line)
    assert line.split()[-1] == hashlib.sha256(text.replace(line, "", 1).encode()).hexdigest()
