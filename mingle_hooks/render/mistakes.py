"""The classic mistakes of multi-node jobs that a line shows by itself.

No pattern repeats over what another repetition in it could take too, so that each reads a hostile line in one pass.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Pattern(NamedTuple):
    """A mistake: how it looks, what is wrong, what to write."""

    looks: re.Pattern[str]
    mistake: str
    mend: str


_OWN = (
    r"(?:\$\{\w{1,64}:?[-=])?"
    r"(?:(?:\$\(|`)\s{0,8}(?:hostname\b(?!\s{1,8}-(?:\w{0,8}[iI]|-ip|-all))|uname -n)|\$\{?HOSTNAME\b"
    r"|localhost\b|127\.\d|0\.0\.0\.0)"
)
ANYWHERE = (
    Pattern(
        re.compile(
            r"\bMASTER_PORT=[\"']?(?:\d|\$\{\w{1,64}:?[-=]\d|\$\(\(\s{0,8}\d{1,9}\s{0,8}\)\))"
            r"|--(?:master|main_process)[_-]port[=\s]\s{0,64}\d|--rdzv[_-]endpoint[=\s]\s{0,64}\S{1,253}:\d"
        ),
        "a fixed MASTER_PORT: two jobs on one node collide",
        'eval "$(mingle env || echo exit 1)" on every node, and "$MASTER_PORT"',
    ),
    Pattern(
        re.compile(r"\bhostname\s{1,64}(?:-\w{0,8}[iI]\w{0,8}|--ip-address|--all-ip-addresses)\b"),
        "hostname -i: the name may resolve to 127.0.1.1 or to a slow network",
        'the address that mingle env finds, "$MASTER_ADDR"',
    ),
    Pattern(
        re.compile(r"\|\|\s{0,64}(?:echo\s{1,8}|export\s{1,8})?(?:\w{1,64}=)?[\"']?(?:localhost|127\.0\.0\.1)"),
        "|| echo localhost: when the command fails, every node forms a world of its own and the job hangs",
        "|| exit",
    ),
    Pattern(
        re.compile(r"\b(?:GLOO|TP)_SOCKET_IFNAME=[\"']?\^"),
        "^ in GLOO_SOCKET_IFNAME: exclusion is NCCL's syntax only, and Gloo fails on it",
        "one interface's name, or mingle env --for nccl,gloo",
    ),
)
# Right on one node. What overlaps with one of the above is said there.
ON_SEVERAL_NODES = (
    Pattern(
        re.compile(
            r"(?:\bMASTER_ADDR=|--(?:master[_-]addr|main_process_ip|rdzv[_-]endpoint)[=\s]\s{0,64})[\"']?" + _OWN
        ),
        "a host's own name as MASTER_ADDR: each node that runs this takes itself for rank 0",
        'eval "$(mingle env || echo exit 1)" on every node, and "$MASTER_ADDR"',
    ),
    Pattern(
        re.compile(
            r"(?:PORT=|--(?:master|main_process)[_-]port[=\s])"
            r"(?:[^\n;]{0,160}?\b(?:RANDOM|shuf)\b|[^\n]{0,160}?(?:getsockname|\.bind\())"
        ),
        "a random MASTER_PORT: different on each node that runs this, and perhaps in use",
        'eval "$(mingle env || echo exit 1)" on every node, and "$MASTER_PORT"',
    ),
    Pattern(
        re.compile(r"\b(?:torchrun|torch\.distributed\.run)\s[^\n]{0,160}?--standalone\b"),
        "--standalone: each node trains alone",
        "leaving it out, behind srun mingle exec",
    ),
)
