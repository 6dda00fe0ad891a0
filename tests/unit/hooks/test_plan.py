"""What is found of the site's key, and where a scheduler's program is."""

import itertools
from pathlib import Path

import pytest
from support.hooks_image import key, program

from mingle_hooks.hooks import plan


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
