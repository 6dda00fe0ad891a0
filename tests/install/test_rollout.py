"""`mingle hooks report` and `rollout --check`: no node without the hooks before slurm.conf names them on all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from test_install import NO_CHAIN, OURS, call, conf, program

from mingle_hooks.cli.hooks import hooks
from mingle_hooks.errors import UsageError
from mingle_hooks.hooks import slurm as running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

KEY = "ab" * 32


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Give one node with the hooks, its key and settings, and a slurm.conf that does not name them yet."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    conf(tmp_path, "ClusterName=x")
    program(tmp_path, "/etc/mingle/mingle.toml", NO_CHAIN)
    program(tmp_path, "/etc/mingle/key", f"{KEY}\n").chmod(0o400)
    call(tmp_path, "install", "slurm", "--yes")
    return tmp_path


def report(root: Path) -> str:
    """Return what the node says of itself."""
    done = call(root, "report", "slurm")
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    return done.stdout


def check(*lines: str, nodes: str = "n[1-3]") -> Result:
    """Give these lines to the check."""
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return CliRunner().invoke(hooks, ["rollout", "--check", "--nodes", nodes], input=text, catch_exceptions=False)


def test_a_report_says_all_that_has_to_be_the_same(node: Path) -> None:
    """In one line, with what stands for the key and never the key."""
    conf(node, f"Prolog={OURS}/prolog")
    text = report(node)
    said = json.loads(text)
    assert [*said["hooks"]] == [f"{OURS}/{name}" for name in ("epilog", "prolog", "taskprolog", "taskprolog-all")]
    assert said["chain"] == {"prolog": "none", "epilog": "none", "taskprolog": "none"}
    assert (said["slurm.conf"], said["problems"]) == ({"Prolog": [f"{OURS}/prolog"]}, [])
    assert KEY[:16] not in text
    (node / "etc/mingle/key").chmod(0o600)
    (node / "etc/mingle/key").write_text("cd" * 32)
    assert json.loads(report(node))["key"] not in {said["key"], "unfit"}
    (node / "etc/mingle/key").chmod(0o644)
    assert json.loads(report(node))["key"] == "unfit"


def test_nodes_that_are_the_same_are_ready(node: Path) -> None:
    """Whatever clush and pdsh say beside the reports, and also by whole names."""
    one = report(node)
    done = check(f"n1: {one}", f"n2.site: {one}", "n2.site: a warning", f"n3: {one}", "")
    assert (done.exit_code, done.stdout) == (
        0,
        "ok: all reports from n[1-3] agree; you can name the hooks in slurm.conf\n",
    )


def test_a_node_without_a_report_is_not_ready(node: Path) -> None:
    """One that says nothing, one that says something else, and one of which clush says why."""
    one = report(node)
    done = check(f"n1: {one}", "n2: sh: mingle: not found", "clush: n3: exited with exit code 1", nodes="n[1-4]")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.split(": ")[:3] for line in lines] == [
        ["BAD  n2", "no report", "sh"],
        ["BAD  n3", "no report", "exited with exit code 1; fix"],
        ["BAD  n4", "no report; fix", "mingle hooks install slurm --yes there"],
    ]


SPOILERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a hook is gone": (lambda root: (root / OURS[1:] / "prolog").unlink(), f"{OURS}/prolog is missing"),
    "a hook is another": (lambda root: (root / OURS[1:] / "epilog").write_text("x"), "is not as it was installed"),
    "a hook cannot be run": (lambda root: (root / OURS[1:] / "epilog").chmod(0o644), "and mode 0644"),
    "nothing is installed": (
        lambda root: call(root, "uninstall", "slurm", "--yes", input="y\n"), "no hooks are installed",
    ),
    "another key": (lambda root: program(root, "/etc/mingle/key", "cd" * 32).chmod(0o400), "key is "),
    "no key": (lambda root: (root / "etc/mingle/key").unlink(), "key is none"),
    "another chain": (
        lambda root: program(root, "/etc/mingle/mingle.toml", NO_CHAIN.replace('prolog = "none"', "", 1)),
        "does not name the site's own prolog",
    ),
    "a drop-in that cannot be run": (
        lambda root: program(root, "/etc/mingle/prolog.d/10-x").chmod(0o644), "which drains the node",
    ),
    "another slurm.conf": (lambda root: conf(root, "Prolog=/opt/x"), "slurm.conf Prolog is"),
    "the kill switch": (lambda root: program(root, "/etc/mingle/disabled"), "off is true, and false on 2 others"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILERS)
def test_a_node_that_differs_is_told(node: Path, how: str) -> None:
    """By its name, with what is different there and the mend."""
    one = report(node)
    spoil, said = SPOILERS[how]
    spoil(node)
    done = check(f"n1: {one}", f"n2: {report(node)}", f"n3: {one}")
    assert done.exit_code == 1
    assert {line.split(":")[0] for line in done.stdout.splitlines()} == {"BAD  n2"}
    assert said in done.stdout
    assert all("; fix: " in line for line in done.stdout.splitlines())


def test_what_is_wrong_on_all_is_no_reason_to_go_on(node: Path) -> None:
    """The settings say nothing of the site's own, so a node that comes later would lose it."""
    (node / "etc/mingle/mingle.toml").unlink()
    one = report(node)
    done = check(*(f"n{number}: {one}" for number in (1, 2, 3)))
    assert (done.exit_code, done.stdout.count("BAD  n[1-3]: /etc/mingle/mingle.toml does not name")) == (1, 3)


def test_nodes_come_from_sinfo(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the controller knows; without an answer they have to be named. No report at all is a mistake."""
    monkeypatch.setattr(running, "slurm_nodes", lambda _where: ("n1", "n2"))
    line = ["rollout", "--check"]
    done = CliRunner().invoke(hooks, line, input=f"n1: {report(node)}", catch_exceptions=False)
    assert (done.exit_code, "BAD  n2: no report" in done.stdout) == (1, True)
    with pytest.raises(UsageError, match="reports of nodes"):
        CliRunner().invoke(hooks, line, input="[1, 2]\nn1: {}\n", catch_exceptions=False)
    monkeypatch.setattr(running, "slurm_nodes", lambda _where: ())
    with pytest.raises(UsageError, match="--nodes"):
        CliRunner().invoke(hooks, line, input="", catch_exceptions=False)


def test_the_order_is_told() -> None:
    """The check comes before the lines of slurm.conf."""
    said = CliRunner().invoke(hooks, ["rollout"], catch_exceptions=False).stdout
    assert said.index("rollout --check") < said.index("printed to slurm.conf") < said.index("hooks uninstall")
