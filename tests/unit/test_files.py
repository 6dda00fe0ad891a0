"""Directories and files that the tasks of one job share on a node."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mingle_hooks import files
from mingle_hooks.errors import PlaceError


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_the_prologs_directory_comes_first_then_the_sessions_then_tmp(tmp_path: Path) -> None:
    """Each only where it is this user's alone."""
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
    for found, where in ((room, f"{tmp_path}/run/7/n"), (room | full, f"/tmp/mingle-{os.getuid()}-n")):  # noqa: S108
        monkeypatch.setattr(os, "statvfs", lambda _, found=found: SimpleNamespace(**found))
        assert files.private_path({}, "7", "n", f"{tmp_path}/run") == where
    private(tmp_path / "up")
    assert str(tmp_path) not in files.private_path({}, "../up", "n", str(tmp_path / "run"))


def test_a_private_directory_is_created_and_no_other_is_accepted(tmp_path: Path) -> None:
    """Not one that others can enter, no file, and no link, wherever it leads; such a name is taken by others."""
    private(tmp_path / "own")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("own")
    (tmp_path / "dead").symlink_to("nowhere")
    for name in ("own", "new", "new"):
        assert not files.is_taken_by_others(str(tmp_path / name))
        files.make_private(str(tmp_path / name))
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
    for name in ("open", "file", "link", "dead"):
        assert files.is_taken_by_others(str(tmp_path / name))
        with pytest.raises(PlaceError):
            files.make_private(str(tmp_path / name))


@pytest.mark.parametrize("mode", [0o750, 0o710, 0o701, 0o704, 0o720, 0o500])
def test_a_directory_that_a_group_can_enter_is_not_private(tmp_path: Path, mode: int) -> None:
    """Nor one that others can, or that its owner cannot write, where that is not root."""
    private(tmp_path / "own").chmod(mode)
    assert files.is_private(str(tmp_path / "own")) is (mode == 0o500 and os.geteuid() == 0)
    (tmp_path / "own").chmod(0o700)
    assert files.is_private(str(tmp_path / "own"))


def test_a_directory_goes_with_its_files(tmp_path: Path) -> None:
    """And one that is not there, or holds what is no file, does no harm."""
    (private(tmp_path / "own") / "file").touch()
    (tmp_path / "own" / "link").symlink_to(tmp_path)
    files.remove_private(str(tmp_path / "own"))
    files.remove_private(str(tmp_path / "own"))
    private(private(tmp_path / "kept") / "inside")
    files.remove_private(str(tmp_path / "kept"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_process_is_recorded_with_its_start_time(tmp_path: Path) -> None:
    """As the Epilog reads it; without a Prolog's directory nothing is written, nor through a link."""
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


@pytest.mark.parametrize(("wanted", "allowed"), [(100, 256), (400, 400), (1000, 512)])
def test_open_files_are_allowed_up_to_the_hard_limit(wanted: int, allowed: int) -> None:
    """The soft limit is never lowered."""
    raised = f"from mingle_hooks import files; print(files.raise_open_files_limit({wanted}))"
    argv = [
        "sh",
        "-c",
        'ulimit -Sn 256 && ulimit -Hn 512 && exec "$0" -c "$1; import resource; print(*resource.getrlimit(7))"',
    ]
    done = subprocess.run([*argv, sys.executable, raised], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(allowed), str(allowed), "512"]
