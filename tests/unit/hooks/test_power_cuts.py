"""A power cut before any change that install or uninstall makes: the old state or the new one, and a way on."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import power_cut
from support.power_cut import CUT

from mingle_hooks.hooks import files

INJECTOR = Path(power_cut.__file__)
TORQUE = "var/spool/torque/mom_priv"
HOOKS = "/etc/mingle/hooks/slurm"
# With a directory of Prologs, and an Epilog and a TaskProlog of the site's own; as it was, and as install wants it.
SLURM_BEFORE = "Prolog=/etc/slurm/prolog.d/*\nEpilog=/opt/epilog\nTaskProlog=/opt/task\n"
SLURM_AFTER = (
    f"Prolog=/etc/slurm/prolog.d/*\nEpilog={HOOKS}/epilog\nTaskProlog={HOOKS}/taskprolog-all\nPrologFlags=Alloc\n"
)
SETTINGS = '[hooks]\nprolog = "none"\nepilog = "/opt/epilog"\ntaskprolog = "/opt/task"\n'
SITES_OWN = (
    "etc/slurm/prolog.d/50-site",
    "opt/epilog",
    "opt/task",
    f"{TORQUE}/prologue",
    f"{TORQUE}/epilogue.parallel",
)
SITES_LINK = f"{TORQUE}/prologue.parallel"  # to prologue
Tree = dict[str, tuple[int, str]]


class Case(NamedTuple):
    """What is done to which state: the commands that lead to it, and the one that is cut."""

    scheduler: str
    first: tuple[str, ...]  # commands; "settings" changes a setting that stands in every hook, "edit" a hook
    command: str


CASES = {
    "slurm, install": Case("slurm", (), "install"),
    "slurm, install other settings": Case("slurm", ("install", "settings"), "install"),
    "slurm, uninstall": Case("slurm", ("install",), "uninstall"),
    "torque, install": Case("torque", (), "install"),
    "torque, install other settings": Case("torque", ("install", "settings"), "install"),
    "torque, install over an edited one": Case("torque", ("install", "edit"), "install"),
    "torque, uninstall": Case("torque", ("install",), "uninstall"),
}


class Mingle:
    """`mingle hooks` on a root, with cuts."""

    def __init__(self, injector: subprocess.Popen[str]) -> None:
        self.injector = injector

    def __call__(self, root: Path, case: Case, command: str, cut: int = 1_000_000) -> int:
        """Run a command below root, with a cut before its change number `cut`; return its status."""
        yes = [] if command == "verify" else ["--yes"]
        line = json.dumps([str(root), cut, "hooks", command, case.scheduler, "--root", str(root), *yes])
        assert self.injector.stdin is not None
        assert self.injector.stdout is not None
        self.injector.stdin.write(line + "\n")
        self.injector.stdin.flush()
        status = int(self.injector.stdout.readline())
        assert status in {0, 1, CUT}
        return status


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Give a directory for all roots: in memory where there is one, as no power is really cut, and a disk is slow."""
    memory = Path("/dev/shm")  # noqa: S108 -- the directory in it is nobody else's
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made_here:
        yield Path(made_here)


@pytest.fixture(scope="module")
def after_cuts(mingle: Mingle, place: Path) -> Callable[[Case], list[Path]]:
    """Give what makes, once for each case, a copy of the root after every cut that is possible."""

    @functools.cache
    def after(case: Case) -> list[Path]:
        its = Path(tempfile.mkdtemp(dir=place))
        start, root = made(mingle, its / "start", case), place / "root"
        for cut in range(1000):
            shutil.copytree(start, root, symlinks=True)
            status = mingle(root, case, case.command, cut)
            root.rename(its / f"{cut}")
            if status != CUT:
                assert cut > 8, "the injector saw next to no changes"
                return [its / f"{each}" for each in range(cut)]
        raise AssertionError("a thousand changes")

    return after


@pytest.fixture(scope="module")
def mingle() -> Iterator[Mingle]:
    """Give the process of which every run is a fork."""
    argv = [sys.executable, "-B", INJECTOR]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as injector:
        yield Mingle(injector)


def made(mingle: Mingle, root: Path, case: Case) -> Path:
    """Make a node image in the state in which the case begins."""
    for path in SITES_OWN:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"#!/bin/sh\n# {path}\n")
        (root / path).chmod(0o755)
    (root / SITES_LINK).symlink_to("prologue")
    (root / "etc/slurm/slurm.conf").write_text(SLURM_BEFORE)
    for command in case.first:
        if command == "settings":
            (root / "etc/mingle/mingle.toml").write_text(
                'host_suffix = "-ib"\nport_range = "21000-22000"\n'
                '[hooks]\npartitions = ["one"]\ncluster = "other"\nopt_in = "please"\n'
            )
        elif command == "edit":
            (root / f"{TORQUE}/prologue").write_text((root / f"{TORQUE}/prologue").read_text() + "# edited\n")
        else:
            assert mingle(root, case, command) == 0
    return root


def configure(root: Path) -> None:
    """Do what installing leaves to the admin."""
    (root / "etc/slurm/slurm.conf").write_text(SLURM_AFTER)
    (root / "etc/mingle").mkdir(exist_ok=True)
    (root / "etc/mingle/mingle.toml").write_text(SETTINGS)
    (root / "etc/mingle/key").write_text("ab" * 32)
    (root / "etc/mingle/key").chmod(0o400)


def tree(root: Path) -> Tree:
    """Return all files and directories but unfinished files: path -> mode and content."""
    contents = {}
    for path in sorted(root.rglob("*")):
        if not path.name.startswith(files.TEMPORARY):
            text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
            contents[str(path.relative_to(root))] = (path.lstat().st_mode, text)
    return contents


def unfinished(root: Path) -> list[str]:
    """Return the files that a cut left half written."""
    return [path.name for path in root.rglob(files.TEMPORARY + "*")]


def cuts(after: list[Path], root: Path) -> Iterator[Path]:
    """Yield a root after every cut, each in the same place."""
    for each in after:
        shutil.copytree(each, root, symlinks=True)
        yield root
        shutil.rmtree(root)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """Give each case."""
    return CASES[request.param]


def undisturbed(mingle: Mingle, root: Path, case: Case, *commands: str) -> Tree:
    """Return the tree that the case begins with, after these commands."""
    made(mingle, root, case)
    for command in commands:
        mingle(root, case, command)
    found = tree(root)
    shutil.rmtree(root)
    return found


def test_a_cut_leaves_the_old_or_the_new_and_the_same_command_completes_it(
    mingle: Mingle, place: Path, after_cuts: Callable[[Case], list[Path]], case: Case
) -> None:
    """Every file is whole, old or new; none that is in both is missing; once more, and all is as without the cut."""
    root = place / "root"
    before, after = undisturbed(mingle, root, case), undisturbed(mingle, root, case, case.command)
    assert before != after
    for _ in cuts(after_cuts(case), root):
        now = tree(root)
        assert not [path for path in now if now[path] not in (before.get(path), after.get(path))]
        assert not (before.keys() & after.keys()) - now.keys()
        assert mingle(root, case, case.command) == 0
        assert tree(root) == after
        assert unfinished(root) == []


@pytest.mark.parametrize("scheduler", ["slurm", "torque"])
def test_after_a_cut_install_can_be_taken_back(
    mingle: Mingle, place: Path, after_cuts: Callable[[Case], list[Path]], scheduler: str
) -> None:
    """Uninstalling after a first installation that was cut gives back what was there."""
    case, root = CASES[f"{scheduler}, install"], place / "root"
    before = undisturbed(mingle, root, case)
    for _ in cuts(after_cuts(case), root):
        assert mingle(root, case, "uninstall") == 0
        now = tree(root)
        assert {path: now[path] for path in now if not path.startswith("etc/mingle")} == before
        assert not [path for path, (mode, _) in now.items() if path.startswith("etc/mingle") and stat.S_ISREG(mode)]
        assert unfinished(root) == []


@pytest.mark.parametrize("scheduler", ["slurm", "torque"])
def test_verify_is_right_after_a_cut(
    mingle: Mingle, place: Path, after_cuts: Callable[[Case], list[Path]], scheduler: str
) -> None:
    """It is content when all is installed, and only then."""
    case, root = CASES[f"{scheduler}, install"], place / "root"
    after = undisturbed(mingle, root, case, "install")
    for _ in cuts(after_cuts(case), root):
        is_whole = tree(root) == after
        configure(root)
        assert mingle(root, case, "verify") == (0 if is_whole else 1)
    made(mingle, root, case)
    assert mingle(root, case, "install") == 0
    configure(root)
    assert mingle(root, case, "verify") == 0
    shutil.rmtree(root)


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
