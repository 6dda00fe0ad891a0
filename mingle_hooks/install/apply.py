"""Carrying out a plan, in an order in which a power cut at any point loses nothing of the site's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.install import files, manifest

if TYPE_CHECKING:
    from mingle_hooks.install.plan import Plan


def apply(plan: Plan) -> None:
    """Write what the plan says. Raises PlaceError; then installing again goes on from there.

    First copies of the site's own files, then the manifest, so that everything that is ever written can
    be found again, then the hooks, each of which works beside an older or newer other.
    Raises FactsError for a manifest that is none.
    """
    if not plan.changes:
        return
    known = manifest.read(plan.root).entries
    for file in plan.files:
        if file.entry.kept and file.before is not None and file.entry.path not in known:
            files.write(plan.root + file.entry.kept, file.before, file.entry.kept_mode)
    files.write(plan.root + manifest.PATH, plan.manifest.text(), 0o644)
    for file in plan.files:
        if not file.is_right:
            files.write(plan.root + file.entry.path, file.text, file.entry.mode)
