"""Installed in other ways than these tests are: the lowest versions, no compiler, no metadata, a zip file."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster.hosts import Hosts
from forked import Forked
from needs import skip_for_want_of
from support.executables import executable
from support.members import KEYED, REDUCE, evaluating, one_world
from unit.cli.test_mistakes import MISTAKES

import mingle_hooks
from mingle_hooks.cli.commands import COMMANDS

ROOT = Path(__file__).parents[3]
PROJECT = (ROOT / "pyproject.toml").read_text()
HELPED = ["", "env", "exec", "key", "template", "template slurm", "template show", "hooks", "hooks render"]
RENDERED = [
    "template slurm --no-environment --nodes 2 --launcher accelerate -- train.py",
    "template pbs --no-environment -- a.py",
    "hooks render slurm prolog",
]


class Installation(NamedTuple):
    """A virtual environment of its own, with this project in it."""

    path: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment in which its programs come first, and no compiler is found."""
        return {
            "PATH": f"{self.path}/bin",
            "HOME": str(self.path),
            "CC": "false",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",
        }

    def run(self, *argv: str, cwd: Path = ROOT, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run one of its programs."""
        argv = (f"{self.path}/bin/{argv[0]}", *argv[1:])
        done = subprocess.run(argv, env=self.env, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


class Tried(NamedTuple):
    """An installation, and what runs its `mingle` many times."""

    its: Installation
    forked: Forked


def made(place: Path) -> Installation:
    """Make an environment with nothing in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    # The tests' own pip, for that environment, as `pip --python` would start it.
    runner = Path(str(find_spec("pip").origin)).with_name("__pip-runner__.py")  # type: ignore[union-attr]
    executable(place / "bin" / "pip", f'#!/bin/sh\nexec {place}/bin/python {runner} "$@"\n')
    return Installation(place)


def check(its: Installation, done: subprocess.CompletedProcess[str]) -> None:
    """Fail where an installation has failed; skip, loudly, where pip finds no index: it is asked for one package."""
    fetch = ("pip", "download", "-q", "--no-deps", "--retries", "0", "-d", str(its.path / "tried"), "ifaddr==0.2.0")
    if done.returncode != 0 and its.run(*fetch).returncode != 0:
        skip_for_want_of(["a package index that pip reaches"])
    assert done.returncode == 0, done.stdout + done.stderr


def in_bash(line: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of the README in the checkout, with nothing but these variables."""
    argv = [str(shutil.which("bash")), "-ec", line]
    return subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, check=False)


def bounds(section: str) -> list[str]:
    """Return `name==lowest` for each requirement of a list in pyproject.toml that counts for this Python."""
    listed = re.search(rf"^{section} = \[(.*?)\]$", PROJECT, re.MULTILINE | re.DOTALL)
    assert listed
    found = re.findall(r'"([a-z0-9-]+)>=([0-9.]+)(?:; (.*?))?"', listed[1])
    assert len(found) == listed[1].count(">=")
    return [f"{name}=={lowest}" for name, lowest, marker in found if not marker or sys.version_info < (3, 11)]


def lowest(its: Installation) -> None:
    """Install the lowest versions that pyproject.toml allows, and build with the lowest that it names."""
    links = ("pip", "install", "-q", "--find-links", "packaging/wheels")
    check(its, its.run(*links, *bounds("dependencies"), *bounds("requires")))
    its.run(*links, "--no-build-isolation", ".", check=True)


def uncompiled(its: Installation) -> None:
    """Install as the README says, where there is no compiler."""
    lines = re.findall(r"^```bash\n(pip install .*\n)```$", (ROOT / "README.md").read_text(), re.MULTILINE)[0]
    check(its, in_bash(lines, its.env))


@pytest.fixture(scope="module", params=[lowest, uncompiled], ids=lambda install: install.__name__)
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    """Make one of these installations, and start what runs it many times, for all tests of that one."""
    its = made(tmp_path_factory.mktemp("installed") / "venv")
    request.param(its)
    with Forked(its.path / "bin" / "python") as forked:
        yield Tried(its, forked)


@pytest.mark.parametrize("tried", [lowest], indirect=True, ids=["lowest"])
def test_every_mistake_is_told_and_is_64_with_the_lowest_versions_too(tried: Tried) -> None:
    """Click says it in its own words, which change; mingle's code does not."""
    for words in ("", "--nosuch", "hooks", "template", *MISTAKES):
        done = tried.forked.run(*words.split(), env=tried.its.env)
        assert done.returncode == 64, (words, done)
        assert re.match(r"mingle: expected [^\n]+\n$|Usage: ", done.stderr), (words, done)
        # What is evaluated, or may have been meant to be (`mingle evn`), gets text that ends the script.
        is_evaluated = words.partition(" ")[0] not in {"", *COMMANDS} - {"env"}
        assert (done.stdout != "") is is_evaluated, (words, done)


def test_help_and_version_go_to_stdout(tried: Tried) -> None:
    """With status 0."""
    for words in HELPED:
        done = tried.forked.run(*words.split(), "--help", env=tried.its.env)
        assert (done.returncode, done.stderr) == (0, ""), (words, done)
        assert done.stdout.startswith("Usage: mingle"), (words, done)
    assert tried.its.run("mingle", "--version").stdout == f"mingle {mingle_hooks.__version__}\n"


def test_scripts_and_hooks_are_the_same(tried: Tried, forked: Forked) -> None:
    """Whatever version of jinja2 renders them."""
    its = tried.its
    for words in map(str.split, RENDERED):
        done, ours = tried.forked.run(*words, env=its.env), forked.run(*words, env=its.env)
        assert (done.returncode, done.stdout) == (0, ours.stdout) != (0, ""), done
        if words == RENDERED[0].split():
            assert its.run("mingle", *words, check=True).stdout == ours.stdout


def test_two_hosts_meet_over_multicast(tried: Tried, hosts: Callable[..., Hosts]) -> None:
    """The packages that carry it work together."""
    env = {**KEYED, "PATH": f"{tried.its.path}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    command = evaluating("--id", "job", "--nodes", "2", "--via", "multicast", then=REDUCE)
    one_world(hosts(2, share=[tried.its.path]).run_all(command, env=env))


def test_nothing_is_missing_or_of_a_wrong_version(tried: Tried) -> None:
    """Our netifaces is the one that was installed, and pip check is content."""
    assert tried.its.run("pip", "check", check=True).stdout == "No broken requirements found.\n"
    assert [*tried.its.path.glob("lib/python*/site-packages/netifaces-0.11.0.post1.dist-info")]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Install pipx and uv."""
    its = made(tmp_path_factory.mktemp("tools") / "venv")
    check(its, its.run("pip", "install", "-q", "pipx", "uv"))
    return its


@pytest.mark.parametrize("tool", ["pipx", "uv tool"])
def test_the_line_for_another_installer_needs_no_compiler_either(
    tools: Installation, tmp_path: Path, tool: str
) -> None:
    """As it is in README.md; nothing is missing then."""
    (line,) = re.findall(rf"^{tool} install .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    # What says how to reach an index, and with which certificates, counts for these tools too.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIPX_", "UV_", "XDG_"))}
    environ |= {**tools.env, "HOME": str(tmp_path), "UV_PYTHON": sys.executable, "PIPX_DEFAULT_PYTHON": sys.executable}
    check(tools, in_bash(line, environ))
    (program,) = tmp_path.glob(".local/**/mingle-hooks/bin/mingle")
    its = Installation(program.parent.parent)
    assert its.run("mingle", "--version").stdout == f"mingle {mingle_hooks.__version__}\n"
    checked = tools.run("pip", "--python", str(its.path), "check", check=True)
    assert checked.stdout == "No broken requirements found.\n"


def test_a_netifaces_that_is_installed_stays(tmp_path: Path) -> None:
    """Installing mingle replaces none."""
    its = made(tmp_path / "venv")
    (site,) = (its.path / "lib").glob("python*/site-packages")
    info = site / "netifaces-0.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: netifaces\nVersion: 0.11.0\n")
    done = its.run("pip", "install", "--dry-run", "--find-links", "packaging/wheels", *bounds("dependencies"))
    check(its, done)
    would = done.stdout.rpartition("Would install")[2]
    assert re.search("multicast.expert", would)
    assert "netifaces" not in would
