"""Where Torque's hooks go: four scripts in mom_priv of every node."""

from __future__ import annotations

import os

from mingle_hooks.errors import FactsError
from mingle_hooks.hooks import files, pbs
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.plan import Hook, Plan, Target, Where, join_plans

HOOKS = (
    Hook("torque", "prologue", "torque/prologue.sh.j2", "first node, root, before a job"),
    Hook("torque", "prologue.parallel", "torque/prologue.sh.j2", "the other nodes, root, before a job"),
    Hook("torque", "epilogue", "_epilogue.sh.j2", "first node, root, when a job ends", after="prologue"),
    Hook(
        "torque",
        "epilogue.parallel",
        "_epilogue.sh.j2",
        "the other nodes, root, when a job ends",
        after="prologue.parallel",
    ),
)
SCRIPTS = tuple(hook.name for hook in HOOKS)
_HOME = "/var/spool/torque"


def plan(site: Site, where: Where) -> Plan:
    """Return what to write below the root; Torque needs no line anywhere, as the names are fixed.

    Raises FactsError and PlaceError.
    """
    root = where.root
    old = files.read_manifest(root)
    place = f"{where.pbs_home or _HOME}/mom_priv"
    if not os.path.isdir(files.below_root(root, place)):
        raise FactsError("pbs_mom's own directory", f"no {root}{place}", "--pbs-home DIR, on a node of the cluster")
    found = tuple(pbs.with_chain(site, root, old, hook, place, SCRIPTS) for hook in HOOKS)
    return join_plans("torque", root, old, found, "nothing to add", ())


TARGET = Target(HOOKS, plan, program="momctl", version_option="-V", scripts=SCRIPTS)
