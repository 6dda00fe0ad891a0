"""A mistyped word leads to the one that was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.values import nearest


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("evn", ("env", "exec", "key"), "env"),
        ("EXEC", ("env", "exec", "key"), "exec"),
        ("MINGLE_TIMEOT", ("MINGLE_ID", "MINGLE_TIMEOUT"), "MINGLE_TIMEOUT"),
        ("process", ("node", "task"), "task"),
        ("process", ("torchrun", "process"), "process"),
        ("all", ("gpus", "tasks", "cpus"), "gpus"),
        ("pytorch", ("ray", "torchrun"), "torchrun"),
        ("powershell", ("sh", "csh", "fish"), "sh"),
        (7, ("a", "b"), "a"),
    ],
)
def test_the_nearest_is_the_one_that_is_meant(word: object, known: tuple[str, ...], meant: str) -> None:
    """By its letters, by what it means, or else the first."""
    assert nearest(word, known) == meant


@given(word=st.text())
def test_whatever_was_typed_something_known_is_named(word: str) -> None:
    """Nothing else can come out."""
    assert nearest(word, ("node", "task")) in ("node", "task")
