"""`accelerate launch`, which takes its machines from options or its configuration file only.

Read in accelerate 1.15, commands/launch.py. Options win over the file, which may say more (mixed precision, FSDP),
so the machines are given as options and the user's own file, named or the default one, stays in use. What
starts several processes is one of _KINDS, or the file's distributed_type; without any of them each node would
train alone, so --multi_gpu is added: it stands for torchrun, on CPUs too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from mingle_hooks.errors import UsageError
from mingle_hooks.export.launchers.words import absent, check, given
from mingle_hooks.world import View

_KINDS = ("--multi-gpu", "--tpu", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm")
FLAGS = frozenset(
    {
        *_KINDS,
        *("-h", "--help", "--quiet", "-q", "--cpu", "--enable-cpu-affinity", "--same-network", "--debug"),
        *("-m", "--module", "--no-python", "--use-parallelism-config", "--downcast-bf16"),
        *("--tpu-cluster", "--no-tpu-cluster", "--tpu-use-sudo", "--fp8-use-autocast-during-eval"),
        *("--dynamo-use-fullgraph", "--dynamo-use-dynamic", "--dynamo-use-regional-compilation"),
    }
)
_ONE_PROCESS = ("NO", "MULTI_CPU")
_DISTRIBUTED_TYPE = r"""^[\s{,]*["']?distributed_type["']?\s*:\s*["']?(\w+)"""
_MOST_BYTES = 1 << 16  # a configuration file is a screenful


def options(
    _name: tuple[str, ...], words: tuple[str, ...], view: View, _exported: Mapping[str, str]
) -> tuple[str, ...]:
    """Return this node's place in the world. Raises UsageError for --cpu with several processes."""
    nodes, slots = view.world.nodes or 1, view.place.slots or 1
    asked = given(words, FLAGS)
    if "--cpu" in asked and view.world.size != nodes:
        raise UsageError(
            "one process on each node, as `accelerate launch --cpu` starts only one",
            f"{view.world.size} on {nodes} nodes",
            "leaving out --cpu, or --slots 1",
        )
    check("accelerate", asked, view.world.nodes, view.place.node_rank)
    found = {
        "--num_machines": nodes,
        # accelerate divides this by num_machines, to get this node's processes, and that is its only use.
        "--num_processes": nodes * slots,
        "--machine_rank": view.place.node_rank,
        "--main_process_ip": view.world.master_addr,
        "--main_process_port": view.world.master_port,
        "--same_network": None,
    }
    if view.world.size != 1 and not _starts_several(asked, view.user_environ):
        found["--multi_gpu"] = None
    return absent(found, asked)


def _starts_several(asked: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Tell whether the user's own options or file say what starts the processes; --cpu starts one."""
    if "--cpu" in asked or any(kind in asked for kind in _KINDS):
        return True
    path = asked.get("--config-file") or _default_file(environ)
    try:
        with open(path, errors="replace") as file:
            kind = re.search(_DISTRIBUTED_TYPE, file.read(_MOST_BYTES), re.MULTILINE)
    except OSError:  # accelerate itself says so where it was named
        return False
    return kind is not None and kind[1].upper() not in _ONE_PROCESS


def _default_file(environ: Mapping[str, str]) -> str:
    """Return where `accelerate config` leaves its file (commands/config/config_args.py)."""
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or f"{cache}/huggingface"
    return os.path.expanduser(f"{home}/accelerate/default_config.yaml")
