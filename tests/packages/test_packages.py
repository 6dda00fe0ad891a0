"""What `make packages` makes: the same each time, whole, and used where there is no checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from building import ROOT, ZIP, build, digests, said
from needs import skip_for_want_of

import mingle_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts
    from forked import Forked

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
NAME = f"mingle_hooks-{mingle_hooks.__version__}"
WHEEL, SDIST = f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz"
KEYED = {"MINGLE_KEY": "00112233445566778899aabbccddeeff" * 2}
# What each has to print as the installed mingle does.
SAME = [
    "--version",
    "template pbs --no-environment --nodes 2 -- train.py",
    "template show script",
    "hooks render slurm prolog",
    "docs admin",
    "schema job",
]


@pytest.fixture(scope="module")
def clean(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel where nothing of this checkout is, beside what it needs to start; without multicast_expert."""
    place = tmp_path_factory.mktemp("clean")
    place.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", place / "venv/bin/python", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--quiet", made / WHEEL], check=True)
    (site,) = (place / "venv").glob("lib/python*/site-packages")
    for name in ("click", "jinja2", "markupsafe", "ifaddr"):
        spec = find_spec(name)
        assert spec
        assert spec.origin
        (site / name).symlink_to(Path(spec.origin).parent)
    return place / "venv"


def test_the_same_sources_make_the_same_octets(made: Path, tmp_path: Path) -> None:
    """Also from the sdist, which so holds all that is needed."""
    with tarfile.open(made / SDIST) as packed:
        packed.extractall(tmp_path, filter="data")
    again = build(tmp_path / NAME, tmp_path / "dist")
    assert digests(again) == digests(made)
    assert set(digests(made)) == {WHEEL, SDIST, ZIP}


def test_what_is_in_them(made: Path) -> None:
    """Every page but the manual's in the wheel, where man looks for it; in the sdist the tests and documents too."""
    inside = set(zipfile.ZipFile(made / WHEEL).namelist())
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert {name.removeprefix("mingle_hooks/") for name in inside if name.startswith("mingle_hooks/docs/")} == pages
    assert f"{NAME}.data/data/share/man/man1/mingle-env.1" in inside
    assert "mingle_hooks/py.typed" in inside
    with tarfile.open(made / SDIST) as packed:
        sources = {name.partition("/")[2] for name in packed.getnames()}
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    left = {name for name in kept if name and not name.startswith(".") and (ROOT / name).exists()} - sources
    assert left == set()


def test_every_link_of_the_readme_leads_somewhere_from_an_index(made: Path) -> None:
    """None is relative, and those into the repository name a file that is there."""
    metadata = zipfile.ZipFile(made / WHEEL).read(f"{NAME}.dist-info/METADATA").decode()
    source = re.findall(r"^Project-URL: Source, (.*)$", metadata, re.MULTILINE)[0]
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.partition("\n\n")[2])
    assert len(links) > 10
    for link in links:
        base = f"{source}/blob/v{mingle_hooks.__version__}/"
        assert link.startswith(base), link
        assert (ROOT / link.removeprefix(base).partition("#")[0]).exists(), link


@pytest.mark.parametrize("words", SAME)
def test_wheel_and_zip_do_what_the_checkout_does(
    made: Path, clean: Path, forked: Forked, tmp_path: Path, words: str
) -> None:
    """Templates, pages and schemas are found in both."""
    here = forked.run(*words.split(), env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, cwd=tmp_path).stdout
    assert here
    assert said(clean / "bin/mingle", *words.split(), cwd=tmp_path) == here
    assert said(sys.executable, "-IS", made / ZIP, *words.split(), cwd=tmp_path) == here


def test_what_lies_beside_the_program_is_not_loaded(clean: Path, tmp_path: Path) -> None:
    """Nor looked for there: on a file system that all nodes share each look counts."""
    trap = clean / "bin" / "json.py"
    trap.write_text("raise SystemExit(3)\n")
    try:
        assert said(clean / "bin/mingle", "schema", "job", cwd=tmp_path)
    finally:
        trap.unlink()


def test_a_template_in_a_zip_file_is_listed_ejected_and_extended(made: Path, tmp_path: Path) -> None:
    """With the place that it comes from."""
    mingle = [sys.executable, "-IS", made / ZIP]
    assert f"{ZIP}/mingle_hooks/templates/job" in said(*mingle, "template", "list", cwd=tmp_path)
    said(*mingle, "template", "eject", "script", "--to", str(tmp_path / "own"), cwd=tmp_path)
    own = tmp_path / "own" / "script.sh.j2"
    own.write_text('{% include "built-in/script.sh.j2" %}\n# and ours\n')
    words = f"template slurm --no-environment --template-dir {own.parent} -- train.py".split()
    assert said(*mingle, *words, cwd=tmp_path).endswith("\n# and ours\n")


def test_a_run_takes_an_installed_mingle(made: Path, tmp_path: Path) -> None:
    """Each host starts a program of it by its path."""
    argv = [sys.executable, made / ZIP, "run", "--alone", "true"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert "an installed mingle" in done.stderr


@pytest.mark.parametrize("version", sorted({"3.10", "3.13"} - {THIS}))
def test_the_zip_runs_with_other_pythons(made: Path, tmp_path: Path, version: str) -> None:
    """They take the sources in it."""
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))).glob(f"versions/{version}.*"))
    if not pyenv:
        skip_for_want_of([f"Python {version}"])
    python = pyenv[-1] / "bin" / "python3"
    assert said(python, made / ZIP, *SAME[1].split(), cwd=tmp_path).startswith("#!/bin/bash\n")
    assert "NNODES='1'" in said(python, made / ZIP, "env", "--id", "a", "--nodes", "1", cwd=tmp_path)


def test_wheel_and_zip_meet_without_multicast(
    made: Path, clean: Path, hosts: Callable[..., Hosts], tmp_path: Path
) -> None:
    """One host has either, and a directory that both see; neither is troubled by what it lacks."""
    both = hosts(2, share=[made, clean])
    words = f"env --id a --nodes 2 --shell json --directory {tmp_path}"
    mingle = {both[0].name: f"{clean}/bin/mingle", both[1].name: f"{sys.executable} -IS {made / ZIP}"}
    done = both.run_all(lambda host: f"{mingle[host.name]} {words}".split(), env=KEYED)
    assert [one.returncode for one in done] == [0, 0], done
    worlds = {re.findall(r'"MINGLE_WORLD": *"(\w+)"', one.stdout)[0] for one in done}
    assert len(worlds) == 1
