"""The report as a page."""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from mingle_hooks.check.report import Report


def html(report: Report) -> str:
    """Return the page."""
    return str(report)
