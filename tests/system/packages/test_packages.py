"""What `make packages` makes: the same each time, whole, and used where there is no checkout."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import OFFLINE, ROOT, SBOM, ZIP, build, digests, output
from cluster.hosts import Hosts
from cluster.slurm import SlurmCluster
from cluster.ssh import ssh
from needs import need, skip_for_want_of

import mingle_hooks

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
NAME = f"mingle_hooks-{mingle_hooks.__version__}"
WHEEL, SDIST = f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz"
KEYED = {"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2}


def test_the_same_sources_make_the_same_octets(made: Path, tmp_path: Path) -> None:
    """The sdist makes them too, so it holds all that is needed."""
    subprocess.run(["tar", "-xzf", made / SDIST, "-C", tmp_path], check=True)
    again = build(tmp_path / NAME, tmp_path / "dist")
    assert digests(again) == digests(made)
    assert set(digests(made)) == {WHEEL, SDIST, ZIP, OFFLINE, SBOM}


def test_what_is_in_them_and_what_an_index_is_told(made: Path) -> None:
    """The wheel has every page, and the sdist the tests and documents too.

    Twine refuses a metadata version that it does not know; no link leads nowhere, and no netifaces is replaced. Where
    nobody has told the repository's address, the package names none.
    """
    wheel = zipfile.ZipFile(made / WHEEL)
    inside, metadata = wheel.namelist(), wheel.read(f"{NAME}.dist-info/METADATA").decode()
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert {name.removeprefix("mingle_hooks/") for name in inside if name.startswith("mingle_hooks/docs/")} == pages
    assert {f"{NAME}.data/data/share/man/man1/mingle-env.1", "mingle_hooks/py.typed"} <= {*inside}
    with tarfile.open(made / SDIST) as packed:
        sources = {name.partition("/")[2] for name in packed.getnames()}
        file = packed.extractfile(f"{NAME}/PKG-INFO")
        assert file
        assert file.readline() == metadata.partition("\n")[0].encode() + b"\n" == b"Metadata-Version: 2.4\n"
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    assert {name for name in kept if name and not name.startswith(".") and (ROOT / name).exists()} - sources == set()
    assert "\nProject-URL" not in metadata
    readme = metadata.partition("\n\n")[2]
    assert "## Install" in readme
    assert re.findall(r"\]\((?!https?:)[^)\s]+\)", readme) == []
    assert re.findall("^Requires-Dist: netifaces.*$", metadata, re.MULTILINE) == []
    assert [name for name in inside if "netifaces" in name] == []


def test_the_links_of_the_readme_lead_into_the_repository_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link leads to an existing file of the version that is built."""
    need("hatchling")
    source = "https://forge.example/mingle"
    monkeypatch.setenv("MINGLE_SOURCE_URL", f"{source}/")
    monkeypatch.syspath_prepend(ROOT)
    metadata: dict[str, Any] = {}
    importlib.import_module("hatch_build").CustomMetadataHook(str(ROOT), {}).update(metadata)
    assert metadata["urls"]["Source"] == source
    links = re.findall(r"\]\(([^)\s]+)\)", metadata["readme"]["text"])
    assert len(links) > 10
    base = f"{source}/blob/v{mingle_hooks.__version__}/"
    for link in (link for link in links if link.startswith(source)):
        assert (ROOT / link.removeprefix(base).partition("#")[0]).exists(), link


def test_a_template_in_a_zip_file_is_listed_ejected_and_extended(made: Path, tmp_path: Path) -> None:
    """The list has the place of each template."""
    mingle = [sys.executable, "-IS", made / ZIP]
    assert f"{ZIP}/mingle_hooks/templates/job" in output(*mingle, "template", "list", cwd=tmp_path)
    output(*mingle, "template", "eject", "script", "--to", str(tmp_path / "own"), cwd=tmp_path)
    own = tmp_path / "own" / "script.sh.j2"
    own.write_text('{% include "built-in/script.sh.j2" %}\n# and ours\n')
    words = f"template slurm --no-environment --template-dir {own.parent} -- train.py".split()
    assert output(*mingle, *words, cwd=tmp_path).endswith("\n# and ours\n")


def test_a_host_that_does_not_see_the_zip_is_named(made: Path, hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    """Run and check name the host and the file in one line."""
    both = hosts(2)
    shutil.copy(made / ZIP, both[0].outside("/tmp/mingle.pyz"))
    environ = {"PATH": f"{ssh(both, tmp_path)}:/usr/bin:/bin"}
    why = "expected mingle's file /tmp/mingle.pyz on every host; saw no such file on node2; try a copy of it there"
    argv = [sys.executable, "/tmp/mingle.pyz", "run", "--hosts", "node1,node2", "true"]
    run = both[0].run(argv, env=environ, cwd="/tmp")
    assert (run.returncode, run.stdout) == (75, "")
    assert run.stderr.startswith(f"mingle run: {why}")
    assert run.stderr.splitlines()[1:] == ["mingle run: node2: its agent could not be started"]
    argv[2:] = ["check", "--timeout", "60s", "--hosts", "node1,node2"]
    check = both[0].run(argv, env=environ, cwd="/tmp")
    assert check.returncode == 69
    assert f"BAD  node2: did not start: {why}" in check.stdout


def test_a_job_s_node_that_does_not_see_the_zip_ends_the_run(made: Path, slurm: SlurmCluster, tmp_path: Path) -> None:
    """The run ends at once, though srun goes on for the nodes that do see it."""
    shutil.copy(made / ZIP, slurm.hosts[0].outside("/tmp/mingle.pyz"))
    job = slurm.submit(
        f"#!/bin/sh\n{sys.executable} /tmp/mingle.pyz run true\n", "--nodes=3", f"--output={tmp_path}/out", cwd="/tmp"
    )
    assert slurm.wait(job, timeout=60) == "FAILED"
    output = (tmp_path / "out").read_text()
    assert output.count("expected mingle's file /tmp/mingle.pyz on every host") == 1
    assert "saw no such file on some of node[1-3]" in output


@pytest.mark.parametrize("version", ["3.13" if THIS == "3.10" else "3.10", "pypy"])
def test_the_zip_runs_with_other_pythons(made: Path, tmp_path: Path, version: str) -> None:
    """They take the sources in it, and two members meet and become their command."""
    python = other(version)
    meeting = f"exec --id a --nodes 2 --via directory --directory {tmp_path}".split()
    words = [*meeting, "sh", "-c", "echo $NNODES $MASTER_PORT"]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **KEYED}
    both = [subprocess.Popen([python, made / ZIP, *words], env=environ, stdout=-1, stderr=-1, text=True) for _ in "ab"]
    (first, its_errors), (second, _) = [member.communicate() for member in both]
    assert re.fullmatch(r"2 \d{5}\n", first), its_errors
    assert second == first


def other(version: str) -> str | Path:
    """Return another Python of this machine."""
    pyenv = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv")))
    if found := sorted(pyenv.glob(f"versions/{version}*/bin/python3")):
        return found[-1]
    python = shutil.which("pypy3" if version == "pypy" else f"python{version}")
    enough = "import sys; sys.exit(sys.version_info < (3, 10))"
    if python is None or subprocess.run([python, "-c", enough], check=False).returncode != 0:
        skip_for_want_of([f"Python {version}" if version != "pypy" else "PyPy 3.10"])
    return python
