"""Planning, installing, checking and uninstalling hooks below a directory."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mingle_hooks.cli.hooks import hooks
from mingle_hooks.errors import ConflictError, FactsError, PlaceError, SettingsError, UsageError
from mingle_hooks.hooks import files
from mingle_hooks.hooks import files as manifest
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.slurm import find_slurm_conf as find

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

OURS = "/etc/mingle/hooks/slurm"
MOM = "/var/spool/torque/mom_priv"
NAMES = ("epilog", "prolog", "taskprolog", "taskprolog-all")
NO_CHAIN = '[hooks]\nprolog = "none"\nepilog = "none"\ntaskprolog = "none"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node image with a slurm.conf that names no hooks."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    conf(tmp_path, "ClusterName=x")
    return tmp_path


def conf(root: Path, *lines: str) -> None:
    """Write slurm.conf."""
    (root / "etc/slurm/slurm.conf").write_text("\n".join(lines) + "\n")


def call(root: Path, *argv: str, **options: str) -> Result:
    """Run `mingle hooks` below root; an error of the project comes out as itself."""
    return CliRunner().invoke(hooks, [*argv, "--root", str(root)], catch_exceptions=False, **options)


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Return everything below root: path -> mode and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        text = path.read_text(errors="replace") if path.is_file() else ""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, text)
    return found


def at(root: Path, path: str) -> Path:
    """Return a path below root."""
    return root / path.lstrip("/")


def image(root: Path) -> Path:
    """Make a node image of Slurm and Torque, with a prologue of the site's own, which is returned."""
    (root / "etc/slurm").mkdir(parents=True)
    conf(root, "ClusterName=x")
    return program(root, f"{MOM}/prologue")


def program(root: Path, path: str, text: str = "#!/bin/sh\n") -> Path:
    """Put a program of the site's own below root."""
    found = at(root, path)
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_text(text)
    found.chmod(0o755)
    return found


def key(root: Path, text: str = "ab" * 32 + "\n", mode: int = 0o400) -> Path:
    """Put the site's key below root."""
    found = root / "etc/mingle/key"
    found.parent.mkdir(parents=True, exist_ok=True)
    found.unlink(missing_ok=True)
    found.write_text(text)
    found.chmod(mode)
    return found


def test_installing_prints_the_lines_and_writes_the_files(root: Path) -> None:
    """The four lines stand alone on theirs, and slurm.conf is not touched."""
    before = (root / "etc/slurm/slurm.conf").read_text()
    done = call(root, "install", "slurm", "--yes")
    assert done.stdout.splitlines()[-4:] == [
        f"Prolog={OURS}/prolog", f"Epilog={OURS}/epilog", f"TaskProlog={OURS}/taskprolog", "PrologFlags=Alloc",
    ]  # fmt: skip
    for name in ("prolog", "epilog", "taskprolog"):
        assert stat.S_IMODE((root / OURS.lstrip("/") / name).stat().st_mode) == 0o755
    assert (root / "etc/slurm/slurm.conf").read_text() == before


def test_installing_twice_changes_nothing(root: Path) -> None:
    """The second time every file is kept, and none is written again."""
    call(root, "install", "slurm", "--yes")
    before = tree(root), {path: path.stat().st_ino for path in root.rglob("*")}
    done = call(root, "install", "slurm")  # asks nothing, as there is nothing to do
    assert done.exit_code == 0
    assert {line.split()[0] for line in done.stdout.splitlines()[:3]} == {"keep"}
    assert (tree(root), {path: path.stat().st_ino for path in root.rglob("*")}) == before


def test_only_what_deviates_is_written_again(root: Path) -> None:
    """The others may be running at that moment."""
    call(root, "install", "slurm", "--yes")
    spoilt, *others = sorted((root / OURS.strip("/")).iterdir())
    before = {path: path.stat().st_ino for path in others}
    text = spoilt.read_text()
    spoilt.write_text("#!/bin/sh\n")
    call(root, "install", "slurm", "--yes")
    assert spoilt.read_text() == text
    assert {path: path.stat().st_ino for path in others} == before


@pytest.mark.parametrize("argv", [("--dry-run",), ()], ids=["dry-run", "answered no"])
def test_without_a_yes_nothing_is_written(root: Path, argv: tuple[str, ...]) -> None:
    """A dry run, and a no to the question, leave everything as it was; a dry run does not ask, either."""
    before = tree(root)
    done = call(root, "install", "slurm", *argv, input="n\n")
    assert (tree(root), done.exit_code, "?" in done.stderr) == (before, 0 if argv else 1, not argv)


def test_lines_that_are_there_are_said_to_be(root: Path) -> None:
    """Lines that slurm.conf has already, also through Include and in other letters, are marked."""
    (root / "etc/slurm/more.conf").write_text(f"prologFLAGS = Alloc,X11 # x\ntaskprolog={OURS}/taskprolog\n")
    conf(root, f"Prolog={OURS}/prolog", "Include more.conf")
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN)
    there = [line for line in call(root, "install", "slurm", "--yes").stdout.splitlines() if "already there" in line]
    assert [line.split("=")[0] for line in there] == ["Prolog", "TaskProlog", "PrologFlags"]


def test_verify_is_content_with_what_install_asked_for(root: Path) -> None:
    """After installing and adding the lines and the key there is no deviation; without one of them there is."""
    lines = call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:]
    key(root)
    assert call(root, "verify", "slurm").exit_code == 1
    conf(root, *lines)
    done = call(root, "verify", "slurm")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "ok")


def test_a_single_hook_of_the_sites_is_called(root: Path) -> None:
    """Prolog and TaskProlog of the site's own run with ours, and stay where they are."""
    site = program(root, "/opt/site/prolog.sh"), program(root, "/opt/site/task.sh")
    conf(root, "Prolog=/opt/site/prolog.sh", "TaskProlog=/opt/site/task.sh")
    lines = call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:]
    assert "exec /opt/site/prolog.sh" in (root / OURS.lstrip("/") / "prolog").read_text()
    assert "exec /opt/site/task.sh" in (root / OURS.lstrip("/") / "taskprolog-all").read_text()
    conf(root, *lines)
    key(root)
    before = tree(root)
    call(root, "install", "slurm", "--yes")
    assert tree(root) == before
    assert call(root, "verify", "slurm").exit_code == 0
    assert all(path.exists() for path in site)


def test_a_globbed_directory_gets_a_program_that_its_glob_matches(root: Path) -> None:
    """Where slurm.conf has a glob, our hook goes there, runnable, and nothing else does, not even for a moment."""
    program(root, "/etc/slurm/prolog.d/50-site.sh")
    conf(root, "Prolog=/etc/slurm/prolog.d/*.sh")
    done = call(root, "install", "slurm", "--yes")
    assert "Prolog=/etc/slurm/prolog.d/*.sh    # already there" in done.stdout
    names = sorted(path.name for path in (root / "etc/slurm/prolog.d").iterdir())
    assert names == ["10-mingle.sh", "50-site.sh"]
    assert all(os.access(root / "etc/slurm/prolog.d" / name, os.X_OK) for name in names)
    assert files.TEMPORARY.startswith(".")


def test_a_glob_that_can_match_none_of_our_names_is_refused(root: Path) -> None:
    """Better no plan than a hook that never runs."""
    conf(root, "Prolog=/etc/slurm/prolog.d/site-*")
    with pytest.raises(FactsError, match="site-"):
        call(root, "install", "slurm", "--yes")


def test_uninstalling_gives_back_what_was_there(root: Path) -> None:
    """Install, then uninstall: the tree is the one from before, bit for bit."""
    program(root, "/etc/slurm/prolog.d/50-site")
    program(root, "/opt/site/task.sh")
    conf(root, "Prolog=/etc/slurm/prolog.d/*", "TaskProlog=/opt/site/task.sh")
    program(root, "/var/spool/pbs/mom_priv/prologue", "#!/bin/sh\nexit 7\n").chmod(0o700)
    program(root, "/var/spool/torque/mom_priv/epilogue", "#!/bin/sh\nexit 8\n").chmod(0o500)
    before = tree(root)
    for scheduler in ("slurm", "pbs", "torque"):
        call(root, "install", scheduler, "--yes")
    assert tree(root) != before
    for scheduler in ("torque", "slurm", "pbs"):
        assert call(root, "uninstall", scheduler, "--yes").exit_code == 0
    assert tree(root) == before


def test_uninstalling_is_refused_while_slurm_runs_the_hooks(root: Path) -> None:
    """A hook that slurm.conf names and that is missing drains every node."""
    lines = call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:]
    conf(root, *lines)
    before = tree(root)
    with pytest.raises(ConflictError, match="reconfigure"):
        call(root, "uninstall", "slurm", "--yes")
    assert tree(root) == before


def test_uninstalling_leaves_no_glob_that_matches_nothing(root: Path) -> None:
    """Where ours is the only program in a globbed directory, slurm.conf must change first."""
    conf(root, "Prolog=/etc/slurm/prolog.d/*")
    call(root, "install", "slurm", "--yes")
    with pytest.raises(ConflictError, match="drains"):
        call(root, "uninstall", "slurm", "--yes")
    assert (root / "etc/slurm/prolog.d/10-mingle").exists()


def test_a_file_that_somebody_changed_is_left(root: Path) -> None:
    """What is no longer ours is not removed."""
    call(root, "install", "slurm", "--yes")
    path = root / OURS.lstrip("/") / "taskprolog"
    path.write_text("#!/bin/sh\necho mine\n")
    assert "leave" in call(root, "uninstall", "slurm", "--yes").stdout
    assert path.read_text() == "#!/bin/sh\necho mine\n"


def test_a_classic_prologue_of_the_sites_is_kept_and_called(root: Path) -> None:
    """PBS and Torque know one place for it, so the site's is copied, called, and put back."""
    path = program(root, "/var/spool/pbs/mom_priv/prologue", "#!/bin/sh\nexit 7\n")
    path.chmod(0o500)
    call(root, "install", "pbs", "--yes")
    kept = root / "var/spool/pbs/mom_priv/prologue.before-mingle"
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == ("#!/bin/sh\nexit 7\n", 0o500)
    assert "/var/spool/pbs/mom_priv/prologue.before-mingle" in path.read_text()
    before = tree(root)
    call(root, "install", "pbs", "--yes")
    assert tree(root) == before


def test_pbs_commands_begin_with_the_backup_and_end_with_enabling(root: Path) -> None:
    """The hook acts only when all of it is in place."""
    lines = [line for line in call(root, "install", "pbs", "--yes").stdout.splitlines() if "qmgr -c" in line]
    assert "print hook" in lines[0]
    assert "enabled=false" in lines[2]
    assert "enabled=true" in lines[-1]


def test_a_shadowed_prologue_is_told(root: Path) -> None:
    """An execjob_prologue hook keeps pbs_mom from running the classic one."""
    program(root, "/var/spool/pbs/mom_priv/hooks/other.HK", "event=execjob_prologue\nenabled=true\n")
    assert "hook other has the event execjob_prologue" in call(root, "install", "pbs", "--yes").stderr


SPOILERS = {
    "content": lambda path: path.write_text("#!/bin/sh\n"),
    "mode": lambda path: path.chmod(0o775),
    "not runnable": lambda path: path.chmod(0o644),
    "missing": lambda path: path.unlink(),
    "owner": lambda path: os.chown(path, 1, -1),
    "parent": lambda path: path.parent.chmod(0o777),
    "parent of another's": lambda path: os.chown(path.parent, 61001, -1),
    "closed parent": lambda path: path.parent.parent.chmod(0o700),
}


@pytest.mark.parametrize("how", SPOILERS)
def test_verify_tells_every_deviation(root: Path, how: str) -> None:
    """Content, owner, mode, a missing file, a parent that others write: each has a line with the mend."""
    conf(root, *call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:])
    key(root)
    assert call(root, "verify", "slurm").exit_code == 0
    SPOILERS[how](root / OURS.lstrip("/") / "prolog")
    done = call(root, "verify", "slurm")
    bad = [line for line in done.stdout.splitlines() if line.startswith("BAD")]
    assert done.exit_code == 1
    assert bad
    assert all("fix: " in line for line in bad)


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (("Prolog=/etc/slurm/none.d/*",), "matches no file"), (("Epilog=/etc/slurm/README",), "cannot be run"),
        (("Epilog=/etc/slurm/epilog.d/*",), "/etc/slurm/epilog.d/README: "),
        (("PrologTimeout=5",), "PrologTimeout=5"),
    ],
)  # fmt: skip
def test_verify_tells_what_would_drain_nodes(root: Path, lines: tuple[str, ...], what: str) -> None:
    """Empty globs, programs that cannot be run and short timeouts, whoever put them there."""
    (root / "etc/slurm/README").write_text("x")
    program(root, "/etc/slurm/epilog.d/README").chmod(0o644)
    conf(root, *call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:], *lines)
    assert what in call(root, "verify", "slurm").stdout


@pytest.mark.parametrize(("text", "mode"), [("ab" * 32, 0o644), ("ab" * 8, 0o400), ("XY" * 32, 0o400), ("", 0o400)])
def test_verify_tells_of_an_unfit_key(root: Path, text: str, mode: int) -> None:
    """A key that others read, or that is too short or no hex, gives jobs no key."""
    conf(root, *call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:])
    key(root, text, mode)
    assert "BAD  /etc/mingle/key" in call(root, "verify", "slurm").stdout
    key(root)
    assert call(root, "verify", "slurm").exit_code == 0


def test_users_can_reach_the_taskprolog_whatever_the_umask(root: Path) -> None:
    """Under the umask of a cautious admin the directories are open to users; one that was closed before is told."""
    before = os.umask(0o077)
    try:
        call(root, "install", "slurm", "--yes")
    finally:
        os.umask(before)
    for place in (root / OURS.lstrip("/"), *(root / OURS.lstrip("/")).parents[:2]):
        assert stat.S_IMODE(place.stat().st_mode) == 0o755
    (root / "etc/mingle").chmod(0o700)
    assert "/etc/mingle: is closed to users" in call(root, "install", "slurm", "--yes").stderr


def test_a_link_in_place_of_a_hook_is_refused(root: Path) -> None:
    """Root follows nobody's links."""
    (root / OURS.lstrip("/")).mkdir(parents=True)
    (root / OURS.lstrip("/") / "prolog").symlink_to("/etc/passwd")
    with pytest.raises(PlaceError, match="regular file"):
        call(root, "install", "slurm", "--yes")


def test_rendering_is_what_installing_writes(root: Path) -> None:
    """`render` prints the file, `render --diff` the difference from what is installed."""
    call(root, "install", "slurm", "--yes")
    path = root / OURS.lstrip("/") / "taskprolog"
    assert call(root, "render", "slurm", "taskprolog").stdout == path.read_text()
    assert call(root, "render", "slurm", "--diff").stdout == ""
    path.write_text(path.read_text().replace("exit 0", "exit 1"))
    assert "-exit 1" in call(root, "render", "slurm", "--diff").stdout


def test_the_manifest_names_every_file_with_its_checksum(root: Path) -> None:
    """What was installed can be told from the manifest alone."""
    call(root, "install", "slurm", "--yes")
    entries = json.loads((root / manifest.MANIFEST_PATH.lstrip("/")).read_text())["files"]
    assert [entry["path"] for entry in entries] == [f"{OURS}/{name}" for name in NAMES]
    assert all(len(entry["sha256"]) == 64 for entry in entries)


@pytest.mark.parametrize(
    "change",
    [{"host_suffix": "$(id)"}, {"interfaces": ("a b",)}, {"partitions": ("a'b",)}, {"hosts": ("*",)},
     {"key_file": "relative"}, {"cluster": "a|b"}, {"opt_in": "a\nb"}],
)  # fmt: skip
def test_settings_that_no_hook_can_carry_are_refused(change: dict[str, object]) -> None:
    """Each by the name that it has in the settings file."""
    with pytest.raises(SettingsError):
        Site(**change)  # type: ignore[arg-type]


def test_what_cannot_be_read_is_an_error(root: Path) -> None:
    """An unknown version, a root that is none, a slurm.conf that is none."""
    with pytest.raises(UsageError, match="version"):
        call(root, "install", "slurm", "--slurm-version", "new", "--yes")
    with pytest.raises(UsageError, match="--root"):
        call(root / "none", "install", "slurm", "--yes")
    with pytest.raises(FactsError, match="slurm-conf"):
        find(str(root), "/none")


def test_several_prolog_lines_are_refused(root: Path) -> None:
    """Some versions of Slurm take the last one, some all: better no plan than a hook of the site's that is lost."""
    conf(root, "Prolog=/opt/a", "Prolog=/opt/b")
    with pytest.raises(FactsError, match="one Prolog line"):
        call(root, "install", "slurm", "--yes")


def test_an_old_slurm_is_refused(root: Path) -> None:
    """The hooks are made for 22.05 and later, and are the same for all of them."""
    with pytest.raises(UsageError, match="Slurm 22"):
        call(root, "render", "slurm", "--slurm-version", "20.11.9")
    texts = {call(root, "render", "slurm", "--slurm-version", version).stdout for version in ("22.05", "26.05.3")}
    assert len(texts) == 1
