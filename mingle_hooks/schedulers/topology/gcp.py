"""Google Cloud's metadata: cluster, block and sub-block of this instance ("View instance topology" in its manual)."""

from __future__ import annotations

from collections.abc import Mapping

from mingle_hooks.schedulers.topology import metadata

WHERE = "/computeMetadata/v1/instance/attributes/physical_host_topology"
HEADER = "Metadata-Flavor: Google"


def path(_environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the levels that are told, from the top down."""
    return metadata.levels(WHERE, HEADER, ("cluster", "block", "subBlock"))
