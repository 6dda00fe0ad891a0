"""What install, verify and uninstall tell a program: JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mingle_hooks.install.health import Finding
    from mingle_hooks.install.plan import Plan
    from mingle_hooks.install.uninstall import Removal


def installed(plan: Plan, *, changes: bool, bad: Iterable[Finding]) -> str:
    """Return what installing changed, or would change, and what is left to do."""
    tree = {
        "changed": changes,
        "scheduler": plan.scheduler,
        "files": [
            {"path": file.entry.path, "action": file.what, "kept": file.entry.kept, "calls": file.entry.chain}
            for file in plan.files
        ],
        "lines_for": plan.where,
        "lines": [{"text": line.text, "is_there": line.is_there} for line in plan.lines],
        "notes": list(plan.notes),
        "bad": _rows(bad),
    }
    return json.dumps(tree, indent=1)


def verified(scheduler: str, found: Sequence[Finding]) -> str:
    """Return what verifying found."""
    bad = [finding for finding in found if not finding.note]
    notes = [finding for finding in found if finding.note]
    tree = {"ok": not bad, "scheduler": scheduler, "bad": _rows(bad), "notes": _rows(notes)}
    return json.dumps(tree, indent=1)


def removed(scheduler: str, found: Iterable[Removal], undo: Sequence[str], *, changes: bool) -> str:
    """Return what uninstalling changed, or would change."""
    rows = [{"path": entry.path, "action": what, "kept": entry.kept} for entry, what, _ in found]
    return json.dumps({"changed": changes, "scheduler": scheduler, "files": rows, "commands": list(undo)}, indent=1)


def _rows(found: Iterable[Finding]) -> list[dict[str, str]]:
    return [{"where": finding.where, "what": finding.what, "mend": finding.mend} for finding in found]
