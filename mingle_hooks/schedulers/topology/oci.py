"""Oracle Cloud's metadata: island, network block and local block of this host, where its tenancy has them enabled."""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers.topology import metadata

WHERE = "/opc/v2/host/rdmaTopologyData"
HEADER = "Authorization: Bearer Oracle"


def path(_environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the levels that are told, from the top down."""
    return metadata.levels(WHERE, HEADER, ("customerHPCIslandId", "customerNetworkBlock", "customerLocalBlock"))
