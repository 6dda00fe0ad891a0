"""What is not mingle's is kept, octet for octet, whatever happened to the manifest; what is mingle's never is."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from test_install import MOM, OURS, at, call, conf, image, key, program

from mingle_hooks.errors import FactsError, PlaceError

if TYPE_CHECKING:
    from pathlib import Path

KEPT = f"{MOM}/prologue.before-mingle"
EDITED = "/etc/mingle/hooks/kept/torque-prologue.edited"
MANIFEST = "/etc/mingle/hooks/manifest.json"
# What a text of 1 MiB, read with universal newlines, would not survive: also the last octet counts.
OCTETS = b"#!/bin/sh\r\necho \xff\x00\x80 caf\xc3\xa9\r\n" + b"#" * (2 << 20) + b"\rend"
GARBAGE = [
    b"", b"{", b"[]", b'{"files": 3}', b"\xff", b"[" * 100_000, b'{"files": [{"path": "../x"}]}', None,
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a node with a prologue of the site's own."""
    root = tmp_path / "image"
    path = image(root)
    path.write_bytes(OCTETS)
    path.chmod(0o540)
    return root


def octets(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything below root: path -> mode, group, content or where a link leads."""
    found = {}
    for path in sorted(root.rglob("*")):
        its = path.lstat()
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (its.st_mode, its.st_gid, data)
    return found


def spoil(root: Path, manifest: bytes | None) -> None:
    """Put something in the manifest's place, or nothing."""
    if manifest is None:
        at(root, MANIFEST).unlink()
    else:
        at(root, MANIFEST).write_bytes(manifest)


def test_the_site_s_own_is_kept_and_put_back_octet_for_octet(root: Path) -> None:
    """Of any size, with any octets, with its mode and group; the manifest holds its checksum."""
    os.chown(at(root, f"{MOM}/prologue"), -1, 4 if os.geteuid() == 0 else -1)
    before = octets(root)
    call(root, "install", "torque", "--yes")
    assert at(root, KEPT).read_bytes() == OCTETS
    assert len(json.loads(at(root, MANIFEST).read_bytes())["files"][-2]["kept_sha256"]) == 64
    call(root, "uninstall", "torque", "--yes")
    assert octets(root) == before


@pytest.mark.parametrize("manifest", GARBAGE, ids=lambda text: repr(text)[:20])
def test_without_a_manifest_the_site_s_own_is_found_again(root: Path, manifest: bytes | None) -> None:
    """One that is lost or makes no sense is made anew from what is there, by the next install or by uninstall."""
    before = octets(root)
    call(root, "install", "torque", "--yes")
    call(root, "install", "slurm", "--yes")
    installed = octets(root)
    spoil(root, manifest)
    for scheduler in ("slurm", "torque"):
        call(root, "install", scheduler, "--yes")
    assert octets(root) == installed
    spoil(root, manifest)
    for scheduler in ("slurm", "torque"):
        assert call(root, "uninstall", scheduler, "--yes").exit_code == 0
    assert octets(root) == before


def test_a_manifest_of_a_later_version_is_read(root: Path) -> None:
    """After a roll back: what only the later version knows is left out."""
    before = octets(root)
    call(root, "install", "torque", "--yes")
    tree = json.loads(at(root, MANIFEST).read_bytes())
    rows = [{**row, "news": 1} for row in tree["files"]]
    spoil(root, json.dumps({"version": 2, "files": rows, "more": []}).encode())
    call(root, "uninstall", "torque", "--yes")
    assert octets(root) == before


@pytest.mark.parametrize("path", ["etc/shadow", "/etc/mingle/../shadow", "/etc//shadow", "", 7])
@pytest.mark.parametrize("name", ["path", "kept"])
def test_a_manifest_whose_paths_lead_elsewhere_counts_for_nothing(root: Path, name: str, path: object) -> None:
    """What it names is what uninstalling removes."""
    program(root, "/etc/shadow", "secret")
    before = octets(root)
    call(root, "install", "torque", "--yes")
    tree = json.loads(at(root, MANIFEST).read_bytes())
    tree["files"][0][name] = path
    spoil(root, json.dumps(tree).encode())
    call(root, "uninstall", "torque", "--yes")
    assert octets(root) == before


def test_a_manifest_that_cannot_be_read_is_an_error(root: Path) -> None:
    """It may be sound."""
    at(root, MANIFEST).mkdir(parents=True)
    with pytest.raises(PlaceError, match=r"manifest\.json"):
        call(root, "install", "torque", "--yes")


def test_uninstalling_where_nothing_is_does_nothing(root: Path) -> None:
    """Also on a node without that scheduler; but what a lost manifest leaves unknown is told."""
    before = octets(root)
    for scheduler in ("slurm", "torque", "pbs"):
        assert call(root, "uninstall", scheduler, "--yes").exit_code == 0
    assert octets(root) == before
    at(root, MOM).rename(root / "gone")
    assert call(root, "uninstall", "torque", "--yes").exit_code == 0
    at(root, MANIFEST).parent.mkdir(parents=True)
    spoil(root, b"")
    with pytest.raises(FactsError, match="mom_priv"):
        call(root, "uninstall", "torque", "--yes")


@pytest.mark.parametrize("manifest", [b"{", None, b"as it is"], ids=["corrupt", "lost", "there"])
def test_ours_that_somebody_edited_is_never_the_site_s(root: Path, manifest: bytes | None) -> None:
    """It is kept apart and never run: as the site's own it would run itself for ever."""
    before = octets(root)
    call(root, "install", "torque", "--yes")
    installed = octets(root)
    path = at(root, f"{MOM}/prologue")
    text = path.read_bytes().replace(b"exit 0", b"exit 0 # ours", 1)
    path.write_bytes(text)
    if manifest != b"as it is":
        spoil(root, manifest)
    assert EDITED in call(root, "install", "torque", "--yes").stdout
    assert (at(root, EDITED).read_bytes(), at(root, EDITED).stat().st_mode & 0o777) == (text, 0o600)
    assert {path: its for path, its in octets(root).items() if "/kept" not in path} == installed
    call(root, "uninstall", "torque", "--yes")
    now = octets(root)
    assert {path: its for path, its in now.items() if not path.startswith("etc/mingle")} == before
    assert at(root, EDITED).read_bytes() == text


def test_no_copy_is_written_over_another(root: Path) -> None:
    """Not of the site's own, nor of ours that was edited twice."""
    at(root, KEPT).write_text("somebody's")
    call(root, "install", "torque", "--yes")
    assert (at(root, KEPT).read_text(), at(root, f"{KEPT}.2").read_bytes()) == ("somebody's", OCTETS)
    at(root, f"{KEPT}.old").write_text("no number")
    for number in (1, 2):
        with at(root, f"{MOM}/prologue").open("a") as file:
            file.write(f"# {number}\n")
        call(root, "install", "torque", "--yes")
    assert at(root, EDITED).read_text().endswith("# 1\n")
    assert at(root, f"{EDITED}.2").read_text().endswith("# 2\n")
    at(root, KEPT).unlink()  # the one that nothing calls: the other one is found without the manifest, too
    spoil(root, None)
    call(root, "uninstall", "torque", "--yes")
    assert at(root, f"{MOM}/prologue").read_bytes() == OCTETS
    assert [path.name for path in at(root, MOM).iterdir() if "before" in path.name] == ["prologue.before-mingle.old"]


def test_two_of_the_site_s_own_with_our_name_have_two_copies(root: Path) -> None:
    """In directories that slurm.conf names by a glob ours has one name."""
    for name in ("prolog", "epilog"):
        program(root, f"/etc/slurm/{name}.d/10-mingle", f"#!/bin/sh\n# {name}\n")
        program(root, f"/etc/slurm/{name}.d/20-site")
    conf(root, "Prolog=/etc/slurm/prolog.d/*", "Epilog=/etc/slurm/epilog.d/*")
    before = octets(root)
    call(root, "install", "slurm", "--yes")
    assert "Made by" in at(root, "/etc/slurm/epilog.d/10-mingle").read_text()
    call(root, "uninstall", "slurm", "--yes")
    assert octets(root) == before


def test_settings_that_are_wrong_keep_nobody_from_uninstalling(root: Path) -> None:
    """They may be the reason."""
    before = octets(root)
    call(root, "install", "torque", "--yes")
    for manifest in (True, False):
        call(root, "install", "torque", "--yes")
        at(root, "/etc/mingle/mingle.toml").write_text("[hooks")
        if not manifest:
            spoil(root, None)
        call(root, "uninstall", "torque", "--yes")
        at(root, "/etc/mingle/mingle.toml").unlink()
    at(root, "/etc/mingle").rmdir()
    assert octets(root) == before


def test_what_the_site_puts_over_ours_is_the_site_s_own_from_then_on(root: Path) -> None:
    """A tool that brings the site's files puts back the old one, or a new one: kept and called, and put back."""
    call(root, "install", "torque", "--yes")
    installed = octets(root)
    path = at(root, f"{MOM}/prologue")
    path.write_bytes(OCTETS)
    path.chmod(0o540)
    call(root, "install", "torque", "--yes")
    assert octets(root) == installed
    path.write_bytes(b"#!/bin/sh\nexit 4\n")
    path.chmod(0o700)
    call(root, "install", "torque", "--yes")
    assert at(root, KEPT).read_bytes() == OCTETS
    assert f"exec {KEPT}.2 " in path.read_text()
    call(root, "uninstall", "torque", "--yes")
    assert path.read_bytes() == b"#!/bin/sh\nexit 4\n"


def test_a_kept_prologue_finds_what_lies_beside_it(root: Path) -> None:
    """A usual script asks for its own directory by $0, and pbs_mom starts it by its whole path."""
    at(root, f"{MOM}/site.conf").write_text("from=beside\n")
    path = program(root, f"{MOM}/prologue", '#!/bin/sh\n. "$(dirname "$0")/site.conf"\necho "$from $*"\n')
    call(root, "install", "torque", "--yes")
    # As it would be on the node that this is an image of; ours is switched off, as it would write to this one.
    text = path.read_text().replace(MOM, str(path.parent)).replace("/etc/mingle/disabled", str(root))
    path.write_text(text)
    done = subprocess.run([path, "7.server", "nobody"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "beside 7.server nobody\n"


def test_a_link_to_another_script_is_kept_as_one(root: Path) -> None:
    """prologue.parallel often is a link to prologue: the copy must not lead to ours, and the link comes back."""
    at(root, f"{MOM}/prologue.parallel").symlink_to("prologue")
    at(root, f"{MOM}/epilogue").symlink_to(f"{MOM}/epilogue.parallel")
    program(root, f"{MOM}/epilogue.parallel", "#!/bin/sh\n")
    at(root, f"{MOM}/prologue.user").symlink_to("prologue")
    before = octets(root)
    call(root, "install", "torque", "--yes")
    assert os.readlink(at(root, f"{MOM}/prologue.parallel.before-mingle")) == "prologue.before-mingle"
    assert os.readlink(at(root, f"{MOM}/epilogue.before-mingle")) == f"{MOM}/epilogue.parallel.before-mingle"
    assert os.readlink(at(root, f"{MOM}/prologue.user")) == "prologue"
    for name in ("prologue.parallel", "epilogue"):
        assert not at(root, f"{MOM}/{name}").is_symlink()
    installed = octets(root)
    call(root, "install", "torque", "--yes")
    spoil(root, None)
    call(root, "install", "torque", "--yes")
    assert octets(root) == installed
    call(root, "uninstall", "torque", "--yes")
    assert octets(root) == before


def test_a_link_to_elsewhere_is_kept_as_it_is(root: Path) -> None:
    """Then the script's own directory is still that of the link."""
    at(root, f"{MOM}/epilogue").symlink_to("/opt/site/epilogue.sh")
    program(root, "/opt/site/epilogue.sh")
    before = octets(root)
    call(root, "install", "torque", "--yes")
    assert os.readlink(at(root, f"{MOM}/epilogue.before-mingle")) == "/opt/site/epilogue.sh"
    key(root)
    assert call(root, "verify", "torque").exit_code == 0
    at(root, "/etc/mingle/key").unlink()
    call(root, "uninstall", "torque", "--yes")
    assert octets(root) == before


def test_links_in_a_circle_are_refused(root: Path) -> None:
    """There is nothing to call."""
    at(root, f"{MOM}/epilogue").symlink_to("epilogue.parallel")
    at(root, f"{MOM}/epilogue.parallel").symlink_to("epilogue")
    before = octets(root)
    with pytest.raises(PlaceError, match="circle"):
        call(root, "install", "torque", "--yes")
    assert octets(root) == before


@pytest.mark.parametrize("link", ["etc/mingle", "etc/mingle/hooks", "var/spool/torque", "var/spool/torque/mom_priv"])
@pytest.mark.parametrize("leads", ["absolute", "up"])
def test_no_link_of_an_image_leads_out_of_it(root: Path, link: str, leads: str) -> None:
    """Below --root links lead where they lead for the node that is made of it."""
    path, target = root / link, root / "srv" / link.replace("/", "-")
    target.parent.mkdir()
    if path.exists():
        path.rename(target)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir()
    inside = f"/srv/{target.name}"
    path.symlink_to(inside if leads == "absolute" else "../" * 40 + inside)
    before, outside = octets(root), octets(root.parent)
    done = call(root, "install", "torque", "--yes")
    assert done.exit_code == 0
    assert not [p for p in octets(root.parent).keys() - outside.keys() if not p.startswith(f"{root.name}/")]
    names = {path.name for path in target.rglob("*") if path.is_file()}
    assert names & {"manifest.json", "epilogue"}
    call(root, "uninstall", "torque", "--yes")
    assert octets(root) == before


def test_an_image_s_own_slurm_conf_counts(root: Path) -> None:
    """Also where links lead to it that would lead to this machine's, or to a file system that is not here."""
    at(root, "/etc/slurm").rename(root / "shared")
    at(root, "/etc/slurm").symlink_to("/shared")
    (root / "shared/slurm.conf").write_text("Prolog=/opt/site/prolog.sh\n")
    for more in ((), ("--slurm-conf", "/etc/slurm/slurm.conf")):
        assert "calls /opt/site/prolog.sh" in call(root, "install", "slurm", "--dry-run", *more).stdout


def test_the_slurm_chain_of_a_lost_manifest_is_in_the_hook(root: Path) -> None:
    """slurm.conf names ours by then, so nothing else tells of the site's own Prolog."""
    program(root, "/opt/site/prolog.sh")
    conf(root, "Prolog=/opt/site/prolog.sh")
    lines = call(root, "install", "slurm", "--yes").stdout.splitlines()[-4:]
    conf(root, *lines)
    before = at(root, f"{OURS}/prolog").read_text()
    spoil(root, None)
    call(root, "install", "slurm", "--yes")
    assert at(root, f"{OURS}/prolog").read_text() == before
    assert "/opt/site/prolog.sh" in before


def test_what_is_looked_at_in_an_image_is_the_image_s(root: Path) -> None:
    """A glob of slurm.conf, drop-ins and the kill switch behind absolute links: seen to be read on this machine."""
    at(root, "/srv/slurm/prolog.d").mkdir(parents=True)
    program(root, "/srv/slurm/prolog.d/50-site").chmod(0o644)
    at(root, "/etc/slurm/prolog.d").symlink_to("/srv/slurm/prolog.d")
    at(root, "/srv/mingle/epilog.d").mkdir(parents=True)
    at(root, "/srv/mingle/epilog.d/note").write_text("no program")
    at(root, "/etc/mingle").symlink_to("/srv/mingle")
    conf(root, "Prolog=/etc/slurm/prolog.d/*")
    call(root, "install", "slurm", "--yes")
    found = call(root, "verify", "slurm").stdout
    assert "/etc/slurm/prolog.d/50-site:" in found
    assert "/etc/mingle/epilog.d/note:" in found
    assert at(root, "/srv/slurm/prolog.d/10-mingle").is_file()
