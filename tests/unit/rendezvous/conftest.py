"""A clock that a test moves by hand, and rooms with a leader, for worlds of two and of three."""

from collections.abc import Iterator

import pytest
from support.gathering import Clock, Room


@pytest.fixture
def clock() -> Clock:
    """Give a clock that a test moves by hand."""
    found = Clock()
    found.stop()
    return found


@pytest.fixture
def pair() -> Iterator[Room]:
    """Give a leader of a world of two."""
    with Room(2) as room:
        yield room


@pytest.fixture
def trio() -> Iterator[Room]:
    """Give a leader of a world of three."""
    with Room(3) as room:
        yield room
