"""What a leader brings to a world: the addresses that it offers, its port, and its ticket."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.rendezvous.protocol.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence


class AdvertisedAddress(NamedTuple):
    """One address of the leader that the world may use, the best first."""

    address: str
    loopback: bool = False  # good only where all members share the leader's network stack
    why: str = ""  # UsableAddress.why, for a message


class Terms(NamedTuple):
    """What the leader brings to a world."""

    advertised: tuple[AdvertisedAddress, ...]
    port: int
    ticket: int  # 0: rank 0 by right; else the lowest wins

    def offers(self, *, same_machine: bool) -> list[list[object]]:
        """Return the addresses that a member may try, as they travel: each with its index, the best first."""
        return [
            [index, offer.address] for index, offer in enumerate(self.advertised) if not offer.loopback or same_machine
        ]

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can reach any of the addresses."""
        return all(offer.loopback for offer in self.advertised)


def not_own(master_addr: str, host: str, advertised: Sequence[AdvertisedAddress]) -> Failure:
    """Return the failure for a MASTER_ADDR, as it was exported, at which other hosts cannot reach rank 0's."""
    found = ", ".join(dict.fromkeys(offer.address for offer in advertised))
    which = f", which is {found} on {host}" if found else f", which {host} cannot look up"
    return Failure("address", (master_addr, host, "" if found == master_addr else which))
