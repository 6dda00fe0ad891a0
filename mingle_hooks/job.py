"""A call's MemberSpec from environment, settings and options; and whether this node can start the command."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Mapping, Sequence

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export import launchers
from mingle_hooks.export.frameworks import plugin_variables, profiles
from mingle_hooks.export.launchers import Launcher
from mingle_hooks.export.variables import own
from mingle_hooks.net import devices
from mingle_hooks.net.addresses import hostname, is_hostname_or_address
from mingle_hooks.net.devices import GpuBinding, visible_gpus
from mingle_hooks.rendezvous.member import MemberSpec, SlotsFrom
from mingle_hooks.rendezvous.messages import Failure, Kind
from mingle_hooks.rendezvous.wire import Attempt, run_material
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS, JobFacts
from mingle_hooks.settings import Settings, load
from mingle_hooks.values import Counted, number


def member_spec(environ: Mapping[str, str], options: Mapping[str, object]) -> MemberSpec:
    """Return the spec of this call. Raises what settings and schedulers raise, and UsageError if they conflict."""
    user_environ = own(environ)
    settings = load(user_environ, options)
    settings = settings._replace(frameworks=profiles(settings.frameworks))
    if plugin_variables():  # an earlier mingle may have exported the variables of a plugin, which is loaded only now
        user_environ = own(environ)
    facts = detect(user_environ, socket.gethostname(), asks_plugins=settings.id is None)
    facts = _placed(facts.by_itself() if settings.alone else facts, settings)
    _check_scope(settings, facts)
    _check_order(settings, user_environ)
    nodes, nodes_source = _nodes(settings, facts, user_environ)
    slots, slots_from = _slots(settings, facts, user_environ)
    rank, rank_source = _rank(settings, facts, user_environ, nodes)
    return MemberSpec(
        settings=settings,
        facts=facts,
        user_environ=user_environ,
        attempt=Attempt(_id(settings, facts, nodes), facts.step, facts.restarts, run_material(facts.cookie)),
        nodes=nodes,
        nodes_source=nodes_source,
        rank=rank,
        rank_source=rank_source,
        slots=slots,
        slots_from=slots_from,
        pinned=_pinned(settings, user_environ, rank),
        binding=_binding(settings, facts, user_environ, rank),
    )


def _placed(facts: JobFacts, settings: Settings) -> JobFacts:
    """Take the slot as the local rank for --scope task; one slot means one task."""
    if settings.scope != "task" or facts.local_rank is not None:
        return facts
    if facts.slot is None:
        if settings.slots != 1 or facts.is_batch:
            return facts
        return facts._replace(local_rank=0, local_count=1, sources={**facts.sources, "local_rank": "--slots 1"})
    return facts._replace(local_rank=facts.slot, sources={**facts.sources, "local_rank": facts.sources["slot"]})


def _check_scope(settings: Settings, facts: JobFacts) -> None:
    """Raise UsageError, on every task alike, if only some tasks of a step might get a world."""
    if settings.scope == "task" and facts.local_rank is None:
        raise UsageError(
            "a task's number on its node from the scheduler, for --scope task",
            f"none ({facts.scheduler})",
            "--scope node, --slots 1 with one task on each node, or srun, mpirun or pbsdsh to start the tasks",
        )
    if settings.source("scope") != "default":
        return
    tasks = max((facts.local_count or 1, *facts.tasks_per_node))
    if tasks > 1 and facts.local_rank is not None:
        raise UsageError(
            "one task on each node",
            f"{tasks} ({facts.scheduler})",
            "--ntasks-per-node=1, --scope task if every task calls mingle, or --scope node if one per node does",
        )
    # PBS lists slots where Slurm lists tasks. With --slots a member is a node.
    if tasks > 1 and facts.slot is not None and settings.source("slots") == "default":
        raise UsageError(
            "one slot on each host, or --scope",
            f"{tasks} slots ({facts.scheduler})",
            "--scope task if pbsdsh starts every task, or --scope node if pbs_tmrsh starts one on each host",
        )


def _check_order(settings: Settings, user_environ: Mapping[str, str]) -> None:
    """Raise UsageError for a rank, or a scope, that contradicts --order."""
    if settings.order == "scheduler":
        return
    seen = f"--order {settings.order}, which assigns the ranks"
    if settings.scope == "task":
        raise UsageError("--scope node", seen, "--scope node, with a launcher that starts the node's tasks")
    if settings.rank is not None or user_environ.get("NODE_RANK"):
        source = settings.source("rank") if settings.rank is not None else "NODE_RANK"
        raise UsageError(f"no rank from {source}", seen, f"either {source} or --order")


def world_id(settings: Settings, facts: JobFacts) -> str:
    """Return the id that all members share. Raises UsageError if there is none."""
    found = settings.id or facts.job_id
    if found is None:
        seen = "no job here" if facts.scheduler == "none" else f"none (scheduler: {facts.scheduler})"
        raise UsageError("an id that all members share", seen, "--id NAME")
    return found


def _id(settings: Settings, facts: JobFacts, nodes: int | None) -> str:
    """Return the id that all members share; a single member needs none."""
    return settings.id or facts.job_id or "alone" if nodes == 1 else world_id(settings, facts)


def _nodes(settings: Settings, facts: JobFacts, user_environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the number of nodes and where it comes from."""
    nodes, source = settings.nodes, settings.source("nodes")
    if nodes is None and user_environ.get("NNODES"):
        nodes, source = _number(user_environ, "NNODES", least=1, most=MOST_NODES), "NNODES"
    if settings.alone and nodes not in (None, 1):
        raise UsageError("one node, for --alone", f"{nodes} ({source})", "leaving out one of them")
    if source == "NNODES" and facts.nodes not in (None, nodes):
        seen = f"NNODES={nodes}, as exported"
        raise UsageError(f"{facts.nodes} nodes, as {facts.scheduler} says", seen, "unset NNODES, or --nodes N")
    if nodes is None:
        nodes, source = facts.nodes, facts.sources.get("nodes", facts.scheduler)
    elif facts.nodes is not None and nodes > facts.nodes:
        raise UsageError(
            f"at most {facts.nodes} nodes, as {facts.scheduler} says", f"{nodes} ({source})", "a smaller --nodes"
        )
    if nodes is None and facts.without_nodes:
        raise UsageError(*facts.without_nodes)
    _check_nobody_left_out(nodes, source, settings, facts)
    return nodes, source


def _check_nobody_left_out(nodes: int | None, source: str, settings: Settings, facts: JobFacts) -> None:
    """Raise UsageError, on every node alike, if some nodes would be left out and fail, or train alone.

    A job script may name fewer nodes than the job has, for a step that it starts; in a step all nodes take part.
    """
    if nodes == 1 and source == "NNODES" and facts.scheduler == "none":
        raise UsageError("a job, or --nodes N", "NNODES=1 alone, as exported", "unset NNODES, or --alone")
    there = max(facts.nodes or 1, facts.nodes_of_job or 1)
    is_of_step = bool(facts.step and facts.hosts) and settings.rank is None
    if nodes is None or nodes >= there or (nodes > 1 and not is_of_step):
        return
    remedies = {"--nodes": "leaving out --nodes", "MINGLE_NODES": "unset MINGLE_NODES"}
    remedy = remedies.get(source, "starting a process on every node")
    alone = ", or --alone to train on this node only" if nodes == 1 else ""
    raise UsageError(f"all {there} nodes of the job ({facts.scheduler})", f"{nodes} ({source})", f"{remedy}{alone}")


def _rank(
    settings: Settings, facts: JobFacts, user_environ: Mapping[str, str], nodes: int | None
) -> tuple[int | None, str]:
    """Return the node rank and where it comes from."""
    rank, source = settings.rank, settings.source("rank")
    is_from_scheduler = facts.node_rank is not None and bool(facts.hosts)  # then NODE_RANK must be the same
    if rank is None and user_environ.get("NODE_RANK") and not is_from_scheduler:
        rank, source = _number(user_environ, "NODE_RANK", most=MOST_NODES - 1), "NODE_RANK"
    if rank is None:
        rank, source = facts.node_rank, facts.sources.get("node_rank", facts.scheduler)
        if settings.scope == "task" and len(facts.leader_hosts) > 1:
            # Tasks were placed by hand (srun -m arbitrary): MASTER_ADDR has to be where task 0 is.
            rank, source = 0 if facts.task_rank == 0 else None, facts.sources.get("task_rank", source)
    if rank is not None and nodes is not None and rank >= nodes:
        raise UsageError(f"a node rank from 0 to {nodes - 1}", f"{rank} ({source})", "--rank below --nodes")
    return rank, source


def _slots(settings: Settings, facts: JobFacts, user_environ: Mapping[str, str]) -> tuple[int, SlotsFrom]:
    """Return the slots on this node and where that number comes from."""
    if settings.scope == "task":
        return facts.local_count or 1, "tasks"
    requested = settings.slots
    if isinstance(requested, int):
        return requested, "--slots"
    if requested is None and user_environ.get("LOCAL_WORLD_SIZE"):
        return _number(user_environ, "LOCAL_WORLD_SIZE", least=1, most=MOST_SLOTS), "LOCAL_WORLD_SIZE"
    counts: dict[Counted, int | None] = {
        "gpus": _gpus(facts, user_environ),
        "tasks": facts.local_count,
        "cpus": facts.cpus,
    }
    if requested is not None:
        count = counts[requested]
        if not count:
            raise UsageError(f"a count of {requested} on this node", f"none ({facts.scheduler})", "--slots N")
        return count, requested
    if gpus := counts["gpus"]:
        return gpus, "gpus"
    return (facts.local_count, "tasks") if facts.local_count else (1, "default")


def _binding(
    settings: Settings, facts: JobFacts, user_environ: Mapping[str, str], rank: int | None
) -> GpuBinding | None:
    """Return which GPUs a task is to see; its note is left to one task of a node, or of the job."""
    if settings.scope != "task" or facts.local_rank is None or (facts.local_count or 1) == 1:
        return None

    is_requested = settings.bind == "gpu"
    found = devices.gpu_binding(user_environ, facts.local_rank, facts.local_count or 1, facts.gpus, asked=is_requested)
    shows_note = facts.local_rank == 1 and (is_requested or rank == 0)
    return found if shows_note else found._replace(note="")


def _gpus(facts: JobFacts, user_environ: Mapping[str, str]) -> int | None:

    visible = visible_gpus(user_environ)
    return facts.gpus if visible is None else visible


def _pinned(settings: Settings, user_environ: Mapping[str, str], rank: int | None) -> dict[str, str]:
    """Return the variables of the world that the user exported. Raises UsageError for an invalid value.

    NODE_RANK is included only if it contradicts the scheduler, so that the leader can report it to all members.
    """
    pinned = {
        name: user_environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE") if user_environ.get(name)
    }
    if user_environ.get("NODE_RANK") and settings.rank is None:
        exported = _number(user_environ, "NODE_RANK", most=MOST_NODES - 1)
        pinned |= {"NODE_RANK": str(exported)} if exported != rank else {}
    if "MASTER_PORT" in pinned:
        pinned["MASTER_PORT"] = str(_number(user_environ, "MASTER_PORT", least=1, most=65535))
    if "WORLD_SIZE" in pinned:
        pinned["WORLD_SIZE"] = str(_number(user_environ, "WORLD_SIZE", least=1, most=10**8 - 1))
    addr = pinned.get("MASTER_ADDR", "")
    if addr and not is_hostname_or_address(addr):
        raise UsageError("a host name or an address in MASTER_ADDR", printable(addr, 60), "unset MASTER_ADDR")
    return pinned


def _number(user_environ: Mapping[str, str], name: str, *, least: int = 0, most: int) -> int:
    found = number(user_environ[name], least=least, most=most)
    if found is None:
        seen = f"{name}={printable(user_environ[name], 60)}, as exported"
        raise UsageError(f"a number from {least} to {most} in {name}", seen, f"unset {name}")
    return found


# Checks before check-in, so that ready means able to start.
#
# The command is resolved as execve(2) will resolve it. An argument whose meaning is uncertain is not checked, so that
# no command is refused that could start.

# Linux's fs/exec.c and binfmt_script.c: the bytes read of a `#!` line, and the interpreters that may follow each other.
_HEAD_BYTES, _MOST_INTERPRETERS = 256, 5
_ELF = b"\x7fELF"
# The longest name and PATH in a message, in characters.
_LONGEST_NAME, _LONGEST_PATH = 100, 160
# Interpreters' options without a value. With any other option the script is uncertain.
_PYTHON_FLAGS, _PYTHON_WITH_VALUE = frozenset("bBdEiIOPqsSuvx"), ("-W", "-X")
_SHELLS, _SHELL_FLAGS = ("sh", "bash", "dash", "ksh", "zsh"), frozenset("aefhkmnuvxBCEHPT")
# With one of these variables torchrun's first argument need not be a script.
_NO_SCRIPT = ("PET_MODULE", "PET_NO_PYTHON")


class _ObstacleError(Exception):
    """This node cannot start the command: the kind of failure, and what was seen."""

    def __init__(self, kind: Kind, seen: str) -> None:
        super().__init__(seen)
        self.kind, self.seen = kind, seen


class _InterpreterError(OSError):
    """A `#!` line names an interpreter that cannot be run."""


def obstacle_to(command: Sequence[str], spec: MemberSpec, *, verbatim: bool = False) -> Failure | None:
    """Return why this node cannot start the command, or None; without a command only stdout is checked."""
    launcher, end = (None, 0) if verbatim or not command else launchers.find(command) or (None, 0)
    if launcher is not None and launcher.starts == "job" and not _is_first(spec):
        return None  # rank 0 starts it for this node too
    try:
        _check_output()
        if command:
            _check_directory()
            _check_command(command, launcher, end, spec.user_environ)
            if launcher is None or launcher.starts != "job":
                _check_writable()
    except _ObstacleError as obstacle:
        return _failure(obstacle)
    return None


def check_runner() -> None:
    """Raise PlaceError if `mingle run` cannot show its command's output or has no working directory."""
    try:
        _check_output()
        _check_directory()
    except _ObstacleError as obstacle:
        raise _failure(obstacle).error() from None


def _failure(obstacle: _ObstacleError) -> Failure:
    return Failure(obstacle.kind, (hostname(), obstacle.seen))


def _is_first(spec: MemberSpec) -> bool:
    """Tell whether this is certain to be rank 0's node."""
    return spec.nodes == 1 or (spec.rank == 0 and spec.settings.order == "scheduler")


def _check_output() -> None:
    """Raise if stdout is read-only: main() has replaced a closed one by a read-only /dev/null."""
    import fcntl

    if fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR) == os.O_RDONLY:
        raise _ObstacleError("output", "a closed or read-only one")


def _check_directory() -> None:
    try:
        directory = os.getcwd()
    except OSError as error:
        raise _ObstacleError("directory", f"the working directory: {error.strerror}") from None
    if not os.access(".", os.X_OK, effective_ids=True):
        raise _ObstacleError("directory", f"{directory}: {os.strerror(errno.EACCES)}")


def _check_writable() -> None:
    """Raise if the working directory cannot be written, as after an I/O error made its file system read-only."""
    if not os.access(".", os.W_OK, effective_ids=True):
        is_read_only = os.statvfs(".").f_flag & os.ST_RDONLY
        seen = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise _ObstacleError("unwritable", f"{os.getcwd()}: {seen}")


def _check_command(command: Sequence[str], launcher: Launcher | None, end: int, environ: Mapping[str, str]) -> None:
    """Check the program, and the script if an interpreter or a Python launcher is certain to run it."""
    path = environ.get("PATH", os.defpath)
    try:
        program = _found(command[0], path)
    except _InterpreterError as error:
        raise _ObstacleError("permission", str(error)) from None
    except OSError as error:
        _refuse(command[0], error, "" if "/" in command[0] else f" (PATH={printable(path, _LONGEST_PATH)})")
    if launchers.prefix_length(command):
        return
    interpreter = os.path.basename(program)
    if launcher is not None and _is_python(interpreter):
        if not any(environ.get(name) for name in _NO_SCRIPT):
            _check_script(launchers.script_of(launcher, command[end:]), "")
    elif launcher is None and _is_python(interpreter) and _is_python(os.path.basename(command[0])):
        _check_script(_python_script(command[1:]), "")
    elif launcher is None and interpreter in _SHELLS and os.path.basename(command[0]) in _SHELLS:
        _check_script(_shell_script(command[1:]), path)


def _check_script(script: str | None, path: str) -> None:
    """Raise if a script is missing or unreadable; a shell looks for it in PATH too."""
    if script is None:
        return
    try:
        os.stat(script)
        if not os.access(script, os.R_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if "/" in script or not any(os.path.exists(f"{directory}/{script}") for directory in path.split(":") if path):
            _refuse(script, error, "" if script.startswith("/") else f" (in {os.getcwd()})")


def _refuse(name: str, error: OSError, where: str) -> None:
    """Raise the error for a file that cannot be found or run."""
    kind: Kind = "command" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else "permission"
    raise _ObstacleError(kind, f"{printable(name, _LONGEST_NAME)}: {error.strerror}{where}") from None


def _found(name: str, path: str) -> str:
    """Return the program that runs: the file in PATH, or its `#!` interpreter. Raises OSError as execvp(3) fails."""
    refusal = None
    for directory in [""] if "/" in name else path.split(":"):
        try:
            return _runs(os.path.join(directory, name), path, 0)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # another of this name may be run
            refusal = refusal or error
    raise refusal or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _runs(file: str, path: str, depth: int) -> str:
    """Return the program that execve(2) runs for this file. Raises OSError as execve(2) fails."""
    if depth > _MOST_INTERPRETERS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(os.stat(file).st_mode) or not os.access(file, os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    head = _head(file)
    if not head.startswith(b"#!"):
        if head.startswith(_ELF) or b"\0" in head:  # binfmt_misc may know it
            return file
        raise OSError(errno.ENOEXEC, f"{os.strerror(errno.ENOEXEC)} (a script without `#!`)")
    interpreter = os.fsdecode(head[2:].partition(b"\n")[0]).strip(" \t").replace("\t", " ").split(" ", 1)
    try:
        found = _runs(interpreter[0], path, depth + 1)
        name = interpreter[1].strip() if len(interpreter) > 1 and os.path.basename(interpreter[0]) == "env" else ""
        return _found(name, path) if name and name[0] != "-" and "=" not in name else found
    except _InterpreterError:
        raise
    except OSError as error:
        if error.errno == errno.ENOEXEC and os.path.basename(interpreter[0]) == "env":
            return file  # env(1) runs it by a shell
        script, line = (printable(text, _LONGEST_NAME) for text in (file, " ".join(interpreter)))
        raise _InterpreterError(f"{script}: bad interpreter: {line}: {error.strerror}") from None


def _head(file: str) -> bytes:
    """Return a file's first bytes; those of a program if this user may run the file but not read it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _ELF
    try:
        return os.read(descriptor, _HEAD_BYTES)
    finally:
        os.close(descriptor)


def _is_python(name: str) -> bool:
    return name.startswith("python") and not name[len("python") :].strip("0123456789.")


def _python_script(arguments: Sequence[str]) -> str | None:
    """Return the script that `python ARG…` runs, or None if there is none or it is uncertain."""
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            return argument
        if argument in _PYTHON_WITH_VALUE:
            next(rest, None)
        elif argument == "-" or not _PYTHON_FLAGS.issuperset(argument[1:]):
            return None
    return None


def _shell_script(arguments: Sequence[str]) -> str | None:
    """Return the script that `sh ARG…` runs, or None if there is none or it is uncertain."""
    for argument in arguments:
        if not argument.startswith(("-", "+")):
            return argument
        if argument == "-" or not _SHELL_FLAGS.issuperset(argument[1:]):
            return None
    return None
