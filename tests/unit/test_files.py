"""Directories and files that the tasks of one job share on a node."""

import errno
import io
import os
import resource
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.running import open_files

from mingle_hooks import files
from mingle_hooks.errors import MingleError, PlaceError


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_the_prologs_directory_comes_first_then_the_sessions_then_tmp(tmp_path: Path) -> None:
    """Each directory is used only if no other user can enter it."""
    root, session = tmp_path / "run", tmp_path / "session"
    environ = {"XDG_RUNTIME_DIR": str(session)}
    assert files.private_path(environ, "7", "n", str(root)) == f"/tmp/mingle-{os.getuid()}-n"  # noqa: S108
    private(session)
    assert files.private_path(environ, "7", "n", str(root)) == f"{session}/mingle-n"
    root.mkdir()
    private(root / "7")
    assert files.private_path(environ, "7", "n", str(root)) == f"{root}/7/n"
    (root / "7").chmod(0o755)
    assert files.private_path(environ, "7", "n", str(root)) == f"{session}/mingle-n"


@pytest.mark.parametrize("full", [{"f_bavail": 255}, {"f_favail": 15}])
def test_a_jobs_directory_that_is_full_is_left_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: dict[str, int]
) -> None:
    """Whoever filled it, with octets or with names, the members still meet; an id with a slash names no directory."""
    (tmp_path / "run").mkdir()
    private(tmp_path / "run" / "7")
    room = {"f_bavail": 256, "f_frsize": 4096, "f_favail": 16, "f_files": 1024}
    here, uncounted = f"{tmp_path}/run/7/n", {"f_favail": 0, "f_files": 0}
    for found, where in ((room, here), (room | full, f"/tmp/mingle-{os.getuid()}-n"), (room | uncounted, here)):  # noqa: S108
        monkeypatch.setattr(os, "statvfs", lambda _, found=found: SimpleNamespace(**found))
        assert files.private_path({}, "7", "n", f"{tmp_path}/run") == where
    private(tmp_path / "up")
    assert str(tmp_path) not in files.private_path({}, "../up", "n", str(tmp_path / "run"))


def test_toml_may_begin_with_a_byte_order_mark() -> None:
    assert files.toml(b"\xef\xbb\xbfnodes = 2\r\n") == {"nodes": 2}


def test_a_private_directory_is_created_and_no_other_is_accepted(tmp_path: Path) -> None:
    """A directory that others can enter, a file and a link count as taken by others."""
    private(tmp_path / "own")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("own")
    (tmp_path / "dead").symlink_to("nowhere")
    for name in ("own", "new", "new"):
        assert not files.is_taken_by_others(str(tmp_path / name))
        files.make_private(str(tmp_path / name))
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
    with pytest.raises(PlaceError, match=f"to create a directory; saw {tmp_path}/none/a: No such file"):
        files.make_private(str(tmp_path / "none" / "a"))
    for name in ("open", "file", "link", "dead"):
        assert files.is_taken_by_others(str(tmp_path / name))
        with pytest.raises(PlaceError):
            files.make_private(str(tmp_path / name))


@pytest.mark.parametrize("mode", [0o750, 0o710, 0o701, 0o704, 0o720, 0o500])
def test_a_directory_that_a_group_can_enter_is_not_private(tmp_path: Path, mode: int) -> None:
    """A directory that others can enter, or that its owner cannot write, is not private either."""
    private(tmp_path / "own").chmod(mode)
    assert files.is_private(str(tmp_path / "own")) is (mode == 0o500 and os.geteuid() == 0)
    (tmp_path / "own").chmod(0o700)
    assert files.is_private(str(tmp_path / "own"))


def test_a_directory_goes_with_its_files(tmp_path: Path) -> None:
    """A missing directory, or one that holds more than files, is no error."""
    (private(tmp_path / "own") / "file").touch()
    (tmp_path / "own" / "link").symlink_to(tmp_path)
    files.remove_private(str(tmp_path / "own"))
    files.remove_private(str(tmp_path / "own"))
    private(private(tmp_path / "kept") / "inside")
    files.remove_private(str(tmp_path / "kept"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_process_is_recorded_with_its_start_time(tmp_path: Path) -> None:
    """The Epilog reads this form; nothing is written without a Prolog's directory, or through a link."""
    files.record_process("7", str(tmp_path))
    assert not list(tmp_path.iterdir())
    record = private(tmp_path / "7") / "processes"
    record.symlink_to(tmp_path / "elsewhere")
    files.record_process("7", str(tmp_path))
    assert not (tmp_path / "elsewhere").exists()
    record.unlink()
    for _ in range(2):
        files.record_process("7", str(tmp_path))
    start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert record.read_text() == f"{os.getpid()} {start}\n" * 2
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("limits", "wanted", "allowed"),
    [((256, resource.RLIM_INFINITY), 1000, 1000), ((256, 512), 1000, 512), ((256, 512), 100, 256)],
)
def test_without_a_hard_limit_as_many_files_as_are_wanted_are_allowed(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], wanted: int, allowed: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda *given: seen.append(given))
    seen: list[tuple[object, ...]] = []
    assert files.raise_open_files_limit(wanted) == allowed
    assert seen == [(resource.RLIMIT_NOFILE, (allowed, limits[1]))]


def test_descriptors_are_filled_up_to_stderr_s_and_closed_but_for_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has gone meanwhile is no failure."""
    closed: list[int] = []

    def close(descriptor: int) -> None:
        closed.append(descriptor)
        if descriptor == 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    numbers = iter((1, 2, 3))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda *_: next(numbers))
        patched.setattr(os, "close", close)
        patched.setattr(os, "listdir", lambda _path: ["0", "4", "5", "9"])
        files.fill_standard_descriptors(os.O_RDONLY)
        files.close_descriptors_except(4, 9)
    assert closed == [3, 0, 5]


def test_one_process_holds_a_directory(tmp_path: Path) -> None:
    """The lock lasts until it is closed; a failure leaves nothing open, and a link is refused."""
    path = str(private(tmp_path / "own"))
    held = files.hold_private(path)
    before = open_files()
    assert held is not None
    assert files.hold_private(path) is None
    assert open_files() == before
    os.close(held)
    os.close(files.hold_private(path) or -1)
    (tmp_path / "link").symlink_to("own")
    for name in ("link", "none"):
        with pytest.raises(PlaceError, match=f"to lock a directory; saw {tmp_path}/{name}: "):
            files.hold_private(f"{tmp_path}/{name}")


def test_only_a_regular_file_is_appended_to(tmp_path: Path) -> None:
    """Whatever another user may have put in its place: a FIFO has no reader, and then one."""
    place = tmp_path / "file"
    for text in (b"a", b"b"):
        with open(files.open_to_append(str(place), 0o600), "ab") as file:
            file.write(text)
    assert (place.read_bytes(), place.stat().st_mode & 0o777) == (b"ab", 0o600)
    (tmp_path / "link").symlink_to(place)
    os.mkfifo(fifo := tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "link", fifo):
        with pytest.raises(OSError, match=str(path)):
            files.open_to_append(str(path), 0o600)
    with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)), pytest.raises(OSError, match="not a regular file"):
        files.open_to_append(str(fifo), 0o600)


def test_a_new_file_has_its_mode_or_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The umask does not count, NFS reports a full disk only at the end, and no file is overwritten."""
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda _fd: synced.append((tmp_path / "new").read_bytes()))
    before = os.umask(0o777)
    try:
        files.write_new(str(tmp_path / "new"), b"text", mode=0o640)
        with pytest.raises(FileExistsError):
            files.write_new(str(tmp_path / "new"), b"other")
        files.write_new(str(tmp_path / "usual"), b"")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "usual")] == [0o640, 0o600]
    assert synced == [b"text"] * 2
    monkeypatch.setattr(os, "fsync", lambda fd: os.write(fd + 1000, b""))
    with pytest.raises(OSError, match="descriptor"):
        files.write_new(str(tmp_path / "full"), b"")
    assert sorted(os.listdir(tmp_path)) == ["new", "usual"]


# What is printed.


@contextmanager
def output(path: Path) -> Iterator[io.FileIO]:
    """Let the standard output be a file with a text in it, which is where the next is written."""
    before = os.dup(1)
    with open(path, "w+b", buffering=0) as file:
        file.write(b"before\n")
        os.dup2(file.fileno(), 1)
        try:
            yield file
        finally:
            os.dup2(before, 1)
            os.close(before)


@pytest.mark.parametrize(
    ("numbers", "other", "left", "refusal"),
    [
        ([0], b"", b"before\n12345", None),
        ([errno.EAGAIN, 0], b"", b"before\n12345", None),
        ([0, errno.ENOSPC], b"", b"before\n", ("to write the output", "No space left on device")),
        ([0, errno.ENOSPC], b"x", b"before\n12x", ("to write the output", "No space left on device")),
        ([errno.EPIPE], b"", b"before\n", ("a reader of the output", "a closed pipe")),
        ([errno.EBADF], b"", b"before\n", ("an open standard output", "a closed one")),
    ],
)  # fmt: skip
def test_the_whole_text_is_printed_or_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[int], other: bytes, left: bytes,
    refusal: tuple[str, str] | None,
) -> None:  # fmt: skip
    """A full pipe is waited for, and a partial text is taken back unless another process wrote after it."""
    write, results, path = os.write, iter(numbers), tmp_path / "output"
    waited: list[tuple[object, ...]] = []

    def writes(descriptor: int, data: bytes) -> int:
        if number := next(results, 0):
            with path.open("ab") as file:
                file.write(other)
            raise OSError(number, os.strerror(number))
        return write(descriptor, data[:2])

    with output(path) as file, monkeypatch.context() as patched:
        patched.setattr(os, "write", writes)
        patched.setattr(select, "select", lambda *given: waited.append(given))
        with nullcontext() if refusal is None else pytest.raises(PlaceError) as caught:
            files.write_stdout("12345")
        assert file.tell() == len(left) - len(other)
    assert caught is None or (caught.value.expected, caught.value.seen) == refusal
    assert waited == [([], [1], [])] * numbers.count(errno.EAGAIN)
    assert path.read_bytes() == left


def test_stderr_gets_what_its_encoding_can_say_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bytes]] = []
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", SimpleNamespace(encoding="ascii"))
        patched.setattr(os, "write", lambda fd, data: (seen.append((fd, data)), 4)[1])
        files.write_stderr("a\u20ac")
        patched.setattr(os, "write", lambda *_: os.close(1 << 30))
        files.write_stderr("a")
    assert seen == [(2, b"a\\u20ac"), (2, b"0ac")]


# What ships with the package.


def test_a_shipped_file_is_found_and_none_else() -> None:
    """Folders are searched too; a program is started by its path, with this interpreter."""
    names = files.shipped_names("templates/hooks")
    assert {"_epilogue.sh.j2", "slurm/taskprolog.sh.j2"} < {*names}
    assert names == tuple(sorted(names))
    with pytest.raises(MingleError, match="templates/none in the package"):
        files.shipped_text("templates/none")
    assert files.own_archive() is None
    program = f"{Path(files.__file__).parent}/__main__.py"
    assert files.own_program_argv("agent") == (sys.executable, "-I", program, "agent")
