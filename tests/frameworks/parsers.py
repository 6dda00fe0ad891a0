"""What each framework's own parser makes of the variables and files that mingle gives it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from frameworks.reads import READS, found
from mingle_hooks.export.variables import files, variables
from mingle_hooks.world import Assignment, Member, View, World

ROSTER = (Member(0, "n1", "10.0.0.1", 2), Member(1, "n2", "10.0.0.2", 4))
WORLD = World("job7", 2, 6, "10.0.0.1", 29_500, "0123456789abcdef", ROSTER)
NODE = View(WORLD, Assignment(1, 4, 2, "10.0.0.2", "ib0"), "node", {}, ("mlx5_0:1",), is_cpu_only=True)
TASK = NODE._replace(place=NODE.place._replace(local_rank=3, rank=5), scope="task")
IPV6 = NODE._replace(world=WORLD._replace(master_addr="fd00::1"), place=NODE.place._replace(address="fd00::2"))
LONGEST_S = 120.0

_TORCHRUN = """
from torch.distributed.run import config_from_args, get_args_parser
config = config_from_args(get_args_parser().parse_args(["train.py"]))[0]
its = [config.min_nodes, config.max_nodes, config.nproc_per_node, config.rdzv_backend, config.run_id]
more = config.rdzv_configs
seen = [*its, config.rdzv_endpoint, more.get("rank"), more.get("is_host"), config.max_restarts]
"""
_ACCELERATE = """
import os
from accelerate.commands.config.config_args import load_config_from_file
its = load_config_from_file(os.environ["MINGLE_ACCELERATE_CONFIG"])
seen = [its.num_machines, its.num_processes, its.machine_rank]
seen += [its.main_process_ip, its.main_process_port, its.rdzv_backend]
"""
_JAX = """
import jax
from jax._src.clusters.ompi_cluster import OmpiCluster as its
its = [its.is_env_present(), its.get_process_count(), its.get_process_id()]
from jax._src import distributed
seen = [*its, distributed.os.environ["JAX_COORDINATOR_ADDRESS"]]
"""
_LIGHTNING = """
from lightning.fabric.plugins.environments import TorchElasticEnvironment
its = TorchElasticEnvironment()
seen = [its.detect(), its.global_rank(), its.local_rank(), its.world_size(), its.node_rank()]
seen += [its.main_address, its.main_port]
"""
_TENSORFLOW = """
import tensorflow
its = tensorflow.distribute.cluster_resolver.TFConfigClusterResolver()
seen = [its.cluster_spec().as_dict(), its.task_type, its.task_id]
"""
_DEEPSPEED = """
import os
from deepspeed.launcher.runner import fetch_hostfile
seen = [list(fetch_hostfile(os.environ["MINGLE_HOSTFILE"]).items())]
"""


class Parser(NamedTuple):
    """What to ask, with which variables, and what it is to say."""

    package: str
    profile: str
    view: View
    code: str
    says: list[object]


_AT = "10.0.0.1:29500"
PARSERS = {
    "torchrun": Parser("torch", "torchrun", NODE, _TORCHRUN, [2, 2, 4, "static", WORLD.digest, _AT, 1, None, 0]),
    "torchrun, IPv6": Parser(
        "torch", "torchrun", IPV6, _TORCHRUN, [2, 2, 4, "static", WORLD.digest, "fd00::1:29500", 1, None, 0]
    ),
    "torchrun, elastic": Parser(
        "torch", "torchrun-elastic", NODE, _TORCHRUN, [2, 2, 4, "c10d", WORLD.digest, _AT, None, "0", 3]
    ),
    "accelerate": Parser("accelerate", "accelerate", NODE, _ACCELERATE, [2, 8, 1, "10.0.0.1", 29_500, "static"]),
    "jax": Parser("jax", "jax", NODE, _JAX, [True, 2, 1, _AT]),
    "lightning": Parser("lightning", "process", TASK, _LIGHTNING, [True, 5, 3, 6, 1, "10.0.0.1", 29_500]),
    "tensorflow": Parser(
        "tensorflow-cpu", "tensorflow", NODE, _TENSORFLOW, [{"worker": [_AT, "10.0.0.2:29500"]}, "worker", 1]
    ),
    "deepspeed": Parser("deepspeed", "deepspeed", NODE, _DEEPSPEED, [[["n1", 2], ["n2", 4]]]),
}


def wrong(place: Path) -> Iterator[str]:
    """Yield each name that does not stand where it is read, and each parser that says something else."""
    yield from (
        f"{name}: {READS[name].text} is not in {READS[name].file}" for name in READS if found(name) == "not there"
    )
    for name, parser in PARSERS.items():
        seen = said(parser, place)
        if seen not in (None, parser.says):
            yield f"{name}'s own parser says {seen} and not {parser.says}"


def said(parser: Parser, place: Path) -> object:
    """Return what a framework's own parser says; None where it is not installed."""
    if not any(found(name) != "not installed" for name, read in READS.items() if read.package == parser.package):
        return None
    paths = {}
    for file in files(parser.view, [parser.profile]):
        (place / file.name).write_text(file.text)
        paths[file.name] = str(place / file.name)
    given = {its.name: its.value for its in variables(parser.view, [parser.profile], paths)}
    code = f"{parser.code}\nimport json\nprint('SEEN ' + json.dumps(seen, default=str))\n"
    environ = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", **given}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    return json.loads(lines[-1].removeprefix("SEEN ")) if lines else done.stderr[-2000:]
