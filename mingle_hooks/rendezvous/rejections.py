"""Addresses that a person should know of: who shows another key, who hands on what others say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mingle_hooks
from mingle_hooks.errors import ConflictError, MingleError, SecretError
from mingle_hooks.rendezvous.protocol import wire
from mingle_hooks.rendezvous.rejected import RejectedPeers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Addresses that are told to a person; after that it is an attack, and a log to fill.
MOST_REPORTS = 8


class Rejections:
    """Each is told by `note`: who relays, once each; who has another key, the first, as the end tells all of them."""

    def __init__(self, note: Callable[[str], None], key_from: str = "") -> None:
        self._note = note
        self._key_from = key_from
        self._told: set[str] = set()
        self._has_told_of_keys = False
        self.refusals = {
            why: RejectedPeers() for why in wire.REASONS
        }  # leaders that this member dialled and that refused it

    def reject(self, labels: Iterable[str]) -> None:
        """Tell of the first address that showed another key; a host has several, and a line of each says no more."""
        for label in labels:
            if not self._has_told_of_keys:
                self._has_told_of_keys = True
                self._note(f"refused {label}, which uses this id with another key")

    def relayed(self, address: str, leader: str) -> None:
        """Tell of an address that hands on what a leader says."""
        self._tell(address, f"{address} only relays {leader}: connecting to {leader} directly")

    def refusal(self) -> MingleError | None:
        """Return the likely reason why nobody was met, where others were seen that refused this member."""
        seen = {why: ", ".join(rejected.list()) for why, rejected in self.refusals.items()}
        if others := seen[wire.VERSION]:
            return ConflictError(
                f"the same version of mingle as {others} has",
                f"version {mingle_hooks.__version__} here",
                "the same version of mingle on every member",
            )
        if others := seen[wire.RUN]:
            return SecretError(
                f"the same run of the job as {others}, by PBS_JOBCOOKIE",
                "another one, or none, here",
                "pbs_tmrsh or pbsdsh to start every member, or the job's PBS_JOBCOOKIE in every shell",
            )
        if not (others := seen[wire.KEY]):
            return None
        return SecretError(
            f"the same key as {others} has for this id",
            f"another key here ({self._key_from})" if self._key_from else "another key here",
            "the same --key-file or MINGLE_KEY on every member (`mingle key` makes one)",
        )

    def _tell(self, address: str, text: str) -> None:
        if address not in self._told and len(self._told) < MOST_REPORTS:
            self._told.add(address)
            self._note(text)
