"""Carrying out a plan, in an order in which a power cut at any point loses nothing of the site's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.install import files, manifest

if TYPE_CHECKING:
    from mingle_hooks.install.plan import Plan


def apply(plan: Plan) -> None:
    """Write what the plan says. Raises PlaceError; then installing again goes on from there.

    First copies of what is there and not ours, then the manifest, so that everything that is ever written can
    be found again, then the hooks, each of which works beside an older or newer other.
    """
    if not plan.changes:
        return
    for file in plan.files:
        if (copy := file.standing.copy) is not None:
            files.put(files.below(plan.root, copy.path), copy.found)
    files.write(files.below(plan.root, manifest.PATH), plan.manifest.text().encode(), 0o644)
    for file in plan.files:
        if not file.is_right:
            files.write(files.below(plan.root, file.entry.path), file.text.encode(), file.entry.mode)
