"""A power cut before any change that install or uninstall makes: the old state or the new one, and a way on."""

import itertools
import os
import re
import shutil
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.hooks import HOOKS, render
from support.hooks_image import LINES, MOM, conf, key, program, tree

from mingle_hooks.cli.main import main
from mingle_hooks.hooks import files
from mingle_hooks.hooks.files import Site

# With a directory of Prologs, and an Epilog and a TaskProlog of the site's own; as it was, and as install wants it.
SLURM_BEFORE = ("Prolog=/etc/slurm/prolog.d/*", "Epilog=/opt/epilog", "TaskProlog=/opt/task")
SLURM_AFTER = (SLURM_BEFORE[0], *LINES[1:])
SETTINGS = '[hooks]\nprolog = "none"\nepilog = "/opt/epilog"\ntaskprolog = "/opt/task"\n'
OTHER_SETTINGS = 'host_suffix = "-ib"\n[hooks]\npartitions = ["one"]\ncluster = "other"\nopt_in = "please"\n'
SITES_OWN = ("/etc/slurm/prolog.d/50-site", "/opt/epilog", "/opt/task", f"{MOM}/prologue", f"{MOM}/epilogue.parallel")


class Case(NamedTuple):
    """What is done to which state: the commands that lead to it, and the one that is cut."""

    scheduler: str
    first: tuple[str, ...]  # commands; "settings" changes a setting that stands in every hook, "edit" a hook
    command: str


CASES = [
    Case("slurm", (), "install"),
    Case("slurm", ("install", "settings"), "install"),
    Case("slurm", ("install",), "uninstall"),
    Case("torque", (), "install"),
    Case("torque", ("install", "edit"), "install"),
    Case("torque", ("install",), "uninstall"),
]
RUN_S = 60  # far more than a command takes; the signal then ends it
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown", "os.link", "os.symlink"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def mingle(root: Path, case: Case, command: str, states: Path | None = None) -> int:
    """Run a command below root in a fork; return its status. `states` gets a copy of root before each change."""
    child = os.fork()
    if not child:
        try:
            run(root, ["hooks", command, case.scheduler, "--root", str(root)], states)
        except SystemExit as end:
            os._exit(int(str(end.code or 0)))
        finally:
            os._exit(os.EX_SOFTWARE)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, 1}
    return status


def run(root: Path, words: list[str], states: Path | None) -> None:
    """Become `mingle`; what a cut would leave is copied at the interpreter's audit events, which precede changes."""
    numbers, is_copying = itertools.count(), False

    def look(event: str, details: tuple[object, ...]) -> None:
        nonlocal is_copying
        changes = event in CHANGES or (event == "open" and isinstance(details[2], int) and details[2] & WRITES)
        # A descriptor is one of a file that was opened below the directory: nothing else is changed by one.
        if changes and not is_copying and (isinstance(details[0], int) or str(details[0]).startswith(str(root))):
            is_copying = True
            shutil.copytree(root, f"{states}/{next(numbers):04}", symlinks=True)
            is_copying = False

    signal.alarm(RUN_S)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- until this fork ends
    sys.argv = ["mingle", *words, *([] if "verify" in words else ["--yes"])]
    if states is not None:
        sys.addaudithook(look)
    main()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give a directory for all roots, once what each fork needs is loaded."""
    for hook in HOOKS:
        render(hook, Site())
    return tmp_path


def made(root: Path, case: Case) -> None:
    """Make a node image in the state in which the case begins."""
    for path in SITES_OWN:
        program(root, path, f"#!/bin/sh\n# {path}\n")
    (root / f"{MOM}/prologue.parallel".lstrip("/")).symlink_to("prologue")
    conf(root, *SLURM_BEFORE)
    for command in case.first:
        if command == "settings":
            program(root, "/etc/mingle/mingle.toml", OTHER_SETTINGS)
        elif command == "edit":
            with (root / f"{MOM}/prologue".lstrip("/")).open("a") as file:
                file.write("# edited\n")
        else:
            assert mingle(root, case, command) == 0


def whole(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all files and directories but unfinished files and locks."""
    return {path: its for path, its in tree(root).items() if not re.search(rf"{files.TEMPORARY}|hooks\.lock$", path)}


def is_completed(root: Path, case: Case, before: dict[str, object], after: dict[str, object]) -> None:
    """Every file is whole, old or new; none that is in both is missing; once more, and all is as without the cut."""
    now = whole(root)
    assert not [path for path in now if now[path] not in (before.get(path), after.get(path))]
    assert not (before.keys() & after.keys()) - now.keys()
    assert mingle(root, case, case.command) == 0
    assert tree(root) == after


def is_taken_back(root: Path, case: Case, before: dict[str, object], _after: dict[str, object]) -> None:
    """Uninstalling after a first installation that was cut gives back what was there."""
    assert mingle(root, case, "uninstall") == 0
    now = tree(root)
    assert {path: now[path] for path in now if not path.startswith("etc/mingle")} == before
    assert not [path for path, its in now.items() if path.startswith("etc/mingle") and stat.S_ISREG(its[0])]


def is_verified(root: Path, case: Case, _before: dict[str, object], after: dict[str, object]) -> None:
    """Verify is content when all is installed, and only then, once the admin has done what installing leaves."""
    status = 0 if whole(root) == after else 1
    conf(root, *SLURM_AFTER)
    program(root, "/etc/mingle/mingle.toml", SETTINGS)
    key(root)
    assert mingle(root, case, "verify") == status


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.scheduler} {case.command} after {case.first}")
def test_a_cut_leaves_the_old_or_the_new_and_each_command_goes_on_from_there(place: Path, case: Case) -> None:
    """After every cut that is possible, each check on a copy of what the cut left, and of the end."""
    root, states = place / "root", place / "states"
    made(root, case)
    before = tree(root)
    assert mingle(root, case, case.command, states) == 0
    after = tree(root)
    root.rename(states / "end")
    checks: list[Callable[..., None]] = [is_completed]
    if not case.first:
        checks += [is_taken_back]
    if not case.first and case.scheduler == "slurm":
        checks += [is_verified]
    last, seen, cuts = None, 0, sorted(states.iterdir())
    for left in cuts:
        if (now := tree(left)) == last:  # not every change can be seen, such as that of an owner to the same one
            continue
        last, seen = now, seen + 1
        for check in checks:
            shutil.copytree(left, root, symlinks=True)
            check(root, case, before, after)
            shutil.rmtree(root)
    assert seen > len(cuts) // 3 > 4, "next to no changes were seen"


def test_every_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is brought to disk before its renaming, and after it the directory, and every directory that is new."""
    done: list[tuple[str, str]] = []

    def path_of(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    real = {name: getattr(os, name) for name in ("fsync", "rename", "mkdir")}
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(("fsync", path_of(fd))), real["fsync"](fd)))
    monkeypatch.setattr(os, "rename", lambda a, b: (done.append(("rename", f"{a} {b}")), real["rename"](a, b)))
    monkeypatch.setattr(os, "mkdir", lambda p, mode=0o777: (done.append(("mkdir", p)), real["mkdir"](p, mode)))
    files.write_whole(f"{tmp_path}/a/b/c", b"text", 0o755)
    temporary = f"{tmp_path}/a/b/{files.TEMPORARY}c"
    assert done == [
        ("mkdir", f"{tmp_path}/a"), ("fsync", str(tmp_path)), ("mkdir", f"{tmp_path}/a/b"), ("fsync", f"{tmp_path}/a"),
        ("fsync", temporary), ("rename", f"{temporary} {tmp_path}/a/b/c"), ("fsync", f"{tmp_path}/a/b"),
    ]  # fmt: skip
