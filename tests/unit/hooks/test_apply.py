"""Installing, keeping what was there, and uninstalling hooks below a directory."""

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.hooks import SHELLS, shell as shell_of
from support.hooks_image import LINES, MOM, NO_CHAIN, OURS, at, call, conf, image, install, key, program, tree
from support.needs import only_with

from mingle_hooks.cli import main
from mingle_hooks.errors import ConflictError, FactsError, PlaceError, SettingsError, UsageError
from mingle_hooks.hooks import files
from mingle_hooks.hooks.files import Chain, Site, render_hook
from mingle_hooks.hooks.targets import hook

KEPT = f"{MOM}/prologue.before-mingle"
EDITED = "/etc/mingle/hooks/kept/torque-prologue.edited"
MANIFEST = "/etc/mingle/hooks/manifest.json"
# What a text of 1 MiB, read with universal newlines, would not survive: also the last octet counts.
OCTETS = b"#!/bin/sh\r\necho \xff\x00\x80 caf\xc3\xa9\r\n" + b"#" * (2 << 20) + b"\rend"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Give a node image with a slurm.conf that names no hooks, and a prologue of the site's own for Torque."""
    node = tmp_path / "image"
    path = image(node)
    path.write_bytes(OCTETS)
    path.chmod(0o540)
    return node


def test_installing_writes_what_deviates_and_prints_the_lines(node: Path) -> None:
    """The four lines stand alone on theirs, slurm.conf stays; a file that is right may be running, and stays too."""
    before = tree(node)
    lines = install(node).stdout.partition("\n/etc/slurm/slurm.conf:\n")[2].splitlines()
    assert lines == [*LINES[:2], f"TaskProlog={OURS}/taskprolog", LINES[3]]
    installed = tree(node)
    assert {stat.S_IMODE(installed[f"{OURS[1:]}/{name}"][0]) for name in ("prolog", "epilog", "taskprolog")} == {0o755}
    assert before.items() <= installed.items()
    numbers = {path: path.stat().st_ino for path in node.rglob("*")}
    done = call(node, "install", "slurm")  # asks nothing, as there is nothing to do
    assert (done.exit_code, {line.split()[0] for line in done.stdout.splitlines()[:3]}) == (0, {"keep"})
    assert (tree(node), {path: path.stat().st_ino for path in node.rglob("*")}) == (installed, numbers)
    spoilt = at(node, f"{OURS}/epilog")
    spoilt.write_text("#!/bin/sh\n")
    install(node)
    assert installed.items() <= tree(node).items()
    assert [path for path in at(node, OURS).iterdir() if path.stat().st_ino != numbers[path]] == [spoilt]


def test_a_globbed_directory_gets_a_program_that_its_glob_matches(node: Path) -> None:
    """Runnable, and nothing else that a glob matches is put there; better no plan than a hook that never runs."""
    program(node, "/etc/slurm/prolog.d/50-site.sh")
    conf(node, "Prolog=/etc/slurm/prolog.d/*.sh")
    done = install(node)
    assert "Prolog=/etc/slurm/prolog.d/*.sh    # already there" in done.stdout
    assert (': prolog = "none"' in done.stderr, ': epilog = "none"' in done.stderr) == (False, True)  # ours calls none
    names = sorted(path.name for path in (node / "etc/slurm/prolog.d").glob("[!.]*"))
    assert names == ["10-mingle.sh", "50-site.sh"]
    assert all(os.access(node / "etc/slurm/prolog.d" / name, os.X_OK) for name in names)
    assert files.TEMPORARY.startswith(".")
    conf(node, "Prolog=/etc/slurm/prolog.d/site-*")
    with pytest.raises(FactsError, match="a glob that matches one of"):
        install(node)


def test_what_is_no_longer_needed_is_found_until_it_is_gone(node: Path) -> None:
    """Slurm may still run it, so installing with other settings leaves it; uninstalling gives back the site's own."""
    key(node)
    ours = program(node, "/etc/slurm/prolog.d/10-mingle", "#!/bin/sh\n# prolog\n")
    program(node, "/etc/slurm/epilog.d/20-site")
    (node / "etc/enroot/mounts.d").mkdir(parents=True)
    before = tree(node)
    conf(node, "Prolog=/etc/slurm/prolog.d/*", "Epilog=/etc/slurm/epilog.d/*")
    install(node)
    conf(node, *LINES)
    program(node, "/etc/mingle/mingle.toml", f'{NO_CHAIN}containers = "none"\n')
    left = {"/etc/slurm/prolog.d/10-mingle", "/etc/slurm/epilog.d/10-mingle", "/etc/enroot/mounts.d/50-mingle.fstab"}
    for command in (["install", "slurm", "--yes"], ["install", "slurm", "--yes"], ["verify", "slurm"]):
        done = call(node, *command)
        found = [line for line in done.output.splitlines() if "is no longer needed; fix" in line]
        assert all(line.startswith("note") for line in found)
        assert {line.partition(" is no")[0].split()[-1] for line in found} == left
        assert all("mingle hooks uninstall slurm, then mingle hooks install slurm" in line for line in found)
    at(node, "/etc/slurm/epilog.d/10-mingle").unlink()
    install(node)
    assert "/etc/slurm/epilog.d/10-mingle" not in call(node, "verify", "slurm").stdout
    conf(node, "ClusterName=x")
    call(node, "uninstall", "slurm", "--yes")
    assert ours.read_text() == "#!/bin/sh\n# prolog\n"
    at(node, "/etc/mingle/mingle.toml").unlink()
    assert tree(node) == before


def test_uninstalling_gives_back_what_was_there(node: Path) -> None:
    """Files come back bit for bit, with mode and group, as do two programs of our name in globbed directories."""
    os.chown(at(node, f"{MOM}/prologue"), -1, 4 if os.geteuid() == 0 else -1)
    program(node, "/opt/site/task.sh")
    program(node, "/var/spool/pbs/mom_priv/prologue", "#!/bin/sh\nexit 7\n").chmod(0o700)
    program(node, f"{MOM}/epilogue", "#!/bin/sh\nexit 8\n").chmod(0o500)
    for name in ("prolog", "epilog"):
        program(node, f"/etc/slurm/{name}.d/10-mingle", f"#!/bin/sh\n# {name}\n")
        program(node, f"/etc/slurm/{name}.d/20-site")
    conf(node, "Prolog=/etc/slurm/prolog.d/*", "Epilog=/etc/slurm/epilog.d/*", "TaskProlog=/opt/site/task.sh")
    before = tree(node)
    for scheduler in ("slurm", "pbs", "torque"):
        call(node, "install", scheduler, "--yes")
    assert at(node, KEPT).read_bytes() == OCTETS
    scripts = {path: path.stat().st_mode & 0o777 for path in at(node, "/var/spool").glob("*/mom_priv/*logue*")}
    ours = [path for path in scripts if "before" not in path.name]
    assert [scripts[path] for path in ours] == [0o700] * 6  # pbs_mom runs none that others may write
    assert "Made by" in at(node, "/etc/slurm/epilog.d/10-mingle").read_text()
    for scheduler in ("torque", "slurm", "pbs"):
        assert call(node, "uninstall", scheduler, "--yes").exit_code == 0
    assert tree(node) == before


@pytest.mark.parametrize(("line", "why"), [("", "reconfigure"), ("Prolog=/etc/slurm/prolog.d/*", "drains")])
def test_uninstalling_is_refused_while_slurm_runs_the_hooks(node: Path, line: str, why: str) -> None:
    """A hook that slurm.conf names and that is missing drains every node, as does a glob that matches nothing."""
    conf(node, line)
    conf(node, *install(node).stdout.splitlines()[-4:])
    before = tree(node)
    with pytest.raises(ConflictError, match=why):
        call(node, "uninstall", "slurm", "--yes")
    assert tree(node) == before


def test_a_hook_that_shadows_a_prologue_is_named(node: Path) -> None:
    """An execjob_prologue hook keeps pbs_mom from running the classic one, unless it is disabled."""
    for enabled in ("true", "false", "False"):
        program(node, "/var/spool/pbs/mom_priv/hooks/other.HK", f"event=execjob_prologue\nenabled={enabled}\n")
        note = "hook other has the event execjob_prologue"
        assert (note in call(node, "install", "pbs", "--yes").stderr) == (enabled == "true")


def test_verify_finds_what_would_drain_nodes(node: Path) -> None:
    """It finds empty globs, programs that cannot be run and short timeouts, whoever put them there."""
    (node / "etc/slurm/README").write_text("x")
    program(node, "/etc/slurm/epilog.d/README").chmod(0o644)
    drains = ("Prolog=/etc/slurm/none.d/*", "Epilog=/etc/slurm/README", "Epilog=/etc/slurm/epilog.d/*")
    conf(node, *install(node).stdout.splitlines()[-4:], *drains, "PrologTimeout=5")
    found = call(node, "verify", "slurm", "--slurm-version", "26.05").stdout
    whats = ("matches no file", "BAD  /etc/slurm/README:", "/etc/slurm/epilog.d/README: ", "has PrologTimeout=5")
    assert [what for what in whats if what not in found] == []


def test_rendering_is_what_installing_writes(node: Path) -> None:
    """`render` prints the file, `render --diff` the difference from what is there; uninstall leaves what was edited.

    A file has the site's own program in it. What is not for this host is printed as it would be on another.
    """
    program(node, "/opt/prolog")
    program(node, "/etc/mingle/mingle.toml", NO_CHAIN.replace("none", "/opt/prolog", 1))
    install(node)
    for name in ("prolog", "taskprolog"):
        path = at(node, f"{OURS}/{name}")
        assert call(node, "render", "slurm", name).stdout == path.read_text()
    shutil.rmtree(at(node, MOM))
    for words in ("slurm enroot-hook", "pbs prologue", "torque prologue"):
        assert "Made by: mingle hooks render" in call(node, "render", *words.split()).stdout
    assert call(node, "render", "slurm", "--diff").stdout == ""
    edited = path.read_text().replace("exit 0", "exit 1")
    path.write_text(edited)
    assert "-exit 1" in call(node, "render", "slurm", "--diff").stdout
    assert "leave" in call(node, "uninstall", "slurm", "--yes").stdout
    assert path.read_text() == edited


def test_settings_that_no_hook_can_carry_are_refused(node: Path) -> None:
    """The error has the name that the setting has in the file."""
    for name, value in (
        ("host_suffix", "$(id)"), ("host_suffix", "a" * 201), ("hooks.hosts", "*"), ("hooks.cluster", "a|b"),
        ("hooks.partitions", "a'b"), ("hooks.opt_in", "a b"), ("hooks.key_file", "relative"),
        ("hooks.key_file", "/a b"), ("hooks.prolog", "/a;b"),
    ):  # fmt: skip
        program(node, "/etc/mingle/mingle.toml", f'{name} = "{value}"\n')
        with pytest.raises(SettingsError, match=name):
            call(node, "render", "slurm", "prolog")


def test_the_host_of_a_pbs_server_alone_has_no_classic_scripts_and_needs_no_key(node: Path) -> None:
    """It runs no jobs: it may have mom_priv, but pbs.conf does not start pbs_mom there."""
    program(node, "/etc/pbs.conf", "PBS_HOME=/var/spool/pbs\nPBS_START_MOM=0\n")
    place = at(node, "/var/spool/pbs/mom_priv")
    place.mkdir(parents=True)
    quiet = ["hooks", "verify", "pbs", "--quiet", "--root", str(node)]
    call(node, "install", "pbs", "--yes")
    assert ([*place.iterdir()], call(node, "verify", "pbs").exit_code, main.run(quiet)) == ([], 0, 0)
    at(node, "/etc/pbs.conf").unlink()
    call(node, "install", "pbs", "--yes")
    assert "BAD  /etc/mingle/key: is missing" in call(node, "verify", "pbs").stdout


def test_several_prolog_lines_are_refused_by_an_older_slurm(node: Path) -> None:
    """It takes the last one: better no plan than a hook of the site's that is lost. From 22.05 on ours are the same."""
    conf(node, "Prolog=/opt/a", "Prolog=/opt/b")
    for more in ((), ("--slurm-version", "25.11")):
        with pytest.raises(FactsError, match="one Prolog line"):
            install(node, *more)
    assert call(node, "render", "slurm", "--slurm-version", "26.05").exit_code == 0
    with pytest.raises(UsageError, match=r"22\.05 or later; saw 21\.08"):
        call(node, "render", "slurm", "--slurm-version", "21.08.9")


@pytest.mark.parametrize("site", [("/opt/a",), ("/opt/a", "/opt/b"), ("/etc/slurm/prolog.d/*", "/opt/b")])
def test_ours_is_one_more_line_where_slurm_runs_all_of_them(node: Path, site: tuple[str, ...]) -> None:
    """It calls none of the site's programs, which have lines of their own, and verify is content with that."""
    for path in ("/opt/a", "/opt/b", "/etc/slurm/prolog.d/10"):
        program(node, path)
    key(node)
    lines = [f"Prolog={path}" for path in site]
    conf(node, *lines)
    version = ("--slurm-version", "26.05.3")
    own = "/opt/a" if "/opt/a" in site else "none"
    program(node, "/etc/mingle/mingle.toml", NO_CHAIN.replace("none", own, 1))
    added = install(node, *version).stdout.splitlines()[-4:]
    assert added[0] == f"Prolog={OURS}/prolog"
    assert "/opt/" not in at(node, f"{OURS}/prolog").read_text()
    conf(node, *lines, *added)
    assert "already there" in install(node, *version).stdout
    done = call(node, "verify", "slurm", *version)
    assert (done.exit_code, "BAD" in done.stdout) == (0, False)


SHARED = "/etc/slurm/prolog.d"


@pytest.mark.parametrize("kind", ["nfs4", "ext4", None])
def test_a_directory_that_nodes_share_has_one_manifest(
    node: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, kind: str | None
) -> None:
    """What another node installs there is right for all, whatever is known of its file system; edited is still BAD."""
    program(node, f"{SHARED}/50-site")
    conf(node, f"Prolog={SHARED}/*")
    key(node)
    mounts = node / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / {node}{SHARED} rw shared:1 - {kind} x rw\n")
    monkeypatch.setattr(files, "MOUNTS", str(mounts) if kind is not None else "/none")  # a container without /proc
    is_network = kind == "nfs4"
    assert (f"{SHARED} is on {kind}: other nodes run these files too" in install(node).stderr) == is_network
    other = shutil.copytree(node, node.with_name("other"))
    with monkeypatch.context() as patched:
        patched.setattr(files, "__version__", "9.1")
        install(other)
        text = call(node, "render", "slurm", "epilog").stdout
    shutil.copytree(at(other, SHARED), at(node, SHARED), dirs_exist_ok=True)
    assert "9.1" in at(node, f"{SHARED}/10-mingle").read_text()
    assert main.run(["hooks", "verify", "slurm", "--quiet", "--root", str(node)]) == 0
    assert "replace" in install(node).stdout
    at(node, f"{SHARED}/10-mingle").write_text(text)
    assert main.run(["hooks", "verify", "slurm", "--quiet", "--root", str(node)]) == 1
    assert "comes from another installation than the manifest (mingle-hooks 9.1)" in capfd.readouterr().out
    install(node)
    assert not at(node, "/etc/mingle/hooks/kept").exists()
    manifest = at(node, f"{SHARED}/.mingle-hooks.json")
    for spoilt in (b"{", b"[]"):
        manifest.write_bytes(spoilt)
        assert main.run(["hooks", "verify", "slurm", "--quiet", "--root", str(node)]) == 1
        install(node)
        assert main.run(["hooks", "verify", "slurm", "--quiet", "--root", str(node)]) == 0
    manifest.write_text(manifest.read_text().replace("1,", '1, "node": "node7",', 1))
    assert (f"{SHARED} has the manifest of node7: other nodes run" in install(node).stderr) != is_network
    call(node, "uninstall", "slurm", "--yes")
    assert os.listdir(at(node, SHARED)) == ["50-site"]


def test_nodes_that_install_into_one_directory_at_once_take_turns(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node begins between the manifest and the hook of the first one: what is there in the end is its own."""
    program(node, f"{SHARED}/50-site")
    conf(node, f"Prolog={SHARED}/*")
    key(node)
    children, rename = [], os.rename

    def meanwhile(old: str, new: str) -> None:
        if new.endswith("/10-mingle") and not children:
            children.append(os.fork())
            if not children[0]:
                try:
                    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="other"))
                    monkeypatch.setattr(files, "__version__", "9.1")
                    monkeypatch.setattr(files, "installation_lock", nullcontext)
                    install(node)
                finally:
                    os._exit(0)
            time.sleep(0.5)
        rename(old, new)

    monkeypatch.setattr(os, "rename", meanwhile)
    install(node)
    os.waitpid(children[0], 0)
    assert "9.1" in at(node, f"{SHARED}/10-mingle").read_text()
    assert main.run(["hooks", "verify", "slurm", "--quiet", "--root", str(node)]) == 0
    assert sorted(os.listdir(at(node, SHARED))) == [".mingle-hooks.json", "10-mingle", "50-site"]


@pytest.mark.parametrize(
    ("holder", "seconds", "is_free"), [("node7", 0, False), ("node7", 601, True), (os.uname().nodename, 0, True)]
)
def test_another_node_s_lock_is_waited_for(
    node: Path, monkeypatch: pytest.MonkeyPatch, holder: str, seconds: int, *, is_free: bool
) -> None:
    """Install waits for a minute, unless the lock is ten minutes old, or this node's own, left by a killed process."""
    monkeypatch.setattr(files, "_LOCK_S", 0)
    lock = at(node, f"{MOM}/.mingle-hooks.lock")
    lock.symlink_to(holder)
    os.utime(lock, (time.time() - seconds,) * 2, follow_symlinks=False)
    with nullcontext() if is_free else pytest.raises(PlaceError, match=r"saw \S+lock of node7"):
        assert call(node, "install", "torque", "--yes").exit_code == 0
    assert lock.is_symlink() != is_free


Rows = list[dict[str, object]]


def with_first(**values: object) -> Callable[[Rows], object]:
    """Return what gives a manifest's first row other values."""
    return lambda rows: {"files": [{**rows[0], **values}, *rows[1:]]}


# What stands in for the manifest, from its rows. What it names is what uninstalling removes.
MANIFESTS: dict[str, Callable[[Rows], object]] = {
    **{repr(text)[:20]: lambda _, text=text: text for text in (None, b"", b"[" * 100_000)},
    **{name: with_first(**{name: "/etc/mingle/../shadow"}) for name in ("path", "kept")},
    "of a later version": lambda rows: {"version": 2, "files": [{**row, "news": 1} for row in rows], "more": []},
}  # fmt: skip


def spoil(node: Path, manifest: bytes | None) -> None:
    """Put something in the manifest's place, or nothing."""
    if manifest is None:
        at(node, MANIFEST).unlink()
    else:
        at(node, MANIFEST).write_bytes(manifest)


@pytest.mark.parametrize("how", MANIFESTS)
def test_without_a_manifest_the_site_s_own_is_found_again(node: Path, how: str) -> None:
    """One that is lost or makes no sense is made anew from what is there, by the next install or by uninstall."""
    program(node, "/etc/shadow", "secret")
    before = tree(node)
    for scheduler in ("torque", "slurm"):
        call(node, "install", scheduler, "--yes")
    installed = tree(node)
    listed = files.read_manifest(str(node))
    manifest = MANIFESTS[how](json.loads(at(node, MANIFEST).read_bytes())["files"])
    spoilt = manifest if isinstance(manifest, bytes | None) else json.dumps(manifest).encode()
    spoil(node, spoilt)
    for scheduler in ("slurm", "torque"):
        call(node, "install", scheduler, "--yes")
    assert files.read_manifest(str(node)) == listed
    assert [path for path, its in tree(node).items() if its != installed[path]] in ([], [MANIFEST[1:]])
    spoil(node, spoilt)
    for scheduler in ("slurm", "torque"):
        assert call(node, "uninstall", scheduler, "--yes").exit_code == 0
    assert tree(node) == before


def test_uninstalling_where_nothing_is_does_nothing(node: Path) -> None:
    """The same holds on a node without that scheduler, but a manifest that is lost or cannot be read is an error."""
    before = tree(node)
    for scheduler in ("slurm", "torque", "pbs"):
        assert call(node, "uninstall", scheduler, "--yes").exit_code == 0
    assert tree(node) == before
    at(node, MOM).rename(node / "gone")
    assert call(node, "uninstall", "torque", "--yes").exit_code == 0
    at(node, MANIFEST).mkdir(parents=True)
    with pytest.raises(PlaceError, match=r"manifest\.json"):
        call(node, "uninstall", "torque", "--yes")
    at(node, MANIFEST).rmdir()
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
    """That holds for the site's own, and for ours that was edited twice."""
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


def test_settings_that_are_wrong_keep_nobody_from_uninstalling(node: Path) -> None:
    """Wrong settings may be the reason for uninstalling."""
    before = tree(node)
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


@pytest.mark.parametrize("shell", SHELLS)
def test_a_kept_prologue_that_cannot_be_started_is_a_failure(node: Path, shell: str) -> None:
    """As without ours: its interpreter is gone, say."""
    text = render_hook(hook("torque", "prologue"), Site(), Chain(str(program(node, "/own", "#!/nonexistent\n"))))
    path = program(node, "/prologue", text.replace("/etc/mingle/disabled", str(node)))
    argv = [*shell_of(shell), str(path), "7.server", "nobody"]
    assert subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode in {126, 127}


# Links of the site's, and where their copies lead: a copy must not lead to ours.
LINKS = {
    "to another script": ("prologue.parallel", "prologue", "prologue.before-mingle"),
    "by its whole path": ("epilogue", f"{MOM}/epilogue.parallel", f"{MOM}/epilogue.parallel.before-mingle"),
    "to what is no hook": ("epilogue", "site.sh", "site.sh"),
    "to elsewhere": ("epilogue", "/opt/site/prologue", "/opt/site/prologue"),
}


@pytest.mark.parametrize("kind", LINKS)
def test_a_link_of_the_sites_has_a_copy_and_comes_back(node: Path, kind: str) -> None:
    """prologue.parallel often is a link to prologue; the script's own directory is still that of the link."""
    name, leads, copy = LINKS[kind]
    at(node, f"{MOM}/{name}").symlink_to(leads)
    program(node, f"{MOM}/epilogue.parallel")
    program(node, f"{MOM}/site.sh")
    program(node, "/opt/site/prologue")
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


def test_links_that_lead_nowhere_sound_are_refused(node: Path) -> None:
    """There is nothing to call in a circle, and in place of Slurm's hooks root follows nobody's links."""
    at(node, f"{MOM}/epilogue").symlink_to("epilogue.parallel")
    at(node, f"{MOM}/epilogue.parallel").symlink_to("epilogue")
    at(node, OURS).mkdir(parents=True)
    at(node, f"{OURS}/prolog").symlink_to("/etc/passwd")
    before = tree(node)
    for scheduler, what in (("torque", "a loop: "), ("slurm", "regular file")):
        with pytest.raises(PlaceError, match=what):
            call(node, "install", scheduler, "--yes")
    assert tree(node) == before


def test_what_is_looked_at_in_an_image_is_the_image_s(node: Path) -> None:
    """slurm.conf, a glob of it, drop-ins and our own files behind links that would lead to this machine's."""
    before = tree(node.parent)
    at(node, "/etc/slurm").rename(node / "shared")
    at(node, "/etc/slurm").symlink_to("/shared")
    program(node, "/srv/slurm/prolog.d/50-site").chmod(0o644)
    (node / "shared/prolog.d").symlink_to("../" * 40 + "srv/slurm/prolog.d")
    program(node, "/srv/mingle/epilog.d/note").chmod(0o644)
    at(node, "/etc/mingle").symlink_to("/srv/mingle")
    (node / "shared/slurm.conf").write_text("Prolog=/etc/slurm/prolog.d/*\nEpilog=/opt/site/epilog\n")
    for more in ((), ("--slurm-conf", "/etc/slurm/slurm.conf")):
        assert "calls /opt/site/epilog" in call(node, "install", "slurm", "--dry-run", *more).stdout
    (node / "shared/slurm.conf").write_text("\n".join(install(node).stdout.splitlines()[-4:]))
    found = call(node, "verify", "slurm").stdout
    assert {"/etc/slurm/prolog.d/50-site:", "/etc/mingle/epilog.d/note:"} < {*found.split()}
    assert at(node, "/srv/slurm/prolog.d/10-mingle").is_file()
    ours = at(node, OURS.replace("/etc", "/srv")) / "epilog"
    text = ours.read_text()
    (node / "srv/mingle/hooks/manifest.json").unlink()  # nothing but the hook tells of the site's own Epilog then
    install(node)
    assert ours.read_text() == text
    (node / "shared/slurm.conf").write_text("ClusterName=x\n")
    call(node, "uninstall", "slurm", "--yes")
    outside = (path for path in tree(node.parent).keys() - before.keys() if not path.startswith(f"{node.name}/"))
    assert ([*outside], ours.exists(), at(node, "/srv/slurm/prolog.d/10-mingle").exists()) == ([], False, False)


def test_json_has_what_the_text_has(node: Path) -> None:
    """The files with what was done, the lines for slurm.conf, and notes."""
    conf(node, "PrologFlags=Alloc")
    steps = ("install", "--dry-run", True), ("install", "--yes", True), ("install", "--yes", False)
    steps += ("uninstall", "--dry-run", True), ("uninstall", "--yes", True), ("uninstall", "--yes", False)
    for command, how, changes in steps:
        assert json.loads(call(node, command, "torque", how, "--json").stdout)["changed"] == changes, command
    reported = json.loads(install(node, "--json").stdout)
    assert [(row["path"], row["action"]) for row in reported["files"]] == [
        (f"{OURS}/{name}", "create") for name in ("job", "prolog", "epilog", "taskprolog", "taskprolog-all")
    ]
    assert reported["lines"][0] == {"text": f"Prolog={OURS}/prolog", "is_there": False}
    assert reported["lines"][-1] == {"text": "PrologFlags=Alloc", "is_there": True}
    assert (reported["lines_for"], reported["bad"]) == ("/etc/slurm/slurm.conf", [])
    assert "/etc/mingle/key" in reported["notes"][0]
    reported = json.loads(call(node, "install", "torque", "--yes", "--json").stdout)
    kept = f"{MOM}/prologue.before-mingle"
    assert reported["files"][0] == {"path": f"{MOM}/prologue", "action": "replace", "kept": kept, "calls": kept}
    reported = json.loads(call(node, "uninstall", "torque", "--yes", "--json").stdout)
    assert {row["path"]: row["action"] for row in reported["files"]}[f"{MOM}/prologue"] == "restore"


@only_with("root")
def test_a_user_who_may_not_list_a_directory_sees_the_plan(node: Path) -> None:
    node.parent.chmod(0o755)
    at(node, MOM).chmod(0o751)
    at(node, f"{MOM}/prologue").chmod(0o755)
    seen = call(node, "install", "torque", "--dry-run").stdout  # also loads what that user may be unable to read
    os.seteuid(65534)
    try:
        assert call(node, "install", "torque", "--dry-run").stdout == seen
    finally:
        os.seteuid(0)


def test_two_installations_at_once_are_one_after_the_other(node: Path) -> None:
    """The second is refused and changes nothing; looking is free. The lock ends with its process."""
    before = tree(node)
    descriptor = os.open(node, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    for command in ("install", "uninstall"):
        with pytest.raises(PlaceError, match="at a time"):
            call(node, command, "slurm", "--yes")
    assert call(node, "install", "slurm", "--dry-run").exit_code == 0
    assert tree(node) == before
    os.close(descriptor)
    assert install(node).exit_code == 0


def test_a_node_s_lock_is_root_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who can open it could keep root from installing. Nothing of it stays."""
    monkeypatch.setattr(files, "LOCK_PATH", f"{tmp_path}/lock")
    with files.installation_lock(""):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(PlaceError, match="at a time"), files.installation_lock(""):
            pass
    assert not (tmp_path / "lock").exists()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lambda *_: (tmp_path / "lock").unlink())  # as another's end does
        with pytest.raises(PlaceError, match="at a time"), files.installation_lock(""):
            pass
    with files.installation_lock(""):
        pass
    monkeypatch.setattr(fcntl, "flock", lambda *_: os.fsync(1 << 30))  # as a file system without locks
    for path in (f"{tmp_path}/lock", f"{tmp_path}/none/lock"):
        monkeypatch.setattr(files, "LOCK_PATH", path)
        with pytest.raises(PlaceError, match="as root"), files.installation_lock(""):
            pass


def test_all_is_done_where_nobody_reads_what_is_printed(node: Path) -> None:
    """Below `| head -1`, what install says it wrote is written, and what uninstall says it removed is gone."""
    before = tree(node)
    for command, lines in (
        ("install", ["BAD  /etc/mingle/key"]),
        ("uninstall", ["BAD  torque", "BAD  /etc/mingle/key"]),
    ):
        reader, writer = os.pipe()
        os.close(reader)
        words = [sys.executable, "-m", "mingle_hooks", "hooks", command, "torque", "--yes", "--root", str(node)]
        done = subprocess.run(words, stdout=writer, timeout=60, check=False, cwd="/")
        os.close(writer)
        found = call(node, "verify", "torque", "--quiet").stdout.splitlines()
        assert (done.returncode != 0, [line.partition(":")[0] for line in found]) == (True, lines)
    assert tree(node) == before
