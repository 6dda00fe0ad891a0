"""What is found around a hook that is installed, and where a scheduler's program is."""

import itertools
from pathlib import Path

import pytest
from support.hooks_image import OURS, at, key, program

from mingle_hooks.hooks import files, plan
from mingle_hooks.hooks.files import Entry, Manifest, Site, checksum, render_hook
from mingle_hooks.hooks.targets import hook

TEXT = render_hook(hook("slurm", "prolog"), Site())
PROLOG = f"{OURS}/prolog"
ENTRY = Entry("slurm", "prolog", PROLOG, checksum(TEXT.encode()), 0o755)
KEPT = "/etc/mingle/hooks/kept"


def test_what_is_wrong_around_a_hook_is_said_too(tmp_path: Path) -> None:
    """It finds lost or changed copies, programs that cannot run, and directories closed to users or open to others."""
    root, kept = str(tmp_path), f"{KEPT}/x"
    entry = ENTRY._replace(kept=kept, kept_sha256=checksum(b"kept"), chain="/opt/x", is_users=True)
    manifest = Manifest({PROLOG: entry})
    program(tmp_path, PROLOG, TEXT)
    key(tmp_path)

    def found(scheduler: str = "slurm") -> list[tuple[str, str]]:
        return [each[:2] for each in plan.check_health(root, manifest, scheduler, "/etc/mingle/key")]

    cannot = ("/opt/x", "cannot be run, which drains the node")
    program(tmp_path, "/opt/x").chmod(0o655)
    assert found() == [(kept, f"is missing: the site's own {PROLOG}"), cannot]
    program(tmp_path, kept, "other")
    assert found() == [(kept, f"is not the copy of the site's own {PROLOG}"), cannot]
    program(tmp_path, kept, "kept")
    assert found() == [cannot]
    at(tmp_path, "/opt/x").chmod(0o755)
    assert found() == []
    program(tmp_path, "/etc/mingle/prolog.d/10-x").chmod(0o644)
    assert found() == [("/etc/mingle/prolog.d/10-x", "cannot be run, which drains the node")]
    at(tmp_path, "/etc/mingle/prolog.d/10-x").unlink()
    at(tmp_path, OURS).chmod(0o771)
    assert found() == [(OURS, "can be written by others (mode 0771)")]
    at(tmp_path, "/etc/mingle").chmod(0o750)
    at(tmp_path, OURS).chmod(0o755)
    (tmp_path / "run/mingle").mkdir(parents=True, mode=0o700)
    state = ("/run/mingle", "is not a directory of root's with mode 0755")
    assert found() == [("/etc/mingle", "is closed to users (mode 0750), so every task fails"), state]
    (tmp_path / "run/mingle").rmdir()
    assert found("pbs") == [("pbs", "has no hooks installed")]
    manifest = Manifest({PROLOG: entry._replace(scheduler="pbs", mode=0o644, is_users=False)}, is_rebuilt=True)
    at(tmp_path, "/etc/mingle/key").unlink()
    rebuilt = (files.MANIFEST_PATH, "is missing, or not what mingle hooks wrote")
    assert found("pbs") == [rebuilt, (PROLOG, "has mode 0755")]  # a server's host needs no key


def test_the_site_s_key_is_of_hex_digits_and_root_s_alone(tmp_path: Path) -> None:
    bad = ("ab" * 32 + "a", "ab" * 31, "ab" * 65, "AB" * 32, "ab" * 32 + "\n\n")
    for mode, text in itertools.product((0o400, 0o600, 0o440, 0o404, 0o500), ("ab" * 32, "ab" * 64 + "\n", *bad)):
        key(tmp_path, text).chmod(mode)
        found = [finding.what for finding in plan.site_key(str(tmp_path), "/etc/mingle/key")]
        wanted = "regular file" if mode not in {0o400, 0o600} else "hex digits" if text in bad else ""
        assert [wanted in what for what in found] == [True] * bool(wanted), (oct(mode), text)
    key(tmp_path).unlink()
    (tmp_path / "etc/mingle/key").mkdir()
    (found,) = plan.site_key(str(tmp_path), "/etc/mingle/key")
    assert found.what.startswith("cannot be used: expected a regular file, saw ")


def test_a_scheduler_s_program_is_on_the_path_or_in_a_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert plan.program_path("sh") in {"/usr/bin/sh", "/bin/sh"}
    assert plan.program_path("no-such-daemon") == ""
    program(tmp_path, "/sh")
    assert plan.program_path("sh") == f"{tmp_path}/sh"
