"""A release: packages that the distributions' linters take, their bill of materials, and their signature."""

import json
import re
import shutil
import subprocess
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from building import DEB, ROOT, RPM, SBOM, ZIP, build_system, output
from needs import need

TOLD = {"MINGLE_MAINTAINER": "A. Packager <packages@site.example>", "MINGLE_SOURCE_URL": "https://forge.example/mingle"}
RPMLINT = ["rpmlint", "--config", str(ROOT / "packaging/rpmlint.toml")]


@pytest.fixture(scope="module")
def told(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the packages of distributions where the maintainer and the repository are known."""
    place = tmp_path_factory.mktemp("told")
    build_system(place, made / ZIP, **TOLD)
    return place


def test_lintian_finds_nothing_in_the_deb(told: Path) -> None:
    """Each override has its reason above it, and the package names its maintainer."""
    need("dpkg-deb", "lintian")
    assert output("dpkg-deb", "--field", told / DEB, "Maintainer", cwd=told) == f"{TOLD['MINGLE_MAINTAINER']}\n"
    argv = ["lintian", "--display-info", "--pedantic", "--fail-on", "pedantic", told / DEB]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_rpmlint_finds_nothing_in_the_rpm(told: Path) -> None:
    need("rpmbuild", "rpmlint")
    done = subprocess.run([*RPMLINT, told / RPM], capture_output=True, text=True, check=False)
    assert (done.returncode, "; 0 errors, 0 warnings" in done.stdout) == (0, True), done.stdout


def test_the_bill_of_materials_names_all_that_is_in_the_program(made: Path) -> None:
    """It has each version and licence, and the program's digest."""
    bill = json.loads((made / SBOM).read_text())
    named = {its["name"]: its["version"] for its in [bill["metadata"]["component"], *bill["components"]]}
    with zipfile.ZipFile(made / ZIP) as held:
        texts = [held.read(name).decode() for name in held.namelist() if name.endswith("/METADATA")]
    inside = [HeaderParser().parsestr(text) for text in texts]
    assert named == {about["Name"]: about["Version"] for about in inside}
    assert all(its["licenses"][0]["license"]["name"] for its in bill["components"])
    refs = {its["bom-ref"] for its in bill["components"]}
    assert {*bill["dependencies"][0]["dependsOn"]} == refs
    sums = subprocess.run(["sha256sum", made / ZIP], capture_output=True, text=True, check=True).stdout
    assert sums.startswith(bill["metadata"]["component"]["hashes"][0]["content"])


def test_the_bill_of_materials_is_cyclonedx(made: Path) -> None:
    """The schema that CycloneDX publishes accepts it, and refuses a field that it does not have."""
    need("cyclonedx")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator, text = JsonStrictValidator(SchemaVersion.V1_6), (made / SBOM).read_text()
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"components"', '"componentz"')) is not None


def test_a_release_is_signed_and_checked_as_the_readme_says(made: Path, tmp_path: Path) -> None:
    """The README's own lines refuse a file that was changed and the signature of another key."""
    need("ssh-keygen", "sha256sum")
    section = (ROOT / "packaging/README.md").read_text().partition("## Sign a release")[2].partition("\n## ")[0]
    sign, check = re.findall("((?:^    .*\n)+)", section, re.MULTILINE)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    dist = tmp_path / "dist"
    shutil.copytree(made, dist)

    def sh(script: str, cwd: Path) -> int:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        argv = ["sh", "-ec", script]
        return subprocess.run(argv, env=environ, cwd=cwd, capture_output=True, check=False).returncode

    def make_key() -> None:
        key = tmp_path / ".ssh/id_ed25519"
        key.unlink(missing_ok=True)
        assert sh(f"ssh-keygen -q -t ed25519 -N '' -f {key}", tmp_path) == 0

    make_key()
    assert sh(sign, tmp_path) == 0
    assert sh(check, dist) == 0
    with (dist / ZIP).open("ab") as file:
        file.write(b"\n")
    assert sh(check, dist) != 0
    signers = (dist / "allowed_signers").read_text()
    make_key()
    (dist / "SHA256SUMS.sig").unlink()
    assert sh(sign, tmp_path) == 0
    assert sh(check, dist) == 0
    (dist / "allowed_signers").write_text(signers)
    assert sh(check, dist) != 0
