from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import FactsError
from mingle_hooks.schedulers import hostlist as nodefile

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[bytes], str]
    Read = Callable[[str], nodefile.Slots]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a node file and return its path."""

    def write(content: bytes) -> str:
        path = tmp_path / "nodefile"
        path.write_bytes(content)
        return str(path)

    return write


def test_repeated_hosts_are_slots_in_the_order_of_first_mention(write: Write) -> None:
    """Each line is a slot; hosts keep the file's order, which is that of their numbers."""
    slots = nodefile.read_nodefile(write(b"node2\nnode1\nnode2\n\n node1 \r\nnode3"))
    assert list(slots.items()) == [("node2", 2), ("node1", 2), ("node3", 1)]


def test_grid_engine_writes_slots_beside_the_host(write: Write) -> None:
    """A host with slots in two queues has two lines, and fields after the slots do not matter."""
    path = write(b"n1 4 all.q@n1 UNDEFINED\nn2 2 all.q@n2 <NULL>\nn1 1 other.q@n1 0,1\n")
    assert list(nodefile.read_pe_hostfile(path).items()) == [("n1", 5), ("n2", 2)]


@pytest.mark.parametrize("read", [nodefile.read_nodefile, nodefile.read_pe_hostfile])
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n \n", b"$(id) 1\n", b"n1;n2 1\n", b"-x 1\n", b"\x00\xff\xfe 1\n", "n\u0663 1\n".encode()),
        *(b"n1\x1b[2J 1\n", b"x" * 254 + b" 1\n", bytes(range(256)) * 9, b"x y z\nx y z\n"),
    ],
)
def test_refuses_garbage_and_names_the_file(read: Read, content: bytes, write: Write) -> None:
    """A file that is empty or holds anything but hosts is an error of the facts that says which file."""
    path = write(content)
    with pytest.raises(FactsError, match="nodefile"):
        read(path)


@pytest.mark.parametrize(
    "content", [b"n1\n", b"n1 x q\n", b"n1 -1 q\n", b"n1 0 q\n", b"n1 99999999 q\n", b"n1 \xd9\xa3"]
)
def test_refuses_slots_that_are_no_number(content: bytes, write: Write) -> None:
    """Grid Engine's slots are a number, and there is at least one."""
    with pytest.raises(FactsError):
        nodefile.read_pe_hostfile(write(content))


def test_refuses_what_is_no_readable_file(tmp_path: Path) -> None:
    """A missing file, a directory, a named pipe, a device and an impossible path end at once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "missing", tmp_path, pipe, "/dev/zero", "nul\0", "", "\ud800"):
        with pytest.raises(FactsError):
            nodefile.read_nodefile(str(path))


def test_refuses_a_file_that_is_too_large(tmp_path: Path) -> None:
    """More bytes than any node file has are not read."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FactsError, match="bytes"):
        nodefile.read_nodefile(str(path))


def test_refuses_too_many_hosts(write: Write) -> None:
    """One host more than there can be is refused; as many are read."""
    most = b"".join(b"n%d\n" % number for number in range(65_536))
    assert len(nodefile.read_nodefile(write(most))) == 65_536
    with pytest.raises(FactsError, match="hosts"):
        nodefile.read_nodefile(write(most + b"other\n"))


def test_refused_files_are_closed(tmp_path: Path) -> None:
    """Refusing a directory or a pipe leaves no file open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(FactsError):
            nodefile.read_nodefile(str(tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
