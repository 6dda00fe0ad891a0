"""How the stand-ins of launchers.py meet: rank 0 listens, and all connect, rank 0 too, as with torch's store.

Each member writes a line of JSON to $PROOF_PLACE/lines: its job, host, program, rank, size, address, port and outcome,
which is `formed` (with all members), `alone`, `twice` (a rank is taken twice), `clash`, `hang`, `stopped` (by a signal,
while it waited), `error` or `failed`.
With $PROOF_JOBS=2 the one that listens goes on until another job has tried. On the host $PROOF_FAILS a member fails
before it meets anybody.
"""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False  # typing would take longer than all else here
if TYPE_CHECKING:
    from typing import Any, ClassVar, NoReturn

DEADLINE_S = float(os.environ.get("PROOF_DEADLINE_S", "8"))
AGAIN_S, SETTLE_S, LAST_CALL_S, HELLO_BYTES = 0.1, 0.5, 1.0, 4096
IS_BESIDE_ANOTHER = os.environ.get("PROOF_JOBS", "1") != "1"
PLACE, JOB = os.environ.get("PROOF_PLACE", "."), os.environ.get("PROOF_JOB", "")
HOST = os.environ.get("SLURMD_NODENAME") or os.environ.get("PROOF_HOST") or socket.gethostname()
NAME = os.path.basename(sys.argv[0])
BEGAN = time.monotonic()


def tell(outcome: str, **more: Any) -> NoReturn:
    """Write this member's line and end, with 0 where a world formed."""
    line = json.dumps({"job": JOB, "host": HOST, "program": NAME, "outcome": outcome, **more})
    with open(f"{PLACE}/lines", "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    print(line, file=sys.stderr, flush=True)
    Store.outlive()
    sys.exit(outcome not in ("formed", "alone"))


def left_s() -> float:
    """Return the seconds until the deadline."""
    return DEADLINE_S - (time.monotonic() - BEGAN)


class Store:
    """What rank 0 listens with: answers all members of a group once it is whole, and nobody of another job."""

    one: ClassVar[Store | None] = None

    def __init__(self, port: int, least: int, most: int) -> None:
        self.most, self.groups, self.lock, Store.one = most, {}, threading.Lock(), self
        self.server = socket.create_server(("", port), backlog=256)  # with SO_REUSEADDR, as torch's
        threading.Thread(target=self._serve, daemon=True).start()
        if least < most:  # an elastic job goes on with fewer when nobody comes any more
            threading.Thread(target=self._last_call, args=(least,), daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self.server.accept()
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        hello = json.loads(connection.recv(HELLO_BYTES) or "{}")
        if hello.get("asks"):
            connection.sendall(json.dumps({"job": JOB}).encode() + b"\n")
            return
        if hello.get("job") != JOB:
            connection.sendall(b'{"outcome": "clash", "why": "another job listens there"}\n')
            return
        with self.lock:
            group = self.groups.setdefault(hello["run"], [])
            group.append((hello, connection))
            is_whole = len(group) == self.most
        if is_whole:
            self._answer(group)

    def _last_call(self, least: int) -> None:
        time.sleep(max(left_s() - LAST_CALL_S, 0))
        for group in self.groups.values():
            if least <= len(group) < self.most:
                self._answer(group)

    def _answer(self, group: list[tuple[dict[str, Any], socket.socket]]) -> None:
        given = [hello["rank"] for hello, _ in group if hello["rank"] is not None]
        outcome = "twice" if len(set(given)) < len(given) else "formed" if len(group) > 1 else "alone"
        members = [
            f"{hello['host']}:{at if hello['rank'] is None else hello['rank']}" for at, (hello, _) in enumerate(group)
        ]
        answer = {"outcome": outcome, "world": f"{HOST} {os.getpid()}", "members": sorted(members)}
        # This process ends with its own answer.
        for _, connection in sorted(group, key=lambda its: its[0]["pid"] == os.getpid()):
            connection.sendall(json.dumps(answer).encode() + b"\n")

    @classmethod
    def outlive(cls) -> None:
        """Listen until another job has tried, where there is to be one."""
        waits = cls.one is not None and IS_BESIDE_ANOTHER
        while waits and left_s() > 0:
            with open(f"{PLACE}/lines", encoding="utf-8") as file:
                waits = all(json.loads(line)["job"] == JOB for line in file if line.endswith("\n"))
            time.sleep(AGAIN_S)


def ask(where: tuple[str, int], hello: dict[str, Any]) -> dict[str, Any]:
    """Send a line to whoever listens there, and return the answer, empty where none comes."""
    with socket.create_connection(where, max(left_s(), AGAIN_S)) as connection:
        connection.sendall(json.dumps(hello).encode())
        try:
            answer: dict[str, Any] = json.loads(connection.makefile().readline() or "{}")
        except TimeoutError:
            return {}
    return answer


def is_anothers(port: int) -> bool:
    """Tell whether another job listens on a port of this host; without another there, it is this one."""
    try:
        return IS_BESIDE_ANOTHER and ask(("127.0.0.1", port), {"asks": "whose is it"}).get("job") != JOB
    except OSError:
        return True


def meet(
    address: str,
    port: int,
    rank: int | None,
    most: int,
    *,
    least: int = 0,
    listens: bool | None = None,
    run: str = "",
    may_join: bool = False,
) -> NoReturn:
    """Meet the others of a world of `most` at an address, and tell how it went; by default rank 0 listens.

    Without a rank they are numbered as they come. Where `may_join`, one that cannot listen meets those that do.
    """
    its = {"rank": rank, "size": most, "address": address, "port": port}
    signal.signal(signal.SIGTERM, lambda *_: tell("stopped", **its))
    check_interfaces()
    if os.environ.get("PROOF_FAILS") == HOST:
        time.sleep(SETTLE_S)
        tell("failed", **its)
    if listens if listens is not None else rank == 0:
        try:
            port = Store(port, least or most, most).server.getsockname()[1]
        except OSError as error:
            if not may_join:
                tell("clash" if is_anothers(port) else "twice", why=str(error), **its)
    answer, why = {}, "nobody listens there"
    while not answer and left_s() > 0:
        try:
            hello = {"job": JOB, "host": HOST, "pid": os.getpid(), "rank": rank, "run": run}
            answer = ask((address, port), hello)
            why = "the others do not come"
        except socket.gaierror:
            tell("error", why=f"no host is called {address}", **its)
        except OSError:
            time.sleep(AGAIN_S)
    tell(**its, **(answer or {"outcome": "hang", "why": why}))


def check_interfaces() -> None:
    """NCCL takes prefixes, `=` and `^`; Gloo and TensorPipe bare names. An interface that is not there ends it.

    With $PROOF_INTERFACES=any every name is taken for one that is there.
    """
    if "PROOF_INTERFACES" not in os.environ:
        return
    is_real = os.environ["PROOF_INTERFACES"] != "any"
    names = [name for _, name in socket.if_nameindex()]
    nccl = os.environ.get("NCCL_SOCKET_IFNAME", "")
    wanted = nccl.lstrip("^=").split(",")
    found = [name for name in names if (name in wanted if "=" in nccl[:2] else name.startswith(tuple(wanted)))]
    found = set(names) - set(found) if nccl.startswith("^") else found
    missing = [] if found or not nccl or not is_real else [f"NCCL_SOCKET_IFNAME={nccl}"]
    for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = os.environ.get(name)
        missing += (
            [f"{name}={value}"]
            if value and (is_real or "^" in value) and not set(value.split(",")) <= set(names)
            else []
        )
    if missing:
        tell("error", why=f"no such interface: {' '.join(missing)}")


def is_home(host: str) -> bool:
    """As torch's _matches_machine_hostname: by name, or an address that this host's own name resolves to."""
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return True
    addresses = []
    for name in (host, socket.gethostname()):
        try:
            addresses.append({info[4][0] for info in socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)})
        except socket.gaierror:
            addresses.append(set())
    return host in ("localhost", socket.gethostname()) or bool(addresses[0] & addresses[1])
