"""The block in /etc/hosts: put there, and taken out with every other octet as it was."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.errors import PlaceError
from mingle_hooks.export import hostfiles as etchosts

LINES = "10.0.0.1 node1\n10.0.0.2 node2\n"


def busy(_old: str, _new: str) -> None:
    """Fail as rename(2) does over a mounted file."""
    raise OSError(16, "Device or resource busy")


@pytest.fixture(params=["file", "mount"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file, which in a container is a mount: nothing can take its place."""
    if request.param == "mount":
        monkeypatch.setattr(os, "rename", busy)
    return tmp_path / "hosts"


@given(
    text=st.binary(max_size=60) | st.sampled_from([b"127.0.0.1 localhost", b"a\r\n\r\n\n", b"\n", b"# mingle hosts\n"]),
    written=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([LINES, "10.0.0.9 node9\n"])), max_size=5),
    order=st.permutations("abc"),
    is_mount=st.booleans(),
)
def test_blocks_come_and_go_in_any_order_and_leave_every_octet(
    text: bytes, written: list[tuple[str, str]], order: list[str], *, is_mount: bool
) -> None:
    """Each world has one block, the lines of which are those that it wrote last."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        if is_mount:
            patch.setattr(os, "rename", busy)
        place = Path(directory, "hosts")
        place.write_bytes(text)
        for world, lines in written:
            etchosts.write_etc_hosts(world, lines, str(place))
        last = dict(written)
        found = place.read_bytes()
        assert found.startswith(text)
        assert all(found.count(f"\n{lines}".encode()) >= [*last.values()].count(lines) for lines in last.values())
        assert found.count(b": from here") == text.count(b": from here") + len(last)
        for world in order:
            assert etchosts.write_etc_hosts(world, "", str(place)) is (world in last)
        # The newline of the first block stays if another stood behind it.
        assert place.read_bytes() in (text, text + b"\n" * (len(last) > 1 and not text.endswith(b"\n")))
        assert os.listdir(directory) == ["hosts"]


def test_what_somebody_writes_after_the_block_stays(place: Path) -> None:
    """So does a block whose end somebody has taken away: where it ended is not known."""
    place.write_bytes(b"127.0.0.1 localhost")
    etchosts.write_etc_hosts("a", LINES, str(place))
    with place.open("ab") as file:
        file.write(b"10.0.0.8 mine\n")
    etchosts.write_etc_hosts("a", "", str(place))
    assert place.read_bytes() == b"127.0.0.1 localhost\n10.0.0.8 mine\n"
    etchosts.write_etc_hosts("a", LINES, str(place))
    cut = place.read_bytes().rpartition(b"# mingle hosts")[0]
    place.write_bytes(cut)
    assert not etchosts.write_etc_hosts("a", "", str(place))
    assert place.read_bytes() == cut


def test_nothing_is_written_but_lines_of_hosts(tmp_path: Path) -> None:
    """No empty block, no text of the id, which is the user's; who may not write gets an error."""
    place = tmp_path / "hosts"
    place.write_bytes(b"x")
    etchosts.write_etc_hosts("a", "", str(place))
    assert place.read_bytes() == b"x"
    etchosts.write_etc_hosts("a\n10.0.0.9 bank.example #", LINES, str(place))
    assert b"bank" not in place.read_bytes()
    with pytest.raises(PlaceError, match="running it as root"):
        etchosts.write_etc_hosts("a", LINES, str(tmp_path / "none" / "hosts"))


def test_the_files_mode_owner_and_link_stay(tmp_path: Path) -> None:
    """NixOS has a link there, and a site may have any mode."""
    real = tmp_path / "real"
    real.write_bytes(b"127.0.0.1 localhost\n")
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 1, 2)
    before = real.stat()
    link = tmp_path / "hosts"
    link.symlink_to("real")
    etchosts.write_etc_hosts("a", LINES, str(link))
    after = real.stat()
    assert link.is_symlink()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o640)
    assert after.st_ino != before.st_ino  # whole or not at all


def test_a_full_disk_leaves_the_file_of_a_container_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a block would never be taken out again."""
    place = tmp_path / "hosts"
    place.write_bytes(b"127.0.0.1 localhost\n")

    written = etchosts._write

    def full(file: object, rest: bytes) -> None:
        written(file, rest[:7])  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", busy)
    monkeypatch.setattr(etchosts, "_write", full)
    with pytest.raises(PlaceError, match="No space"):
        etchosts.write_etc_hosts("a", LINES, str(place))
    assert place.read_bytes() == b"127.0.0.1 localhost\n"
