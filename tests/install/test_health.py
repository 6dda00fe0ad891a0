"""`mingle hooks verify`: by what was installed, so that an upgrade is no fault, and quick where it is `--quiet`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from test_install import MOM, OURS, SPOILERS, at, call, conf, image, key

import mingle_hooks
from mingle_hooks.cli import main
from mingle_hooks.hooks import files as made
from mingle_hooks.hooks import verify

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node with all that is wanted: Slurm's hooks and their lines, Torque's, and the key."""
    image(tmp_path)
    conf(tmp_path, *call(tmp_path, "install", "slurm", "--yes").stdout.splitlines()[-4:])
    call(tmp_path, "install", "torque", "--yes")
    key(tmp_path)
    return tmp_path


def quiet(root: Path, scheduler: str = "slurm") -> int:
    """Return the status of the health check."""
    return main.run(["hooks", "verify", scheduler, "--quiet", "--root", str(root)])


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the next version, whose hooks are others."""
    for module in (made, verify, mingle_hooks):
        monkeypatch.setattr(module, "__version__", "9.1")


def test_an_upgrade_is_no_deviation(root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """What the older version installed is as it was: a note, and no node is taken out of service for it."""
    later(monkeypatch)
    done = call(root, "verify", "slurm")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "ok")
    told = [line for line in done.stdout.splitlines() if "9.1 gives another" in line]
    assert len(told) == 4
    assert all(line.startswith("note ") and "mingle hooks install slurm" in line for line in told)
    assert (quiet(root), capfd.readouterr().out) == (0, "")


def test_a_hook_that_only_the_later_version_has_is_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is installed everywhere; in the version that was installed its absence is a deviation."""
    tree = json.loads(at(root, "/etc/mingle/hooks/manifest.json").read_text())
    tree["files"] = [row for row in tree["files"] if row["name"] != "epilogue"]
    at(root, "/etc/mingle/hooks/manifest.json").write_text(json.dumps(tree))
    at(root, f"{MOM}/epilogue").unlink()
    assert call(root, "verify", "torque").exit_code == 1
    later(monkeypatch)
    done = call(root, "verify", "torque")
    assert (done.exit_code, f"{MOM}/epilogue:" in done.stdout) == (0, True)


def test_other_settings_since_the_installation_are_a_note(root: Path) -> None:
    """They act when they are installed."""
    at(root, "/etc/mingle/mingle.toml").write_text('host_suffix = "-ib"\n')
    done = call(root, "verify", "slurm")
    assert (done.exit_code, "these settings give another" in done.stdout) == (0, True)


def test_what_was_edited_by_hand_is_shown_as_a_difference(root: Path, capfd: pytest.CaptureFixture) -> None:
    """With the mend, and what becomes of it."""
    path = at(root, f"{OURS}/prolog")
    path.write_text(path.read_text().replace("umask 077", "umask 022"))
    done = call(root, "verify", "slurm")
    assert done.exit_code == 1
    assert f"BAD  {OURS}/prolog: was edited by hand; fix: mingle hooks install slurm, which keeps" in done.stdout
    assert [line for line in done.stdout.splitlines() if "umask 0" in line and line[0] in "+-"] == [
        "-  umask 077", "+  umask 022",
    ]  # fmt: skip
    assert quiet(root) == 1
    assert capfd.readouterr().out.startswith(f"BAD  {OURS}/prolog: was edited by hand; fix: ")


def test_a_whole_hook_that_the_manifest_does_not_tell_of_is_no_edited_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of another version, say, laid over this one: installing again needs to keep nothing."""
    with monkeypatch.context() as patched:
        later(patched)
        text = call(root, "render", "slurm", "prolog").stdout
    at(root, f"{OURS}/prolog").write_text(text)
    done = call(root, "verify", "slurm")
    said = "comes from another installation than the manifest (mingle-hooks 9.1)"
    assert (done.exit_code, said in done.stdout) == (1, True)
    call(root, "install", "slurm", "--yes")
    assert not at(root, "/etc/mingle/hooks/kept").exists()
    assert call(root, "verify", "slurm").exit_code == 0


WRONG = {
    **{how: lambda root, spoil=spoil: spoil(at(root, f"{OURS}/prolog")) for how, spoil in SPOILERS.items()},
    "no key": lambda root: at(root, "/etc/mingle/key").unlink(),
    "a key for all": lambda root: at(root, "/etc/mingle/key").chmod(0o644),
    "a short key": lambda root: key(root, "ab" * 8),
    "no manifest": lambda root: at(root, "/etc/mingle/hooks/manifest.json").unlink(),
    "half a manifest": lambda root: at(root, "/etc/mingle/hooks/manifest.json").write_text('{"files": ['),
    "a state directory of a user's": lambda root: at(root, "/run/mingle").mkdir(parents=True, mode=0o700),
}  # fmt: skip
WRONG_OF_TORQUE = {
    "no site's own": lambda root: at(root, f"{MOM}/prologue.before-mingle").unlink(),
    "another site's own": lambda root: at(root, f"{MOM}/prologue.before-mingle").write_text("#!/bin/sh\nexit 1\n"),
    "a site's own that cannot be run": lambda root: at(root, f"{MOM}/prologue.before-mingle").chmod(0o600),
    "the site's own over ours": lambda root: at(root, f"{MOM}/prologue").write_text("#!/bin/sh\nexit 1\n"),
}


@pytest.mark.parametrize("how", [*WRONG, *WRONG_OF_TORQUE])
def test_the_health_check_finds_what_verify_finds(root: Path, capfd: pytest.CaptureFixture, how: str) -> None:
    """Quick does not mean less of what concerns the node; and before it says nothing at all."""
    scheduler = "torque" if how in WRONG_OF_TORQUE else "slurm"
    assert (call(root, "verify", scheduler).exit_code, quiet(root, scheduler), capfd.readouterr().out) == (0, 0, "")
    {**WRONG, **WRONG_OF_TORQUE}[how](root)
    done, status = call(root, "verify", scheduler), quiet(root, scheduler)
    bad = [" ".join(line.split()) for line in done.stdout.splitlines() if line.startswith("BAD")]
    told = [" ".join(line.split()) for line in capfd.readouterr().out.splitlines()]
    assert (done.exit_code, status) == (1, 1)
    assert told
    assert set(told) <= set(bad)
    assert all("; fix: " in line for line in bad)


def test_a_site_s_own_that_was_changed_on_purpose_is_taken_as_it_is(root: Path) -> None:
    """By installing again; and that one is put back."""
    path = at(root, f"{MOM}/prologue.before-mingle")
    path.write_text("#!/bin/sh\nexit 1\n")
    assert call(root, "verify", "torque").exit_code == 1
    call(root, "install", "torque", "--yes")
    assert call(root, "verify", "torque").exit_code == 0
    call(root, "uninstall", "torque", "--yes")
    assert at(root, f"{MOM}/prologue").read_text() == "#!/bin/sh\nexit 1\n"


def test_a_health_check_where_nothing_is_installed_fails(root: Path, capfd: pytest.CaptureFixture) -> None:
    """So does one that is mistyped."""
    assert quiet(root, "pbs") == 1
    assert capfd.readouterr().out.startswith("BAD  pbs: has no hooks installed; fix: mingle hooks install pbs")
    for words in (["verify", "slrum", "--quiet"], ["verify", "--quiet"], ["verify", "slurm", "--quiet", "--rot", "/"]):
        assert main.run(["hooks", *words]) == 64


def test_a_hook_that_is_a_link_is_not_healthy(root: Path, capfd: pytest.CaptureFixture) -> None:
    """Other commands refuse to go on."""
    at(root, f"{OURS}/epilog").unlink()
    at(root, f"{OURS}/epilog").symlink_to("/etc/passwd")
    assert quiet(root) == 1
    assert f"{OURS}/epilog: is a link" in capfd.readouterr().out


def test_a_health_check_loads_neither_click_nor_jinja2(root: Path) -> None:
    """They are most of what other commands take, and this one runs on every node every few minutes."""
    program = (
        "import sys; from mingle_hooks.cli.main import run; "
        "status = run(sys.argv[1:]); print(status, {'click', 'jinja2'} & set(sys.modules))"
    )
    argv = [sys.executable, "-c", program, "hooks", "verify", "torque", "--quiet", "--root", str(root)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout == "0 set()\n"


def test_the_host_of_a_pbs_server_needs_no_key(tmp_path: Path) -> None:
    """It runs no jobs; a host with mom_priv does."""
    call(tmp_path, "install", "pbs", "--yes")
    assert call(tmp_path, "verify", "pbs").exit_code == 0
    assert quiet(tmp_path, "pbs") == 0
    at(tmp_path, "/var/spool/pbs/mom_priv").mkdir(parents=True)
    call(tmp_path, "install", "pbs", "--yes")
    assert "BAD  /etc/mingle/key: is missing" in call(tmp_path, "verify", "pbs").stdout


def test_what_verify_tells_a_program(root: Path) -> None:
    """As JSON, with the same exit status."""
    assert json.loads(call(root, "verify", "slurm", "--json").stdout)["ok"]
    os.unlink(at(root, "/etc/mingle/key"))
    done = call(root, "verify", "slurm", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["ok"], [row["where"] for row in told["bad"]]) == (1, False, ["/etc/mingle/key"])
    assert told["notes"][0].keys() == {"where", "what", "mend"}
