"""Oracle Cloud's metadata: island, network block and local block of this host, where its tenancy has them enabled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.topology import metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

WHERE = "/opc/v2/host/rdmaTopologyData"
HEADER = "Authorization: Bearer Oracle"


def path(_environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the levels that are told, from the top down."""
    return metadata.levels(WHERE, HEADER, ("customerHPCIslandId", "customerNetworkBlock", "customerLocalBlock"))
