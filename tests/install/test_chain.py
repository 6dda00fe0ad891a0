"""The site's own programs, which ours call: known on every node, and seen to when they cannot be run."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING

import pytest
from test_install import NO_CHAIN, OURS, call, conf, program

from mingle_hooks.errors import FactsError
from mingle_hooks.hooks import slurm as running
from mingle_hooks.hooks import slurm as slurmcheck
from mingle_hooks.hooks.plan import Where
from mingle_hooks.hooks.slurm import parse_config as parsed

if TYPE_CHECKING:
    from pathlib import Path

    from mingle_hooks.hooks.slurm import SlurmConf

SITES = '[hooks]\nprolog = "/opt/prolog"\nepilog = "none"\ntaskprolog = "/opt/task"\n'
AFTER = (f"Prolog={OURS}/prolog", f"Epilog={OURS}/epilog", f"TaskProlog={OURS}/taskprolog-all", "PrologFlags=Alloc")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a new node's image, with a slurm.conf that names ours already and programs of the site's own."""
    for path in ("/opt/prolog", "/opt/task"):
        program(tmp_path, path, f"#!/bin/sh\necho {path}\n")
    program(tmp_path, "/etc/mingle/key", "ab" * 32).chmod(0o400)
    (tmp_path / "etc/slurm").mkdir(parents=True)
    conf(tmp_path, *AFTER)
    return tmp_path


def test_a_new_node_is_not_installed_by_guess(root: Path) -> None:
    """Where slurm.conf names ours, and neither settings nor manifest know what was there: refused, with what to say."""
    with pytest.raises(FactsError, match=r'prolog = "/the/path", or prolog = "none", in \[hooks\] of /etc/mingle'):
        call(root, "install", "slurm", "--yes")
    assert not (root / OURS.lstrip("/")).exists()
    assert "==> /etc/mingle/hooks/slurm/prolog <==" in call(root, "render", "slurm").stdout


def test_without_a_slurm_conf_the_settings_have_to_tell(root: Path) -> None:
    """As on a node of a configless site, before its slurmd has started."""
    (root / "etc/slurm/slurm.conf").unlink()
    with pytest.raises(FactsError, match=r"neither slurm\.conf nor"):
        call(root, "install", "slurm", "--yes")
    program(root, "/etc/mingle/mingle.toml", SITES)
    assert call(root, "install", "slurm", "--yes").exit_code == 0


def test_the_settings_name_the_chain_on_every_node(root: Path) -> None:
    """A new node gets the same hooks as the first, which had slurm.conf to go by; none is none."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    assert call(root, "install", "slurm", "--yes").exit_code == 0
    texts = {name: (root / OURS.lstrip("/") / name).read_text() for name in ("prolog", "epilog", "taskprolog-all")}
    assert call(root, "verify", "slurm").stdout.splitlines()[-1] == "ok"
    first = root / "first"
    (first / "etc/slurm").mkdir(parents=True)
    conf(first, "Prolog=/opt/prolog", "TaskProlog=/opt/task")
    done = call(first, "install", "slurm", "--yes")
    assert {name: (first / OURS.lstrip("/") / name).read_text() for name in texts} == texts
    said = [line.partition("on every node: ")[2] for line in done.stderr.splitlines() if "on every node" in line]
    assert "\n".join(["[hooks]", *said, ""]) == SITES


def test_settings_and_slurm_conf_may_not_contradict(root: Path) -> None:
    """Another program of the site's there than here: nobody can tell which one is meant."""
    conf(root, "Prolog=/opt/other")
    for text in (SITES, NO_CHAIN):
        program(root, "/etc/mingle/mingle.toml", text)
        with pytest.raises(FactsError, match=r'prolog = "/opt/other" in \[hooks\]'):
            call(root, "install", "slurm", "--yes")


def test_a_hook_never_calls_itself(root: Path) -> None:
    """Neither by the settings, nor by what slurm.conf names."""
    program(root, "/etc/mingle/mingle.toml", SITES.replace("/opt/prolog", f"{OURS}/prolog"))
    with pytest.raises(FactsError, match="site's own"):
        call(root, "install", "slurm", "--yes")


@pytest.mark.parametrize(
    ("path", "spoil"),
    [
        *product(("opt/prolog", "opt/task", "etc/mingle/epilog.d/50-site"), ("gone", "not executable", "others write")),
        ("opt/task", "root alone may run it"),
    ],
)
def test_verify_finds_a_chain_that_cannot_be_run(root: Path, path: str, spoil: str) -> None:
    """Before a job does; also one that others can change, and a task's that users cannot run."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    program(root, "/etc/mingle/epilog.d/50-site")
    call(root, "install", "slurm", "--yes")
    assert call(root, "verify", "slurm").exit_code == 0
    if spoil == "gone":
        (root / path).unlink()
        (root / path).symlink_to("nothing")
    else:
        modes = {"not executable": 0o644, "others write": 0o777, "root alone may run it": 0o744}
        (root / path).chmod(modes[spoil])
    done = call(root, "verify", "slurm")
    assert done.exit_code == 1
    assert f"BAD  /{path}:" in done.stdout


def test_taskprolog_d_is_reason_enough_for_the_wrapper(root: Path) -> None:
    """Slurm knows one TaskProlog; the wrapper's file is there on every node, whatever its slurm.conf names."""
    conf(root, "ClusterName=x")
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN)
    assert f"\nTaskProlog={OURS}/taskprolog\n" in call(root, "install", "slurm", "--yes").stdout
    assert (root / OURS.lstrip("/") / "taskprolog-all").exists()
    program(root, "/etc/mingle/taskprolog.d/10-site")
    assert f"\nTaskProlog={OURS}/taskprolog-all\n" in call(root, "install", "slurm", "--yes").stdout


def test_without_a_known_configuration_nothing_is_removed(root: Path) -> None:
    """A node whose slurm.conf is the controller's affair: what Slurm runs cannot be seen from here."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    call(root, "install", "slurm", "--yes")
    (root / "etc/slurm/slurm.conf").unlink()
    with pytest.raises(FactsError, match="--slurm-conf with a copy"):
        call(root, "uninstall", "slurm", "--yes")
    assert (root / OURS.lstrip("/") / "prolog").exists()


def test_a_stub_stays_while_slurm_runs_the_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurm.conf names it no more, and Slurm has not read that yet: the file does the site's own, until it has."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    call(root, "install", "slurm", "--yes")
    conf(root, "ClusterName=x")
    now: list[SlurmConf] = [parsed(f"Prolog                  = {OURS}/prolog\nEpilog                  = (null)\n")]
    monkeypatch.setattr(running, "running_config", lambda _where: now[-1])
    assert f"stub    {root}{OURS}/prolog\n" in call(root, "uninstall", "slurm", "--yes").stdout
    left = root / OURS.lstrip("/")
    assert [path.name for path in left.iterdir()] == ["prolog"]
    text = (left / "prolog").read_text().replace("/opt/", f"{root}/opt/")
    assert subprocess.run(["/bin/sh", "-c", text], capture_output=True, check=True).stdout == b"/opt/prolog\n"
    now.append(parsed("Prolog                  = (null)\n"))
    assert f"remove  {root}{OURS}/prolog\n" in call(root, "uninstall", "slurm", "--yes").stdout
    assert not left.exists()


@pytest.mark.parametrize("others", [True, False])
def test_a_stub_keeps_a_glob_from_matching_nothing(root: Path, monkeypatch: pytest.MonkeyPatch, others: bool) -> None:  # noqa: FBT001
    """As that drains every node too; where the site has programs of its own there, none is needed."""
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN)
    conf(root, "Prolog=/etc/slurm/prolog.d/*")
    call(root, "install", "slurm", "--yes")
    if others:
        program(root, "/etc/slurm/prolog.d/50-site")
    conf(root, "ClusterName=x")
    monkeypatch.setattr(running, "running_config", lambda _where: parsed("Prolog = /etc/slurm/prolog.d/*\n"))
    call(root, "uninstall", "slurm", "--yes")
    assert (root / "etc/slurm/prolog.d/10-mingle").exists() != others


def test_without_an_answer_of_the_controller_stubs_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Slurm runs is not known then; a power cut between a stub and the manifest changes nothing."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    call(root, "install", "slurm", "--yes")
    conf(root, "ClusterName=x")
    before = (root / "etc/mingle/hooks/manifest.json").read_text()
    monkeypatch.setattr(slurmcheck, "_is_silent", lambda _where: True)
    for _ in range(2):
        assert call(root, "uninstall", "slurm", "--yes").stdout.count("stub    ") == 4
        (root / "etc/mingle/hooks/manifest.json").write_text(before)
    monkeypatch.undo()
    assert call(root, "uninstall", "slurm", "--yes").stdout.count("remove  ") == 4


def test_verify_compares_the_file_with_what_slurm_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slurm.conf that Slurm has not read yet, and no slurm.conf at all, where the controller's answer counts."""
    program(root, "/etc/mingle/mingle.toml", SITES)
    call(root, "install", "slurm", "--yes")
    monkeypatch.setattr(
        running, "running_config", lambda _where: parsed(f"Epilog = {OURS}/epilog\nProlog = /opt/old\n")
    )
    bad = [line for line in call(root, "verify", "slurm").stdout.splitlines() if line.startswith("BAD")]
    assert [line.split(":")[1].split()[1] for line in bad] == [f"Prolog={OURS}/prolog,", f"TaskProlog={AFTER[2][11:]},"]
    assert all(line.endswith("; fix: scontrol reconfigure") for line in bad)
    (root / "etc/slurm/slurm.conf").unlink()
    text = "\n".join(line.replace("=", "  = ") for line in AFTER)
    monkeypatch.setattr(running, "running_config", lambda _where: parsed(text))
    assert call(root, "verify", "slurm").stdout.splitlines()[-1] == "ok"


def test_a_controller_that_hangs_or_fails_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known then. What was typed as --slurm-conf is whose controller is asked, and a version needs none."""
    texts = {
        "scontrol": 'echo "Prolog = $SLURM_CONF"',
        "slurmd": "echo slurm-wlm 22.05.8",
        "sinfo": "echo n2; echo n1; echo n2; exit 1",
    }
    for name, text in texts.items():
        program(tmp_path, name, f"#!/bin/sh\n{text}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    where = Where(slurm_conf="/srv/slurm.conf")
    found = running.running_config(where)
    assert (found and found.one("Prolog"), running.slurm_version(where), running.slurm_nodes(where)) == (
        "/srv/slurm.conf", (22, 5), (),
    )  # fmt: skip
    program(tmp_path, "scontrol", f"#!{sys.executable}\nimport time\ntime.sleep(3)\nprint('Prolog = /late')\n")
    monkeypatch.setattr(running, "_COMMAND_S", 0.05)
    assert running.running_config(Where(slurm_conf="/srv/another.conf")) is None


def test_what_a_controller_says_is_read() -> None:
    """Values that are none, several of one key as later versions number them, and blanks in a value."""
    text = "Configuration data as of x\nEpilog = (null)\nProlog[0] = /a\nProlog[1] = /b\nTaskProlog   = /c d\n"
    found = parsed(text)
    assert (found.all("Prolog"), found.one("Epilog"), found.one("taskprolog")) == (("/a", "/b"), "", "/c d")


def test_below_a_root_no_controller_is_asked() -> None:
    """An image is no node of the cluster that this host belongs to."""
    assert running.running_config(Where("/image")) is None
    assert running.slurm_version(Where("/image")) is None
