"""Launchers: programs that start training processes, recognised by the arguments of a command.

A launcher is one row in TABLE, with a function if its command line has to be completed or checked.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from mingle_hooks import plugins
from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export.frameworks import ALWAYS, accelerate_machines
from mingle_hooks.files import read_bounded
from mingle_hooks.rendezvous.member import MemberSpec
from mingle_hooks.rendezvous.messages import View
from mingle_hooks.schedulers.facts import MOST_TASKS, JobFacts
from mingle_hooks.values import holds, number

Starts = Literal["node", "task", "job"]
Argv = tuple[str, ...]
# From a launcher's name, its options and what follows, the view and the exported variables to options to add.
Options = Callable[[Argv, Argv, View, Mapping[str, str]], Argv]


class Launcher(NamedTuple):
    """A launcher, how often it is started, and what `mingle exec` adds so that it finds its nodes.

    `starts` is "node" for a launcher that runs once on every node and starts the node's processes, "task" for one that
    the scheduler provides and that starts a process for each task, "job" for one that reaches all nodes itself.
    `options` completes its command line, and the variables of `frameworks` are exported too. `flags` are its options
    without a value: with them, options that leave the world are refused and the Python script that it starts is found.
    The launcher of job scripts that starts it has the same name; if there are several, `in_scripts` lists them, the
    usual one first and then the elastic one. `instead` is the launcher that scripts use in its place.
    """

    name: str
    programs: tuple[str, ...]  # a program's name, with a subcommand if it needs one: "accelerate launch"
    modules: tuple[str, ...]  # the same, after `python -m`
    starts: Starts
    options: Options | None = None
    frameworks: tuple[str, ...] = ()
    flags: Collection[str] | None = None
    in_scripts: tuple[str, ...] = ()
    instead: str = ""


# Options for the number of nodes, a node's rank and rank 0's address, with hyphens.
NODES = ("--nnodes", "--num-machines", "--num-nodes")
_RANK = ("--node-rank", "--machine-rank")
_ADDRESS = ("--master-addr", "--rdzv-endpoint", "--main-process-ip", "--address")
_LEAVING = ("--standalone", *NODES, *_RANK, *_ADDRESS)
_LOOPBACK = ("localhost", "127.", "::1", "[::1]")


def leaves_world(name: str, value: str, nodes: int | None, rank: int | None) -> bool:
    """Return whether an option takes a launcher out of a world of several nodes, in which this node has this rank."""
    name = in_full(name, _LEAVING)
    return (
        name == "--standalone"
        or (name in NODES and nodes is not None and not holds(value, nodes))
        or (name in _RANK and value != str(rank))
        or (name in _ADDRESS and value.startswith(_LOOPBACK))
    )


def check_options(launcher: str, options: Mapping[str, str], nodes: int | None, rank: int | None) -> None:
    """Raise UsageError for an option that takes a launcher out of the world of several nodes."""
    if launcher == "ray" and nodes != 1 and "--port" in options and not {"--head", "--address"}.intersection(options):
        port = printable(options["--port"], 20)
        expected = "ray without a port, as only rank 0's may have one"
        raise UsageError(expected, f"--port={port}", f"leaving it out, or exporting MASTER_PORT={port} instead")
    for option, value in options.items() if nodes != 1 else ():
        is_second_head = option == "--head" and rank != 0  # of Ray
        if is_second_head or leaves_world(option, value, nodes, rank):
            option_text = printable(f"{option}={value}" if value else option, 80)
            seen = f"{option_text}, with which this node would train alone"
            expected = f"{launcher} in the world of {nodes or 'several'} nodes"
            raise UsageError(expected, seen, "leaving that option out, as mingle sets it")


def parse_options(arguments: Sequence[str], flags: Collection[str]) -> dict[str, str]:
    """Return the options before the first argument that is none, as option -> value; `flags` take no value.

    Names and flags have hyphens: Python's launchers accept underscores instead of them, and the beginning of a name.
    """
    return _split(arguments, flags)[0]


def _split(arguments: Sequence[str], flags: Collection[str]) -> tuple[dict[str, str], int]:
    """Return the options before the first argument that is none, and the position of that argument."""
    found: dict[str, str] = {}
    position = 0
    while position < len(arguments) and arguments[position].startswith("-") and arguments[position] != "--":
        name, is_joined, value = arguments[position].partition("=")
        name = in_full(name, flags)
        position += 1
        if not is_joined and name not in flags and position < len(arguments):
            value = arguments[position]
            position += 1
        found[name] = value
    return found, position


def missing_options(options: Mapping[str, object], given: Mapping[str, str]) -> tuple[str, ...]:
    """Return options as arguments, without those that the user gave; the value None marks a flag."""
    wanted = {name: value for name, value in options.items() if hyphens(name) not in given}
    return tuple(
        argument for name, value in wanted.items() for argument in (name, *([] if value is None else [str(value)]))
    )


def _of_all(value: object) -> object:
    """Return a value that depends on all members. Raises UsageError for None, as it is unknown."""
    if value is None:
        expected = "the hosts and slots of all members, for this launcher"
        raise UsageError(expected, "only this node's, with --no-wait", "leaving out --no-wait")
    return value


def hyphens(name: str) -> str:
    """Return an option's name with hyphens instead of underscores."""
    return name.replace("_", "-")


def in_full(name: str, known: Collection[str]) -> str:
    """Return an option's name with hyphens, in full if it is the beginning of one known name, as argparse reads it."""
    name = hyphens(name)
    found = [option for option in known if option.startswith(name)]
    return found[0] if len(found) == 1 and name.startswith("--") else name


# torchrun. Its options win over PET_*, so those that take it out of the world are refused.
#
# Read in torch 2.13, distributed/run.py. Many command lines were written for one node, with --standalone or
# --nnodes=1, and would train once on every node.
_TORCH_MODULES, _IN_SCRIPTS = ("torch.distributed.run", "torch.distributed.launch"), ("torchrun", "torchrun-elastic")
# Options without a value; all others take the next argument, or the text after "=".
_TORCHRUN = ("--standalone", "-m", "--module", "--no-python", "--run-path", "--use-env", "--virtual-local-rank")


# `accelerate launch`, which takes its machines from options or its configuration file only.
#
# Read in accelerate 1.15, commands/launch.py. Options win over the file, which may say more (mixed precision, FSDP),
# so the machines are given as options and the user's own file, named or the default one, stays in use. One of
# _ACCELERATE_KINDS, or the file's distributed_type, starts several processes; without them each node would train
# alone, so --multi_gpu is added: it means torchrun, on CPUs too.
_ACCELERATE_PROGRAMS = ("accelerate launch", "accelerate-launch")
_ACCELERATE_MODULES = ("accelerate.commands.launch", "accelerate.commands.accelerate_cli launch")
_ACCELERATE_KINDS = ("--multi-gpu", "--tpu", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm")
_ACCELERATE = (
    *_ACCELERATE_KINDS,
    *("-h", "--help", "--quiet", "-q", "--cpu", "--enable-cpu-affinity", "--same-network", "--debug"),
    *("-m", "--module", "--no-python", "--use-parallelism-config", "--downcast-bf16"),
    *("--tpu-cluster", "--no-tpu-cluster", "--tpu-use-sudo", "--fp8-use-autocast-during-eval"),
    *("--dynamo-use-fullgraph", "--dynamo-use-dynamic", "--dynamo-use-regional-compilation"),
)
_ONE_PROCESS = ("", "NO", "MULTI_CPU")
_SETTING = r"""(?:^|[{{,])\s*["']?{}["']?\s*:\s*["']?(\w+(?:, *[0-9]+)*)"""
_MOST_BYTES = 1 << 16  # a configuration file is a screenful


def _accelerate(_name: Argv, arguments: Argv, view: View, _exported: Mapping[str, str]) -> Argv:
    """Return the options for this node's place in the world. Raises UsageError for --cpu with several processes."""
    nodes, options = view.world.nodes or 1, parse_options(arguments, _ACCELERATE)
    size = view.world.size or nodes * (view.place.slots or 1)  # without a rendezvous the others' slots are unknown
    if "--cpu" in options and size != nodes:
        expected = "one process on each node, as `accelerate launch --cpu` starts only one"
        raise UsageError(expected, f"{size} on {nodes} nodes", "leaving out --cpu, or --slots 1")
    check_options("accelerate", options, view.world.nodes, view.place.node_rank)
    found = {f"--{name}": value for name, value in accelerate_machines(view).items()}
    if options.get("--rdzv-backend", "static") == "static":
        found["--same_network"] = None
    else:  # whose endpoint that option would take away; as in frameworks.py, is_host says which node has the store
        found["--rdzv_conf"] = f"is_host={int(view.place.node_rank == 0)}"
    file = _accelerate_file(options, view.user_environ)
    gpus = options.get("--gpu-ids") or _setting("gpu_ids", file)
    if gpus not in ("", "all", "null"):
        found["--num_processes"] = nodes * len(gpus.split(","))
    # How processes are started: by the options, or else by the file; --cpu starts one.
    kinds = (name for name in ("--cpu", *_ACCELERATE_KINDS) if name in options)
    kind = next(kinds, "") or _setting("distributed_type", file).upper()
    if found["--num_processes"] != 1 and kind in _ONE_PROCESS:
        found["--multi_gpu"] = None
    # By default pdsh, with which each node would train alone: only these two start a node's own processes.
    own = _setting("deepspeed_multinode_launcher", file) in ("standard", "nossh")
    if nodes > 1 and kind in ("--use-deepspeed", "DEEPSPEED") and not own:
        found["--deepspeed_multinode_launcher"] = "standard"
    return missing_options(found, options)


def _accelerate_file(options: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the text of the user's file, named or the default one; "" without one."""
    # By default the file of `accelerate config` (commands/config/config_args.py).
    home = environ.get("HF_HOME") or f"{environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    path = options.get("--config-file") or os.path.expanduser(f"{home}/accelerate/default_config.yaml")
    try:
        return read_bounded(path, _MOST_BYTES).decode(errors="replace")
    except OSError:  # accelerate itself reports a named file that is missing, and a pipe is its own to read
        return ""


def _setting(name: str, text: str) -> str:
    """Return the value of a setting in a file of YAML or JSON, or ""."""
    found = re.search(_SETTING.format(name), text, re.MULTILINE)
    return found[1] if found else ""


# The deepspeed launcher, on every node and without ssh.
#
# Read in deepspeed 0.19, launcher/runner.py: with --no_ssh it starts the processes that the hostfile gives to node
# --node_rank.
_DEEPSPEED_MODULES = ("deepspeed.launcher.runner",)
_DEEPSPEED = (
    *("-h", "--help", "--module", "--no-python", "--no-local-rank", "--no-ssh", "--no-ssh-check"),
    *("--force-multi", "--save-pid", "--bind-cores-to-rank", "-q", "--quiet"),
)


def _deepspeed(_name: Argv, arguments: Argv, view: View, exported: Mapping[str, str]) -> Argv:
    """Return the options for the hostfile, this node's rank and rank 0's address. Raises UsageError.

    For one node a hostfile would keep it from CUDA_VISIBLE_DEVICES and --include localhost:2,3.
    """
    options = parse_options(arguments, _DEEPSPEED)
    check_options("deepspeed", options, view.world.nodes, view.place.node_rank)
    if view.world.nodes == 1:
        return missing_options({"--master_port": view.world.master_port}, options)
    is_given = {"-H", "--hostfile"}.intersection(options)
    hosts = {} if is_given else {"--hostfile": _of_all(exported.get("MINGLE_HOSTFILE"))}
    found = {
        **hosts,
        "--no_ssh": None,
        "--node_rank": view.place.node_rank,
        "--master_addr": view.world.master_addr,
        "--master_port": view.world.master_port,
    }
    return missing_options(found, options)


# `ray start` and `ray symmetric-run`: the head is on rank 0, and every node is on the world's network.
#
# Read in ray 2.60, scripts/scripts.py and scripts/symmetric_run.py. symmetric-run refuses --node-ip-address: each of
# its nodes takes the address from which it reaches the head, which is on the world's network.
_RAY_MODULES = ("ray.scripts.scripts start", "ray.scripts.scripts symmetric-run")
_RAY = (
    *("--head", "--block", "--no-redirect-output", "--disable-usage-stats", "-v", "--verbose", "--help"),
    *("--enable-resource-isolation", "--ray-debugger-external", "--include-log-monitor"),
)


def _ray(name: Argv, arguments: Argv, view: View, _exported: Mapping[str, str]) -> Argv:
    """Return the options for the head's address, or to start the head on rank 0. Raises UsageError."""
    options = parse_options(arguments, _RAY)
    check_options("ray", options, view.world.nodes, view.place.node_rank)
    if name[-1] == "symmetric-run":
        return missing_options({"--address": view.endpoint, "--min-nodes": view.world.nodes}, options)
    if "--head" in options or "--address" in options:
        return ()
    head = {"--head": None, "--port": view.world.master_port, "--node-ip-address": view.world.master_addr}
    found = head if view.place.node_rank == 0 else {"--address": view.endpoint}
    own = {"--node-ip-address": view.place.address} if view.place.address else {}
    return missing_options({**found, **own}, options)


# horovodrun, which reaches the nodes from rank 0's and takes them from options.
#
# Read in horovod 0.28, runner/launch.py: -np, or --num-proc, and -H, or --hosts, or a --hostfile.
_HOROVOD_MODULES = ("horovod.runner.launch",)
_HOROVOD = (
    *("-h", "--help", "-v", "--version", "-cb", "--check-build", "--disable-cache", "--verbose", "--gloo"),
    *("--mpi", "--jsrun", "--prefix-output-with-timestamp", "--tcp", "--autotune", "--no-autotune"),
)
_HOROVOD_NUMBERS = ("-np", "--num-proc", "--min-np", "--min-num-proc")
_HOROVOD_HOSTS = ("-H", "--hosts", "-hostfile", "--hostfile", "--host-discovery-script")


def _horovod(_name: Argv, arguments: Argv, view: View, exported: Mapping[str, str]) -> Argv:
    """Return the options for the number of processes, and for the hosts with their slots."""
    options = parse_options(arguments, _HOROVOD)
    number = {} if any(name in options for name in _HOROVOD_NUMBERS) else {"-np": _of_all(view.world.size)}
    hosts = {} if any(name in options for name in _HOROVOD_HOSTS) else {"-H": _of_all(exported.get("MINGLE_HOSTS"))}
    return missing_options({**number, **hosts}, options)


TABLE = (
    Launcher("torchrun", ("torchrun",), _TORCH_MODULES, "node", None, ("cpu",), _TORCHRUN, _IN_SCRIPTS),
    Launcher("accelerate", _ACCELERATE_PROGRAMS, _ACCELERATE_MODULES, "node", _accelerate, ("cpu",), _ACCELERATE),
    Launcher("deepspeed", ("deepspeed",), _DEEPSPEED_MODULES, "node", _deepspeed, ("deepspeed",), _DEEPSPEED),
    Launcher("ray", ("ray start", "ray symmetric-run"), _RAY_MODULES, "node", _ray, (), _RAY, instead="ray"),
    Launcher("composer", ("composer",), ("composer.cli.launcher",), "node", None, ("composer",)),
    Launcher("llamafactory", ("llamafactory-cli train", "lmf train"), (), "node", None, ("llamafactory", "cpu")),
    Launcher("swift", ("swift sft", "swift pt", "swift rlhf"), (), "node", None, ("swift", "cpu")),
    Launcher("horovodrun", ("horovodrun",), _HOROVOD_MODULES, "job", _horovod, ("horovod",), instead="mpirun"),
    Launcher("mpirun", ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), (), "job", frameworks=("mpi",)),
    Launcher("srun", ("srun",), (), "task"),
)

# For a command that is no launcher, unless with --for none, or if Lightning starts the node's other processes.
PROCESS_FRAMEWORKS = ("process",)

SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
# Programs that are no launchers, like Python and scripts: no plugin is searched for them.
_NOT_LAUNCHERS = (*SHELLS, "csh", "tcsh", "fish", "env", "numactl", "true", "sleep", "hostname")


class Wrapper(NamedTuple):
    """A program that starts the command behind its options; `with_value` are those that take the next argument."""

    subcommand: str
    with_value: tuple[str, ...]
    more: int = 0  # arguments before the command, such as an image
    ends: Argv = ("--",)  # what else begins the command


_CONTAINER = Wrapper("exec", ("-B", "--bind", "-H", "--home", "--env", "--env-file", "--pwd", "-W", "--workdir"), 1)
_CONDA = Wrapper("run", ("-n", "--name", "-p", "--prefix", "--cwd"))
_UV = (
    *("--extra", "--no-extra", "--group", "--no-group", "--only-group", "--env-file", "-w", "--with", "--package"),
    *("--with-editable", "--with-requirements", "-p", "--python", "--index", "--directory", "--project"),
)
_NUMACTL = ("-N", "--cpunodebind", "-C", "--physcpubind", "-m", "--membind", "-i", "--interleave", "-p", "--preferred")
# Nsight Systems, whose options all have a value: those that are usually written without "=".
_NSYS = ("-o", "--output", "-t", "--trace", "-f", "--force-overwrite", "-w", "-s", "--sample", "-x", "-c", "-y", "-d")
_WRAPPERS = {
    **dict.fromkeys(("apptainer", "singularity"), _CONTAINER),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _CONDA),
    "uv": Wrapper("run", _UV, ends=("--", "-m")),
    "numactl": Wrapper("", _NUMACTL),
    "nsys": Wrapper("profile", _NSYS),
    "time": Wrapper("", ("-f", "--format", "-o", "--output")),
    "nice": Wrapper("", ("-n", "--adjustment")),
    "ionice": Wrapper("", ("-c", "--class", "-n", "--classdata")),
    "taskset": Wrapper("", (), 1),
    "timeout": Wrapper("", ("-k", "--kill-after", "-s", "--signal"), 1),
    "stdbuf": Wrapper("", ("-i", "--input", "-o", "--output", "-e", "--error")),
    **dict.fromkeys(("nohup", "setsid", "unbuffer"), Wrapper("", ())),
}
# Python's options that take the next argument.
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


def recognise(command: Sequence[str]) -> Launcher | None:
    """Return the launcher that a command starts, or None."""
    return find(command)[0]


def find(command: Sequence[str]) -> tuple[Launcher, int] | tuple[None, int]:
    """Return the launcher that a command starts, and the position of its options; (None, 0) without one."""
    before = prefix_length(command)
    command = command[before:]
    end = after_python(command)
    is_module = "-m" in command[end : end + 1] and len(command) > end + 1  # of Python, or of `uv run`
    is_path = end > 0 and "/" in "".join(command[end : end + 1])  # `python /opt/bin/torchrun`
    end = end + 1 if is_module else end if is_path else 0
    name = command[end] if is_module else os.path.basename(command[end])
    second = " ".join([name, *command[end + 1 : end + 2]])
    for launcher in TABLE:
        known = launcher.modules if is_module else launcher.programs
        if name in known:
            return launcher, before + end + 1
        if second in known:
            return launcher, before + end + 2
    added = None if end else _of_plugin(name)
    if added is None or not {name, second}.intersection(added.programs):
        return None, 0
    return added, before + end + (1 if name in added.programs else 2)


_SEARCHED_MOST = 4096  # arguments of a command that are searched for a launcher
_NO_WRAPPER = (".py", ".sh", ".bash")


def wrapped(command: Sequence[str]) -> tuple[Launcher, list[str]] | tuple[None, list[str]]:
    """Return the launcher of one node that an unknown program starts, such as a shell, and what follows its name.

    What follows a script is the script's, and a launcher behind mingle finds its nodes.
    """
    command = command[prefix_length(command) :][:_SEARCHED_MOST]
    scripts = (at for at, text in enumerate(command) if text.endswith(_NO_WRAPPER) and len(text.split()) == 1)
    if os.path.basename(command[0]).startswith("python") or command[0] == "-m":
        return None, []
    texts = command[1 : next(scripts, len(command))]
    parts = [part.strip("\"'`;()&|${}") for text in texts for part in text.split()][:_SEARCHED_MOST]
    for at, (before, part) in enumerate(pairwise(["", *parts])):
        if os.path.basename(part) == "mingle":
            break
        launcher, end = find(parts[at : at + 3])
        is_value = before.startswith("--") and "=" not in before  # as Lightning's `--strategy deepspeed`
        if launcher is not None and launcher.starts == "node" and not is_value:
            return launcher, parts[at + end :]
    return None, []


def prefix_length(command: Sequence[str]) -> int:
    """Return the number of arguments in front of what `env NAME=VALUE…`, `uv run` and others start."""
    end = 0
    while length := assignments(command[end:]) or _wrapper_length(command[end:]):
        end += length
    return end


def assignments(command: Sequence[str]) -> int:
    """Return the number of arguments of `env [-u NAME]… NAME=VALUE…` in front."""
    if os.path.basename(command[0]) != "env":
        return 0
    start = 1
    while "-u" in command[start : start + 1]:
        start += 2
    return next((at for at in range(start, len(command)) if "=" not in command[at] or command[at][0] == "-"), 0)


def _wrapper_length(command: Sequence[str]) -> int:
    """Return the number of arguments in front of what a wrapper starts; 0 for another program."""
    wrapper, end = _WRAPPERS.get(os.path.basename(command[0])), 1
    if wrapper is None:
        return 0
    if wrapper.subcommand:
        end = _behind_options(command, 1, wrapper.with_value) + 1
        if list(command[end - 1 : end]) != [wrapper.subcommand]:
            return 0
    end = _behind_options(command, end, wrapper.with_value, wrapper.ends)
    end += ("--" in command[end : end + 1]) + wrapper.more
    return end if end < len(command) else 0


def _behind_options(command: Sequence[str], start: int, with_value: Collection[str], ends: Argv = ("--",)) -> int:
    """Return the position behind the options from `start` on."""
    while start < len(command) and command[start].startswith("-") and command[start] not in ends:
        start += 2 if command[start] in with_value else 1
    return start


def _of_plugin(program: str) -> Launcher | None:
    """Return the plugin's launcher for a program, or None."""
    if program in _NOT_LAUNCHERS or program.startswith("python") or program.endswith((".py", ".sh")):
        return None
    return plugins.find(plugins.LAUNCHERS, program, Launcher, _RETURNS)


def _are_strings(found: object) -> bool:
    return isinstance(found, tuple) and all(isinstance(argument, str) for argument in found)


_RETURNS = {"options": ("a tuple of strings", _are_strings)}


def script_of(launcher: Launcher, arguments: Sequence[str]) -> str | None:
    """Return the Python script that a launcher with these arguments starts, or None if there is none for certain.

    An unknown option, of a later version, may take no value: then the next argument would be the script.
    """
    if launcher.flags is None:
        return None
    options, position = _split(arguments, launcher.flags)
    scripts = [at for at, argument in enumerate(arguments[: position + 1]) if argument.endswith(".py")]
    starts_another = any(name.startswith("-m") or name in ("--module", "--no-python") for name in options)
    return arguments[position] if scripts == [position] and not starts_another else None


def after_python(command: Sequence[str]) -> int:
    """Return the position behind `python [option]…`, of a script, -m or -c; 0 for another program."""
    if not os.path.basename(command[0]).startswith("python"):
        return 0
    return _behind_options(command, 1, _WITH_VALUE, ("-m", "-c"))


def with_frameworks(command: Sequence[str], spec: MemberSpec) -> MemberSpec:
    """Return the spec with the command's frameworks added.

    By default a launcher that copies rank 0's environment to other nodes gets no interface name: theirs may differ.
    """
    (launcher, end), names = find(command), spec.settings.frameworks
    # By its own endpoint torchrun would wait on localhost; with one that the user gave it finds the others.
    options = parse_options(command[end:], _TORCHRUN) if launcher and launcher.name == "torchrun" else {}
    # For MIN:MAX nodes static rendezvous, torchrun's default, would wait for MAX.
    count = options.get("--nnodes", "")
    is_elastic = ":" in count and not count.endswith(f":{spec.nodes}")
    backend = options.get("--rdzv-backend", "c10d" if is_elastic else "")
    if backend == "c10d" and "--rdzv-endpoint" not in options:
        names = tuple("torchrun-elastic" if name == "torchrun" else name for name in names)
    if launcher and launcher.starts != "node" and spec.settings.source("frameworks") == "default":
        names = tuple(name for name in names if name != ALWAYS)
    more = launcher.frameworks if launcher else PROCESS_FRAMEWORKS if _has_ranks(names) else ()
    return spec._replace(settings=spec.settings._replace(frameworks=tuple(dict.fromkeys((*names, *more)))))


def with_ranks(command: Sequence[str], spec: MemberSpec, view: View) -> View:
    """Return the view with ranks for a command that starts none itself, if each node runs one process.

    Such as one that is no launcher, and `accelerate launch --cpu`, which starts its script as it is.
    """
    place, (launcher, end) = view.place, find(command)
    is_accelerate = launcher is not None and launcher.name == "accelerate"
    is_cpu = is_accelerate and "--cpu" in parse_options(command[end:], _ACCELERATE)
    is_process = (launcher is None or is_cpu) and _has_ranks(spec.settings.frameworks)
    if not is_process or view.scope != "node" or place.node_rank is None or view.world.size != view.world.nodes:
        return view
    return view._replace(place=place._replace(rank=place.node_rank, local_rank=0))


def is_elsewhere(command: Sequence[str], view: View) -> bool:
    """Return whether rank 0's node, and not this one, starts the command for all nodes."""
    launcher = recognise(command)
    return launcher is not None and launcher.starts == "job" and (view.process or 0) > 0


def completed(command: Sequence[str], view: View, exported: Mapping[str, str]) -> tuple[str, ...]:
    """Return a launcher's command with the options that it needs to find its nodes; others are unchanged.

    `exported` are its variables. The added options precede the user's own. Raises UsageError for options with which
    the launcher would not start this world.
    """
    launcher, end = find(command)
    is_known = None not in (view.world.nodes, view.place.node_rank, view.place.slots)
    if launcher is None or launcher.options is None or not is_known:
        return tuple(command)
    added = launcher.options(tuple(command[:end]), tuple(command[end:]), view, exported)
    return (*command[:end], *added, *command[end:])


def _has_ranks(frameworks: tuple[str, ...]) -> bool:
    return bool(frameworks) and "lightning" not in frameworks


# Checks that a command starts on every node of the job. A launcher that runs in the batch script only, or once per
# task instead of once per node, would train in a world of its own and end with 0.

# Options of mpirun and horovodrun for the number of processes, and those without a value.
_PROCESSES = ("-n", "--n", "-np", "--np", "-c", "--num-proc")
_OF_MPI = (
    *("--allow-run-as-root", "--oversubscribe", "--nooversubscribe", "--nolocal", "--tag-output", "--display-map"),
    *("--verbose", "--quiet", "-v", "-q", "--report-bindings", "--use-hwthread-cpus", "-l"),
    *("--gloo", "--mpi", "--jsrun"),
)
# Programs that submit jobs, and the line to suggest: the first installed one is used.
_SUBMITTERS = (
    ("salloc", "salloc -N2 {line}"),
    ("flux", "flux alloc -N2 {line}"),
    ("bsub", "{line} in a job script, for bsub"),
    ("qsub", "{line} in a job script, for qsub"),
    ("oarsub", "{line} in a job script, for oarsub"),
)
# Options by which a launcher that reads no variables gets its nodes.
_NODE_OPTIONS = (
    *("--num-machines", "--machine-rank", "--config-file", "--hostfile", "-hostfile", "-H", "--hosts", "--host"),
    *("--node-rank", "--num-nodes", "--address", "--head", "--host-discovery-script", "-machinefile", "--machinefile"),
)


def check_command(command: Sequence[str], spec: MemberSpec, *, verbatim: bool = False, no_wait: bool = False) -> None:
    """Raise UsageError, with the line that works, for a command that would not join the world of several nodes.

    With `verbatim` a launcher must have its own options for the nodes. With `no_wait` mingle knows no other hosts.
    """
    facts, (launcher, end) = spec.facts, find(command)
    if facts.is_batch and (launcher is None or launcher.starts == "node"):
        seen = f"a shell that runs on {here(facts)} only"
        raise UsageError(f"to start {command[0]} on every node of the job", seen, everywhere(facts, command))
    if launcher is None:
        _check_wrapped(command, spec, verbatim=verbatim)
        return
    tasks = max((facts.local_count or 1, *facts.tasks_per_node))
    if spec.settings.scope == "task" and tasks > 1 and launcher.starts == "node":
        expected = f"one {launcher.name} on each node, as it starts the node's processes itself"
        remedy = "--ntasks-per-node=1 without --scope task, or the program without its launcher"
        raise UsageError(expected, f"{tasks} tasks on a node", remedy)
    # In a run only rank 0's host starts a launcher of all nodes, and the run itself adds --verbatim there.
    is_of_all = launcher.starts == "job" and "MINGLE_RUN_FORMED" not in spec.user_environ
    if verbatim and (launcher.options or is_of_all) and not _names_nodes(command[end:]):
        seen = "none, with --verbatim: each node would train alone"
        remedy = "leaving out --verbatim, so that mingle adds them"
        raise UsageError(f"{launcher.name} with options that name its nodes", seen, remedy)
    if launcher.starts == "job":
        # A scheduler tells MPI its hosts. All nodes refuse it here: later only rank 0 would, and the others end with 0.
        if no_wait and (launcher.options or facts.job_id is None) and not _names_nodes(command[end:]):
            _of_all(None)
        check_processes(launcher.name, command[end:], spec.nodes)
    if launcher.flags is not None and not (verbatim and launcher.options):
        # A rank that not all nodes know by now is refused: with one command for all, some of them would start.
        options = parse_options(command[end:], launcher.flags)
        check_options(launcher.name, options, spec.nodes, spec.certain_rank)


def _names_nodes(arguments: Sequence[str]) -> bool:
    return any(hyphens(argument.partition("=")[0]) in _NODE_OPTIONS for argument in arguments)


def _check_wrapped(command: Sequence[str], spec: MemberSpec, *, verbatim: bool) -> None:
    """Raise UsageError for a launcher that would train alone within a program behind which mingle adds no options.

    Only within those that are known to start others: to any other program its name may be a word.
    """
    if os.path.basename(command[prefix_length(command)]) not in (*_NOT_LAUNCHERS, *_WRAPPERS):
        return
    launcher, arguments = wrapped(command)
    if launcher is None or verbatim:
        return
    # One of torchrun's only call in a shell's text: among several, or after $, it may depend on the number of nodes.
    if launcher.name == "torchrun" and not {*launcher.programs, *launcher.modules}.intersection(arguments):
        options = parse_options(arguments, _TORCHRUN).items()
        certain = {name: value for name, value in options if value.replace(":", "").isdigit() or name == "--standalone"}
        check_options("torchrun", {name: certain[name] for name in certain if name not in _RANK}, spec.nodes, None)
    if launcher.options and not _names_nodes(arguments):
        name = " ".join(launcher.programs[:1])
        seen = f"it within {printable(shlex.join(command), 80)}: each node would train alone"
        remedy = f"mingle exec {name} … in that line, or --verbatim if it finds its nodes by itself"
        raise UsageError(f"{name} where mingle can add its options", seen, remedy)


def check_processes(launcher: str, arguments: Sequence[str], nodes: int | None) -> None:
    """Raise UsageError if a launcher of the whole job would start fewer processes than nodes."""
    options = parse_options(arguments, _OF_MPI)
    for name in _PROCESSES:
        count = number(options.get(name, ""), most=MOST_TASKS)
        if nodes is not None and count is not None and count < nodes:
            seen = f"{name} {count}, which leaves some nodes out"
            raise UsageError(f"{launcher} with a process on each of {nodes} nodes", seen, f"{name} {nodes} or more")


def here(facts: JobFacts) -> str:
    """Return this host's name, as the scheduler calls it if known."""
    return facts.host or socket.gethostname()


def is_first_host(facts: JobFacts) -> bool:
    """Return whether this host is the job's first: salloc's shell may run on none of them."""
    first = facts.hosts[0] if facts.hosts else ""
    return here(facts) == first or (facts.host is None and here(facts).partition(".")[0] == first.partition(".")[0])


def everywhere(facts: JobFacts, command: Sequence[str]) -> str:
    """Return the line that starts a command on every node of the job, in one world."""
    if starter := facts.on_every_node:
        return f"{starter} in front: {starter} mingle exec {shlex.join(command)}"
    return f"mingle run {shlex.join(command)}"


def anywhere(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what to try without a job: submit one, name hosts, or train on this host only."""
    from shutil import which  # 3 ms, for this message only

    line = f"mingle run {shlex.join(command)}"
    path = environ.get("PATH", "")
    job = next((text.format(line=line) for program, text in _SUBMITTERS if which(program, path=path)), "")
    hosts = f"mingle run --hosts node1,node2 {shlex.join(command)}"
    return f"{job or hosts}; or --alone to train on this host only"
