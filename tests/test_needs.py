"""A test is skipped only by `needs`, and only for want of what is named."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import needs
import pytest

TESTS = Path(__file__).parent
# What pytest and unittest skip by; a clock may have a `skip` too.
SKIPPING = re.compile(
    r"\b(pytest|mark|outcomes|unittest)\.skip$"
    r"|\.(skipif|skipIf|skipUnless|skipTest|importorskip|Skipped|SkipTest)$"
)
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("*.py"))


def skips(text: str) -> list[str]:
    """Return how a module skips tests, if it does."""
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and "kip" in node.attr:  # as in all of them: most attributes need no text
            names.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return sorted(name for name in names if SKIPPING.search(name))


def test_only_needs_skips() -> None:
    """Every other skip would be missing in the block at the end of the run."""
    assert {str(path): its for path in FILES if (its := skips((TESTS / path).read_text()))} == {
        "needs.py": ["pytest.mark.skipif", "pytest.skip"]
    }


@pytest.mark.parametrize(
    "text",
    [
        "pytest.skip('not here')",
        "pytest.mark.skip(reason='not now')",
        "@pytest.mark.skipif(True, reason='')\ndef test(): ...",
        "torch = pytest.importorskip('torch')",
        "from pytest import importorskip as need",
        "class Test(TestCase):\n    def test(self): self.skipTest('')",
    ],
)
def test_every_way_to_skip_is_found(text: str) -> None:
    assert skips(text)


def test_a_name_is_a_condition_a_package_or_else_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command that is called as a package is does not count, nor a package that is called as a command is."""
    (tmp_path / "jax").touch(mode=0o755)
    (tmp_path / "fish").touch(mode=0o755)
    (tmp_path / "torch.py").touch()
    (tmp_path / "zsh.py").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for package in ("torch", "jax"):  # another test may have imported it
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert needs.lacking("root", "Linux", "torch", "jax", "zsh", "fish") == ["root", "jax", "zsh"]


def test_a_test_that_needs_what_is_here_runs() -> None:
    needs.need("Linux" if sys.platform == "linux" else "sh")
    assert needs.only_with().args == (False,)


def test_what_a_test_needs_and_lacks_is_its_reason() -> None:
    """All of it, as it is called in the test."""
    with pytest.raises(BaseException, match=r"^for want of a-moon, two-suns$"):
        needs.need("sh", "a-moon", "two-suns")
    mark = needs.only_with("sh", "a-moon", "two-suns")
    assert (mark.args, mark.kwargs) == ((True,), {"reason": "for want of a-moon, two-suns"})
