"""What stands in for a platform: it sets what the platform sets, and starts on each host the command of an example."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from light import TRAIN

if TYPE_CHECKING:
    from cluster.host import Host
    from cluster.hosts import Hosts

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KEY = "00112233445566778899aabbccddeeff" * 2
PORT = "23456"
# One process, which says the ranks that the real torchrun would give to it where every node has one.
TORCHRUN = f"""#!/bin/sh
export RANK="$PET_NODE_RANK" WORLD_SIZE="$PET_NNODES" MASTER_ADDR="$PET_MASTER_ADDR"
shift
exec python3 {TRAIN} "$@"
"""


def torchrun(place: Path) -> str:
    """Put a stand-in for torchrun into a directory, and return a PATH that begins with it."""
    programs = place / "bin"
    programs.mkdir()
    (programs / "torchrun").write_text(TORCHRUN)
    (programs / "torchrun").chmod(0o755)
    return f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    import yaml

    return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text()))


def submitted(host: Host, example: str, program: str, *arguments: str) -> list[str]:
    """Run a script that submits, with a stand-in for the platform's program; return the words that this one gets."""
    host.write(f"/run/{program}", '#!/bin/sh\nprintf "%s\\0" "$@"\n', mode=0o755)
    line = f"PATH=/run:$PATH sh {EXAMPLES / example} {shlex.join(arguments)}"
    return host.run(["sh", "-c", line], check=True).stdout.split("\0")[:-1]


def value(words: list[str], option: str) -> str:
    """Return the word after an option."""
    return words[words.index(option) + 1]


def mounted(host: Host, path: str, mode: int) -> None:
    """Mount a Secret as kubelet does: each key is a link into a directory that another link names."""
    place, name = path.rsplit("/", 1)
    host.write(f"{place}/..2026_11_22/{name}", f"{KEY}\n", mode=mode)
    for link, target in (("..data", "..2026_11_22"), (name, f"..data/{name}")):
        found = host.outside(f"{place}/{link}")
        if not found.is_symlink():
            found.symlink_to(target)


def only_port(host: Host, port: str) -> None:
    """Let new connections in at one port only, as a Service in front of a replica does."""
    host._add(f"tcp dport != {port} tcp flags syn / syn,ack drop")


def rotated(its: Hosts, by: int) -> list[Host]:
    """Return the hosts in another order: pod 0 is on another host."""
    return [*list(its)[by:], *list(its)[:by]]
