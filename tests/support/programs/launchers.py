"""Stand-ins for programs that start training, this file under each name: they read what the real ones read, and meet.

Read in accelerate 1.15 (commands/launch.py, utils/launch.py), deepspeed 0.19 (launcher/runner.py), composer 0.32
(cli/launcher.py), lightning 2.6 (fabric/plugins/environments/slurm.py) and ray 2.60 (scripts/scripts.py,
scripts/symmetric_run.py); torchrun is in elastic.py.

A launcher counts as one member, whatever its processes, and so does a `python train.py`.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from contextlib import suppress

from elastic import torchrun
from meeting import NAME, is_home, meet, tell

TYPE_CHECKING = False  # typing would take longer than all else here
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import NoReturn

ACCELERATE_FLAGS = """
help h quiet q cpu multi_gpu tpu use_deepspeed use_fsdp use_megatron_lm use_parallelism_config same_network debug m
module no_python enable_cpu_affinity tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 dynamo_use_fullgraph
dynamo_use_dynamic dynamo_use_regional_compilation fp8_use_autocast_during_eval
""".split()  # noqa: SIM905 a line for each otherwise
KINDS = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm")


def options(argv: list[str], flags: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options before the program that a launcher starts, with underscores, and the rest."""
    found, at = {}, 0
    while at < len(argv) and argv[at].startswith("-"):
        name, is_joined, value = argv[at].partition("=")
        name, at = name.lstrip("-").replace("-", "_"), at + 1
        if not is_joined and name not in flags:
            value, at = "".join(argv[at : at + 1]), at + 1
        found[name] = value
    return found, argv[at:]


def accelerate(argv: list[str]) -> NoReturn:
    """Machines are what options say, or the configuration file; torchrun's PET_* apply to what it does not set.

    A file that is not there is as `accelerate config default` writes it: of one machine of several GPUs, with rank 0.
    """
    if argv[:1] != ["launch"]:
        sys.exit(0)
    given, rest = options(argv[1:], ACCELERATE_FLAGS)
    with suppress(KeyError, FileNotFoundError), open(given["config_file"], encoding="utf-8") as file:
        read = dict(re.findall(r"""^(\w+): *['"]?([^'"\n]*)""", file.read(), re.MULTILINE))
        given = {name: value for name, value in read.items() if value != "null"} | given
    machines, port = int(given.get("num_machines") or 1), given.get("main_process_port") or "29500"
    is_one = "cpu" in given or (given.get("num_processes") == "1" and not {*KINDS, "config_file"}.intersection(given))
    if is_one or given.get("distributed_type", "").strip() in ("NO", "MULTI_CPU"):
        if machines > 1:
            os.environ |= {"MASTER_ADDR": given.get("main_process_ip", "127.0.0.1"), "MASTER_PORT": port}
        if "mpirun_hostfile" in given:
            mpirun = ["mpirun", "-np", given.get("num_processes", "1"), "python", *rest]
            os.execvp("mpirun", mpirun)  # noqa: S606 as accelerate starts it
        train(rest)
    words = [f"--nproc_per_node={max(int(given.get('num_processes') or 8) // machines, 1)}"]
    words += [f"--rdzv_backend={given.get('rdzv_backend', 'static')}", f"--rdzv_conf={given.get('rdzv_conf', '')}"]
    if machines > 1:
        words += [f"--nnodes={machines}", f"--node_rank={given.get('machine_rank') or 0}"]
        at = f"{given.get('main_process_ip')}:{port}"
        words += [f"--master_addr={at.rpartition(':')[0]}"] if "same_network" in given else [f"--rdzv_endpoint={at}"]
    elif not socket.socket().connect_ex(("127.0.0.1", int(port))):
        words.append("--standalone")  # somebody else has that port, and nobody else is to be met
    torchrun([*words, f"--master_port={port}", *(rest or ["train.py"])])


DEEPSPEED_FLAGS = """
help h module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid elastic_training bind_cores_to_rank
""".split()  # noqa: SIM905 a line for each otherwise


def deepspeed(argv: list[str]) -> NoReturn:
    """All from its options and the hostfile, whatever the environment says; without a hostfile this node alone."""
    given, rest = options(argv, DEEPSPEED_FLAGS)
    hosts, port = [], int(given.get("master_port") or 29500)
    with suppress(FileNotFoundError), open(given.get("hostfile") or given.get("H") or "/job/hostfile") as file:
        hosts = re.findall(r"^(\S+)\s+slots=\d+", file.read(), re.MULTILINE)
    most = int(given.get("num_nodes") or -1)
    if not hosts:
        if most > 1:
            tell("error", why="Num nodes is >1 but no extra nodes available via hostfile")
        meet("127.0.0.1", port, 0, 1)
    hosts = hosts[:most] if most > 0 else hosts
    address, rank = given.get("master_addr") or hosts[0], int(given.get("node_rank") or -1)
    if "no_ssh" in given or len(hosts) == 1:
        if "no_ssh" in given and not 0 <= rank < len(hosts):
            tell("error", why="Launching training without ssh, but --node_rank is not set correctly.")
        meet(address, port, max(rank, 0), len(hosts))
    import subprocess

    with open("hostfile.all", "w", encoding="utf-8") as file:
        file.writelines(f"{host} slots=8\n" for host in hosts)
    more = ["--no_ssh", f"--hostfile={os.path.realpath('hostfile.all')}", f"--master_addr={address}", *rest]
    each = [f"deepspeed --node_rank={rank} --master_port={port} {' '.join(more)}" for rank in range(len(hosts))]
    started = [subprocess.Popen(["ssh", host, words]) for host, words in zip(hosts, each, strict=True)]
    sys.exit(max(its.wait() for its in started))


LAUNCHERS = {
    "torch.distributed.run": torchrun,
    "torch.distributed.launch": torchrun,
    "deepspeed": deepspeed,
    "deepspeed.launcher.runner": deepspeed,
    "accelerate.commands.launch": lambda argv: accelerate(["launch", *argv]),
}
NO_TRAINING = r"(^|/)\w*(prepare|preprocess|download|convert|merge|report|plot|setup)\w*\.py$"


def python(argv: list[str]) -> NoReturn:
    """Train, where a file is to be run that is empty or not there; all else is for the real Python."""
    at = 0
    while at < len(argv) and re.match(r"-[uBEsSIOXW]", argv[at]):
        at += 2 if argv[at] in ("-X", "-W") else 1
    word, rest = "".join(argv[at : at + 1]), argv[at + 1 :]
    if word == "-m" and rest[0] in LAUNCHERS:
        LAUNCHERS[rest[0]](rest[1:])
    if os.path.basename(word) == "deepy.py":  # GPT-NeoX's own way to deepspeed
        deepspeed(["--hostfile", os.environ.get("DLTS_HOSTFILE", "/job/hostfile"), *rest])
    is_module = word == "-m" and rest[0].partition(".")[0] not in {*sys.stdlib_module_names, "pip"}
    if is_module or (word.endswith(".py") and not (os.path.exists(word) and os.path.getsize(word))):
        if re.search(NO_TRAINING, rest[0] if is_module else word):
            sys.exit(0)
        train(rest if is_module else argv[at:])
    os.execv(sys.executable, [sys.executable, *argv])  # noqa: S606 as a shell would


def train(argv: list[str]) -> NoReturn:
    """Read a script's options, env://, MPI's and Slurm's places, and take Lightning's address where none is said."""
    env, words = os.environ, re.findall(r"--?([\w-]+)[= ](\S+)", " ".join(argv))
    given = {name.replace("-", "_"): value for name, value in words}
    url = next((given[name] for name in ("dist_url", "init_method", "dist_init_addr") if name in given), "")
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    slurm = "SLURM_STEP_ID" in env and env["SLURM_STEP_ID"] != "-5"
    ranks = (given.get("rank"), given.get("node_rank"), env.get("RANK"), env.get("OMPI_COMM_WORLD_RANK"))
    rank = next(filter(None, ranks), env.get("SLURM_PROCID") if "SLURM_NTASKS" in env else None) or "0"
    sizes = (given.get("world_size"), given.get("nnodes"), env.get("WORLD_SIZE"), env.get("OMPI_COMM_WORLD_SIZE"))
    size = next(filter(None, sizes), None) or env.get("SLURM_STEP_NUM_TASKS" if slurm else "SLURM_NTASKS") or "1"
    if "node_rank" in given and "rank" not in given:  # it starts the processes of its node itself
        size = given.get("nnodes") or env.get("SLURM_JOB_NUM_NODES", size)
    if not (rank.isdecimal() and size.isdecimal()):
        tell("error", why=f"rank {rank} of {size}")
    host = host or given.get("master_addr") or env.get("MASTER_ADDR") or ""
    if size == "1" and not (host and "MASTER_PORT" in env):
        meet("localhost", 0, 0, 1)
    if not host:
        nodes = env.get("SLURM_NODELIST", "127.0.0.1")
        host = re.sub(r"\[(.*?)\]", r"\1", re.sub(r"\[(.*?)[,-].*\]", r"\1", nodes)).split(",")[0]
    port = (
        port
        or given.get("master_port")
        or env.get("MASTER_PORT")
        or str(int(env.get("SLURM_JOB_ID", "0")[-4:]) + 15000)
    )
    if not port.isdecimal():
        tell("error", why=f"MASTER_PORT={port}")
    meet(host, int(port), int(rank), int(size))


def composer(argv: list[str]) -> NoReturn:
    """Take its options, and RANK's relatives for those that are not given; more processes than here are on others."""
    env, (given, _) = os.environ, options(argv, ["verbose", "v", "m", "module_mode", "c", "command_mode"])
    each = int(given.get("nproc") or given.get("n") or env.get("LOCAL_WORLD_SIZE") or 8)
    its = ("world_size", "base_rank", "node_rank", "master_addr", "master_port")
    size, base, node, host, port = (given.get(name) or env.get(name.upper()) for name in its)
    nodes = int(size or each) // each
    if nodes <= 1:
        meet(host or "127.0.0.1", int(port or 0), 0, 1)
    if not (host and port and (base or node)):
        tell(
            "error", why=f"node_rank {node} or base_rank {base}, master_addr {host} and master_port {port} are required"
        )
    meet(host, int(port), int(node) if node else int(base or 0) // each, nodes)


def by_variables(argv: list[str]) -> NoReturn:
    """Give torchrun what NNODES and others say, as `llamafactory-cli train` and `swift sft` do."""
    names = {"nnodes": "1", "node_rank": "0", "nproc_per_node": "8", "master_addr": "127.0.0.1", "master_port": ""}
    its = {name: os.environ.get(name.upper(), default) for name, default in names.items()}
    torchrun([*(f"--{name}={value}" for name, value in its.items() if value), *argv])


def axolotl(argv: list[str]) -> NoReturn:
    """Start what --launcher says, accelerate by default, with what follows `--`."""
    if argv[:1] != ["train"]:
        sys.exit(0)
    more = argv[argv.index("--") + 1 :] if "--" in argv else []
    if re.search(r"--launcher[= ]torchrun", " ".join(argv)):
        torchrun([*more, "train.py"])
    accelerate(["launch", "--multi_gpu", *more, "train.py"])


def ray(argv: list[str]) -> NoReturn:
    """Listen for the job's nodes with `start --head` or where `symmetric-run` is at home, else join."""
    given, _ = options(argv[1:], ["head", "block", "disable_usage_stats", "include_log_monitor", "v", "verbose"])
    if argv[:1] not in (["start"], ["symmetric-run"]):
        sys.exit(0)
    if "block" not in given and argv[0] == "start" and os.fork():
        sys.exit(0)
    host, _, port = given.get("address", "").rpartition(":")
    is_head = "head" in given or (argv[0] == "symmetric-run" and is_home(host))
    most = int(given.get("min_nodes") or os.environ.get("SLURM_JOB_NUM_NODES") or 1)
    if is_head and not host:
        host, port = given.get("node_ip_address") or "127.0.0.1", given.get("port") or "6379"
    if not port.isdecimal():
        tell("error", why=f"ray's address is {given.get('address')}")
    meet(host, int(port), 0 if is_head else None, most)


def main() -> None:
    """Do what the program does whose name this process has."""
    if NAME == "accelerate-launch":
        accelerate(["launch", *sys.argv[1:]])
    named = {its.__name__: its for its in (torchrun, accelerate, deepspeed, composer, axolotl, ray)}
    named |= {"torchrun_jsc": torchrun, "llamafactory-cli": by_variables, "swift": by_variables}
    named.get(NAME, python)(sys.argv[1:])
