"""Who knocked is noted once each, and not without end."""

from __future__ import annotations

from mingle_hooks.rendezvous.knocks import MOST_ADDRESSES, Knocks


def test_an_address_is_news_once_and_only_so_many_are_kept() -> None:
    """In the order of their first try."""
    knocks = Knocks()
    assert knocks.add("10.0.0.1")
    assert not knocks.add("10.0.0.1")
    for number in range(100):
        knocks.add(f"10.0.1.{number}")
    assert knocks.list()[:2] == ["10.0.0.1", "10.0.1.0"]
    assert len(knocks.list()) == MOST_ADDRESSES
