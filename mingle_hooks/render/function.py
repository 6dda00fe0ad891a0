"""`mingle_hooks.render`: what `mingle template` does, for Python programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks import settings
from mingle_hooks.render import job as description
from mingle_hooks.render import script, search

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def render(
    job: Mapping[str, object],
    scheduler: str = "slurm",
    *,
    template_directories: Iterable[str] = (),
    explain: bool = False,
) -> str:
    """Return the script of a job for a scheduler, as `mingle template` prints it with --no-environment.

    `job` holds what a job file holds: the fields of `mingle template SCHEDULER --help`, and the command as a list.
    Raises UsageError that names the field, and SettingsError for a file or a variable that cannot be used.
    """
    template = settings.load(os.environ, {}).section("template")
    described = description.describe({}, spec=job, default_launcher=template["launcher"])
    places = search.path(_listed(template_directories) or template["directories"], os.environ)
    return script.render(scheduler, described, places=places, explain=explain)


def _listed(given: Iterable[str]) -> list[str]:
    """Return a list of texts; a text alone is one of them."""
    return [given] if isinstance(given, str) else list(given)
