"""Where `mingle hooks` works: below which root, by which slurm.conf and PBS_HOME, with which settings of the site."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from mingle_hooks import settings
from mingle_hooks.errors import UsageError
from mingle_hooks.install import files
from mingle_hooks.install.hook import Where
from mingle_hooks.install.site import Site, site

if TYPE_CHECKING:
    from collections.abc import Mapping

root_option = click.option("--root", default="", metavar="DIR", help="Work below DIR, such as a node image.")
conf_option = click.option("--slurm-conf", metavar="PATH", help="Path of slurm.conf (below --root).")
version_option = click.option("--slurm-version", metavar="X.Y", help="The version of Slurm, such as 23.11.")
home_option = click.option("--pbs-home", metavar="DIR", help="PBS_HOME; otherwise taken from /etc/pbs.conf.")


def settled(places: Mapping[str, str | None], *, observe: bool = False) -> Site:
    """Return the site's settings: only the site's file counts, not what the admin's own shell has.

    Raises SettingsError and PlaceError.
    """
    path = files.at(places["root"] or "", settings.SYSTEM_FILE)
    given = settings.load({}, {}, system_file=path)
    for name in given.left_out:
        click.echo(f"note: ignored {name}, which only a later mingle knows", err=True)
    found = site(given)
    return Site(**{**found.__dict__, "observe": True}) if observe else found


def located(places: Mapping[str, str | None]) -> Where:
    """Return where to look and to write. Raises UsageError."""
    root = places["root"] or ""
    if root and not os.path.isdir(root):
        raise UsageError("a directory", f"--root {root}", f"mkdir -p {root}")
    version = _parsed(places.get("slurm_version"))
    return Where(root.rstrip("/"), places.get("slurm_conf"), version, places.get("pbs_home"))


def _parsed(version: str | None) -> tuple[int, int] | None:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})(\.[0-9a-z.-]*)?", version) if version else None
    if version and not match:
        raise UsageError("a version such as 23.11", repr(version), "--slurm-version with the version from `slurmd -V`")
    return (int(match[1]), int(match[2])) if match else None
