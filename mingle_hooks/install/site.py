"""What the site decided about its hooks, checked for the places where it will stand in a script."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mingle_hooks.errors import SettingsError
from mingle_hooks.fabric.machine import is_hostname
from mingle_hooks.fabric.ports import DEFAULT_RANGE
from mingle_hooks.values import NONE

if TYPE_CHECKING:
    from mingle_hooks.settings import Settings

# As RUN_ROOT, the same everywhere, so that an admin who comes to a strange cluster knows where to look.
KILL_SWITCH = "/etc/mingle/disabled"

# Slurm's hooks that a site may have of its own.
CHAINED = ("prolog", "epilog", "taskprolog")
# The kernel's IFNAMSIZ is 16 with the closing NUL.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SUFFIX = re.compile(r"[A-Za-z0-9_.-]{0,200}")
_PATH = re.compile(r"/[A-Za-z0-9_./+@-]{1,4000}")


@dataclass(frozen=True)
class Site:
    """The [hooks] table and the settings that hooks share with `mingle env`. Raises SettingsError."""

    cluster: str = "cluster"
    key_file: str = "/etc/mingle/key"
    observe: bool = False
    partitions: tuple[str, ...] = ()  # empty: all
    hosts: tuple[str, ...] = ()  # empty: all
    opt_in: str | None = None  # the word that a job's comment must hold
    interfaces: tuple[str, ...] = ()  # in order; the first that a host has is used
    host_suffix: str = ""
    port_range: range = DEFAULT_RANGE
    prolog: str | None = None  # the site's own programs; "none" for none, None where that is not said
    epilog: str | None = None
    taskprolog: str | None = None
    containers: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what no hook could carry, by the name that it has in the settings file."""
        _check("hooks.cluster", _WORD, self.cluster)
        _check("hooks.key_file", _PATH, self.key_file)
        _check("host_suffix", _SUFFIX, self.host_suffix)
        for name in self.partitions:
            _check("hooks.partitions", _WORD, name)
        for name in self.hosts:
            if not is_hostname(name):
                raise SettingsError("a host's name", f"{name!r} (hooks.hosts)", "the name that `hostname` prints there")
        for name in self.interfaces:
            _check("iface", _INTERFACE, name)
        if self.opt_in is not None:
            _check("hooks.opt_in", _WORD, self.opt_in)
        for key in CHAINED:
            if self.chain(key) not in {None, NONE}:
                _check(f"hooks.{key}", _PATH, str(self.chain(key)))

    def chain(self, key: str) -> str | None:
        """Return the site's own program for one of CHAINED."""
        return {"prolog": self.prolog, "epilog": self.epilog, "taskprolog": self.taskprolog}[key]

    @property
    def port_stride(self) -> int:
        """How far apart the ports of two jobs with ids next to each other are.

        By the golden section, the ports of a job's many steps are far from those of all jobs near it; a number that
        has no divisor in common with the range's length uses all of it.
        """
        ports = len(self.port_range)
        return next(n for n in itertools.count(round(ports * 0.618)) if math.gcd(n, ports) == 1)


def site(settings: Settings) -> Site:
    """Return what the hooks need of the settings; networks given as CIDR are left out, as no script can look."""
    table = settings.section("hooks")
    return Site(
        cluster=table["cluster"],
        key_file=table["key_file"],
        observe=table["observe"],
        partitions=tuple(table["partitions"]),
        hosts=tuple(table["hosts"]),
        opt_in=table["opt_in"],
        interfaces=tuple(name for name in map(str, settings.iface) if _INTERFACE.fullmatch(name)),
        host_suffix=settings.host_suffix,
        port_range=settings.port_range,
        containers=table["containers"],
        **{key: table[key] for key in CHAINED},
    )


def _check(key: str, pattern: re.Pattern[str], value: str) -> None:
    if not pattern.fullmatch(value):
        raise SettingsError(f"text that fits {pattern.pattern}", f"{value!r} ({key})", "a plain name")
