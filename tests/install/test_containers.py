"""Sites with pyxis, where Slurm runs TaskProlog inside of the container: what install does, and what it refuses."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from test_install import NO_CHAIN, OURS, call, conf, program

from mingle_hooks.errors import FactsError
from mingle_hooks.hooks import verify as doctor
from mingle_hooks.hooks.apply import hook
from mingle_hooks.hooks.files import TASK_PROLOG, Site
from mingle_hooks.hooks.files import render_hook as render

if TYPE_CHECKING:
    from pathlib import Path

MOUNTS, HOOK = "etc/enroot/mounts.d/50-mingle.fstab", "etc/enroot/hooks.d/50-mingle.sh"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node image with enroot, and pyxis in a file that plugstack.conf includes."""
    (tmp_path / "etc/slurm/plugstack.conf.d").mkdir(parents=True)
    (tmp_path / "etc/enroot").mkdir()
    program(tmp_path, "/etc/mingle/key", "ab" * 32).chmod(0o400)
    conf(tmp_path, "ClusterName=x")
    (tmp_path / "etc/slurm/plugstack.conf").write_text("include /etc/slurm/plugstack.conf.d/*.conf\n")
    (tmp_path / "etc/slurm/plugstack.conf.d/pyxis.conf").write_text("required /usr/lib/slurm/spank_pyxis.so\n")
    return tmp_path


def settings(root: Path, way: str) -> None:
    """Say in the site's settings what is done for containers."""
    program(root, "/etc/mingle/mingle.toml", f'{NO_CHAIN}containers = "{way}"\n')


def test_the_hooks_are_mounted_into_every_container(root: Path) -> None:
    """Read-only, and no container fails for want of them; uninstalling takes that back."""
    assert f"TaskProlog={OURS}/taskprolog" in call(root, "install", "slurm", "--yes", "--slurm-version", "23.11").stdout
    lines = [line.split() for line in (root / MOUNTS).read_text().splitlines() if not line.startswith("#")]
    assert [(line[0], line[1], "nofail" in line[3]) for line in lines] == [
        ("/etc/mingle", "/etc/mingle", True), ("/run/mingle", "/run/mingle", True),
    ]  # fmt: skip
    assert "ro" in lines[0][3].split(",")
    assert not {"$", "`"} & set((root / MOUNTS).read_text())  # enroot fills in variables
    assert call(root, "uninstall", "slurm", "--yes").exit_code == 0
    assert not (root / MOUNTS).exists()


@pytest.mark.parametrize("version", ["24.11", "26.05.3", None])
def test_a_task_prolog_that_containers_cannot_run_is_refused(root: Path, version: str | None) -> None:
    """From 24.11 on slurmstepd needs its own libraries there; and where the version is not known."""
    more = ("--slurm-version", version) if version else ()
    with pytest.raises(FactsError, match=r'containers = "hook" in \[hooks\]'):
        call(root, "install", "slurm", "--yes", *more)
    assert not (root / OURS.lstrip("/")).exists()
    assert "==> " in call(root, "render", "slurm", *more).stdout


def test_doctor_tells_beforehand_that_install_would_refuse(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to choose instead; it is a note, as nothing is wrong while nothing is installed."""
    monkeypatch.setattr(doctor, "_daemon_version", lambda its: "slurm 26.05" if its.program == "slurmd" else "")
    done = call(root, "doctor", "--slurm-version", "26.05")
    (line,) = (line for line in done.stdout.splitlines() if "has no hooks installed" in line)
    assert (done.exit_code, line.startswith("note slurm:")) == (0, True)
    assert "install would refuse: expected a TaskProlog that runs in pyxis' containers, saw Slurm 26.05" in line
    assert '; fix: containers = "hook" in [hooks]' in line
    settings(root, "hook")
    done = call(root, "doctor", "--slurm-version", "26.05")
    assert "note slurm:        has no hooks installed; fix: mingle hooks install slurm\n" in done.stdout
    assert "would refuse" not in done.stdout


def test_without_enroot_s_configuration_there_is_no_mount(root: Path) -> None:
    """Nor anything else to be done by it; without pyxis none is needed, unless a file only mentions it."""
    (root / "etc/enroot").rmdir()
    with pytest.raises(FactsError, match="no /etc/enroot"):
        call(root, "install", "slurm", "--yes", "--slurm-version", "23.11")
    settings(root, "hook")
    with pytest.raises(FactsError, match="enroot's"):
        call(root, "install", "slurm", "--yes")
    settings(root, "auto")
    (root / "etc/slurm/plugstack.conf.d/pyxis.conf").write_text("# required spank_pyxis.so\n")
    assert call(root, "install", "slurm", "--yes").exit_code == 0


@pytest.mark.parametrize("way", ["hook", "none"])
def test_sites_may_do_without_a_task_prolog(root: Path, way: str) -> None:
    """No line asks for it, verify finds one that is there, and doctor says so before anybody installs."""
    (root / "etc/slurm/slurm.conf").write_text(f"TaskProlog={OURS}/taskprolog\n")
    settings(root, way)
    lines = call(root, "install", "slurm", "--yes").stdout.splitlines()[-3:]
    assert [line.partition("=")[0] for line in lines] == ["Prolog", "Epilog", "PrologFlags"]
    assert ((root / HOOK).exists(), (root / MOUNTS).exists()) == (way == "hook", False)
    conf(root, *lines)
    assert call(root, "verify", "slurm").exit_code == 0
    conf(root, *lines, f"TaskProlog={OURS}/taskprolog")
    assert "fails every task in a container; fix: no TaskProlog line" in call(root, "verify", "slurm").stdout
    settings(root, "auto")
    assert "cannot be checked: saw an unknown version of Slurm" in call(root, "doctor").stdout


@pytest.mark.parametrize(("tasks", "each"), [("1(x2)", 1), ("2(x2)", 2), ("2,1", 1)])
def test_enroot_s_hook_hands_on_what_all_tasks_of_a_container_share(tmp_path: Path, tasks: str, each: int) -> None:
    """On a node there is one container for all tasks under pyxis; the image's own variables stay."""
    single, environ_file = tmp_path / "taskprolog", tmp_path / "environ"
    single.write_text(render(hook("slurm", "taskprolog"), Site()))
    single.chmod(0o755)
    text = render(hook("slurm", "enroot-hook"), Site()).replace(TASK_PROLOG, str(single))
    count = "3" if "," in tasks else f"{2 * each}"
    environ = {
        "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NNODES": "2", "SLURM_STEP_NUM_TASKS": count, "SLURM_NTASKS": count, "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_PROCID": "2" if "2" in tasks[:1] else "1", "SLURM_NODEID": "1", "SLURM_LOCALID": "0",
        "ENROOT_ENVIRON": str(environ_file),
    }  # fmt: skip
    said = subprocess.run([single], env=environ, capture_output=True, text=True, check=True).stdout
    wanted = {line.removeprefix("export ") for line in said.splitlines() if line.startswith("export ")}
    ranks = {line for line in wanted if line.startswith(("RANK=", "WORLD_SIZE=", "LOCAL_", "GROUP_RANK="))}
    assert {"MASTER_ADDR=n1", "NODE_RANK=1", "NNODES=2"} < wanted
    assert ranks or tasks == "1(x2)"
    environ_file.write_text("PATH=/image\n")
    subprocess.run(["/bin/sh", "-c", text], env=environ, check=True)
    assert {*environ_file.read_text().splitlines()} == {"PATH=/image"} | (wanted if each == 1 else wanted - ranks)
    for broken in ({}, {**environ, "ENROOT_ENVIRON": f"{tmp_path}/none/x"}, {**environ, "SLURM_JOB_ID": "x y"}):
        subprocess.run(["/bin/sh", "-c", text], env=broken, check=True)
