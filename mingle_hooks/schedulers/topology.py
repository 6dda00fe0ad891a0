"""Where this node is on the network: the switches above it, from the top down, by who tells it.

Each source is one function and one row in SOURCES; `--order` names it, of which settings.py has the choices.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from hashlib import sha256

from mingle_hooks import values

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
    return SEPARATOR.join(_plain(name) for name in SOURCES[order](environ)[:_MOST_LEVELS])


def _plain(name: str) -> str:
    if len(name) <= _LONGEST_NAME and name.isprintable() and SEPARATOR not in name:
        return name
    return sha256(name.encode(errors="replace")).hexdigest()[:16]


# Slurm's topology plugins: `spine.leaf1.node2` after the pattern `switch.switch.node`, or `b1.node1`.
#
# Without a plugin there is the node's name alone (srun(1), SLURM_TOPOLOGY_ADDR; 22.05 to 26.05).
def _slurm(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what stands before the node's name, which may have dots of its own."""
    levels = environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").count(".")
    parts = environ.get("SLURM_TOPOLOGY_ADDR", "").split(".", levels)
    return tuple(parts[:levels]) if len(parts) == levels + 1 else ()


# A cloud's metadata service: one request to one link-local address, by no name and through no proxy.
METADATA = ("169.254.169.254", 80)
# The service answers from the host itself; where there is none, nothing must wait for it.
WITHIN_S = 0.3
_MOST_BYTES = 16 * 1024


def levels(where: str, header: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of these names, up to the first that is not told; nothing without an answer in time."""
    try:
        found = values.from_json(_get(where, header))
    except (OSError, ValueError, RecursionError):
        return ()
    levels_told = [found.get(name) if isinstance(found, dict) else None for name in names]
    told: list[str] = []
    for value in levels_told:
        if not isinstance(value, str) or not value:
            break
        told.append(value)
    return tuple(told)


def _get(where: str, header: str) -> bytes:
    """Return a body; OSError where none comes in time, ValueError where it is no plain answer."""
    deadline = time.monotonic() + WITHIN_S
    with socket.create_connection(METADATA, WITHIN_S) as sock:
        sock.sendall(f"GET {where} HTTP/1.0\r\nHost: {METADATA[0]}\r\n{header}\r\n\r\n".encode())
        answer = b""
        while len(answer) <= _MOST_BYTES:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (data := sock.recv(4096)):
                break
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.split(b" ")[1:2] != [b"200"] or len(answer) > _MOST_BYTES:
        raise ValueError(where)
    return body


# Google Cloud's metadata: cluster, block and sub-block of this instance ("View instance topology" in its manual).
GCP_PATH = "/computeMetadata/v1/instance/attributes/physical_host_topology"
GCP_HEADER = "Metadata-Flavor: Google"


def _gcp(_environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the levels that are told, from the top down."""
    return levels(GCP_PATH, GCP_HEADER, ("cluster", "block", "subBlock"))


# Oracle Cloud's metadata: island, network block and local block of this host, where its tenancy has them enabled.
OCI_PATH = "/opc/v2/host/rdmaTopologyData"
OCI_HEADER = "Authorization: Bearer Oracle"


def _oci(_environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the levels that are told, from the top down."""
    return levels(OCI_PATH, OCI_HEADER, ("customerHPCIslandId", "customerNetworkBlock", "customerLocalBlock"))


# What --order may say besides SCHEDULER.
SOURCES = {"topology": _slurm, "gcp": _gcp, "oci": _oci}
