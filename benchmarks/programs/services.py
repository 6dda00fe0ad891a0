"""services.py SIZE: offer a service by zeroconf, find so many, and be COMMAND."""

import socket
import sys
import threading

from work import work
from zeroconf import ServiceBrowser, ServiceInfo, Zeroconf

KIND = "_benchmark._tcp.local."


class Found:
    """The names of the services that are there."""

    def __init__(self, size: int) -> None:
        self.names: set[str] = set()
        self.size, self.all = size, threading.Event()

    def add_service(self, _zeroconf: Zeroconf, _kind: str, name: str) -> None:
        """Note one more."""
        self.names.add(name)
        if len(self.names) == self.size:
            self.all.set()

    update_service = remove_service = add_service


if __name__ == "__main__":
    host, own = socket.gethostname(), socket.gethostbyname(socket.gethostname())
    with Zeroconf(interfaces=[own]) as zeroconf:
        found = Found(int(sys.argv[1]))
        ServiceBrowser(zeroconf, KIND, found)  # type: ignore[arg-type, unused-ignore]  # it is a listener by its methods
        zeroconf.register_service(ServiceInfo(KIND, f"{host}.{KIND}", 20_000, addresses=[socket.inet_aton(own)]))
        found.all.wait()
        work(found.size)
