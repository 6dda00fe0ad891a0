"""The manual pages: made from the help, clean, and found by man(1) where mingle is installed."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from needs import need, skip_for_want_of

from mingle_hooks.cli.commands import COMMANDS

PROJECT = Path(__file__).parents[3]
PAGES = PROJECT / "docs" / "man"
MAN = runpy.run_path(str(PROJECT / "packaging" / "man.py"))
pages: Callable[[], dict[str, str]] = MAN["pages"]
escaped: Callable[[str], str] = MAN["escaped"]
NAMES = ["mingle", *(f"mingle-{name}" for name in COMMANDS)]


def rendered(path: str | Path, **environ: str) -> str:
    """Return a page as man shows it, without bold and underlined letters."""
    done = subprocess.run(
        ["man", "--warnings=w", "--no-hyphenation", "--no-justification", path],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANPAGER": "cat", **environ},
    )
    assert done.stderr == ""
    return done.stdout


def test_the_pages_are_those_that_the_help_makes() -> None:
    """If this fails: make man."""
    assert {path.name: path.read_text() for path in PAGES.iterdir()} == pages()
    assert set(pages()) == {f"{name}.1" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_clean_and_fits_a_terminal(name: str) -> None:
    """Groff has no warnings, and man shows it on 80 columns."""
    need("groff", "man")
    page = PAGES / f"{name}.1"
    done = subprocess.run(["groff", "-Tutf8", "-ww", "-man", page], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    text = rendered(page)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[2] == "NAME"


def test_man_finds_the_pages_of_the_mingle_on_path() -> None:
    """man-db derives the place of the pages from PATH."""
    need("man")
    environ = {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "MANPATH": ""}
    text = rendered("mingle-env", **environ)
    if "unminimize" in text:  # what /usr/bin/man of a container image says
        skip_for_want_of(["man"])
    assert "eval" in text
    assert "MINGLE_KEY_FILE" in text


@given(text=st.text())
def test_any_text_is_only_text_in_a_page(text: str) -> None:
    """Nothing in it is a request, an escape of its own, or beyond ASCII."""
    shown = escaped(text)
    assert shown.isascii()
    assert not [line for line in shown.split("\n") if line.startswith((".", "'"))]
    assert shown.count("\\") >= text.count("\\")
    assert "\\" not in shown.replace("\\e", "").replace("\\-", "").replace("\\&", "").replace("\\[u", "")
