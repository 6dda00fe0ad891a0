"""What a leader offers to whom."""

from __future__ import annotations

from mingle_hooks.rendezvous.roster import AdvertisedAddress, Terms

OWN = AdvertisedAddress("127.0.0.1", loopback=True)


def test_loopback_is_offered_within_the_machine_only() -> None:
    """Elsewhere it would be somebody else's; the others keep their index."""
    terms = Terms((OWN, AdvertisedAddress("10.0.0.1")), 20_000, 0)
    assert terms.offers(same_machine=True) == [[0, "127.0.0.1"], [1, "10.0.0.1"]]
    assert terms.offers(same_machine=False) == [[1, "10.0.0.1"]]
    assert not terms.is_loopback
    assert Terms((OWN,), 20_000, 0).is_loopback
