"""A fixture for mingle run: a control group with little memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_group import little
from needs import skip_for_want_of


@pytest.fixture
def group() -> Iterator[Path]:
    """Give a control group with little memory, in which the kernel kills who takes more."""
    with little() as found:
        if found is None:
            skip_for_want_of(["a control group with a limit of memory"])
            return
        yield found
