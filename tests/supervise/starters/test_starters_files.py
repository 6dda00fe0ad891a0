"""The file of the environment: private, new, whole, and gone afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mingle_hooks.errors import PlaceError
from mingle_hooks.run import starters

ENVIRON = {"A": "b", "KEY": "5ec4e7"}


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_only_its_owner_can_read_it(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        path = Path(starters.write_environ(ENVIRON, (str(tmp_path),)))
    finally:
        os.umask(old)
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o600, b"A=b\0KEY=5ec4e7\0")
    starters.remove_environ(str(path))
    starters.remove_environ(str(path))
    assert [*tmp_path.iterdir()] == []


def test_nothing_that_is_there_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor followed: a link that leads elsewhere."""
    monkeypatch.setattr(starters.os, "urandom", bytes)
    (tmp_path / f".mingle.{'0' * 16}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlaceError, match="File exists"):
        starters.write_environ(ENVIRON, (str(tmp_path),))
    assert [path.name for path in tmp_path.iterdir()] == [f".mingle.{'0' * 16}"]


def test_the_next_directory_takes_what_the_first_does_not(tmp_path: Path) -> None:
    assert starters.write_environ(ENVIRON, (str(tmp_path / "none"), str(tmp_path))).startswith(f"{tmp_path}/.mingle.")
    with pytest.raises(PlaceError, match=r"none: No such file.*share"):
        starters.write_environ(ENVIRON, (str(tmp_path / "none"),))
    with pytest.raises(PlaceError, match="no directory"):
        starters.write_environ(ENVIRON, ())


def test_half_a_file_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(starters.os, "fsync", full)
    with pytest.raises(PlaceError, match="No space left"):
        starters.write_environ(ENVIRON, (str(tmp_path),))
    assert [*tmp_path.iterdir()] == []


def test_a_network_file_system_comes_first_then_a_plain_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd, home = tmp_path / "a b", tmp_path / "home"
    odd.mkdir()
    monkeypatch.chdir(odd)
    assert starters.directories({"HOME": str(home)}) == (str(home), str(odd))
    assert starters.directories({"HOME": "relative"}) == (str(odd),)
    monkeypatch.setattr(starters, "on_network", lambda path: path == str(odd))
    assert starters.directories({"HOME": str(home)}) == (str(odd), str(home))
    odd.rmdir()
    assert starters.directories({"HOME": str(home)}) == (str(home),)
