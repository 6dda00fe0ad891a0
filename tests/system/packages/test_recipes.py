"""Recipes for other installers hold what pyproject.toml holds, and are sound as far as can be tried here."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
from needs import skip_for_want_of

import mingle_hooks

ROOT = Path(__file__).parents[3]
PACKAGING = ROOT / "packaging"
SPACK = PACKAGING / "spack/spack_repo/mingle/packages"
VERSION = mingle_hooks.__version__
PROJECT = (ROOT / "pyproject.toml").read_text()
known_or_not = pytest.mark.parametrize("source", ["https://forge.example/mingle", ""], ids=["known", "not known"])
# Not in conda-forge; mingle does without, and both recipes name it for those who have it.
OPTIONAL = "multicast-expert"


def bounds(section: str) -> dict[str, str]:
    """Return name -> lowest version of a list in pyproject.toml."""
    listed = re.findall(rf"^{section} = \[(.*?)\](?:  #.*)?$", PROJECT, re.MULTILINE | re.DOTALL)[0]
    return dict(re.findall(r'"([a-z0-9-]+)>=([0-9.]+)', listed))


NEEDED = {**bounds("dependencies"), "python": re.findall(r'requires-python = ">=(.*)"', PROJECT)[0]}


def spack() -> dict[str, Any]:
    """Run the recipe with a stand-in for Spack's directives; return what they were told."""
    recipe: dict[str, Any] = {"versions": [], "depends": {}}
    names: dict[str, Any] = {
        "PythonPackage": object,
        "license": lambda *_: None,
        "version": lambda number, **_: recipe["versions"].append(number),
        "variant": lambda name, **kwargs: recipe.__setitem__(name, kwargs),
        "depends_on": lambda spec, type, when="": recipe["depends"].__setitem__(spec, (type, when)),  # noqa: A006 - Spack's word
    }
    text = (SPACK / "py_mingle_hooks/package.py").read_text()
    exec(compile(re.sub("^from spack.*", "", text, flags=re.MULTILINE), "package.py", "exec"), names)  # noqa: S102 - our own file
    return {**recipe, "class": names["PyMingleHooks"]}


@known_or_not
def test_spack_knows_the_same_version_dependencies_and_address(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Each dependency with its lowest version, wherever it is needed; the address is the variable's, if any."""
    monkeypatch.setenv("MINGLE_SOURCE_URL", source)
    its = spack()
    assert (its["class"].git, its["class"].homepage) == (source, source)
    run = {spec: when for spec, (kinds, when) in its["depends"].items() if "run" in kinds}
    named = {spec.removeprefix("py-").partition("@")[0]: spec.partition("@")[2].rstrip(":") for spec in run}
    assert named == NEEDED
    assert run["py-tomli@2.0:"] == "^python@:3.10"
    assert run[f"py-{OPTIONAL}@{NEEDED[OPTIONAL]}:"] == "+multicast"
    assert its["multicast"]["default"] is False
    (build,) = [spec for spec, (kinds, _) in its["depends"].items() if kinds == "build"]
    assert build == f"py-hatchling@{bounds('requires')['hatchling']}:"
    assert its["versions"][-1] == VERSION


@known_or_not
def test_conda_knows_the_same_version_dependencies_and_address(source: str) -> None:
    """jinja2 fills it in; without an address it builds the checkout that it is in."""
    text = (PACKAGING / "conda/meta.yaml").read_text()
    assert f'set version = "{VERSION}"' in text
    filled = jinja2.Template(text).render(PYTHON="python", environ={"MINGLE_SOURCE_URL": source})
    sections = {name: re.findall(r"^    - (\S+) >=([0-9.]+)", body, re.MULTILINE)
                for name, body in re.findall(r"^  (\w+):\n((?:    .*\n)+)", filled, re.MULTILINE)}  # fmt: skip
    assert dict(sections["run"]) | dict(sections["run_constrained"]) == NEEDED
    assert dict(sections["run_constrained"]) == {OPTIONAL: NEEDED[OPTIONAL]}
    assert dict(sections["host"])["hatchling"] == bounds("requires")["hatchling"]
    assert re.findall(r"^  (?:git_url|home): (.*)", filled, re.MULTILINE) == [source, source] * bool(source)
    assert ("path: ../.." in filled, f"git_rev: v{VERSION}" in filled) == (not source, bool(source))
    assert f"- {re.findall(r'^(mingle = .*)$', PROJECT, re.MULTILINE)[0]}".replace('"', "") in filled


def test_the_modulefile_puts_mingle_on_path_and_takes_it_off_again(tmp_path: Path) -> None:
    """The real modulecmd loads it with another prefix, and its name is the version."""
    modulecmd = shutil.which("modulecmd", path=f"{os.environ['PATH']}:/usr/share/modules/bin:/usr/lib/x86_64-linux-gnu")
    if modulecmd is None:
        skip_for_want_of(["environment-modules"])
    (file,) = (PACKAGING / "modulefiles" / "mingle").iterdir()
    assert file.name == VERSION
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mingle").symlink_to(Path(sys.executable).with_name("mingle"))
    mine = tmp_path / "modulefiles" / "mingle" / VERSION
    mine.parent.mkdir(parents=True)
    mine.write_text(file.read_text().replace(f"/opt/mingle/{VERSION}\n", f"{tmp_path}\n"))
    script = (
        f'eval "$({modulecmd} sh load mingle)"; mingle --version; eval "$({modulecmd} sh unload mingle)"; echo "$PATH"'
    )
    environ = {"PATH": "/usr/bin:/bin", "MODULEPATH": f"{tmp_path}/modulefiles"}
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == f"mingle {VERSION}\n/usr/bin:/bin\n", done


def test_the_version_stands_in_one_place_of_the_package_and_in_two_documents() -> None:
    """Metadata, `mingle --version` and the packages take it from the package; the changelog begins with what is new."""
    assert 'dynamic = ["version"' in PROJECT
    assert re.findall(r'path = "(mingle_hooks/__init__\.py)"', PROJECT)
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", VERSION]
    citation = (ROOT / "CITATION.cff").read_text().splitlines()
    assert {f"version: {VERSION}", "license: Apache-2.0", "cff-version: 1.2.0"} <= {*citation}


def test_every_python_that_ci_runs_is_a_classifier() -> None:
    """The lowest is the one that the project requires."""
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    (listed,) = re.findall(r"^ +python: \[(.*)\]$", workflow, re.MULTILINE)
    versions = re.findall(r'"(3\.\d+)"', listed)
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT) == versions
    assert versions[0] == NEEDED["python"]
