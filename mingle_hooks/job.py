"""The request of one call, and whether this node can start its command.

The request is a MemberSpec from environment, settings and options. A member that is ready can start its command, which
is resolved as execve(2) will resolve it. An argument whose meaning is uncertain is not checked, so that no command is
refused that could start.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from mingle_hooks.errors import UsageError, printable
from mingle_hooks.export import launchers
from mingle_hooks.export.frameworks import plugin_variables, profiles
from mingle_hooks.export.launchers import Launcher
from mingle_hooks.export.variables import own
from mingle_hooks.files import read_bounded
from mingle_hooks.net.addresses import hostname, is_hostname_or_address
from mingle_hooks.net.devices import GpuBinding, gpu_binding, visible_gpus
from mingle_hooks.rendezvous.member import MemberSpec, SlotsFrom
from mingle_hooks.rendezvous.messages import Failure, Kind
from mingle_hooks.rendezvous.wire import Attempt, run_material
from mingle_hooks.schedulers.detect import detect
from mingle_hooks.schedulers.facts import MOST_NODES, MOST_SLOTS, JobFacts
from mingle_hooks.settings import BY_NAME, Settings, load, wrong_value
from mingle_hooks.values import Counted, number


def member_spec(environ: Mapping[str, str], options: Mapping[str, object]) -> MemberSpec:
    """Return the spec of this call. Raises what settings and schedulers raise, and UsageError if they conflict."""
    user_environ = own(environ)
    settings = load(user_environ, options)
    try:
        settings = settings._replace(frameworks=profiles(settings.frameworks))
    except UsageError as wrong:
        raise wrong_value(wrong, BY_NAME["frameworks"], settings.source("frameworks")) from None
    if plugin_variables():  # an earlier mingle may have exported the variables of a plugin, which is loaded only now
        user_environ = own(environ)
    facts = detect(user_environ, socket.gethostname(), asks_plugins=settings.id is None)
    facts = _placed(facts.by_itself() if settings.alone else facts, settings)
    _check_scope(settings, facts)
    _check_order(settings, user_environ)
    nodes, nodes_source = _nodes(settings, facts, user_environ)
    slots, slots_from = _slots(settings, facts, user_environ)
    rank, rank_source = _rank(settings, facts, user_environ, nodes)
    # A single member needs no id.
    name = settings.id or facts.job_id or "alone" if nodes == 1 else world_id(settings, facts)
    return MemberSpec(
        settings=settings,
        facts=facts,
        user_environ=user_environ,
        attempt=Attempt(name, facts.step, facts.restarts, run_material(facts.cookie)),
        nodes=nodes,
        nodes_source=nodes_source,
        rank=rank,
        rank_source=rank_source,
        slots=slots,
        slots_from=slots_from,
        pinned=_pinned(settings, user_environ, rank, nodes if nodes_source == "PET_NNODES" else None),
        binding=_binding(settings, facts, user_environ, rank),
    )


def _placed(facts: JobFacts, settings: Settings) -> JobFacts:
    """Take the slot as the local rank for --scope task; one slot means one task."""
    if settings.scope != "task" or facts.local_rank is not None:
        return facts
    if facts.slot is not None:
        return facts._replace(local_rank=facts.slot, sources={**facts.sources, "local_rank": facts.sources["slot"]})
    if settings.slots != 1 or facts.is_batch:
        return facts
    return facts._replace(local_rank=0, local_count=1, sources={**facts.sources, "local_rank": "--slots 1"})


def _check_scope(settings: Settings, facts: JobFacts) -> None:
    """Raise UsageError, on every task alike, if only some tasks of a step might get a world."""
    if settings.scope == "task" and facts.local_rank is None:
        remedy = "--scope node, --slots 1 with one task on each node, or srun, mpirun or pbsdsh to start the tasks"
        expected = "a task's number on its node from the scheduler, for --scope task"
        raise UsageError(expected, f"none ({facts.scheduler})", remedy)
    if settings.source("scope") != "default":
        return
    tasks = max((facts.local_count or 1, *facts.tasks_per_node))
    if tasks > 1 and facts.local_rank is not None:
        remedy = "--ntasks-per-node=1, --scope task if every task calls mingle, or --scope node if one per node does"
        raise UsageError("one task on each node", f"{tasks} ({facts.scheduler})", remedy)
    # PBS lists slots where Slurm lists tasks. With --slots a member is a node.
    if tasks > 1 and facts.slot is not None and settings.source("slots") == "default":
        remedy = "--scope task if pbsdsh starts every task, or --scope node if pbs_tmrsh starts one on each host"
        raise UsageError("one slot on each host, or --scope", f"{tasks} slots ({facts.scheduler})", remedy)


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
        expected = f"at most {facts.nodes} nodes, as {facts.scheduler} says"
        raise UsageError(expected, f"{nodes} ({source})", "a smaller --nodes")
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
        is_launched = rank is not None and "+" in facts.scheduler  # as mpirun numbers nodes by its own tasks
        if settings.scope == "task" and len(facts.leader_hosts) > 1 and not is_launched:
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
    visible = visible_gpus(user_environ)
    gpus = facts.gpus if visible is None else visible
    counts: dict[Counted, int | None] = {"gpus": gpus, "tasks": facts.local_count, "cpus": facts.cpus}
    if requested is not None:
        count = counts[requested]
        if not count:
            raise UsageError(f"a count of {requested} on this node", f"none ({facts.scheduler})", "--slots N")
        return count, requested
    if gpus:
        return gpus, "gpus"
    return (facts.local_count, "tasks") if facts.local_count else (1, "default")


def _binding(
    settings: Settings, facts: JobFacts, user_environ: Mapping[str, str], rank: int | None
) -> GpuBinding | None:
    """Return which GPUs a task is to see; its note is left to one task of a node, or of the job."""
    if settings.scope != "task" or facts.local_rank is None or (facts.local_count or 1) == 1:
        return None
    is_requested = settings.bind == "gpu"
    found = gpu_binding(user_environ, facts.local_rank, facts.local_count or 1, facts.gpus, is_requested=is_requested)
    shows_note = facts.local_rank == 1 and (is_requested or rank == 0)
    return found if shows_note else found._replace(note="")


def _pinned(
    settings: Settings, user_environ: Mapping[str, str], rank: int | None, replicas: int | None
) -> dict[str, str]:
    """Return the variables of the world that the user exported. Raises UsageError for an invalid value.

    NODE_RANK is included only if it contradicts the scheduler, so that the leader can report it to all members, and
    WORLD_SIZE not if it is the number of replicas, which a platform gave beside it.
    """
    pinned = {
        name: user_environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE") if user_environ.get(name)
    }
    if user_environ.get("NODE_RANK") and settings.rank is None:
        exported = _number(user_environ, "NODE_RANK", most=MOST_NODES - 1)
        pinned |= {"NODE_RANK": str(exported)} if exported != rank else {}
    for name, most in (("MASTER_PORT", 65535), ("WORLD_SIZE", 10**8 - 1)):
        if name in pinned:
            pinned[name] = str(_number(user_environ, name, least=1, most=most))
    if replicas is not None and pinned.get("WORLD_SIZE") == str(replicas):
        del pinned["WORLD_SIZE"]
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


# The checks before check-in.

# Linux's fs/exec.c and binfmt_script.c: the bytes read of a `#!` line, and the interpreters that may follow each other.
_HEAD_BYTES, _MOST_INTERPRETERS = 256, 5
_ELF = b"\x7fELF"
# The longest name and PATH in a message, in characters.
_LONGEST_NAME, _LONGEST_PATH = 100, 160
# Interpreters' options without a value. With any other option the script is uncertain.
_PYTHON_FLAGS, _PYTHON_WITH_VALUE = frozenset("bBdEiIOPqsSuvx"), ("-W", "-X")
_SHELL_FLAGS = frozenset("aefhkmnuvxBCEHPT")
# With one of these variables torchrun's first argument need not be a script.
_NO_SCRIPT = ("PET_MODULE", "PET_NO_PYTHON")
_Used = TypeVar("_Used")


class _InterpreterError(OSError):
    """A `#!` line names an interpreter that cannot be run."""


def obstacle_to(command: Sequence[str], spec: MemberSpec, *, verbatim: bool = False) -> Failure | None:
    """Return why this node cannot start the command, or None; without a command only stdout is checked."""
    launcher, end = (None, 0) if verbatim or not command else launchers.find(command)
    starts_for_all = launcher is not None and launcher.starts == "job"
    is_first = spec.nodes == 1 or spec.certain_rank == 0
    if starts_for_all and not is_first:
        return None  # rank 0 starts it for this node too
    if (failure := _output()) or not command:
        return failure
    failure = _directory() or _command(command, launcher, end, spec)
    return failure or (None if starts_for_all else _unwritable())


def check_runner() -> None:
    """Raise PlaceError if `mingle run` cannot show its command's output or has no working directory."""
    if failure := _output() or _directory():
        raise failure.error()


def _failure(kind: Kind, seen: str) -> Failure:
    return Failure(kind, (hostname(), seen))


def _output() -> Failure | None:
    """Return the failure of a stdout that is read-only: main() has replaced a closed one by a read-only /dev/null."""
    import fcntl

    is_read_only = fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR) == os.O_RDONLY
    return _failure("output", "a closed or read-only one") if is_read_only else None


def _directory() -> Failure | None:
    try:
        directory = os.getcwd()
    except OSError as error:
        return _failure("directory", f"the working directory: {error.strerror}")
    can_enter = os.access(".", os.X_OK, effective_ids=True)
    return None if can_enter else _failure("directory", f"{directory}: {os.strerror(errno.EACCES)}")


def _unwritable() -> Failure | None:
    """Return the failure of a working directory that cannot be written, as one that an I/O error made read-only."""
    if os.access(".", os.W_OK, effective_ids=True):
        return None
    is_read_only = os.statvfs(".").f_flag & os.ST_RDONLY
    seen = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
    return _failure("unwritable", f"{os.getcwd()}: {seen}")


def _command(command: Sequence[str], launcher: Launcher | None, end: int, spec: MemberSpec) -> Failure | None:
    """Check the program, and the script if an interpreter or a Python launcher is certain to run it."""
    environ = spec.user_environ
    path = environ.get("PATH", os.defpath)
    try:
        program = _found(command[0], path)
    except _InterpreterError as error:
        return _failure("permission", str(error))
    except OSError as error:
        return _refusal(command[0], error, "" if "/" in command[0] else f" (PATH={printable(path, _LONGEST_PATH)})")
    script, name, interpreter = None, os.path.basename(command[0]), os.path.basename(program)
    if launchers.prefix_length(command):
        return None
    if launcher is not None:
        if launcher.name == "deepspeed" and spec.nodes != 1 and (failure := _hostfile(launcher, command[end:])):
            return failure
        if _is_python(interpreter) and not any(map(environ.get, _NO_SCRIPT)):
            script = launchers.script_of(launcher, command[end:])
    elif _is_python(interpreter) and _is_python(name):
        script = _script_of(command[1:], _PYTHON_FLAGS, _PYTHON_WITH_VALUE)
    elif interpreter in launchers.SHELLS and name in launchers.SHELLS:
        script = _script_of(command[1:], _SHELL_FLAGS, signs=("-", "+"))
        if script is not None and "/" not in script and _is_along(path, script):
            return None
    return None if script is None else _unreadable(script)


def _hostfile(launcher: Launcher, arguments: Sequence[str]) -> Failure | None:
    """Return the failure of deepspeed's hostfile, without which it would train on rank 0's node alone."""
    options = launchers.parse_options(arguments, launcher.flags or ())
    file = options.get("-H") or options.get("--hostfile")
    return _unreadable(file) if file else None


def _is_along(path: str, script: str) -> bool:
    """Return whether a shell, which looks for a script in PATH too, finds it there."""
    return any(os.path.exists(f"{directory}/{script}") for directory in path.split(":") if path)


def _unreadable(script: str) -> Failure | None:
    """Return the failure of a script that is missing or unreadable."""
    try:
        os.stat(script)
        if not os.access(script, os.R_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        return _refusal(script, error, "" if script.startswith("/") else f" (in {os.getcwd()})")
    return None


def _refusal(name: str, error: OSError, where: str) -> Failure:
    """Return the failure for a file that cannot be found or run."""
    kind: Kind = "command" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else "permission"
    return _failure(kind, f"{printable(name, _LONGEST_NAME)}: {error.strerror}{where}")


def along_path(name: str, path: str, use: Callable[[str], _Used]) -> _Used:
    """Return what `use` makes of the first file of this name in PATH that it can use. Raises OSError as execvp(3)."""
    refusal = None
    for directory in [""] if "/" in name or not name else path.split(":"):
        try:
            return use(os.path.join(directory, name))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # another file of this name may be executable
            refusal = refusal or error
    raise refusal or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _found(name: str, path: str) -> str:
    """Return the program that runs: the file in PATH, or its `#!` interpreter. Raises OSError as execvp(3) fails."""
    return along_path(name, path, lambda file: _runs(file, path, 0))


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
        return read_bounded(file, _HEAD_BYTES)
    except OSError:
        return _ELF


def _is_python(name: str) -> bool:
    return name.startswith("python") and not name[len("python") :].strip("0123456789.")


def _script_of(
    arguments: Sequence[str], flags: frozenset[str], with_value: tuple[str, ...] = (), signs: tuple[str, ...] = ("-",)
) -> str | None:
    """Return the script that an interpreter with these arguments runs, or None if there is none or it is uncertain."""
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith(signs):
            return argument
        if argument in with_value:
            next(rest, None)
        elif argument == "-" or not flags.issuperset(argument[1:]):
            return None
    return None
