"""What a node has of Slurm's hooks, as one line to compare with other nodes' before slurm.conf names the files."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from typing import TYPE_CHECKING

import mingle_hooks
from mingle_hooks.errors import MingleError, PlaceError
from mingle_hooks.install import chain, files, manifest, slurmcheck, slurmconf
from mingle_hooks.install.health import site_key
from mingle_hooks.install.site import KILL_SWITCH
from mingle_hooks.values import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.install.hook import Where
    from mingle_hooks.install.site import Site

UNKNOWN, MISSING, UNFIT = "unknown", "missing", "unfit"
_KEYS = (*chain.KEYS, "PrologFlags")
_PURPOSE = b"mingle-hooks: a fingerprint, for comparing"
_DIGITS = 16  # 64 bits tell keys apart, and tell nothing of a key that is beyond guessing


def line(site: Site, where: Where) -> str:
    """Return the report as JSON in one line. It asks no controller, as all nodes make theirs at the same time.

    Raises FactsError for a manifest or a slurm.conf that cannot be read.
    """
    entries = manifest.read(where.root).of("slurm")
    conf = slurmconf.find(where.root, where.slurm_conf)
    sums = {entry.path: _sum(files.below(where.root, entry.path)) for entry in entries}
    known = {
        "version": mingle_hooks.__version__,
        "hooks": sums,
        "chain": {name: site.chain(name) or UNKNOWN for name in chain.KEYS.values()},
        "key": fingerprint(where.root, site.key_file),
        "slurm.conf": {key: list(conf.all(key)) for key in _KEYS if conf.all(key)} if conf else {},
        "off": os.path.lexists(files.below(where.root, KILL_SWITCH)),
        "problems": sorted(_problems(where.root, entries, sums)),
    }
    return json.dumps(known, sort_keys=True)


def fingerprint(root: str, path: str) -> str:
    """Return what tells a site's key from another one, and nothing of the key itself."""
    its = files.below(root, path)
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


def _problems(root: str, entries: tuple[manifest.Entry, ...], sums: Mapping[str, str]) -> list[str]:
    """Return what keeps Slurm from running the files here, or lets others change them."""
    found = []
    for entry in entries:
        try:
            now = os.lstat(files.below(root, entry.path))
        except OSError:
            continue  # the missing checksum says so
        if (now.st_uid, stat.S_IMODE(now.st_mode)) != (files.owner(), entry.mode):
            found.append(f"{entry.path} has uid {now.st_uid} and mode {stat.S_IMODE(now.st_mode):04o}")
        if sums[entry.path] not in {entry.sha256, MISSING}:
            found.append(f"{entry.path} is not as it was installed")
    try:
        found += [f"{its.where} {its.what}" for its in chain.findings(root, slurmcheck.chains(entries))]
    except (OSError, MingleError) as wrong:
        found.append(f"the site's own hooks cannot be looked at: {wrong}")
    return found
