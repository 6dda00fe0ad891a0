"""Each question is answered by two beacons, many by one, and what is remembered has a bound."""

from __future__ import annotations

from mingle_hooks.rendezvous.multicast import MOST_NONCES, MOST_REMEMBERED, MOST_WAITING, Replies


def nonces(count: int) -> list[bytes]:
    """Return so many nonces."""
    return [number.to_bytes(8, "big") for number in range(count)]


def test_a_question_is_taken_twice_on_the_link_where_it_came_first() -> None:
    """However often, and over however many links, it is sent again."""
    its = Replies()
    assert its.add("eth0", [b"a"])
    assert not its.add("ib0", [b"a"])
    assert not its.add("eth0", [])
    assert its.links() == ["eth0"]
    assert its.take("ib0") == ()
    assert [its.take("eth0") for _ in range(3)] == [(b"a",), (b"a",), ()]
    assert not its.add("eth0", [b"a"])
    assert its.links() == []


def test_a_beacon_takes_as_many_as_it_has_room_for_the_newest_first() -> None:
    """Who asked long ago no longer waits for this answer."""
    its, asked = Replies(), nonces(MOST_NONCES + 1)
    for nonce in asked:
        its.add("eth0", [nonce])
    assert its.take("eth0") == tuple(reversed(asked[1:]))
    assert its.take("eth0") == (asked[0], *reversed(asked[2:]))


def test_only_so_much_is_remembered() -> None:
    """The oldest goes."""
    its, asked = Replies(), nonces(MOST_REMEMBERED + 1)
    for nonce in asked:
        its.add("eth0", [nonce])
    waiting: dict[bytes, None] = {}
    while taken := its.take("eth0"):
        waiting |= dict.fromkeys(taken)
    assert list(waiting) == asked[: -MOST_WAITING - 1 : -1]
    assert its.add("eth0", asked[:1])
    assert not its.add("eth0", asked[-1:])
