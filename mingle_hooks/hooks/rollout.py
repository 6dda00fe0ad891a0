"""Whether every node has the same hooks: each node's report, and the comparison of all before slurm.conf names them."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mingle_hooks import __version__
from mingle_hooks.errors import MingleError, PlaceError, UsageError
from mingle_hooks.hooks import files, slurm
from mingle_hooks.hooks.files import KILL_SWITCH, Site
from mingle_hooks.hooks.plan import KEYS, Finding, Where, chain_findings, site_key
from mingle_hooks.schedulers.hostlist import fold
from mingle_hooks.settings import SYSTEM_FILE
from mingle_hooks.values import NONE

# What a node has of Slurm's hooks, as one line to compare with other nodes' before slurm.conf names the files.

UNKNOWN, MISSING, UNFIT = "unknown", "missing", "unfit"
_REPORTED_KEYS = (*KEYS, "PrologFlags")
_PURPOSE = b"mingle-hooks: a fingerprint, for comparing"
_DIGITS = 16  # 64 bits tell keys apart, and tell nothing of a key that is beyond guessing


def report_line(site: Site, where: Where) -> str:
    """Return the report as JSON in one line. It asks no controller, as all nodes make theirs at the same time.

    Raises FactsError for a manifest or a slurm.conf that cannot be read.
    """
    entries = files.read_manifest(where.root).of("slurm")
    conf = slurm.find_slurm_conf(where.root, where.slurm_conf)
    sums = {entry.path: _sum(files.strip_root(where.root, entry.path)) for entry in entries}
    known = {
        "version": __version__,
        "hooks": sums,
        "chain": {name: site.chain(name) or UNKNOWN for name in KEYS.values()},
        "key": hooks_fingerprint(where.root, site.key_file),
        "slurm.conf": {key: list(conf.all(key)) for key in _REPORTED_KEYS if conf.all(key)} if conf else {},
        "off": os.path.lexists(files.strip_root(where.root, KILL_SWITCH)),
        "problems": sorted(_problems(where.root, entries, sums)),
    }
    return json.dumps(known, sort_keys=True)


def hooks_fingerprint(root: str, path: str) -> str:
    """Return what tells a site's key from another one, and nothing of the key itself."""
    its = files.strip_root(root, path)
    if not os.path.lexists(its):
        return NONE
    try:
        if any(site_key(root, path)):
            return UNFIT
        with open(its, "rb") as file:
            key = file.read()
    except (OSError, PlaceError):
        return UNFIT
    return hmac.new(key.strip(), _PURPOSE, "sha256").hexdigest()[:_DIGITS]


def _sum(path: str) -> str:
    """Return the checksum of a file as it is on disk."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return UNFIT
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return MISSING


def _problems(root: str, entries: tuple[files.Entry, ...], sums: Mapping[str, str]) -> list[str]:
    """Return what keeps Slurm from running the files here, or lets others change them."""
    found = []
    for entry in entries:
        try:
            now = os.lstat(files.strip_root(root, entry.path))
        except OSError:
            continue  # the missing checksum says so
        if (now.st_uid, stat.S_IMODE(now.st_mode)) != (files.owner_of(), entry.mode):
            found.append(f"{entry.path} has uid {now.st_uid} and mode {stat.S_IMODE(now.st_mode):04o}")
        if sums[entry.path] not in {entry.sha256, MISSING}:
            found.append(f"{entry.path} is not as it was installed")
    try:
        found += [f"{its.where} {its.what}" for its in chain_findings(root, slurm.chained_programs(entries))]
    except (OSError, MingleError) as wrong:
        found.append(f"the site's own hooks cannot be looked at: {wrong}")
    return found


# The comparison of all nodes' reports.

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
