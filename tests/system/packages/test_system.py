"""The packages of distributions: the same each time, what is in them, and what installing and removing them does."""

import gzip
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

import pytest
from building import DEB, EPOCH, ROOT, RPM, ZIP, build_system, digests, output
from needs import lacking, need, skip_for_want_of

import mingle_hooks
from mingle_hooks import settings

DOC = "usr/share/doc/mingle-hooks"
MANIFEST = "etc/mingle/hooks/manifest.json"
OF_BOTH = {
    *("usr/bin/mingle", "usr/share/bash-completion/completions/mingle"),
    *("usr/share/fish/vendor_completions.d/mingle.fish", f"{DOC}/changelog.gz"),
    *(f"{DOC}/examples/{name}" for name in ("mingle.toml", "ansible/defaults/main.yml", "ansible/tasks/main.yml")),
}
# Where each has its zsh completion, and what is in one alone.
OWN = {
    DEB: {
        *("usr/share/zsh/vendor-completions/_mingle", f"{DOC}/changelog.Debian.gz"),
        *(f"{DOC}/copyright", "usr/share/lintian/overrides/mingle-hooks"),
    },
    RPM: {"usr/share/zsh/site-functions/_mingle", f"{DOC}/copyright"},
}
TOOLS = {DEB: ("dpkg-deb", "dpkg"), RPM: ("rpmbuild", "rpm", "rpm2archive")}
# What has its maker's licence in the program.
HELD = {"click", "jinja2", "markupsafe", "ifaddr", "multicast_expert", "netifaces", "tomli", "typing_extensions"}


@dataclass(frozen=True)
class Held:
    """One file of a package."""

    data: bytes
    mode: int
    owner: tuple[str, str]


@cache
def held(package: Path) -> dict[str, Held]:
    """Return what is in a package, by path; no directory is listed that a distribution has itself."""
    need(*TOOLS[package.name])
    unpack = ["dpkg-deb", "--fsys-tarfile", package] if package.name == DEB else ["rpm2archive", "-n", "-"]
    source = package.read_bytes() if package.name == RPM else b""
    packed = subprocess.run(unpack, input=source, capture_output=True, check=True).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        for member in files:
            assert member.isfile() or member.isdir(), member
            if member.isdir():
                assert member.mode == 0o755, member
                continue
            data = files.extractfile(member)
            assert data
            name = member.name.removeprefix("./").lstrip("/")
            found[name] = Held(data.read(), member.mode & 0o7777, (member.uname, member.gname))
    return found


both = pytest.mark.parametrize("name", [DEB, RPM])


def test_the_same_sources_make_the_same_octets(system: Path, made: Path, tmp_path: Path) -> None:
    """The umask, the place and the time zone do not count."""
    build_system(tmp_path, made / ZIP, umask="077")
    again = digests(tmp_path)
    assert again == digests(system)
    skip_for_want_of([tool for name, tools in TOOLS.items() if name not in again for tool in lacking(*tools)])


def test_what_cannot_be_made_is_told(made: Path, tmp_path: Path) -> None:
    """All other packages are made."""
    output = build_system(tmp_path, made / ZIP, path="/nonexistent")
    told = [line.rpartition(", ")[2] for line in output.splitlines()]
    assert told == ["for want of dpkg-deb: .deb", "for want of rpmbuild: .rpm"]


@both
def test_what_is_in_it(system: Path, name: str) -> None:
    """One program, its pages, completion and what an admin reads: root's, written by no other, nothing elsewhere."""
    files = held(system / name)
    pages = {f"usr/share/man/man1/{page.name}.gz" for page in (ROOT / "docs/man").iterdir()}
    docs = {f"{DOC}/{page.relative_to(ROOT)}" for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
    assert set(files) == {*OF_BOTH, *pages, *docs, *OWN[name]}
    assert {its.owner for its in files.values()} == {("root", "root")}
    assert {path: its.mode for path, its in files.items() if its.mode != 0o644} == {"usr/bin/mingle": 0o755}
    assert files["usr/bin/mingle"].data.startswith(b"#!/usr/bin/python3 -I\nPK")
    assert gzip.decompress(files[min(pages)].data).startswith(b'.\\" Made from the help')
    text = files[f"{DOC}/copyright"].data.decode()
    assert ((ROOT / "LICENSE").read_text() in text) == (name == RPM)
    assert ("/usr/share/common-licenses/Apache-2.0" in text) == (name == DEB)
    assert {word.lower() for word in re.findall("contains ([^ ]+) ", text)} == HELD
    assert re.findall("^Licence: *$", text, re.MULTILINE) == []


def test_both_have_the_same_files_and_the_program_is_the_zip(system: Path, made: Path) -> None:
    """Each distribution has a few files of its own, and the first line of the program names its Python."""
    need(*TOOLS[DEB], *TOOLS[RPM])
    deb, rpm = ({path: its for path, its in held(system / n).items() if path not in OWN[n]} for n in (DEB, RPM))
    assert deb == rpm
    program, its = (zipfile.ZipFile(file) for file in (io.BytesIO(deb["usr/bin/mingle"].data), made / ZIP))
    inside, expected = ([(one.filename, one.CRC) for one in file.infolist()] for file in (program, its))
    assert inside == expected


def test_the_deb_s_fields(system: Path) -> None:
    """Those that Debian wants, with the checksums of all files."""
    files = held(system / DEB)
    shown = output("dpkg-deb", "--field", system / DEB, cwd=system)
    fields = dict(re.findall(r"^([A-Z][A-Za-z-]+): (.*)$", shown, re.MULTILINE))
    assert set(fields) == {"Package", "Version", "Section", "Priority", "Architecture", "Maintainer", "Installed-Size",
                           "Depends", "Description"}  # fmt: skip
    assert (fields["Architecture"], fields["Depends"]) == ("all", "python3 (>= 3.10)")
    assert fields["Description"][0].islower()
    assert not fields["Description"].endswith(".")
    assert max(map(len, shown.splitlines())) <= 80
    assert "removing it removes none of them" in shown
    subprocess.run(["dpkg-deb", "--control", system / DEB, system / "DEBIAN"], check=True)
    assert {path.name for path in (system / "DEBIAN").iterdir()} == {"control", "md5sums", "prerm"}
    sums = {path: hashlib.md5(its.data).hexdigest() for path, its in files.items()}  # noqa: S324 - dpkg's choice
    lines = (system / "DEBIAN/md5sums").read_text().splitlines()
    shutil.rmtree(system / "DEBIAN")
    assert {line.partition("  ")[2]: line.partition("  ")[0] for line in lines} == sums


@pytest.mark.parametrize("word", ["remove", "0", "upgrade", "1", "deconfigure"])
def test_only_what_goes_for_good_is_worth_a_word(system: Path, tmp_path: Path, word: str) -> None:
    """Both kinds of package say so by their first argument; without hooks there is nothing to say."""
    need(*TOOLS[DEB])
    subprocess.run(["dpkg-deb", "--control", system / DEB, tmp_path / "DEBIAN"], check=True)
    argv, environ = ["/bin/sh", tmp_path / "DEBIAN/prerm", word], {"PATH": "/nonexistent", "DPKG_ROOT": str(tmp_path)}
    assert subprocess.run(argv, env=environ, capture_output=True, check=True).stderr == b""
    manifest = tmp_path / MANIFEST
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    warned = subprocess.run(argv, env=environ, capture_output=True, check=True).stderr
    assert bool(warned) is (word in ("remove", "0"))


def rpm(system: Path, *words: str) -> str:
    """Return what rpm says of the package."""
    return output("rpm", "--dbpath", system.parent / "rpmdb", "-qp", *words, system / RPM, cwd=system)


def test_the_rpm_s_fields(system: Path) -> None:
    """What it requires, its licences, and the one script that it has."""
    held(system / RPM)
    assert rpm(system, "--queryformat", "%{ARCH} %{LICENSE} %{BUILDHOST} %{BUILDTIME}\\n") == (
        f"noarch Apache-2.0 AND BSD-3-Clause AND MIT AND PSF-2.0 localhost {EPOCH['SOURCE_DATE_EPOCH']}\n"
    )
    needed = rpm(system, "--requires").splitlines()
    assert [line for line in needed if not line.startswith("rpmlib(")] == ["/bin/sh", "python3 >= 3.10"]
    assert rpm(system, "--provides") == f"mingle-hooks = {mingle_hooks.__version__}-1\n"
    scripts = rpm(system, "--scripts", "--triggers")
    assert re.findall(r"^(\w+) (?:scriptlet|program)", scripts, re.MULTILINE) == ["preuninstall"]
    assert "removing it removes none of them" in rpm(system, "-i").replace("\n", " ")
    assert rpm(system, "--configfiles") == ""


def test_removing_the_rpm_leaves_no_directory(system: Path) -> None:
    """Those below its own place in /usr/share/doc are its, and no other is."""
    files = held(system / RPM)
    listed = rpm(system, "-l").split()
    doc = {str(parent) for path in files for parent in PurePath(f"/{path}").parents if f"/{DOC}" in str(parent)}
    assert {path for path in listed if path.lstrip("/") not in files} == doc


def test_another_python_is_needed_and_named(tmp_path: Path) -> None:
    """Its package has the name of its program, for systems whose python3 is too old."""
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'packaging')!r}); its = 'python3.11'; import deb, rpm, tree; "
    script += "print(deb.depends(its), rpm.requires(its), tree.SHEBANG.format(its))"
    seen = output(sys.executable, "-Bc", script, cwd=tmp_path).split()
    assert seen == ["python3.11", "python3.11", "#!/usr/bin/python3.11", "-I"]


def test_the_example_of_settings_is_one(tmp_path: Path) -> None:
    """It is valid with every line that it has commented out."""
    text = (ROOT / "packaging/mingle.toml").read_text()
    path = tmp_path / "mingle.toml"
    path.write_text(re.sub(r"^#(?! )", "", text, flags=re.MULTILINE))
    assert settings.load({}, {}, system_file=str(path)).section("hooks")["opt_in"] == "mingle"
    path.write_text(text)
    settings.load({}, {}, system_file=str(path))
