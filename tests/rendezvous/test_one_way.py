"""Who is heard by multicast and does not seem to hear us."""

from __future__ import annotations

from gathering import join_request

from mingle_hooks.rendezvous.backend import MOST_SHOWN, OneWay
from mingle_hooks.rendezvous.roster import Entry

LEADER, MEMBER = b"L" * 16, b"M" * 16


def test_a_leader_that_was_asked_twice_in_vain_does_not_hear_us() -> None:
    """Once may be a loss, and one that has answered hears us."""
    ears = OneWay()
    ears.heard(LEADER, ("10.0.0.1", "10.1.0.1"))
    ears.questioned(LEADER)
    assert ears.told() == []
    ears.questioned(LEADER)
    assert ears.told() == ["multicast from 10.0.0.1 arrives here, but ours does not arrive there"]
    ears.answered(LEADER)
    assert ears.told() == []


def test_a_member_that_asks_and_does_not_come_is_told_by_the_address_that_says_most() -> None:
    """A link-local one is told only where there is no other."""
    ears = OneWay()
    for address in ("fe80::1", "10.0.0.2", "10.1.0.2", "fe80::1"):
        ears.asked(MEMBER, address)
    assert [said.partition(",")[0] for said in ears.told()] == ["multicast from 10.0.0.2 arrives here"]
    assert "ours does not arrive there, or its TCP connections do not arrive here" in ears.told()[0]


def test_a_member_that_is_in_is_not_told_of_whatever_its_address() -> None:
    """Nor one that was started again under another name."""
    ears = OneWay()
    ears.asked(MEMBER, "fe80::1")
    ears.asked(b"N" * 16, "10.0.0.3")
    its = Entry(join_request(member=MEMBER), "10.9.0.2")
    its.addresses = "10.0.0.3=100G,mtu9000"
    assert ears.told([its]) == []


def test_a_message_names_only_so_many() -> None:
    """However many ask."""
    ears = OneWay()
    for number in range(MOST_SHOWN + 1):
        ears.asked(bytes([number]) * 16, f"10.0.0.{number}")
    assert ears.told()[0].startswith("multicast from 10.0.0.0, 10.0.0.1, 10.0.0.2, 10.0.0.3 and more arrives")
