"""An ssh between test hosts, which have none: it enters the host of that name."""

from pathlib import Path

from cluster.hosts import Hosts
from cluster.paths import PROJECT

_SSH = PROJECT / "tests/data/ssh/between_hosts.sh"


def ssh(hosts: Hosts, place: Path, *, needs_network: bool = False) -> Path:
    """Write it, and return the directory that it is in; it may reach hosts that no packet reaches."""
    (place / "bin").mkdir()
    (place / "bin/ssh").write_text(_SSH.read_text())
    (place / "bin/ssh").chmod(0o755)
    (place / "hosts").write_text("".join(f"{host.name} {host.pid}\n" for host in hosts))
    if needs_network:
        (place / "needs_network").touch()
    return place / "bin"
