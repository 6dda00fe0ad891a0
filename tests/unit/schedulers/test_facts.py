"""Variables of a scheduler: which one is taken, and which is as good as none."""

from __future__ import annotations

from mingle_hooks.schedulers.facts import Variables


def test_the_first_that_is_set_to_something_is_taken_and_remembered() -> None:
    """Shells can hardly tell a variable that is set to nothing from one that is not set."""
    read = Variables({"EMPTY": "", "SECOND": "7", "THIRD": "8"})
    assert read.number("nodes", "MISSING", "EMPTY", "SECOND", "THIRD") == 7
    assert read.sources == {"nodes": "SECOND"}
    assert read.number("rank", "MISSING", "EMPTY") is None
