"""Every deviation of what is installed from what shall be, with the mend for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks import __version__
from mingle_hooks.install import files, manifest
from mingle_hooks.install.health import Finding, health
from mingle_hooks.install.made import digest, made
from mingle_hooks.install.site import KILL_SWITCH
from mingle_hooks.install.targets import target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.manifest import Manifest
    from mingle_hooks.install.plan import File, Plan
    from mingle_hooks.install.site import Site


def verify(plan: Plan, site: Site, where: Where) -> tuple[Finding, ...]:
    """Return what deviates from what was installed, and from the plan that installing now would make.

    Raises UsageError, FactsError and PlaceError.
    """
    installed = manifest.read(plan.root)
    found = list(target(plan.scheduler).findings(plan, where))
    # The scheduler's part knows more of the site's own programs.
    known = {its.where for its in found} & {entry.chain for entry in installed.of(plan.scheduler)}
    found[:0] = [its for its in health(plan.root, installed, plan.scheduler, site.key_file) if its.where not in known]
    found += _plan(plan, installed)
    if os.path.lexists(files.below(plan.root, KILL_SWITCH)):
        found.append(Finding(KILL_SWITCH, "is there, so the hooks do nothing", f"rm {KILL_SWITCH}", note=True))
    notes = [note for note in plan.notes if not note.startswith(site.key_file)]  # a key that is missing is told above
    found += [Finding(plan.scheduler, note, "", note=True) for note in notes]
    return tuple(found)


def _plan(plan: Plan, installed: Manifest) -> Iterator[Finding]:
    """Find what installing now would change. That is a note: an upgrade must not fail a whole cluster's health."""
    again = f"mingle hooks install {plan.scheduler}"
    entries = installed.of(plan.scheduler)
    versions = {version for file in plan.files if (version := _version(file))}
    for file in plan.files:
        entry, now = installed.entries.get(file.entry.path), file.standing.now
        if entry is None:
            what = "is missing" if now is None else "is not in the manifest"
            yield Finding(file.entry.path, what, again, note=bool(entries) and versions != {__version__})
        elif now is not None and digest(now.data) == entry.sha256 != file.entry.sha256:
            yield Finding(file.entry.path, _older(file), again, note=True)
    for entry in entries:
        if entry.path not in plan.manifest.entries:
            what = "is no longer needed"
            yield Finding(entry.path, what, f"mingle hooks uninstall {plan.scheduler}, then {again}", note=True)


def _older(file: File) -> str:
    version = _version(file)
    if version in {"", __version__}:
        return "is as installed, and these settings give another"
    return f"is as installed by mingle-hooks {version}, and {__version__} gives another"


def _version(file: File) -> str:
    now = file.standing.now
    said = made(now.data) if now is not None and not now.is_link else None
    return said.version if said else ""
