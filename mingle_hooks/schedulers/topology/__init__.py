"""Where this node is on the network: the switches above it, from the top down, by who tells it.

Each source is one file here with `path(environ)` and one line in the table; `--order` names it, of which settings.py
has the choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module

# What --order may say besides SCHEDULER -> the module.
SOURCES = {"topology": "slurm", "gcp": "gcp", "oci": "oci"}
SCHEDULER = "scheduler"
SEPARATOR = "/"
# In characters; all of it has to fit into a check-in (LONGEST_TOPOLOGY).
_MOST_LEVELS, _LONGEST_NAME = 8, 24


def above(order: str, environ: Mapping[str, str]) -> str:
    """Return the switches as one text; empty where this order needs none, or nobody tells them.

    Only whether two are the same matters: a name that is long or odd is told by its hash.
    """
    if order == SCHEDULER:
        return ""
    found: tuple[str, ...] = import_module(f"{__name__}.{SOURCES[order]}").path(environ)
    return SEPARATOR.join(_plain(name) for name in found[:_MOST_LEVELS])


def _plain(name: str) -> str:
    if len(name) <= _LONGEST_NAME and name.isprintable() and SEPARATOR not in name:
        return name
    return sha256(name.encode(errors="replace")).hexdigest()[:16]
