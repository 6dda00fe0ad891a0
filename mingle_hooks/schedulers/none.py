"""No scheduler at all."""

from __future__ import annotations

from mingle_hooks.schedulers.facts import JobFacts
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def facts(environ: Mapping[str, str]) -> JobFacts:  # noqa: ARG001 - the signature that all adapters share
    """Return facts that hold nothing."""
    return JobFacts(scheduler="none")
