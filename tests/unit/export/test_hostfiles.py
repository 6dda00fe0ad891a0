"""Host lists as other programs read them, and the block in /etc/hosts, which leaves every other octet as it was."""

import errno
import fcntl
import json
import os
import stat
import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

from mingle_hooks.errors import ConflictError, FactsError, PlaceError
from mingle_hooks.export import hostfiles
from mingle_hooks.rendezvous.messages import Member

# node2 is two members, as two replicas on one host are.
MEMBERS = (
    Member(0, "node1", "10.0.0.1", 2),
    Member(1, "node2", "10.0.0.2", 1),
    Member(2, "node2", "10.0.0.2", 1),
    Member(3, "node3", "fd00::3", 1),
)
WANTED = {
    "etc": "10.0.0.1 node1\n10.0.0.2 node2\nfd00::3 node3\n",
    "mpi": "node1 slots=2\nnode2 slots=2\nnode3 slots=1\n",
    "mpich": "node1:2\nnode2:2\nnode3:1\n",
    "deepspeed": "node1 slots=2\nnode2 slots=2\nnode3 slots=1\n",
    "horovod": "node1:2,node2:2,node3:1\n",
    "nodefile": "node1\nnode1\nnode2\nnode2\nnode3\n",
}


@pytest.mark.parametrize("name", WANTED)
def test_each_program_gets_the_hosts_in_its_own_format(name: str) -> None:
    """Each row of the table has its file, and each host stands in it in the order of the ranks."""
    assert hostfiles.text(name, MEMBERS) == WANTED[name]


def test_json_has_all_fields_and_null_for_an_unknown_address() -> None:
    assert {*WANTED, "json"} == {*hostfiles.FORMATS}
    rows = json.loads(hostfiles.text("json", [*MEMBERS, Member(4, "node1", "", 4)]))
    assert [tuple(row.values()) for row in rows] == [*map(tuple, MEMBERS), (4, "node1", None, 4)]
    assert list(rows[0]) == ["rank", "host", "address", "slots"]


def test_a_host_has_all_its_names_in_one_line_of_etc_hosts() -> None:
    """A container calls itself otherwise than the scheduler calls its host."""
    others = [MEMBERS[0]._replace(host="3f2a"), MEMBERS[1]._replace(host="node2"), MEMBERS[3]._replace(host="same")]
    text = hostfiles.text("etc", [*MEMBERS, *others, MEMBERS[0]._replace(host="same")])
    assert text == "10.0.0.1 node1 3f2a\n10.0.0.2 node2\nfd00::3 node3\n"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        *(("node2", address) for address in ("127.0.0.1", "127.0.1.1", "::1", "fe80::1%3", "")),
        *((name, "10.0.0.2") for name in ("localhost", "localhost.localdomain")),
    ],
)
def test_what_only_one_host_can_use_is_in_no_etc_hosts(name: str, address: str) -> None:
    """Written there, every host would reach itself by the other's name."""
    assert hostfiles.text("etc", [MEMBERS[0], Member(1, name, address, 1)]) == "10.0.0.1 node1\n"


def test_two_hosts_that_only_have_the_same_name_are_refused() -> None:
    """A program would reach one of them, and take it for the other."""
    with pytest.raises(ConflictError, match=r"worker at 10.0.0.1 and 10.0.0.2"):
        hostfiles.text("etc", [Member(rank, "worker", f"10.0.0.{rank + 1}", 1) for rank in range(2)])


@pytest.mark.parametrize("name", ["a b", "a\n10.0.0.9 bank.example", "a#b", "-a", ""])
def test_nothing_but_a_hosts_name_gets_into_etc_hosts(name: str) -> None:
    """All programs of the host believe what stands there."""
    with pytest.raises(FactsError):
        hostfiles.text("etc", [Member(0, name, "10.0.0.1", 1)])


# The block in /etc/hosts: put there, and taken out again.


LINES = "10.0.0.1 node1\n10.0.0.2 node2\n"
BEFORE = b"127.0.0.1 localhost\n"


def failing(number: int) -> mock.Mock:
    """Return a system call that fails; rename(2) over a mounted file does so with EBUSY."""
    return mock.Mock(side_effect=OSError(number, os.strerror(number)))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Write a hosts file."""
    (tmp_path / "hosts").write_bytes(BEFORE)
    return tmp_path / "hosts"


@settings(max_examples=50)  # each writes up to eight files
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
        patch.setattr(os, "fsync", lambda _descriptor: None)
        if is_mount:
            patch.setattr(os, "rename", failing(errno.EBUSY))
        place = Path(directory, "hosts")
        place.write_bytes(text)
        for world, lines in written:
            hostfiles.write_etc_hosts(world, lines, str(place))
        last = dict(written)
        found = place.read_bytes()
        assert found.startswith(text)
        assert all(found.count(f"\n{lines}".encode()) >= [*last.values()].count(lines) for lines in last.values())
        assert found.count(b": from here") == text.count(b": from here") + len(last)
        for world in order:
            assert hostfiles.write_etc_hosts(world, "", str(place)) is (world in last)
        # The newline of the first block stays if another stood behind it.
        assert place.read_bytes() in (text, text + b"\n" * (len(last) > 1 and not text.endswith(b"\n")))
        assert os.listdir(directory) == ["hosts"]


def test_what_somebody_writes_after_the_block_stays(place: Path) -> None:
    """So does a block whose end somebody has taken away: where it ended is not known."""
    place.write_bytes(BEFORE.strip())
    hostfiles.write_etc_hosts("a", LINES, str(place))
    with place.open("ab") as file:
        file.write(b"10.0.0.8 mine\n")
    hostfiles.write_etc_hosts("a", "", str(place))
    assert place.read_bytes() == b"127.0.0.1 localhost\n10.0.0.8 mine\n"
    hostfiles.write_etc_hosts("a", LINES, str(place))
    cut = place.read_bytes().rpartition(b"# mingle hosts")[0]
    place.write_bytes(cut)
    assert not hostfiles.write_etc_hosts("a", "", str(place))
    assert place.read_bytes() == cut


def test_nothing_is_written_but_lines_of_hosts(tmp_path: Path) -> None:
    """No text of the id, which is the user's; who may not write gets an error."""
    place = tmp_path / "hosts"
    place.write_bytes(b"x")
    hostfiles.write_etc_hosts("a\n10.0.0.9 bank.example #", LINES, str(place))
    assert b"bank" not in place.read_bytes()
    with pytest.raises(PlaceError, match="running it as root"):
        hostfiles.write_etc_hosts("a", LINES, str(tmp_path / "none" / "hosts"))


def test_a_lock_that_somebody_holds_is_not_waited_for_without_end(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user may lock the directory; once nobody does, the hosts are written."""
    monkeypatch.setattr(hostfiles, "_LOCK_S", 0.0)
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PlaceError, match=f"to lock {tmp_path} within .* s; saw a lock of another process"):
            hostfiles.write_etc_hosts("a", LINES, str(place))
    finally:
        os.close(held)
    assert hostfiles.write_etc_hosts("a", LINES, str(place))


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
    hostfiles.write_etc_hosts("a", LINES, str(link))
    after = real.stat()
    assert link.is_symlink()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o640)
    assert after.st_ino != before.st_ino  # whole or not at all


def test_a_full_disk_leaves_the_file_of_a_container_as_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a block would never be taken out again."""
    written = hostfiles._write

    def full(file: object, rest: bytes) -> None:
        written(file, rest[:7])  # type: ignore[arg-type]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", failing(errno.EBUSY))
    monkeypatch.setattr(hostfiles, "_write", full)
    with pytest.raises(PlaceError, match="No space"):
        hostfiles.write_etc_hosts("a", LINES, str(place))
    assert place.read_bytes() == BEFORE


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Return what is locked, written in place and brought to disk, in this order."""
    seen: list[tuple[object, ...]] = []
    write = hostfiles._write
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: seen.append((os.readlink(f"/proc/self/fd/{fd}"), how)))
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append((os.readlink(f"/proc/self/fd/{fd}"), "on disk")))
    monkeypatch.setattr(hostfiles, "_write", lambda file, rest: (seen.append((file.tell(), rest)), write(file, rest)))
    return seen


@pytest.mark.parametrize("why", [errno.EBUSY, errno.EROFS, errno.EXDEV, errno.EACCES])
def test_only_the_block_is_written_into_a_file_that_cannot_be_replaced(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, seen: list[tuple[object, ...]], why: int
) -> None:
    """One world after the other, and not where the file may not be changed; a draft of before a power cut is gone."""
    draft = tmp_path / ".mingle-new.hosts"
    draft.write_text("half")
    monkeypatch.setattr(os, "rename", failing(why))
    if why == errno.EACCES:
        with pytest.raises(PlaceError, match="Permission denied"):
            hostfiles.write_etc_hosts("a", LINES, str(place))
    else:
        assert hostfiles.write_etc_hosts("a", LINES, str(place))
    block = place.read_bytes().removeprefix(BEFORE)
    assert seen[:2] == [(str(tmp_path), fcntl.LOCK_EX | fcntl.LOCK_NB), (str(draft), "on disk")]
    assert seen[2:] == ([(len(BEFORE), block), (str(place), "on disk")] if why != errno.EACCES else [])
    assert os.listdir(tmp_path) == ["hosts"]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_labels_is_no_obstacle(place: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """NFS of version 3, as of diskless nodes, has none; any other error is reported, and leaves no draft."""
    monkeypatch.setattr(os, "listxattr", failing(number))
    with pytest.raises(PlaceError, match="Input/output") if number == errno.EIO else nullcontext():
        assert hostfiles.write_etc_hosts("a", LINES, str(place))
    assert os.listdir(place.parent) == ["hosts"]


def test_what_labels_the_file_stays_and_a_file_that_is_too_large_is_left(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SELinux's label and an access list, which tools read; what is larger than any such file is none."""
    labels: dict[tuple[str, str], bytes] = {}
    monkeypatch.setattr(os, "listxattr", lambda _path: ["security.selinux", "system.acl"])
    monkeypatch.setattr(os, "getxattr", lambda path, label: f"{path} {label}".encode())
    monkeypatch.setattr(os, "setxattr", lambda path, label, value: labels.update({(path, label): value}))
    monkeypatch.setattr(hostfiles, "_MOST_BYTES", len(BEFORE))
    assert hostfiles.write_etc_hosts("a", LINES, str(place))
    assert labels == {
        (f"{tmp_path}/.mingle-new.hosts", label): f"{place} {label}".encode()
        for label in ("security.selinux", "system.acl")
    }
    place.write_bytes(larger := b"#" + BEFORE)
    with pytest.raises(PlaceError, match=f"at most {len(BEFORE)} bytes"):
        hostfiles.write_etc_hosts("a", LINES, str(place))
    assert place.read_bytes() == larger
