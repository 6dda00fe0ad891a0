"""The table of defects fits the project as it is: the defects themselves are for `make mutants`."""

from __future__ import annotations

import ast
import re
from collections import Counter

from mutants import DEFECTS
from mutants.defect import PROJECT


def test_every_defect_applies_exactly_once() -> None:
    """Code that moves takes its row along."""
    wrong = []
    for defect in DEFECTS:
        try:
            text = defect.applied()
            assert "\n" not in defect.text
            if defect.file.endswith(".py"):
                ast.parse(text)
        except (OSError, ValueError, SyntaxError) as error:
            wrong.append(f"{defect.name}: {error}")
    assert wrong == []


def test_every_test_that_is_named_is_there() -> None:
    """By its file, and its function."""
    wrong = []
    for defect in DEFECTS:
        for test in defect.tests.split():
            file, _, function = test.partition("::")
            text = (PROJECT / file).read_text() if (PROJECT / file).is_file() else ""
            if not re.search(rf"^def {function or 'test_'}", text, re.MULTILINE):
                wrong.append(f"{defect.name}: {test}")
    assert wrong == []


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    """All rooms have some."""
    assert len(DEFECTS) >= 150
    assert [name for name, count in Counter(defect.name for defect in DEFECTS).items() if count > 1] == []
    rooms = {path.name for path in (PROJECT / "mingle_hooks").iterdir() if (path / "__init__.py").exists()}
    assert rooms - {defect.file.split("/")[1] for defect in DEFECTS} == set()
