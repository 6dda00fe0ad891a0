"""Whether every node has the same hooks, from the reports of all: slurm.conf names them on all at once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from mingle_hooks.errors import UsageError
from mingle_hooks.hooks.plan import Finding
from mingle_hooks.hooks.verify import MISSING, UNFIT, UNKNOWN
from mingle_hooks.schedulers.hostlist import fold
from mingle_hooks.settings import SYSTEM_FILE
from mingle_hooks.values import NONE

ORDER = f"""\
1. Copy the same key and {SYSTEM_FILE} to every node. Its [hooks] must name the site's own prolog,
   epilog and taskprolog, or "none".
2. clush -a mingle hooks install slurm --yes
3. clush -a mingle hooks report slurm | mingle hooks rollout --check
4. If that exits with 0: add the lines that install printed to slurm.conf, then scontrol reconfigure.
5. clush -a mingle hooks verify slurm
To go back: remove the lines from slurm.conf, scontrol reconfigure, then clush -a mingle hooks uninstall slurm --yes
"""
_INSTALL = "mingle hooks install slurm --yes there"
# What clush and pdsh print: the node's name before each line; and what they say themselves of a node.
_LINE = re.compile(r"(?:(?:clush|pdsh@[^:\s]+): )?(?P<node>[A-Za-z0-9_.-]+): (?P<said>.*)")
_SHORT = 12  # characters of a checksum
_MOST_SAID = 80


def compare_reports(text: str, nodes: Iterable[str]) -> tuple[Finding, ...]:
    """Return what has to be mended before slurm.conf may name the files, each with its nodes.

    `text` has a line "NODE: REPORT" for each. Raises UsageError where there is not one.
    """
    reports, said = _read(text)
    if not reports:
        raise UsageError(
            "reports of nodes, as lines such as node1: {...}",
            "none" if not said else f"{min(said)}: {said[min(said)][:_MOST_SAID]}",
            "clush -a mingle hooks report slurm | mingle hooks rollout --check",
        )
    short = {name.partition(".")[0] for name in reports}
    found: dict[tuple[str, str], list[str]] = {}
    for node in sorted({*nodes, *said}):
        if node not in reports and node.partition(".")[0] not in short:
            why = f": {said[node][:_MOST_SAID]}" if node in said else ""
            found.setdefault((f"no report{why}", _INSTALL), []).append(node)
    for node, what, mend in (*_different(reports), *_wrong(reports)):
        found.setdefault((what, mend), []).append(node)
    return tuple(Finding(fold(its), what, mend) for (what, mend), its in found.items())


def _read(text: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return each node's report, and what those said that gave none."""
    reports: dict[str, dict[str, str]] = {}
    said: dict[str, str] = {}
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        try:
            tree = json.loads(match["said"])
        except (ValueError, RecursionError):
            tree = None
        if isinstance(tree, dict) and "hooks" in tree:
            reports[match["node"]] = dict(_flat(tree))
        else:
            said.setdefault(match["node"], match["said"])
    return reports, {node: words for node, words in said.items() if node not in reports}


def _flat(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield key, "some" if value else NONE
            yield from ((f"{key} {inner}", json.dumps(deep).strip('"')) for inner, deep in value.items())
        else:
            yield key, value if isinstance(value, str) else json.dumps(value)


def _different(reports: dict[str, dict[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield node, what is different there from most others, and the mend."""
    for key in sorted({key for its in reports.values() for key in its if key != "problems"}):
        values = Counter(its.get(key, MISSING) for its in reports.values())
        (usual, count), *others = values.most_common()
        if not others:
            continue
        for node, its in reports.items():
            if (value := its.get(key, MISSING)) != usual:
                yield node, f"{key} is {value[:_SHORT]}, and {usual[:_SHORT]} on {count} others", _mend(key)


def _mend(key: str) -> str:
    if key == "key":
        return "the same key there"
    if key.startswith("chain"):
        return f"the same {SYSTEM_FILE} there, then {_INSTALL}"
    if key.startswith("slurm.conf"):
        return "the same slurm.conf there"
    return f"the same mingle and {SYSTEM_FILE} there, then {_INSTALL}"


def _wrong(reports: dict[str, dict[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield node, what is wrong there though all may have it alike, and the mend."""
    for node, its in reports.items():
        if its.get("hooks") != "some":
            yield node, "no hooks are installed", _INSTALL
        if its.get("key") == UNFIT:
            yield node, "the key is not a file of root's, mode 0400, with 64 to 128 hex digits", "the same key there"
        for key, value in its.items():
            if key.startswith("hooks ") and value in {MISSING, UNFIT}:
                yield node, f"{key.removeprefix('hooks ')} is {value}", _INSTALL
            if key.startswith("chain ") and value == UNKNOWN:
                name = key.removeprefix("chain ")
                mend = f'{name} = "/the/path", or {name} = "none", in [hooks] of {SYSTEM_FILE}'
                yield node, f"{SYSTEM_FILE} does not name the site's own {name}", mend
        for problem in json.loads(its.get("problems", "[]")):
            yield node, str(problem), "mingle hooks verify slurm there"
