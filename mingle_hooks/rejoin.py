"""A member of an elastic world that is started again gets its place back while that world goes on.

Nobody else comes to `mingle` a second time, so its answer is saved on its own node, in a directory that only this
user can enter, under a name that only the key tells. It is used only by the same attempt (id, step, restarts),
for MOST_AGE_S at most, and only while somebody listens at the world's address and port: torchrun's agent of rank 0
does so to the end. Rank 0 itself gets nothing back, as the world ends with it.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from mingle_hooks import jsontext, runtime
from mingle_hooks.errors import ConflictError, PlaceError
from mingle_hooks.export.view import endpoint
from mingle_hooks.files import UnfitError, contents
from mingle_hooks.rendezvous.protocol import answer, wire
from mingle_hooks.rendezvous.protocol.attempt import Secret
from mingle_hooks.schedulers.facts import MOST_NODES
from mingle_hooks.values import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from mingle_hooks.job import MemberSpec
    from mingle_hooks.rendezvous.observer import Observer
    from mingle_hooks.rendezvous.protocol.answer import Answer
    from mingle_hooks.rendezvous.protocol.attempt import Material

MOST_AGE_S = 30 * 24 * 3600  # no job lasts longer
# Rank 0 answers within a round trip; a packet that is lost twice takes this long.
PROBE_S = 4.0
_PURPOSE = b"rejoin"


def with_memory(spec: MemberSpec, key: Material, observer: Observer, ask: Callable[[], Answer]) -> Answer:
    """Return the saved answer where its world goes on, else what `ask` returns, which is saved.

    Raises ConflictError where this member asks for another place than it has in that world.
    """
    secret = Secret.derive(key, spec.attempt)
    directory = runtime.path(spec.user_environ, spec.facts.job_id, secret.mac(_PURPOSE, spec.node.encode()).hex()[:16])
    found = saved(directory, secret, spec)
    if found is not None:
        where = endpoint(found["addr"], found["port"])
        observer.note(f"restarted: rank {found['rank']} of the running world at {where}")
        return found
    fresh = ask()
    if fresh["rank"]:
        try:
            save(directory, secret, fresh, spec.slots)
        except (PlaceError, OSError) as error:
            observer.note(f"this member could not rejoin after a restart: {error}")
    return fresh


def saved(directory: str, secret: Secret, spec: MemberSpec) -> Answer | None:
    """Return this member's answer in a world that goes on, None where there is none. Raises ConflictError."""
    told = spec.rank if spec.settings.order == "scheduler" else None
    ranks = [told] if told is not None else _ranks(directory)
    answers = {rank: body for rank in ranks if (body := _read(directory, rank, secret)) is not None}
    living = {rank: body for rank, body in answers.items() if _is_served(body["addr"], body["port"])}
    for rank in answers.keys() - living.keys():
        os.unlink(f"{directory}/{rank}")
    if len(living) > 1:
        ranks_here = ", ".join(str(rank) for rank in sorted(living))
        raise ConflictError("one member on this host", f"ranks {ranks_here} of a running world", "--rank R")
    for body in living.values():
        _check(body, spec)
        return body
    return None


def save(directory: str, secret: Secret, body: Answer, slots: int) -> None:
    """Write the answer of this member. Raises PlaceError and OSError."""
    runtime.make(directory)
    data = jsontext.dumps({**body, "slots": slots}).encode()
    draft = f"{directory}/{body['rank']}.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(secret.mac(_PURPOSE, data).hex().encode() + b"\n" + data)
    os.replace(draft, f"{directory}/{body['rank']}")


def _ranks(directory: str) -> list[int]:
    try:
        return [rank for name in os.listdir(directory) if (rank := number(name, most=MOST_NODES - 1)) is not None]
    except OSError:
        return []


def _read(directory: str, rank: int, secret: Secret) -> Answer | None:
    """Return a saved answer, None for one that is not there, too old, or not this attempt's."""
    path = f"{directory}/{rank}"
    if not runtime.is_private(directory):
        return None
    try:
        if time.time() - os.stat(path).st_mtime > MOST_AGE_S:
            return None
        data = contents(path, most_bytes=wire.MOST_LEADER_BYTES, refused_mode=0o077, owners=(os.getuid(),))
        mac, _, text = data.partition(b"\n")
        if not secret.agrees(bytes.fromhex(mac.decode()), _PURPOSE, text):
            return None
        body = jsontext.loads(text)
        return {**answer.parse(body), "slots": wire.integer(body, "slots", 1, 1 << 16)}
    except (OSError, UnfitError, ValueError, wire.WireError):
        return None


def _is_served(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), PROBE_S).close()
    except OSError:
        return False
    return True


def _check(body: Answer, spec: MemberSpec) -> None:
    """Refuse what contradicts the world that goes on."""
    pinned = spec.pinned
    pairs = (
        ("nodes", body["nodes"], spec.nodes),
        ("slots on this node", body["slots"], spec.slots),
        ("as MASTER_ADDR", body["addr"], pinned.get("MASTER_ADDR")),
        ("as MASTER_PORT", str(body["port"]), pinned.get("MASTER_PORT")),
        ("as WORLD_SIZE", str(body["size"]), pinned.get("WORLD_SIZE")),
    )
    for what, known, asked in pairs:
        if asked not in (None, known):
            remedy = "the same value as before, another --id, or ending that world first"
            raise ConflictError(f"{known} {what}, as in the running world", f"{asked}", remedy)
