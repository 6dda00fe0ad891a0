"""Where Torque's hooks go: four scripts in mom_priv of every node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.errors import FactsError
from mingle_hooks.install import manifest, pbs
from mingle_hooks.install.hook import hooks
from mingle_hooks.install.plan import Plan, together

if TYPE_CHECKING:
    from mingle_hooks.install.site import Site

_HOME = "/var/spool/torque"


def plan(site: Site, root: str, home: str | None) -> Plan:
    """Return what to write below root; Torque needs no line anywhere, as the names are fixed."""
    old = manifest.read(root)
    place = f"{home or _HOME}/mom_priv"
    if not os.path.isdir(root + place):
        raise FactsError("pbs_mom's own directory", f"no {root}{place}", "--pbs-home DIR, on a node of the cluster")
    found = tuple(pbs.with_chain(site, root, old, "torque", hook.name, place) for hook in hooks("torque"))
    return together("torque", root, old, found, "nothing to add", ())
