"""The wrapper of Slurm's TaskProlog, which runs ours and then the site's own."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from rendered import SHELLS, shell

from mingle_hooks.hooks.apply import hook
from mingle_hooks.hooks.files import Chain, Site
from mingle_hooks.hooks.files import render_hook as render

if TYPE_CHECKING:
    from pathlib import Path


def run(place: Path, name: str, programs: dict[str, str], own: str = "") -> subprocess.CompletedProcess[str]:
    """Run the wrapper beside a TaskProlog of ours, with the site's directory of programs and its one program."""
    texts = {
        "taskprolog": "echo export OURS=1 A=ours",
        "own": own,
        **{f"site.d/{key}": t for key, t in programs.items()},
    }
    (place / "site.d").mkdir()
    for file, text in texts.items():
        (place / file).write_text(f"#!/bin/sh\n{text}\n")
        (place / file).chmod(0o644 if file.endswith("README") else 0o755)
    script = place / "taskprolog-all"
    script.write_text(render(hook("slurm", script.name), Site(), Chain(str(place / "own"), str(place / "site.d"))))
    script.chmod(0o755)
    return subprocess.run(
        [*shell(name), str(script), "a b"], env={}, capture_output=True, text=True, check=False, timeout=20
    )


@pytest.mark.parametrize("name", SHELLS)
def test_what_the_sites_programs_export_comes_later(tmp_path: Path, name: str) -> None:
    """In the order of their names, and its own TaskProlog last; what cannot be run is none."""
    programs = {"20": "echo export A=20", "10": 'echo "export A=10 $#"', "README": "echo print no program"}
    done = run(tmp_path, name, programs, "echo export A=own")
    lines = ["export OURS=1 A=ours", "export A=10 1", "export A=20", "export A=own"]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, lines, "")


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("where", ["directory", "own"])
def test_a_program_of_the_sites_that_fails_cancels_the_task(tmp_path: Path, name: str, where: str) -> None:
    """As it would without ours: its status is Slurm's business, and nothing after it runs."""
    fails = {"10": "exit 7", "20": "echo export A=20"} if where == "directory" else {}
    done = run(tmp_path, name, fails, "exit 7" if where == "own" else "echo export A=own")
    assert (done.returncode, done.stdout.splitlines()) == (7, ["export OURS=1 A=ours"])


@pytest.mark.parametrize("name", SHELLS)
def test_what_cannot_be_run_fails_the_task(tmp_path: Path, name: str) -> None:
    """As for Slurm without ours: the site's own TaskProlog, and each program of taskprolog.d, in the same way."""
    script, own, drop_in = tmp_path / "taskprolog-all", tmp_path / "own", tmp_path / "taskprolog.d/10-site"
    script.write_text(render(hook("slurm", script.name), Site(), Chain(str(own), "", str(tmp_path))))
    drop_in.parent.mkdir()

    def status() -> int:
        argv = [*shell(name), str(script)]
        return subprocess.run(argv, env={}, capture_output=True, check=False, timeout=20).returncode

    assert status() == 127
    own.write_text("#!/bin/sh\nexit 0\n")
    assert status() == 126
    own.chmod(0o755)
    assert status() == 0
    drop_in.symlink_to("nothing")
    assert status() == 127
    drop_in.unlink()
    drop_in.write_text("no program\n")
    assert status() == 126
