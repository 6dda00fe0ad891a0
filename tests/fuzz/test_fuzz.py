"""All inputs that are kept break no rule of their target."""

import pytest

from fuzz import corpus
from fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_once_breaks_nothing(name: str) -> None:
    """Each target has some inputs: real shapes, what reaches the most code, and every finding."""
    inputs = corpus.kept(name)
    assert len(inputs) >= 4
    for data in inputs:
        TARGETS[name].call(data)


def test_there_is_a_file_for_each_target_and_no_other() -> None:
    assert {path.stem for path in corpus.FOLDER.iterdir()} == set(TARGETS)
