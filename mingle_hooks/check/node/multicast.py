"""Multicast, really tried: one group, joined on each interface that carries any, and a few words to all in it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mingle_hooks.check import packet
from mingle_hooks.check.packet import ALL, Packet
from mingle_hooks.errors import NetworkError, reason
from mingle_hooks.fabric import ports
from mingle_hooks.rendezvous.poller import READ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multicast_expert import IfaceInfo, McastRxSocket, McastTxSocket

    from mingle_hooks.rendezvous.loop import Loop
    from mingle_hooks.rendezvous.protocol.attempt import Secret
    from mingle_hooks.rendezvous.protocol.wire import Body

_LONGEST = 300
# A host hears on the first of these ports that nobody else has there; a word is sent to all.
_PORTS = 3
_READ_AT_ONCE = 64


class Multicast:
    """The group on all interfaces; `told()` returns what came on each."""

    def __init__(self, loop: Loop, secret: Secret, nets: Sequence[str]) -> None:
        self._loop, self._secret, self.number = loop, secret, 0
        self._links: dict[str, tuple[str, McastTxSocket, McastRxSocket]] = {}  # interface -> group, and both ends
        self._heard: dict[str, set[int]] = {}
        self._faults: dict[str, str] = {}
        digest = secret.mac(b"group")
        self._ports = ports.candidates(digest, _PORTS)
        four, six = f"239.255.{digest[0]}.{digest[1]}", f"ff15::{digest[:2].hex()}:{digest[2:4].hex()}"
        # multicast_expert compares groups as text.
        self._groups = four, socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, six))
        try:
            _load()
            from mingle_hooks.rendezvous.discovery.multicast.interfaces import carriers

            infos = carriers(nets)
        except (ImportError, OSError, NetworkError) as error:
            self._faults[""] = reason(error)
            return
        for info in infos:
            self._open(info)

    def send(self) -> None:
        """Say a word on each."""
        data = packet.pack(self._secret, Packet(ALL, self.number, 0))
        for name, (group, tx, _) in self._links.items():
            try:
                for port in self._ports:
                    tx.sendto(data, (group, port))
            except OSError as error:
                self._faults[name] = reason(error)

    def told(self) -> list[Body]:
        """Return for each interface from which hosts something came."""
        names = dict.fromkeys((*self._heard, *self._faults))
        return [
            {
                "iface": name,
                "hosts": sorted(self._heard.get(name, set())),
                "fault": self._faults.get(name, "")[:_LONGEST],
            }
            for name in names
        ]

    def close(self) -> None:
        """Leave the group."""
        for _, tx, rx in self._links.values():
            for sock in rx.sockets:
                self._loop.unwatch(sock)
            rx.__exit__(None, None, None)
            tx.__exit__(None, None, None)
        self._links.clear()

    def _open(self, info: IfaceInfo) -> None:
        import multicast_expert

        family, group = (socket.AF_INET, self._groups[0]) if info.ip4_addrs else (socket.AF_INET6, self._groups[1])
        port = next((port for port in self._ports if _is_free(family, port)), self._ports[-1])
        tx = multicast_expert.McastTxSocket(family, [group], iface=info, ttl=1)
        rx = multicast_expert.McastRxSocket(family, [group], port, iface=info, timeout=0)
        self._heard[info.machine_name] = set()
        try:
            tx.__enter__()
            rx.__enter__()
        except (OSError, RuntimeError) as error:  # it has gone, or multicast_expert refuses
            self._faults[info.machine_name] = reason(error)
            # Their own __exit__ refuses to close what is only half open.
            for sock in (getattr(tx, "socket", None), *getattr(rx, "sockets", ())):
                if sock is not None:
                    sock.close()
            return
        self._links[info.machine_name] = group, tx, rx
        for sock in rx.sockets:
            sock.settimeout(0)
            self._loop.watch(sock, READ, lambda _events, sock=sock: self._read(sock, info.machine_name))  # type: ignore[misc]

    def _read(self, sock: socket.socket, iface: str) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                data = sock.recv(packet.BYTES + 1)
            except OSError:
                return
            its = packet.unpack(self._secret, data)
            if its is not None and its.kind == ALL and its.sender != self.number:
                self._heard[iface].add(its.sender)


def _is_free(family: int, port: int) -> bool:
    """Tell whether no program here has a port for itself; those that hear a group share theirs."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError:
            return False
        return True


def _load() -> None:
    """Import what a probe's Python, which has been started without `site`, may not find by itself."""
    from mingle_hooks.rendezvous.discovery.multicast import library

    try:
        library.load()
    except ImportError:
        import site

        site.main()
