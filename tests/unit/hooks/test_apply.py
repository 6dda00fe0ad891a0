"""Installing, keeping what was there, and uninstalling hooks below a directory."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.hooks_image import MOM, NO_CHAIN, OURS, at, call, conf, image, key, program, tree

from mingle_hooks.cli import main
from mingle_hooks.errors import ConflictError, FactsError, PlaceError, SettingsError, UsageError
from mingle_hooks.hooks import files
from mingle_hooks.hooks.slurm import find_slurm_conf as find


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node image with a slurm.conf that names no hooks."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    conf(tmp_path, "ClusterName=x")
    return tmp_path


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


def test_lines_that_are_there_are_marked(root: Path) -> None:
    """Lines that slurm.conf has already, also through Include and in other letters, are marked."""
    (root / "etc/slurm/more.conf").write_text(f"prologFLAGS = Alloc,X11 # x\ntaskprolog={OURS}/taskprolog\n")
    conf(root, f"Prolog={OURS}/prolog", "Include more.conf")
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN)
    there = [line for line in call(root, "install", "slurm", "--yes").stdout.splitlines() if "already there" in line]
    assert [line.split("=")[0] for line in there] == ["Prolog", "TaskProlog", "PrologFlags"]


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


@pytest.mark.parametrize("enabled", ["true", "false", "False"])
def test_a_hook_that_shadows_a_prologue_is_named(root: Path, enabled: str) -> None:
    """An execjob_prologue hook keeps pbs_mom from running the classic one, unless it is disabled."""
    program(root, "/var/spool/pbs/mom_priv/hooks/other.HK", f"event=execjob_prologue\nenabled={enabled}\n")
    note = "hook other has the event execjob_prologue"
    assert (note in call(root, "install", "pbs", "--yes").stderr) == (enabled == "true")


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (("Prolog=/etc/slurm/none.d/*",), "matches no file"), (("Epilog=/etc/slurm/README",), "cannot be run"),
        (("Epilog=/etc/slurm/epilog.d/*",), "/etc/slurm/epilog.d/README: "),
        (("PrologTimeout=5",), "PrologTimeout=5"),
    ],
)  # fmt: skip
def test_verify_finds_what_would_drain_nodes(root: Path, lines: tuple[str, ...], what: str) -> None:
    """Empty globs, programs that cannot be run and short timeouts, whoever put them there."""
    (root / "etc/slurm/README").write_text("x")
    program(root, "/etc/slurm/epilog.d/README").chmod(0o644)
    conf(root, *call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:], *lines)
    assert what in call(root, "verify", "slurm").stdout


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("host_suffix", "$(id)"), ("host_suffix", "a" * 201), ("hooks.hosts", "*"), ("hooks.cluster", "a|b"),
        ("hooks.partitions", "a'b"), ("hooks.opt_in", "a b"), ("hooks.key_file", "relative"),
        ("hooks.key_file", "/a b"), ("hooks.prolog", "/a;b"),
    ],
)  # fmt: skip
def test_settings_that_no_hook_can_carry_are_refused(root: Path, key: str, value: str) -> None:
    """Each by the name that it has in the settings file."""
    program(root, "/etc/mingle/mingle.toml", f'{key} = "{value}"\n')
    with pytest.raises(SettingsError, match=key):
        call(root, "render", "slurm", "prolog")


def test_the_host_of_a_pbs_server_alone_has_no_classic_scripts(root: Path) -> None:
    """It may have mom_priv, but pbs.conf does not start pbs_mom there."""
    program(root, "/etc/pbs.conf", "PBS_HOME=/var/spool/pbs\nPBS_START_MOM=0\n")
    at(root, "/var/spool/pbs/mom_priv").mkdir(parents=True)
    call(root, "install", "pbs", "--yes")
    assert [*at(root, "/var/spool/pbs/mom_priv").iterdir()] == []
    assert call(root, "verify", "pbs").exit_code == 0


def test_what_cannot_be_read_is_an_error(root: Path) -> None:
    """An unknown version, a root that is none, a slurm.conf that is none."""
    with pytest.raises(UsageError, match="version"):
        call(root, "install", "slurm", "--slurm-version", "new", "--yes")
    with pytest.raises(UsageError, match="--root"):
        call(root / "none", "install", "slurm", "--yes")
    with pytest.raises(FactsError, match="slurm-conf"):
        find(str(root), "/none")


def test_several_prolog_lines_are_refused_by_an_older_slurm(root: Path) -> None:
    """It takes the last one: better no plan than a hook of the site's that is lost."""
    conf(root, "Prolog=/opt/a", "Prolog=/opt/b")
    for more in ((), ("--slurm-version", "25.11")):
        with pytest.raises(FactsError, match="one Prolog line"):
            call(root, "install", "slurm", "--yes", *more)


@pytest.mark.parametrize("site", [("/opt/a",), ("/opt/a", "/opt/b"), ("/etc/slurm/prolog.d/*", "/opt/b")])
def test_ours_is_one_more_line_where_slurm_runs_all_of_them(root: Path, site: tuple[str, ...]) -> None:
    """It calls none of the site's programs, which have lines of their own, and verify is content with that."""
    for path in ("/opt/a", "/opt/b", "/etc/slurm/prolog.d/10"):
        program(root, path)
    key(root)
    lines = [f"Prolog={path}" for path in site]
    conf(root, *lines)
    version = ("--slurm-version", "26.05.3")
    own = "/opt/a" if "/opt/a" in site else "none"
    program(root, "/etc/mingle/mingle.toml", NO_CHAIN.replace("none", own, 1))
    added = call(root, "install", "slurm", "--yes", *version).stdout.splitlines()[-4:]
    assert added[0] == f"Prolog={OURS}/prolog"
    assert "/opt/" not in at(root, f"{OURS}/prolog").read_text()
    conf(root, *lines, *added)
    assert "already there" in call(root, "install", "slurm", "--yes", *version).stdout
    done = call(root, "verify", "slurm", *version)
    assert (done.exit_code, "BAD" in done.stdout) == (0, False)


SHARED = "/etc/slurm/prolog.d"


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "ext4", ""])
def test_a_directory_that_nodes_share_is_a_note_and_fails_no_node(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, kind: str
) -> None:
    """What another node installs there, unlike this node's manifest, is a note on a network's file system."""
    program(root, f"{SHARED}/50-site")
    conf(root, f"Prolog={SHARED}/*")
    key(root)
    mounts = root / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / {root}{SHARED} rw shared:1 - {kind or 'xfs'} x rw\n")
    monkeypatch.setattr(files, "MOUNTS", str(mounts))
    is_shared = kind in {"nfs4", "fuse.sshfs"}
    note = f"{SHARED} is on {kind}: other nodes run these files too"
    assert (note in call(root, "install", "slurm", "--yes").stderr) == is_shared
    with monkeypatch.context() as patched:
        patched.setattr(files, "__version__", "9.1")
        text = call(root, "render", "slurm", "prolog").stdout
    at(root, f"{SHARED}/10-mingle").write_text(text)
    assert main.run(["hooks", "verify", "slurm", "--quiet", "--root", str(root)]) == (0 if is_shared else 1)
    assert ("comes from another installation" in capfd.readouterr().out) != is_shared
    at(root, "/etc/mingle/hooks/manifest.json").unlink()
    shutil.rmtree(at(root, OURS))
    assert "other nodes run these files too" in call(root, "install", "slurm", "--yes").stderr


def test_an_old_slurm_is_refused(root: Path) -> None:
    """The hooks are made for 22.05 and later, and are the same for all of them."""
    with pytest.raises(UsageError, match="Slurm 22"):
        call(root, "render", "slurm", "--slurm-version", "20.11.9")
    texts = {call(root, "render", "slurm", "--slurm-version", version).stdout for version in ("22.05", "26.05.3")}
    assert len(texts) == 1


KEPT = f"{MOM}/prologue.before-mingle"
EDITED = "/etc/mingle/hooks/kept/torque-prologue.edited"
MANIFEST = "/etc/mingle/hooks/manifest.json"
# What a text of 1 MiB, read with universal newlines, would not survive: also the last octet counts.
OCTETS = b"#!/bin/sh\r\necho \xff\x00\x80 caf\xc3\xa9\r\n" + b"#" * (2 << 20) + b"\rend"
GARBAGE = [
    b"", b"{", b"[]", b'{"files": 3}', b"\xff", b"[" * 100_000, b'{"files": [{"path": "../x"}]}', None,
]  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Give a node with a prologue of the site's own."""
    node = tmp_path / "image"
    path = image(node)
    path.write_bytes(OCTETS)
    path.chmod(0o540)
    return node


def spoil(node: Path, manifest: bytes | None) -> None:
    """Put something in the manifest's place, or nothing."""
    if manifest is None:
        at(node, MANIFEST).unlink()
    else:
        at(node, MANIFEST).write_bytes(manifest)


def test_the_site_s_own_is_kept_and_put_back_octet_for_octet(node: Path) -> None:
    """Of any size, with any octets, with its mode and group; the manifest holds its checksum."""
    os.chown(at(node, f"{MOM}/prologue"), -1, 4 if os.geteuid() == 0 else -1)
    before = tree(node)
    call(node, "install", "torque", "--yes")
    assert at(node, KEPT).read_bytes() == OCTETS
    assert len(json.loads(at(node, MANIFEST).read_bytes())["files"][-2]["kept_sha256"]) == 64
    call(node, "uninstall", "torque", "--yes")
    assert tree(node) == before


@pytest.mark.parametrize("manifest", GARBAGE, ids=lambda text: repr(text)[:20])
def test_without_a_manifest_the_site_s_own_is_found_again(node: Path, manifest: bytes | None) -> None:
    """One that is lost or makes no sense is made anew from what is there, by the next install or by uninstall."""
    before = tree(node)
    call(node, "install", "torque", "--yes")
    call(node, "install", "slurm", "--yes")
    installed = tree(node)
    spoil(node, manifest)
    for scheduler in ("slurm", "torque"):
        call(node, "install", scheduler, "--yes")
    assert tree(node) == installed
    spoil(node, manifest)
    for scheduler in ("slurm", "torque"):
        assert call(node, "uninstall", scheduler, "--yes").exit_code == 0
    assert tree(node) == before


def test_a_manifest_of_a_later_version_is_read(node: Path) -> None:
    """After a roll back: what only the later version knows is left out."""
    before = tree(node)
    call(node, "install", "torque", "--yes")
    manifest = json.loads(at(node, MANIFEST).read_bytes())
    rows = [{**row, "news": 1} for row in manifest["files"]]
    spoil(node, json.dumps({"version": 2, "files": rows, "more": []}).encode())
    call(node, "uninstall", "torque", "--yes")
    assert tree(node) == before


@pytest.mark.parametrize("path", ["etc/shadow", "/etc/mingle/../shadow", "/etc//shadow", "", 7])
@pytest.mark.parametrize("name", ["path", "kept"])
def test_a_manifest_with_paths_that_lead_elsewhere_counts_for_nothing(node: Path, name: str, path: object) -> None:
    """What it names is what uninstalling removes."""
    program(node, "/etc/shadow", "secret")
    before = tree(node)
    call(node, "install", "torque", "--yes")
    manifest = json.loads(at(node, MANIFEST).read_bytes())
    manifest["files"][0][name] = path
    spoil(node, json.dumps(manifest).encode())
    call(node, "uninstall", "torque", "--yes")
    assert tree(node) == before


def test_a_manifest_that_cannot_be_read_is_an_error(node: Path) -> None:
    """It may be sound."""
    at(node, MANIFEST).mkdir(parents=True)
    with pytest.raises(PlaceError, match=r"manifest\.json"):
        call(node, "install", "torque", "--yes")


def test_uninstalling_where_nothing_is_does_nothing(node: Path) -> None:
    """Also on a node without that scheduler; but what a lost manifest leaves unknown is told."""
    before = tree(node)
    for scheduler in ("slurm", "torque", "pbs"):
        assert call(node, "uninstall", scheduler, "--yes").exit_code == 0
    assert tree(node) == before
    at(node, MOM).rename(node / "gone")
    assert call(node, "uninstall", "torque", "--yes").exit_code == 0
    at(node, MANIFEST).parent.mkdir(parents=True)
    spoil(node, b"")
    with pytest.raises(FactsError, match="mom_priv"):
        call(node, "uninstall", "torque", "--yes")


@pytest.mark.parametrize("manifest", [b"{", None, b"as it is"], ids=["corrupt", "lost", "there"])
def test_ours_that_somebody_edited_is_never_the_site_s(node: Path, manifest: bytes | None) -> None:
    """It is kept apart and never run: as the site's own it would run itself for ever."""
    before = tree(node)
    call(node, "install", "torque", "--yes")
    installed = tree(node)
    path = at(node, f"{MOM}/prologue")
    text = path.read_bytes().replace(b"exit 0", b"exit 0 # ours", 1)
    path.write_bytes(text)
    if manifest != b"as it is":
        spoil(node, manifest)
    assert EDITED in call(node, "install", "torque", "--yes").stdout
    assert (at(node, EDITED).read_bytes(), at(node, EDITED).stat().st_mode & 0o777) == (text, 0o600)
    assert {path: its for path, its in tree(node).items() if "/kept" not in path} == installed
    call(node, "uninstall", "torque", "--yes")
    now = tree(node)
    assert {path: its for path, its in now.items() if not path.startswith("etc/mingle")} == before
    assert at(node, EDITED).read_bytes() == text


def test_no_copy_is_written_over_another(node: Path) -> None:
    """Not of the site's own, nor of ours that was edited twice."""
    at(node, KEPT).write_text("somebody's")
    call(node, "install", "torque", "--yes")
    assert (at(node, KEPT).read_text(), at(node, f"{KEPT}.2").read_bytes()) == ("somebody's", OCTETS)
    at(node, f"{KEPT}.old").write_text("no number")
    for number in (1, 2):
        with at(node, f"{MOM}/prologue").open("a") as file:
            file.write(f"# {number}\n")
        call(node, "install", "torque", "--yes")
    assert at(node, EDITED).read_text().endswith("# 1\n")
    assert at(node, f"{EDITED}.2").read_text().endswith("# 2\n")
    at(node, KEPT).unlink()  # the one that nothing calls: the other one is found without the manifest, too
    spoil(node, None)
    call(node, "uninstall", "torque", "--yes")
    assert at(node, f"{MOM}/prologue").read_bytes() == OCTETS
    assert [path.name for path in at(node, MOM).iterdir() if "before" in path.name] == ["prologue.before-mingle.old"]


def test_two_of_the_site_s_own_with_our_name_have_two_copies(node: Path) -> None:
    """In directories that slurm.conf names by a glob ours has one name."""
    for name in ("prolog", "epilog"):
        program(node, f"/etc/slurm/{name}.d/10-mingle", f"#!/bin/sh\n# {name}\n")
        program(node, f"/etc/slurm/{name}.d/20-site")
    conf(node, "Prolog=/etc/slurm/prolog.d/*", "Epilog=/etc/slurm/epilog.d/*")
    before = tree(node)
    call(node, "install", "slurm", "--yes")
    assert "Made by" in at(node, "/etc/slurm/epilog.d/10-mingle").read_text()
    call(node, "uninstall", "slurm", "--yes")
    assert tree(node) == before


def test_settings_that_are_wrong_keep_nobody_from_uninstalling(node: Path) -> None:
    """They may be the reason."""
    before = tree(node)
    call(node, "install", "torque", "--yes")
    for manifest in (True, False):
        call(node, "install", "torque", "--yes")
        at(node, "/etc/mingle/mingle.toml").write_text("[hooks")
        if not manifest:
            spoil(node, None)
        call(node, "uninstall", "torque", "--yes")
        at(node, "/etc/mingle/mingle.toml").unlink()
    at(node, "/etc/mingle").rmdir()
    assert tree(node) == before


def test_what_the_site_puts_over_ours_is_the_site_s_own_from_then_on(node: Path) -> None:
    """A tool that brings the site's files puts back the old one, or a new one: kept and called, and put back."""
    call(node, "install", "torque", "--yes")
    installed = tree(node)
    path = at(node, f"{MOM}/prologue")
    path.write_bytes(OCTETS)
    path.chmod(0o540)
    call(node, "install", "torque", "--yes")
    assert tree(node) == installed
    path.write_bytes(b"#!/bin/sh\nexit 4\n")
    path.chmod(0o700)
    call(node, "install", "torque", "--yes")
    assert at(node, KEPT).read_bytes() == OCTETS
    assert f"exec {KEPT}.2 " in path.read_text()
    call(node, "uninstall", "torque", "--yes")
    assert path.read_bytes() == b"#!/bin/sh\nexit 4\n"


def test_a_kept_prologue_finds_what_lies_beside_it(node: Path) -> None:
    """A usual script asks for its own directory by $0, and pbs_mom starts it by its whole path."""
    at(node, f"{MOM}/site.conf").write_text("from=beside\n")
    path = program(node, f"{MOM}/prologue", '#!/bin/sh\n. "$(dirname "$0")/site.conf"\necho "$from $*"\n')
    call(node, "install", "torque", "--yes")
    # As it would be on the node that this is an image of; ours is switched off, as it would write to this one.
    text = path.read_text().replace(MOM, str(path.parent)).replace("/etc/mingle/disabled", str(node))
    path.write_text(text)
    done = subprocess.run([path, "7.server", "nobody"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "beside 7.server nobody\n"


# Links of the site's, and where their copies lead: a copy must not lead to ours.
LINKS = {
    "to another script": ("prologue.parallel", "prologue", "prologue.before-mingle"),
    "by its whole path": ("epilogue", f"{MOM}/epilogue.parallel", f"{MOM}/epilogue.parallel.before-mingle"),
    "to elsewhere": ("epilogue", "/opt/site/epilogue.sh", "/opt/site/epilogue.sh"),
}


@pytest.mark.parametrize("kind", LINKS)
def test_a_link_of_the_sites_has_a_copy_and_comes_back(node: Path, kind: str) -> None:
    """prologue.parallel often is a link to prologue; the script's own directory is still that of the link."""
    name, leads, copy = LINKS[kind]
    at(node, f"{MOM}/{name}").symlink_to(leads)
    program(node, f"{MOM}/epilogue.parallel")
    program(node, "/opt/site/epilogue.sh")
    at(node, f"{MOM}/prologue.user").symlink_to("prologue")
    before = tree(node)
    call(node, "install", "torque", "--yes")
    installed = tree(node)
    assert os.readlink(at(node, f"{MOM}/{name}.before-mingle")) == copy
    assert os.readlink(at(node, f"{MOM}/prologue.user")) == "prologue"
    assert not at(node, f"{MOM}/{name}").is_symlink()
    spoil(node, None)
    call(node, "install", "torque", "--yes")
    assert tree(node) == installed
    key(node)
    assert call(node, "verify", "torque").exit_code == 0
    at(node, "/etc/mingle/key").unlink()
    call(node, "uninstall", "torque", "--yes")
    assert tree(node) == before


def test_links_in_a_circle_are_refused(node: Path) -> None:
    """There is nothing to call."""
    at(node, f"{MOM}/epilogue").symlink_to("epilogue.parallel")
    at(node, f"{MOM}/epilogue.parallel").symlink_to("epilogue")
    before = tree(node)
    with pytest.raises(PlaceError, match="circle"):
        call(node, "install", "torque", "--yes")
    assert tree(node) == before


@pytest.mark.parametrize("link", ["etc/mingle", "etc/mingle/hooks", "var/spool/torque", "var/spool/torque/mom_priv"])
@pytest.mark.parametrize("leads", ["absolute", "up"])
def test_no_link_of_an_image_leads_out_of_it(node: Path, link: str, leads: str) -> None:
    """Below --root links lead where they lead for the node that is made of it."""
    path, target = node / link, node / "srv" / link.replace("/", "-")
    target.parent.mkdir()
    if path.exists():
        path.rename(target)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir()
    inside = f"/srv/{target.name}"
    path.symlink_to(inside if leads == "absolute" else "../" * 40 + inside)
    before, outside = tree(node), tree(node.parent)
    done = call(node, "install", "torque", "--yes")
    assert done.exit_code == 0
    assert not [p for p in tree(node.parent).keys() - outside.keys() if not p.startswith(f"{node.name}/")]
    names = {path.name for path in target.rglob("*") if path.is_file()}
    assert names & {"manifest.json", "epilogue"}
    call(node, "uninstall", "torque", "--yes")
    assert tree(node) == before


def test_an_image_s_own_slurm_conf_counts(node: Path) -> None:
    """Also where links lead to it that would lead to this machine's, or to a file system that is not here."""
    at(node, "/etc/slurm").rename(node / "shared")
    at(node, "/etc/slurm").symlink_to("/shared")
    (node / "shared/slurm.conf").write_text("Prolog=/opt/site/prolog.sh\n")
    for more in ((), ("--slurm-conf", "/etc/slurm/slurm.conf")):
        assert "calls /opt/site/prolog.sh" in call(node, "install", "slurm", "--dry-run", *more).stdout


def test_the_slurm_chain_of_a_lost_manifest_is_in_the_hook(node: Path) -> None:
    """slurm.conf names ours by then, so nothing else tells of the site's own Prolog."""
    program(node, "/opt/site/prolog.sh")
    conf(node, "Prolog=/opt/site/prolog.sh")
    lines = call(node, "install", "slurm", "--yes").stdout.splitlines()[-4:]
    conf(node, *lines)
    before = at(node, f"{OURS}/prolog").read_text()
    spoil(node, None)
    call(node, "install", "slurm", "--yes")
    assert at(node, f"{OURS}/prolog").read_text() == before
    assert "/opt/site/prolog.sh" in before


def test_what_is_looked_at_in_an_image_is_the_image_s(node: Path) -> None:
    """A glob of slurm.conf, drop-ins and the kill switch behind absolute links: seen to be read on this machine."""
    at(node, "/srv/slurm/prolog.d").mkdir(parents=True)
    program(node, "/srv/slurm/prolog.d/50-site").chmod(0o644)
    at(node, "/etc/slurm/prolog.d").symlink_to("/srv/slurm/prolog.d")
    at(node, "/srv/mingle/epilog.d").mkdir(parents=True)
    at(node, "/srv/mingle/epilog.d/note").write_text("no program")
    at(node, "/etc/mingle").symlink_to("/srv/mingle")
    conf(node, "Prolog=/etc/slurm/prolog.d/*")
    call(node, "install", "slurm", "--yes")
    found = call(node, "verify", "slurm").stdout
    assert "/etc/slurm/prolog.d/50-site:" in found
    assert "/etc/mingle/epilog.d/note:" in found
    assert at(node, "/srv/slurm/prolog.d/10-mingle").is_file()


@pytest.mark.parametrize(
    ("scheduler", "names"),
    [("pbs", ["epilogue", "prologue"]), ("torque", ["epilogue", "epilogue.parallel", "prologue", "prologue.parallel"])],
)
def test_the_classic_scripts_are_root_s_alone(tmp_path: Path, scheduler: str, names: list[str]) -> None:
    """pbs_mom runs none that others may write; Torque has two more, for the other nodes of a job."""
    place = tmp_path / "var/spool" / scheduler / "mom_priv"
    place.mkdir(parents=True)
    call(tmp_path, "install", scheduler, "--yes")
    assert sorted(path.name for path in place.iterdir()) == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o700}


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """Give a node image."""
    image(tmp_path)
    return tmp_path


# Commands in their order, and whether each changes something, or would.
CHANGES = (
    ("install", "--dry-run", True), ("install", "--yes", True), ("install", "--yes", False),
    ("install", "--dry-run", False), ("uninstall", "--dry-run", True), ("uninstall", "--yes", True),
    ("uninstall", "--yes", False),
)  # fmt: skip


@pytest.mark.parametrize("scheduler", ["slurm", "torque"])
@pytest.mark.parametrize("detailed", [False, True])
def test_json_and_status_have_whether_anything_changed(busy: Path, scheduler: str, *, detailed: bool) -> None:
    """As Ansible wants it, `changed` and status 0; with --detailed-exitcode 2, as terraform's plan has it."""
    for command, how, changes in CHANGES:
        done = call(busy, command, scheduler, how, "--json", *(["--detailed-exitcode"] if detailed else []))
        assert (done.exit_code, done.stderr) == (2 if changes and detailed else 0, "")
        assert json.loads(done.stdout)["changed"] == changes


def test_json_has_what_the_text_has(busy: Path) -> None:
    """The files with what was done, the lines for slurm.conf, and notes."""
    conf(busy, "PrologFlags=Alloc")
    reported = json.loads(call(busy, "install", "slurm", "--yes", "--json").stdout)
    assert [(row["path"], row["action"]) for row in reported["files"]] == [
        (f"{OURS}/{name}", "create") for name in ("prolog", "epilog", "taskprolog", "taskprolog-all")
    ]
    assert reported["lines"][0] == {"text": f"Prolog={OURS}/prolog", "is_there": False}
    assert reported["lines"][-1] == {"text": "PrologFlags=Alloc", "is_there": True}
    assert (reported["lines_for"], reported["bad"]) == ("/etc/slurm/slurm.conf", [])
    assert "/etc/mingle/key" in reported["notes"][0]
    reported = json.loads(call(busy, "install", "torque", "--yes", "--json").stdout)
    kept = f"{MOM}/prologue.before-mingle"
    assert reported["files"][0] == {"path": f"{MOM}/prologue", "action": "replace", "kept": kept, "calls": kept}
    reported = json.loads(call(busy, "uninstall", "torque", "--yes", "--json").stdout)
    assert {row["path"]: row["action"] for row in reported["files"]}[f"{MOM}/prologue"] == "restore"


def test_an_install_that_leaves_something_bad_ends_with_1(busy: Path) -> None:
    """The files are written; but with the lines in slurm.conf every task would fail."""
    call(busy, "install", "slurm", "--yes")
    (busy / "etc/mingle").chmod(0o700)
    for more in ((), ("--detailed-exitcode",)):
        done = call(busy, "install", "slurm", "--yes", *more)
        assert (done.exit_code, "BAD  /etc/mingle: is closed to users" in done.stderr) == (1, True)
    done = call(busy, "install", "slurm", "--yes", "--json")
    assert (done.exit_code, [row["where"] for row in json.loads(done.stdout)["bad"]]) == (1, ["/etc/mingle"])


def test_two_installations_at_once_are_one_after_the_other(busy: Path) -> None:
    """The second is refused and changes nothing; looking is free. The lock ends with its process."""
    before = tree(busy)
    descriptor = os.open(busy, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    for command in ("install", "uninstall"):
        with pytest.raises(PlaceError, match="at a time"):
            call(busy, command, "slurm", "--yes")
    assert call(busy, "install", "slurm", "--dry-run").exit_code == 0
    assert tree(busy) == before
    os.close(descriptor)
    assert call(busy, "install", "slurm", "--yes").exit_code == 0


def test_a_node_s_lock_is_root_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who can open it could keep root from installing."""
    monkeypatch.setattr(files, "LOCK_PATH", f"{tmp_path}/lock")
    with files.installation_lock(""):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(PlaceError, match="at a time"), files.installation_lock(""):
            pass
    with files.installation_lock(""):
        pass
    monkeypatch.setattr(files, "LOCK_PATH", f"{tmp_path}/none/lock")
    with pytest.raises(PlaceError, match="as root"), files.installation_lock(""):
        pass


@pytest.mark.parametrize("argv", [(), ("--diff",), ("--json",)])
def test_all_is_done_where_nobody_reads_what_is_printed(busy: Path, argv: tuple[str, ...]) -> None:
    """As below `| head -1`: what install said it wrote is written, and what uninstall said it removed is gone."""
    before = tree(busy)
    for command, more in (("install", argv), ("uninstall", argv if "--json" in argv else ())):
        reader, writer = os.pipe()
        os.close(reader)
        words = ["hooks", command, "torque", "--yes", *more, "--root", str(busy)]
        command_line = [sys.executable, "-m", "mingle_hooks", *words]
        done = subprocess.run(command_line, stdout=writer, timeout=60, check=False, cwd="/")
        os.close(writer)
        assert done.returncode != 0
        if command == "install":
            verified = call(busy, "verify", "torque", "--quiet").stdout
            assert [line for line in verified.splitlines() if "/etc/mingle/key" not in line] == []
    assert tree(busy) == before


def test_a_full_disk_leaves_every_file_as_it_was(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the new files has no room, the old hooks and their manifest stay; with room for all, all are new."""
    call(busy, "install", "slurm", "--yes")
    (busy / "etc/mingle/mingle.toml").write_text('host_suffix = "-ib"\n[hooks]\ncluster = "other"\n')
    before, fill = tree(busy), files._write
    room, written = 0, 0

    def filled(path: str, found: files.Found) -> None:
        nonlocal written
        if written == room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += 1
        fill(path, found)

    monkeypatch.setattr(files, "_write", filled)
    while room < 3:  # the manifest, the Prolog and the TaskProlog change
        with pytest.raises(PlaceError, match="No space left"):
            call(busy, "install", "slurm", "--yes")
        assert tree(busy) == before
        room, written = room + 1, 0
    assert call(busy, "install", "slurm", "--yes").exit_code == 0
    assert written == 3
