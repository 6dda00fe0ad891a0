"""One interface in one family, over which multicast is sent and heard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.rendezvous.poller import READ

if TYPE_CHECKING:
    from multicast_expert import IfaceInfo, McastRxSocket, McastTxSocket

    from mingle_hooks.rendezvous.discovery.multicast.backend import MulticastBackend


class Link:
    """Sockets for one group and port, whose datagrams the backend reads; it calls close()."""

    def __init__(
        self, backend: MulticastBackend, info: IfaceInfo, family: int, group: str, port: int, ttl: int
    ) -> None:
        import multicast_expert  # see library.py

        self.info, self._where, self._loop = info, (group, port), backend.context.loop
        # Members may share a host, so what is sent has to come back to it.
        self._tx: McastTxSocket = multicast_expert.McastTxSocket(
            family, [group], iface=info, ttl=ttl, enable_external_loopback=True
        )
        self._rx: McastRxSocket = multicast_expert.McastRxSocket(
            family, [group], port, iface=info, timeout=0, enable_external_loopback=True
        )
        try:
            self._tx.__enter__()
            self._rx.__enter__()
            for sock in self._rx.sockets:
                sock.settimeout(0)
                self._loop.watch(sock, READ, lambda _events, sock=sock: backend.received(self, sock))  # type: ignore[misc]
        except BaseException:
            # Their own __exit__ refuses to close what is only half open.
            for sock in (getattr(self._tx, "socket", None), *getattr(self._rx, "sockets", ())):
                if sock is not None:
                    sock.close()
            raise

    @property
    def label(self) -> str:
        """The group and the interface."""
        return f"{self._where[0]} on {self.info.machine_name}"

    def send(self, data: bytes) -> None:
        """Send; OSError when the interface has gone."""
        self._tx.sendto(data, self._where)

    def close(self) -> None:
        """Leave the group."""
        for sock in self._rx.sockets:
            self._loop.unwatch(sock)
        self._rx.__exit__(None, None, None)
        self._tx.__exit__(None, None, None)
