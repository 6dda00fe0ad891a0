"""Scripts as logical lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.scripts.lint import split_lines as parted

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.sh"))
PIECES = [
    "'",
    '"',
    "\\",
    "\n",
    "$(",
    ")",
    "((",
    "`",
    "#",
    " ",
    "<<A",
    "A",
    "$'",
    "f() {\n",
    "}\n",
    "#SBATCH -N2\n",
    "é",
]


@pytest.mark.parametrize(
    ("script", "texts"),
    [
        ("a \\\n b\nc", [(1, "a \n b\n"), (3, "c")]),
        ("a 'b\nc' d\ne", [(1, "a 'b\nc' d\n"), (3, "e")]),
        ('a "$(b "c\nd")"\ne', [(1, 'a "$(b "c\nd")"\n'), (3, "e")]),
        ("a # 'b\nc", [(1, "a \n"), (2, "c")]),
        ("a $# ${#b} c#d\n", [(1, "a $# ${#b} c#d\n")]),
        ("a $'it\\'s' # b\nc", [(1, "a $'it\\'s' \n"), (2, "c")]),
        ("a $'it\\'s' # 'b\nc", [(1, "a $'it\\'s' \n"), (2, "c")]),
        ("echo $((1 << 4))\nA\n", [(1, "echo $((1 << 4))\n"), (2, "A\n")]),
        ("cat <<<'A'\nA\n", [(1, "cat <<<'A'\n"), (2, "A\n")]),
        ("cat <<'A' <<B\nit's\nA\n\"\nB\nc", [(1, "cat <<'A' <<B\n"), (2, "it's"), (4, '"'), (6, "c")]),
        ("echo it's\nb 'c\n", [(1, "echo it's\nb 'c\n")]),
        ("echo it's\nb\n", [(1, "echo it's\n"), (2, "b\n")]),
    ],
)
def test_quotes_and_backslashes_join(script: str, texts: list[tuple[int, str]]) -> None:
    """Each logical line has the number of its first, and where quotes do not come out even each is for itself."""
    assert [(line.number, line.text) for line in parted(script)[1]] == texts


def test_what_single_quotes_keep_is_blank() -> None:
    """Double quotes keep nothing, and single ones within them are text."""
    (line,) = parted("""srun sh -c 'a $B' "c '$D'" """)[1]
    assert line.here.split() == ["srun", "sh", "-c", '"c', "'$D'\""]
    assert len(line.here) == len(line.text)


def test_what_others_start_is_marked() -> None:
    """The bodies of functions and here-documents are not run where they stand."""
    script = "a() { b; }\nc\nfunction d {\n  e\n  if f; then { g; }\n  fi\n}\nh\ncat <<A\ni\nA\nj() (\n  k\n)\nl\n"
    inside = {line.text.strip(): line.is_inside for line in parted(script)[1]}
    assert [text for text, is_inside in inside.items() if not is_inside] == ["c", "h", "cat <<A", "l"]


def test_directives_begin_their_line() -> None:
    """In the script, or in one that it submits as a here-document."""
    directives, _ = parted("#SBATCH -N2\n #SBATCH -N3\nsbatch <<A\n#SBATCH -n4\nA\necho '\n#SBATCH -n5'\n")
    assert [(line.number, line.text) for line in directives] == [(1, "#SBATCH -N2"), (4, "#SBATCH -n4")]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_script_comes_out_even(path: Path) -> None:
    """No quote is left open: the last line is one, with the command."""
    text = path.read_text()
    lines = parted(text)[1]
    last = [line for line in lines if line.text.startswith("exec mingle run ")]
    assert [line.is_inside for line in last] == [False]
    assert last[0].text.split()[-3:] == ["train.py", "--lr", "1e-3"]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_read(text: str) -> None:
    """Whatever stands in a file, each line has a number within it, and what is blanked keeps its place."""
    directives, lines = parted(text)
    for line in (*directives, *lines):
        assert 1 <= line.number <= text.count("\n") + 1
        assert len(line.here) == len(line.text)
        assert all(line.text.startswith(("$(", "`"), at) for at in line.early)
