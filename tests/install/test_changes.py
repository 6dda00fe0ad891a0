"""What install and uninstall tell the tools that run them on many nodes: what changed, and what is left to do."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from test_install import MOM, OURS, call, conf, image, tree

from mingle_hooks.errors import PlaceError
from mingle_hooks.hooks import files as lock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node image."""
    image(tmp_path)
    return tmp_path


@pytest.mark.parametrize("scheduler", ["slurm", "torque"])
def test_json_says_whether_anything_changed(root: Path, scheduler: str) -> None:
    """As Ansible wants it: `changed`, and status 0 either way; a dry run says what would change."""
    steps = (("install", "--dry-run"), ("install", "--yes"), ("install", "--yes"), ("install", "--dry-run"),
             ("uninstall", "--dry-run"), ("uninstall", "--yes"), ("uninstall", "--yes"))  # fmt: skip
    told = []
    for command, how in steps:
        done = call(root, command, scheduler, how, "--json")
        assert (done.exit_code, done.stderr) == (0, "")
        told.append(json.loads(done.stdout)["changed"])
    assert told == [True, True, False, False, True, True, False]


def test_json_holds_what_people_are_told(root: Path) -> None:
    """The files with what was done, the lines for slurm.conf, and notes."""
    conf(root, "PrologFlags=Alloc")
    told = json.loads(call(root, "install", "slurm", "--yes", "--json").stdout)
    assert [(row["path"], row["action"]) for row in told["files"]] == [
        (f"{OURS}/{name}", "create") for name in ("prolog", "epilog", "taskprolog", "taskprolog-all")
    ]
    assert told["lines"][0] == {"text": f"Prolog={OURS}/prolog", "is_there": False}
    assert told["lines"][-1] == {"text": "PrologFlags=Alloc", "is_there": True}
    assert (told["lines_for"], told["bad"]) == ("/etc/slurm/slurm.conf", [])
    assert "/etc/mingle/key" in told["notes"][0]
    told = json.loads(call(root, "install", "torque", "--yes", "--json").stdout)
    kept = f"{MOM}/prologue.before-mingle"
    assert told["files"][0] == {"path": f"{MOM}/prologue", "action": "replace", "kept": kept, "calls": kept}
    told = json.loads(call(root, "uninstall", "torque", "--yes", "--json").stdout)
    assert {row["path"]: row["action"] for row in told["files"]}[f"{MOM}/prologue"] == "restore"


def test_a_status_says_changed_where_it_is_asked_to(root: Path) -> None:
    """2 where something changes, as terraform's plan and puppet have it; without the option 0."""
    steps = ("install", "--dry-run"), ("install", "--yes"), ("install", "--yes"), ("uninstall", "--yes")
    assert [call(root, command, "slurm", how, "--detailed-exitcode").exit_code for command, how in steps] == [
        2,
        2,
        0,
        2,
    ]


def test_an_install_that_leaves_something_bad_ends_with_1(root: Path) -> None:
    """The files are written; but with the lines in slurm.conf every task would fail."""
    call(root, "install", "slurm", "--yes")
    (root / "etc/mingle").chmod(0o700)
    for more in ((), ("--detailed-exitcode",)):
        done = call(root, "install", "slurm", "--yes", *more)
        assert (done.exit_code, "BAD  /etc/mingle: is closed to users" in done.stderr) == (1, True)
    done = call(root, "install", "slurm", "--yes", "--json")
    assert (done.exit_code, [row["where"] for row in json.loads(done.stdout)["bad"]]) == (1, ["/etc/mingle"])


def test_two_installations_at_once_are_one_after_the_other(root: Path) -> None:
    """The second is refused and changes nothing; looking is free. The lock ends with its process."""
    before = tree(root)
    descriptor = os.open(root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    for command in ("install", "uninstall"):
        with pytest.raises(PlaceError, match="at a time"):
            call(root, command, "slurm", "--yes")
    assert call(root, "install", "slurm", "--dry-run").exit_code == 0
    assert tree(root) == before
    os.close(descriptor)
    assert call(root, "install", "slurm", "--yes").exit_code == 0


def test_a_node_s_lock_is_root_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who can open it could keep root from installing."""
    monkeypatch.setattr(lock, "LOCK_PATH", f"{tmp_path}/lock")
    with lock.installation_lock(""):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(PlaceError, match="at a time"), lock.installation_lock(""):
            pass
    with lock.installation_lock(""):
        pass
    monkeypatch.setattr(lock, "LOCK_PATH", f"{tmp_path}/none/lock")
    with pytest.raises(PlaceError, match="as root"), lock.installation_lock(""):
        pass


@pytest.mark.parametrize("argv", [(), ("--diff",), ("--json",)])
def test_all_is_done_where_nobody_reads_what_is_printed(root: Path, argv: tuple[str, ...]) -> None:
    """As below `| head -1`: what install said it wrote is written, and what uninstall said it removed is gone."""
    before = tree(root)
    for command, more in (("install", argv), ("uninstall", argv if "--json" in argv else ())):
        reader, writer = os.pipe()
        os.close(reader)
        words = ["hooks", command, "torque", "--yes", *more, "--root", str(root)]
        command_line = [sys.executable, "-m", "mingle_hooks", *words]
        done = subprocess.run(command_line, stdout=writer, timeout=60, check=False, cwd="/")
        os.close(writer)
        assert done.returncode != 0
        if command == "install":
            verified = call(root, "verify", "torque", "--quiet").stdout
            assert [line for line in verified.splitlines() if "/etc/mingle/key" not in line] == []
    assert tree(root) == before


def test_a_full_disk_leaves_every_file_as_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the new files has no room, the old hooks and their manifest stay; with room for all, all are new."""
    call(root, "install", "slurm", "--yes")
    (root / "etc/mingle/mingle.toml").write_text('host_suffix = "-ib"\n[hooks]\ncluster = "other"\n')
    before, fill = tree(root), lock._fill
    room, written = 0, 0

    def filled(path: str, found: lock.Found) -> None:
        nonlocal written
        if written == room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += 1
        fill(path, found)

    monkeypatch.setattr(lock, "_fill", filled)
    while room < 3:  # the manifest, the Prolog and the TaskProlog change
        with pytest.raises(PlaceError, match="No space left"):
            call(root, "install", "slurm", "--yes")
        assert tree(root) == before
        room, written = room + 1, 0
    assert call(root, "install", "slurm", "--yes").exit_code == 0
    assert written == 3
