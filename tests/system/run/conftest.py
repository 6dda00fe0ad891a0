"""Fixtures for mingle run on this machine: hosts, and a control group with little memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_group import little
from needs import skip_for_want_of
from places import Places


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Give hosts on this machine; nothing of theirs may be left."""
    made = Places(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def group() -> Iterator[Path]:
    """Give a control group with little memory, in which the kernel kills who takes more."""
    with little() as found:
        if found is None:
            skip_for_want_of(["a control group with a limit of memory"])
            return
        yield found
