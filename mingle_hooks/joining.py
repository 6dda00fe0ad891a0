"""`join`: from a MemberSpec to this member's view of the world; and the key that this takes."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from mingle_hooks import files, values
from mingle_hooks.errors import ConflictError, NetworkError, PlaceError, SecretError, UsageError
from mingle_hooks.export.frameworks import needs
from mingle_hooks.export.hostfiles import Addresses
from mingle_hooks.export.launchers import everywhere, here, is_first_host
from mingle_hooks.files import MOUNTS, RUN_ROOT, UnusableFileError, config_directory, contents, network_type, write_new
from mingle_hooks.net import addresses
from mingle_hooks.net.addresses import HOST_CHARACTERS, LOOPBACK, hostname, interface_of, is_loopback, machine_id
from mingle_hooks.net.devices import active_rdma_ports, has_accelerator
from mingle_hooks.rendezvous import messages, wire
from mingle_hooks.rendezvous.connection import RESOLVE_S, resolve
from mingle_hooks.rendezvous.local_tasks import LocalPeers, directory_names, follow_first_task, serve_local_tasks
from mingle_hooks.rendezvous.member import MemberSpec, Observer, Request
from mingle_hooks.rendezvous.messages import (
    Answer,
    Assignment,
    Batch,
    Failure,
    Member,
    View,
    World,
    endpoint,
    process_age_s,
)
from mingle_hooks.rendezvous.wire import MASTER_PORTS, Material, Secret
from mingle_hooks.schedulers.facts import MOST_NODES, JobFacts
from mingle_hooks.settings import Settings
from mingle_hooks.values import number

# Time for name servers to resolve a whole roster, in seconds; the hosts left are listed by address.
NAMES_S = 2.0


def join(
    spec: MemberSpec,
    observer: Observer,
    *,
    no_wait: bool = False,
    wants_roster: bool = False,
    command: tuple[str, ...] | None = (),
    obstacle: Failure | None = None,
    held: list[socket.socket] | None = None,
) -> View:
    """Join the world and return this member's view of it; a single member, or --no-wait, needs no network.

    The roster is included if a framework or the caller needs it and there are other members. `command` is the command
    that this process becomes, () if it is unknown; with None nodes are not compared. With an `obstacle` all members
    fail with that error. `held` receives the sockets that reserve MASTER_PORT until the caller closes them or becomes
    the command; without it the port is released.
    Raises UsageError, SecretError and PlaceError, and with the others MissingError, NetworkError and ConflictError.
    """
    for name in spec.settings.left_out:
        observer.note(f"ignored {name}, which only a later version of mingle knows")
    if spec.binding and spec.binding.note:
        observer.note(spec.binding.note)
    is_one = spec.nodes == 1
    if (is_one or no_wait) and "NODE_RANK" in spec.pinned:  # else the leader reports it to all
        exported = f"NODE_RANK={spec.pinned['NODE_RANK']}, as exported"
        raise UsageError(f"node rank {spec.rank}, as {spec.facts.scheduler} says", exported, "unset NODE_RANK")
    if no_wait and not is_one and spec.settings.order != "scheduler" and not spec.facts.is_batch:
        raise UsageError("members that contact each other, for --order", "--no-wait", "leaving out one of them")
    is_offline = (no_wait or spec.facts.is_batch) if not is_one else not spec.is_shared
    certain = obstacle if obstacle is not None and obstacle.is_certain else None
    if is_offline:
        if certain is not None:
            raise certain.error()
        if is_one:
            return _view(spec, single_member_answer(spec, held))
        if spec.facts.is_batch:
            observer.note(_batch_shell_note(spec))
        return view_without_waiting(spec, held)
    wants_roster = wants_roster or "roster" in needs(spec.settings.frameworks)
    key, timeout_s = find_key(spec.facts, spec.settings, spec.user_environ), spec.settings.timeout
    request = Request(spec, key.material, hostname(), machine_id(), timeout_s, key.source, wants_roster)
    view = _view(spec, _answer(request._replace(obstacle=obstacle, held=held), observer, command))
    if certain is not None:  # it rejoined a running world
        raise certain.error()
    return view


def _batch_shell_note(spec: MemberSpec) -> str:
    """Return the note for a batch shell: commands started here run on one node."""
    where, line = here(spec.facts), everywhere(spec.facts, ("torchrun", "train.py"))
    alone = "a program that reads neither RANK nor torchrun's variables would train alone here"
    return f"this shell runs on {where} only, so NODE_RANK is not set and {alone}; to train on all nodes, try {line}"


def _answer(request: Request, observer: Observer, command: tuple[str, ...] | None) -> Answer:
    """Return the rendezvous's answer, or that of this node's first task if several tasks share it."""
    from mingle_hooks.rendezvous.rendezvous import meet

    spec, settings, facts = request.spec, request.spec.settings, request.spec.facts
    if settings.insecure:
        observer.note("--insecure: anyone on this network can join or break this world")

    files.record_process(facts.job_id)

    def ask(timeout_s: float, local_peers: LocalPeers | None = None) -> Answer:
        failure = request.obstacle
        if local_peers is not None and (failure is None or not failure.is_certain):
            failure = local_peers.obstacle or failure
        if spec.nodes == 1:
            if failure is not None and failure.is_certain:
                raise failure.error()
            return single_member_answer(spec, request.held)
        node_facts = None if command is None else _fingerprint_reader(spec, command)
        mine = request._replace(timeout_s=timeout_s, age_s=process_age_s(), obstacle=failure, local_peers=local_peers)
        return meet(mine._replace(node_facts=node_facts), observer)

    if not spec.is_shared or facts.local_rank is None or facts.local_count is None:
        if "memory" in needs(settings.frameworks):
            return rejoin_or_join(spec, request.key, observer, lambda: ask(settings.timeout))
        return ask(settings.timeout)
    secret = Secret.derive(request.key, spec.attempt)
    directories = [
        files.private_path(spec.user_environ, facts.job_id, name) for name in directory_names(secret, spec.node)
    ]
    if facts.local_rank:
        return follow_first_task(directories, facts.local_rank, settings.timeout, request.obstacle)
    return serve_local_tasks(directories, request.host, facts.local_count, settings.timeout, ask)


def _fingerprint_reader(spec: MemberSpec, command: tuple[str, ...]) -> Callable[[], tuple[str, str]]:
    """Return a function that returns this node's fingerprint and addresses, for the leader to compare."""
    from mingle_hooks.rendezvous.fingerprint import FingerprintRequest, fingerprint, own_limits

    own = own_limits()  # now, as a leader raises its limits

    def read() -> tuple[str, str]:
        try:
            directory = os.getcwd()
        except OSError:  # it has been removed
            directory = "/"
        return fingerprint(FingerprintRequest(spec.user_environ, command, directory, limits=own))

    return read


def _view(spec: MemberSpec, answer: Answer) -> View:
    facts, settings = spec.facts, spec.settings
    roster = tuple(Member(*row) for row in answer.get("roster", ()))
    master = answer["addr"], answer["port"]
    world = World(spec.attempt.id, answer["nodes"], answer["size"], *master, answer["digest"], roster)
    place = Assignment(answer["rank"], spec.slots, answer["offset"], address=answer["own"])
    if settings.scope == "task" and facts.local_rank is not None:
        rank = facts.task_rank if facts.task_rank is not None else answer["offset"] + facts.local_rank
        place = place._replace(local_rank=facts.local_rank, rank=rank)
    return _with_network(spec, world, place)._replace(durations_ms=tuple(answer.get("spent", ())))


def _bare_view(spec: MemberSpec, world: World, place: Assignment) -> View:
    settings, bound = spec.settings, spec.binding.variables if spec.binding else {}
    return View(world, place, settings.scope, spec.user_environ, frameworks=settings.frameworks, gpu_variables=bound)


def _with_network(spec: MemberSpec, world: World, place: Assignment) -> View:
    """Return the view with the interface, the RDMA ports and whatever else a framework needs."""
    needed, view = needs(spec.settings.frameworks), _bare_view(spec, world, place)
    if "names" in needed and world.nodes != 1:
        if spec.facts.hosts:  # a scheduler reaches its hosts by its own names
            view = view._replace(has_known_name=bool(resolvable([hostname()])))
        else:
            view = view._replace(world=world._replace(roster=reachable(world.roster)))
    if "iface" in needed and place.address is not None:
        view = view._replace(place=place._replace(iface=interface_of(place.address)))
    if "hcas" in needed:
        view = view._replace(hcas=active_rdma_ports())
    if "site" in needed:
        view = view._replace(site=addresses.nccl_settings(spec.user_environ))
    if "cpu_only" in needed:
        view = view._replace(is_cpu_only=not has_accelerator(spec.user_environ))
    return view


def reachable(roster: tuple[Member, ...]) -> tuple[Member, ...]:
    """Return the roster with the IPv4 address in place of each host name that this node cannot resolve.

    Launchers reach the other nodes by these names. A host with an IPv6 address keeps its name, as a colon ends a host
    in some of their files.
    """
    known = resolvable([member.host for member in roster])
    return tuple(m if m.host in known or ":" in m.address else m._replace(host=m.address) for m in roster)


def resolvable(hosts: Sequence[str], timeout_s: float = NAMES_S) -> set[str]:
    """Return the names that resolve to another address than loopback, such as the 127.0.1.1 of Debian's installer."""
    deadline, found = time.monotonic() + timeout_s, set()
    for host in dict.fromkeys(hosts):
        left_s = deadline - time.monotonic()
        try:
            if left_s > 0 and not all(map(is_loopback, resolve(host, left_s))):
                found.add(host)
        except (OSError, NetworkError):  # no descriptor or thread: the world has formed, so this member does not fail
            break
    return found


# The key of this member: the first that applies. It is never sent and appears in no message.
#
# 1. the given key: `--key-file`, else MINGLE_KEY, else the key file of the variable or the settings;
# 2. the key that root's hook created for this job, /run/mingle/JOB/key;
# 3. the key file in the home, ~/.config/mingle/key, created on first use if all nodes share the home.
#
# Keys are not stretched, and an attacker who receives a beacon or a connection can test guesses offline. So a key is 32
# random bytes, as `mingle key` prints them. Scheduler variables are too weak: PBS_JOBCOOKIE is four random() calls
# after srand(time()), which takes less than a second to guess.

# The public key of --insecure: the handshake stays the same and proves nothing.
PUBLIC_KEY = Material(b"mingle-hooks --insecure: anybody may join")
_KEY_BYTES = 32  # of randomness in a fresh key, as many as HMAC-SHA-256 puts out; no key may have fewer
_LONGEST_KEY = 4096  # bytes of a key file
_HEX = b"0123456789ABCDEFabcdef"
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_MOST_PADDING = 2  # of base64: "=" signs at its end
# A key has at least this many different characters, as 64 random hex digits have; "a" typed 64 times is no key.
_DIFFERENT = 6
# As in the Prolog, which creates no directory for other job ids.
_JOB_CHARACTERS = HOST_CHARACTERS + "[]"
_LONGEST_JOB_ID = 255
_ASK = "asking the cluster's administrator, or --key-file FILE"


class Key(NamedTuple):
    """Key material, and its source for --explain."""

    material: Material
    source: str


def fresh_key() -> str:
    """Return a new key: 64 hex digits."""
    return os.urandom(_KEY_BYTES).hex()


def find_key(
    facts: JobFacts, settings: Settings, environ: Mapping[str, str], run_root: str = RUN_ROOT, mountinfo: str = MOUNTS
) -> Key:
    """Return the key of this call. Raises SecretError if a key is unfit, or none applies."""
    if settings.insecure:
        return Key(PUBLIC_KEY, "--insecure: a public key")
    directory, job = config_directory(environ), f"{run_root}/{facts.job_id}"
    if found := _pinned(settings, environ) or _of_job(facts.job_id, run_root):
        return found
    hooks = f", while {job} has no key from the site's hooks" if facts.job_id and os.path.isdir(job) else ""
    if found := _of_home(facts, directory, mountinfo):
        return found._replace(source=found.source + hooks)
    path = f"{directory or '~/.config/mingle'}/key"
    raise SecretError("a key that all members share", f"none given, and no file {path}{hooks}", _key_remedy(path))


def held_keys(
    facts: JobFacts,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    is_new: bool = False,
    run_root: str = RUN_ROOT,
    mountinfo: str = MOUNTS,
) -> tuple[Key, ...]:
    """Return all keys that this user has here: the given one alone, else those of the job and the home.

    With `is_new` the one in the home is created where find_key() would create it. The public key is never included.
    Raises SecretError if a key is unfit.
    """
    pinned = _pinned(settings, environ)
    if pinned is not None:
        return (pinned,)
    directory = config_directory(environ)
    of_home = _key_in(f"{directory}/key") if directory else None
    if of_home is None and is_new:
        try:
            of_home = _of_home(facts, directory, mountinfo)
        except SecretError:  # a home that cannot be written to
            pass
    return tuple(key for key in (_of_job(facts.job_id, run_root), of_home) if key is not None)


def _pinned(settings: Settings, environ: Mapping[str, str]) -> Key | None:
    by_option = settings.source("key_file").startswith("--")
    if "MINGLE_KEY" in environ and not by_option:
        return _key(environ["MINGLE_KEY"].encode(errors="surrogateescape"), "MINGLE_KEY")
    if settings.key_file is None:
        return None
    if (key := _key_in(settings.key_file)) is None:
        seen = f"no {settings.key_file} ({settings.source('key_file')})"
        raise SecretError("a key file", seen, _key_remedy(settings.key_file))
    return key


def _of_job(job_id: str | None, run_root: str) -> Key | None:
    """Return the key in the job's directory, which root created and gave to the job's user."""
    if not job_id or len(job_id) > _LONGEST_JOB_ID or job_id.strip(_JOB_CHARACTERS) or job_id[0] in ".-]":
        return None
    path = f"{run_root}/{job_id}"
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # no Prolog of ours on this cluster
        return None
    except OSError as wrong:
        raise _unreadable_key(path, wrong, _ASK) from None
    try:
        found = os.fstat(directory)
        if found.st_uid not in (0, os.getuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            seen = f"{path} owned by uid {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}"
            raise SecretError("a job directory that only root or this user can write to", seen, _ASK)
        return _key_in(f"{path}/key", within=directory)
    finally:
        os.close(directory)


def _of_home(facts: JobFacts, directory: str | None, mountinfo: str) -> Key | None:
    """Return the key in the home, which is created if there is none and all nodes share the home."""
    if directory is None:
        return None
    key = _key_in(f"{directory}/key")
    if key is None and (facts.shares_homes or network_type(directory, mountinfo)):
        _make_key(directory)
        key = _key_in(f"{directory}/key")
    return key


def _key_remedy(path: str) -> str:
    make = f"`umask 077; mkdir -p {os.path.dirname(path)} && mingle key > {path}`"
    return f"{make} on one machine, then copying that file to the others; or MINGLE_KEY, or --insecure"


def _make_key(directory: str) -> None:
    """Create DIRECTORY/key atomically, even if other nodes do so at the same moment.

    Each writes its own file and link(2)s it into place, which fails for all but the first. On NFS it may fail for the
    first too, if the reply is lost: so the caller ignores the result and reads the file.
    """
    temporary = f"{directory}/.key.{os.urandom(8).hex()}"
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        write_new(temporary, f"{fresh_key()}\n".encode())
        try:
            os.link(temporary, f"{directory}/key")
        finally:
            os.unlink(temporary)
    except FileExistsError:
        return  # another node was faster
    except OSError as wrong:
        raise SecretError(
            f"to create a key in {directory}", f"{wrong.strerror}", _key_remedy(f"{directory}/key")
        ) from None


def _key_in(path: str, *, within: int | None = None) -> Key | None:
    """Return the key in a private file, or None if there is no such file.

    A symbolic link is followed except in the job's directory, as dotfiles often are links: the owner of the file itself
    is checked.
    """
    try:
        data = contents(path, most_bytes=_LONGEST_KEY, refused_mode=0o077, owners=(0, os.getuid()), within=within)
    except FileNotFoundError:
        return None
    except UnusableFileError as wrong:
        raise SecretError(f"a private key: {wrong.expected}", wrong.seen, wrong.remedy) from None
    except OSError as wrong:
        raise _unreadable_key(path, wrong, f"chown {os.getuid()} and chmod 600 {path}") from None
    return _key(data, path)


def _key(data: bytes, source: str) -> Key:
    """Return a key, without white space around it. Raises SecretError for a typed phrase."""
    text = data.strip()
    if len(data) <= _LONGEST_KEY and _is_random(text):
        return Key(Material(text), source)
    is_text = data.decode(errors="ignore").encode() == data  # in any language: random bytes are almost never UTF-8
    if _KEY_BYTES <= len(data) <= _LONGEST_KEY and not is_text:
        return Key(Material(data), source)
    expected = f"a key of at least {_KEY_BYTES} random bytes, in hexadecimal or base64"
    raise SecretError(expected, f"{len(text)} characters in {source} that are not a key", "`mingle key` to make one")


def _is_random(text: bytes) -> bool:
    """Return whether this encodes enough bytes in hex or base64; a phrase has spaces, or letters of one case."""
    if len(set(text)) < _DIFFERENT:
        return False
    if len(text) >= 2 * _KEY_BYTES and not text.strip(_HEX):
        return True
    digits = text.rstrip(b"=")
    is_base64 = not digits.strip(_BASE64) and len(text) - len(digits) <= _MOST_PADDING
    return is_base64 and 6 * len(digits) >= 8 * _KEY_BYTES and not text.islower() and not text.isupper()


def _unreadable_key(path: str, wrong: OSError, remedy: str) -> SecretError:
    return SecretError("a key that can be read", f"{path}: {wrong.strerror}", remedy)


# Worlds without a network: one member, --no-wait, or a batch script.


def single_member_answer(spec: MemberSpec, held: list[socket.socket] | None) -> Answer:
    """Return the answer for a world of one member: loopback, and a free port that `held` reserves.

    Raises UsageError, and NetworkError if no port is free.
    """
    size, pinned = str(spec.slots), spec.pinned.get("WORLD_SIZE")
    if pinned not in (None, size):
        raise UsageError(f"WORLD_SIZE={pinned}, as exported", f"{size} slots", "unset WORLD_SIZE, or --slots N")
    address = spec.pinned.get("MASTER_ADDR", LOOPBACK)
    port = _named_port(spec) or _reserved_port(spec, LOOPBACK, os.urandom(16), held)
    return {
        "nodes": 1,
        "size": spec.slots,
        "addr": address,
        "port": port,
        "digest": _digest(spec, 1, spec.slots, address, port, os.urandom(16)),
        "rank": 0,
        "offset": 0,
        "own": LOOPBACK,
        "roster": [[0, "localhost", LOOPBACK, spec.slots]],
    }


def view_without_waiting(spec: MemberSpec, held: list[socket.socket] | None) -> View:
    """Return the view that this process can compute alone, for --no-wait and for a batch script of several nodes.

    A batch script runs on rank 0's host: there the address is this host's own and the port has been tried.
    Elsewhere, as in salloc's shell on a login node, both follow from the job and the key, alike on every node. A value
    that may differ between nodes is None. Raises UsageError, SecretError for an unfit key, and NetworkError if there
    is no address or port.
    """
    facts = spec.facts
    address, port = _master(spec, held)
    slots, size = _same_everywhere(spec)
    digest = _digest(spec, spec.nodes, size, address, port)
    world = World(spec.attempt.id, spec.nodes, size, address, port, digest)
    if not facts.is_batch:
        place = Assignment(spec.rank, spec.slots, rank_offset=None)
        if spec.settings.scope == "task":
            place = place._replace(local_rank=facts.local_rank, rank=facts.task_rank)
        return _bare_view(spec, world, place)
    can_reach_here, can_meet = _reachable_by_name(facts)
    iface = None if can_reach_here else interface_of(address)
    place = Assignment(None, slots, rank_offset=None, iface=iface, local_rank=_local_rank_of_all(spec))
    counted = "gpu" if spec.slots_from == "gpus" else ""  # torchrun counts them on each node
    batch = Batch(max(1, int(spec.settings.timeout)), counted if slots is None else str(slots))
    return _bare_view(spec, world, place)._replace(batch=batch if can_meet else None)


def _local_rank_of_all(spec: MemberSpec) -> int | None:
    """Return the local rank of every task of the job, or None if they have several.

    Without LOCAL_RANK a script for accelerate or transformers trains alone; with it the script needs RANK, and fails
    at once. With LOCAL_RANK Lightning does not start its node's processes, so it gets none.
    """
    is_one = set(spec.facts.tasks_per_node) <= {1} and "lightning" not in spec.settings.frameworks
    return 0 if is_one else None


def _reachable_by_name(facts: JobFacts) -> tuple[bool, bool]:
    """Return whether the other nodes can reach this host by its name, and whether torchruns can reach each other.

    Gloo binds to the address of its host's name: if that is loopback on the first node, all nodes get that node's
    interface, without which Gloo would fail. A torchrun announces its host's full name only. One other host is
    checked for all, as the same service resolves their names. A host that resolves to 127.0.0.1 may announce
    localhost; with Debian's 127.0.1.1 it announces its own name.
    """
    own = resolve(here(facts), RESOLVE_S) if is_first_host(facts) else []
    can_reach_here = not is_first_host(facts) or not all(map(is_loopback, own))
    if {"127.0.0.1", "::1"}.intersection(own):
        return can_reach_here, False
    found = resolve(facts.hosts[-1], RESOLVE_S) if facts.hosts else []
    return can_reach_here, bool(found) and not any(map(is_loopback, found))


def _digest(spec: MemberSpec, *shared: object) -> str:
    return sha256(repr((spec.attempt.name, *shared)).encode()).hexdigest()[:16]


def _named_port(spec: MemberSpec) -> int | None:
    if "MASTER_PORT" in spec.pinned:
        return int(spec.pinned["MASTER_PORT"])
    return spec.settings.master[1] if spec.settings.master is not None else None


def _named_address(spec: MemberSpec) -> str:
    if "MASTER_ADDR" in spec.pinned:
        return spec.pinned["MASTER_ADDR"]
    if spec.settings.master is not None:
        return spec.settings.master[0]
    if not spec.facts.leader_hosts:
        remedy = "--master HOST, MASTER_ADDR, or leaving out --no-wait"
        raise UsageError("rank 0's host from the scheduler, for --no-wait", f"none ({spec.facts.scheduler})", remedy)
    return spec.facts.leader_hosts[0] + spec.settings.host_suffix


def _master(spec: MemberSpec, held: list[socket.socket] | None) -> tuple[str, int]:
    facts, port = spec.facts, _named_port(spec)
    is_named = "MASTER_ADDR" in spec.pinned or spec.settings.master is not None
    if is_named or not facts.is_batch or not is_first_host(facts):
        return _named_address(spec), port or addresses.candidates(_seed(spec), 1, spec.settings.port_range)[0]
    best = addresses.usable(addresses.interfaces(), prefer=spec.settings.iface, environ=spec.user_environ)[0].host
    return best, port or _reserved_port(spec, best, _seed(spec), held)


def _seed(spec: MemberSpec) -> bytes:
    """Return the seed of the port: from the members' key, so that others cannot predict it, else from the id alone."""
    found = () if spec.settings.insecure else held_keys(spec.facts, spec.settings, spec.user_environ)
    return Secret.derive(found[0].material if found else PUBLIC_KEY, spec.attempt).master_seed


def _reserved_port(spec: MemberSpec, address: str, seed: bytes, held: list[socket.socket] | None) -> int:
    port_range = spec.settings.port_range
    listener = addresses.listen(address, addresses.candidates(seed, MASTER_PORTS, port_range), port_range)
    try:
        port: int = listener.getsockname()[1]
        (addresses.keep if spec.settings.port_hold else addresses.hold)(listener)
    except BaseException:
        listener.close()
        raise
    if held is None:
        listener.close()
    else:
        held.append(listener)
    return port


def _same_everywhere(spec: MemberSpec) -> tuple[int | None, int | None]:
    """Return slots per node and in total, each None unless it is certain to be the same on all nodes."""
    facts, nodes = spec.facts, spec.nodes
    pinned = spec.pinned.get("WORLD_SIZE")
    tasks = facts.tasks_per_node
    if spec.slots_from in ("--slots", "LOCAL_WORLD_SIZE"):
        return spec.slots, int(pinned) if pinned else spec.slots * nodes if nodes else None
    if spec.slots_from == "tasks" and len(tasks) == nodes:
        return tasks[0] if len(set(tasks)) == 1 else None, sum(tasks)
    return None, int(pinned) if pinned else None


# A member of an elastic world that is restarted gets its rank back while that world runs.
#
# The other members do not rendezvous again, so the answer is saved on the member's own node, in a private directory
# with a name derived from the key. It is used by the same attempt (id, step, restarts) only, for MOST_AGE_S at most,
# and only while there is a listener at the world's address and port, as torchrun's agent of rank 0 has to the end. A
# leader of mingle there gathers the next world, as another run of the same id has the same port.
# Rank 0 saves no answer, as the world ends with it.

MOST_AGE_S = 30 * 24 * 3600  # seconds; jobs are shorter
# Rank 0 answers within a round trip; TCP needs this many seconds if two packets are lost.
PROBE_S = 4.0
# A leader answers HELLO at once, and a framework's store closes the connection; another program may say nothing.
HELLO_S = 1.0
_PURPOSE = b"rejoin"


def rejoin_or_join(spec: MemberSpec, key: Material, observer: Observer, ask: Callable[[], Answer]) -> Answer:
    """Return the saved answer if its world is still running, else the result of `ask`, which is saved.

    Raises ConflictError if this member's settings contradict the running world.
    """
    secret = Secret.derive(key, spec.attempt)
    directory = files.private_path(
        spec.user_environ, spec.facts.job_id, secret.mac(_PURPOSE, spec.node.encode()).hex()[:16]
    )
    found = saved_answer(directory, secret, spec)
    if found is not None:
        where = endpoint(found["addr"], found["port"])
        observer.note(f"restarted: rank {found['rank']} of the running world at {where}")
        return found
    fresh = ask()
    if fresh["rank"]:
        try:
            save_answer(directory, secret, fresh, spec.slots)
        except (PlaceError, OSError) as error:
            observer.note(f"this member could not rejoin after a restart: {error}")
    return fresh


def saved_answer(directory: str, secret: Secret, spec: MemberSpec) -> Answer | None:
    """Return this member's answer in a running world, or None. Raises ConflictError."""
    own_rank = spec.certain_rank
    saved = [number(name, most=MOST_NODES - 1) for name in addresses.list_entries(directory)]
    ranks = [rank for rank in (saved if own_rank is None else [own_rank]) if rank is not None]
    answers = {rank: body for rank in ranks if (body := _read(directory, rank, secret)) is not None}
    # The members of this host are probably of one world: each endpoint is probed once, as that may take seconds.
    endpoints = {(body["addr"], body["port"]) for body in answers.values()}
    served = {place for place in endpoints if _is_served(*place, secret, spec)}
    living = {rank: body for rank, body in answers.items() if (body["addr"], body["port"]) in served}
    for rank in answers.keys() - living.keys():
        with suppress(FileNotFoundError):  # another member of this host that starts again
            os.unlink(f"{directory}/{rank}")
    if len(living) > 1:
        ranks_here = ", ".join(str(rank) for rank in sorted(living))
        raise ConflictError("one member on this host", f"ranks {ranks_here} of a running world", "--rank R")
    for body in living.values():
        _check(body, spec)
        return body
    return None


def save_answer(directory: str, secret: Secret, body: Answer, slots: int) -> None:
    """Write the answer of this member. Raises PlaceError and OSError."""
    files.make_private(directory)
    data = values.to_json({**body, "slots": slots}).encode()
    draft = f"{directory}/{body['rank']}.{os.urandom(8).hex()}"
    write_new(draft, secret.mac(_PURPOSE, data).hex().encode() + b"\n" + data)
    os.replace(draft, f"{directory}/{body['rank']}")


def _read(directory: str, rank: int, secret: Secret) -> Answer | None:
    """Return a saved answer, or None if it is missing, too old, or not of this attempt."""
    path = f"{directory}/{rank}"
    if not files.is_private(directory):
        return None
    try:
        if time.time() - os.stat(path).st_mtime > MOST_AGE_S:
            return None
        data = contents(path, most_bytes=wire.MOST_LEADER_BYTES, refused_mode=0o077, owners=(os.getuid(),))
        mac, _, text = data.partition(b"\n")
        if not secret.agrees(bytes.fromhex(mac.decode()), _PURPOSE, text):
            return None
        body = values.from_json(text)
        return {**messages.parse_answer(body), "slots": wire.integer(body, "slots", 1, 1 << 16)}
    except (OSError, UnusableFileError, ValueError, wire.WireError):
        return None


def _is_served(address: str, port: int, secret: Secret, spec: MemberSpec) -> bool:
    """Return whether a program listens there that is no leader of mingle."""
    for host in resolve(address, RESOLVE_S):
        with suppress(OSError):
            sock = socket.create_connection((host, port), PROBE_S)
            break
    else:
        return False
    with sock:
        try:
            sock.settimeout(HELLO_S)
            at, nonce = wire.dialled(*sock.getpeername()[:2]), os.urandom(wire.NONCE_BYTES)
            sock.sendall(wire.hello(secret, spec.attempt.tag.hex(), nonce, hostname(), at))
            sock.shutdown(socket.SHUT_WR)  # without it torchrun's store would wait for more
            answer = sock.recv(wire.HEADER.size)
        except OSError:
            return True
    return len(answer) < wire.HEADER.size or wire.HEADER.unpack(answer)[1] not in (wire.CHALLENGE, wire.REFUSED)


def _check(body: Answer, spec: MemberSpec) -> None:
    """Raise ConflictError if the spec contradicts the running world."""
    pinned = spec.pinned
    pairs = (
        ("nodes", body["nodes"], spec.nodes),
        ("slots on this node", body["slots"], spec.slots),
        ("as MASTER_ADDR", body["addr"], pinned.get("MASTER_ADDR")),
        ("as MASTER_PORT", str(body["port"]), pinned.get("MASTER_PORT")),
        ("as WORLD_SIZE", str(body["size"]), pinned.get("WORLD_SIZE")),
    )
    for name, known, requested in pairs:
        if requested not in (None, known):
            remedy = "the same value as before, another --id, or ending that world first"
            raise ConflictError(f"{known} {name}, as in the running world", f"{requested}", remedy)


# The members of the world, for programs that take a list of hosts.


def named_members(hosts: Sequence[str], settings: Settings) -> tuple[Member, ...]:
    """Return the members for hosts of --hosts, each with --slots slots, by default one. Raises UsageError."""
    if settings.nodes not in (None, len(hosts)):
        raise UsageError(f"{len(hosts)} nodes, as in --hosts", f"--nodes {settings.nodes}", "only one of the two")
    slots = settings.slots if settings.slots is not None else 1
    if not isinstance(slots, int):
        raise UsageError("--slots N with --hosts", f"--slots {slots}, which each host counts for itself", "a number")
    return tuple(Member(rank, host, "", slots) for rank, host in enumerate(hosts))


class Listing(NamedTuple):
    """The members of a world in rank order, and the same members under their own host names."""

    members: tuple[Member, ...]
    by_own_names: tuple[Member, ...] = ()


def members_of(spec: MemberSpec, observer: Observer, addresses: Addresses) -> Listing:
    """Return the members of this job's world, by the scheduler's host names if it has them.

    No rendezvous takes place if the scheduler knows everything; addresses are then empty. Raises UsageError in a batch
    shell that would need a rendezvous, and what join() raises.
    """
    known, is_batch = _members_of_scheduler(spec), spec.facts.is_batch
    if known and (spec.nodes == 1 or addresses == "unused" or (is_batch and addresses == "shown")):
        return Listing(known)
    if is_batch and known:
        on_every_node = f"{spec.facts.on_every_node} " if spec.facts.on_every_node else ""
        remedy = f"`{on_every_node}mingle hosts` on every host"
        raise UsageError("an address from every host", "a shell that runs on one host only", remedy)
    if is_batch:
        seen, remedy = f"{spec.slots} here ({spec.slots_from})", "--slots N, if all hosts have the same number"
        raise UsageError("the slots of every host from the scheduler", seen, remedy)
    roster = join(spec, observer, wants_roster=True, command=None).world.roster
    hosts = _scheduler_hosts(spec)
    return Listing(tuple(row._replace(host=hosts[row.node_rank]) for row in roster) if hosts else roster, roster)


def _members_of_scheduler(spec: MemberSpec) -> tuple[Member, ...]:
    """Return the members if the scheduler knows all hosts and slots, else ()."""
    hosts, facts = _scheduler_hosts(spec), spec.facts
    if spec.nodes == 1:
        return (Member(0, hosts[0] if hosts else hostname(), "", spec.slots),)
    if spec.slots_from in ("--slots", "LOCAL_WORLD_SIZE"):
        slots = (spec.slots,) * len(hosts)
    elif spec.slots_from == "tasks" and (not facts.is_batch or is_first_host(facts)):  # on a node, not a login node
        slots = facts.tasks_per_node
    else:
        slots = ()
    if len(slots) != len(hosts):
        return ()
    return tuple(Member(rank, host, "", slots[rank]) for rank, host in enumerate(hosts))


def _scheduler_hosts(spec: MemberSpec) -> tuple[str, ...]:
    """Return the scheduler's host names in rank order, or () if there are none or the ranks differ from its own."""
    has_scheduler_ranks = spec.rank == spec.facts.node_rank and spec.settings.order == "scheduler"
    return spec.hosts if has_scheduler_ranks else ()
