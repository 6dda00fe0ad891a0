"""What tests of several folders ask for: a control group with little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from needs import skip_for_want_of
from supervise.memory import little

if TYPE_CHECKING:
    from collections.abc import Iterator

    from supervise.memory import Group


@pytest.fixture
def group() -> Iterator[Group]:
    """Give a control group with little memory, in which the kernel kills who takes more."""
    with little() as found:
        if found is None:
            skip_for_want_of(["a control group with a limit of memory"])
            return
        yield found
