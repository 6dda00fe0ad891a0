"""What a test needs and this machine lacks."""

from __future__ import annotations

import pytest

# A skip whose reason begins so is counted in the block at the end of the run.
FOR_WANT_OF = "for want of "


def skip_for_want_of(lacks: list[str]) -> None:
    """Skip the test, loudly, when anything is lacking."""
    if lacks:
        pytest.skip(FOR_WANT_OF + ", ".join(lacks))
