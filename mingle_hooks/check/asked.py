"""What one `mingle check` was asked for: on which hosts, by which networks and ports, and for how long."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mingle_hooks.export.variables import own
from mingle_hooks.fabric.ports import DEFAULT_RANGE
from mingle_hooks.settings import load
from mingle_hooks.supervise.runner.planning import facts_of, seconds, where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mingle_hooks.supervise.starters import Allocation, Starter

# Up to so many hosts a check is over after the first of these, in seconds; for 256 hosts after 15.
_FEW, _FEW_S, _EACH_S = 16, 5.0, 1 / 24


class Asked(NamedTuple):
    """What a check needs to know; `timeout_s` is for all of it but transfers."""

    starter: Starter
    job: Allocation
    timeout_s: float
    is_bandwidth: bool = False
    iface: tuple[object, ...] = ()
    port_range: range = DEFAULT_RANGE


def asked(settings: Mapping[str, object], hosts: str | None, timeout: str | None, *, is_bandwidth: bool) -> Asked:
    """Return what this call asks for. Raises UsageError, FactsError and SettingsError."""
    users = own(os.environ)
    loaded = load(users, settings)
    starter, job = where(facts_of(users, loaded, hosts), users, hosts)
    limit_s = seconds(timeout, "--timeout", _FEW_S + max(len(job.hosts) - _FEW, 0) * _EACH_S)
    return Asked(starter, job, limit_s, is_bandwidth, loaded.iface, loaded.port_range)
