"""What `mingle check` found: hosts, the ways between them, and findings, for the table, the page and --json."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Kind = Literal["missing", "network", "node"]

# Exit statuses: as of MissingError, NetworkError and ConflictError, the first that applies.
STATUSES: dict[Kind, int] = {"missing": 69, "network": 71, "node": 76}


class Address(NamedTuple):
    """An address by which others may reach a host, best first; a probe answers at `port` there."""

    iface: str
    kind: str
    address: str
    prefix: int
    mtu: int | None
    speed_mbps: int | None
    port: int


class Space(NamedTuple):
    """A directory's free space in MiB; None where the file system does not answer."""

    path: str
    free_mb: int | None
    total_mb: int | None


class Name(NamedTuple):
    """What a name is on a host: its addresses, None where the name service did not answer in time."""

    name: str
    addresses: tuple[str, ...] | None


class Heard(NamedTuple):
    """Multicast on one interface: from which hosts something came, and what went wrong."""

    iface: str
    hosts: tuple[str, ...]
    fault: str = ""


class Host(NamedTuple):
    """One host by the name that the scheduler or --hosts has for it; `missing` is why there is no more of it."""

    name: str
    missing: str | None = None
    hostname: str = ""
    identity: str = ""  # the same for two names of one machine
    gpus: int | None = None
    fingerprint: str = ""  # what should be alike on all hosts, as of lint.text
    addresses: tuple[Address, ...] = ()
    every: tuple[str, ...] = ()  # all of its addresses, those that are not asked for among them
    guests: tuple[tuple[str, str], ...] = ()  # interface and address of what only reaches this host's own guests
    spaces: tuple[Space, ...] = ()
    faults: tuple[str, ...] = ()  # of its GPUs, and of what else it noticed itself
    own_name: tuple[str, ...] | None = ()  # what its own name is there, as of Name
    names: tuple[Name, ...] = ()  # what others' names are there
    multicast: tuple[Heard, ...] = ()
    clock: tuple[float, float] | None = None  # how far ahead of the caller's, in seconds: at least, at most
    late_s: float = 0.0  # for how long its probe stood still, where that was too long to know all
    dropped: int = 0  # datagrams that came and that its kernel did not keep, where that is all that was lost
    had_no_room: bool = False  # its kernel took nothing at times, for want of room for one neighbour more
    refused: int = 0  # others' addresses to which it took nothing until the end

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be the check's own fault that this host's words did not get through."""
        return self.late_s > 0.0 or self.had_no_room


class Network(NamedTuple):
    """One network with its hosts, and the address of each."""

    name: str
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]


class Pair(NamedTuple):
    """What went between two hosts on one network.

    `sent` datagrams went to the other, where `there` arrived, and `sent_back` to `one`, where `back` arrived. `mtu`
    is the largest packet that got there, None where it is not known. `open_there` and `open_back` tell of TCP to the
    other's port: None where it was not tried, "" where it was open, else why it was not.
    """

    one: str
    other: str
    network: str
    sent: int = 0
    there: int = 0
    sent_back: int = 0
    back: int = 0
    rtt_us: int | None = None
    mtu: int | None = None
    open_there: str | None = None
    open_back: str | None = None


class Flow(NamedTuple):
    """How fast one TCP connection was from a host to another, in Mbit/s; None where nothing arrived."""

    sender: str
    receiver: str
    network: str
    mbits: int | None


class Finding(NamedTuple):
    """One line for a person: whom it is about, and whom to leave out. A note is nothing to mend."""

    kind: Kind
    hosts: tuple[str, ...]
    text: str
    exclude: tuple[str, ...] = ()
    is_note: bool = False


class Report(NamedTuple):
    """All of one check. `others` is how many others each host probed, where these were not all.

    `unknown` are pairs of which something did not arrive, and that says nothing: an end was too busy, or its kernel
    had no room.
    """

    hosts: tuple[Host, ...]
    networks: tuple[Network, ...] = ()
    pairs: tuple[Pair, ...] = ()
    flows: tuple[Flow, ...] = ()
    findings: tuple[Finding, ...] = ()
    took_s: float = 0.0
    others: int | None = None
    unknown: tuple[Pair, ...] = ()

    @property
    def here(self) -> tuple[Host, ...]:
        """The hosts that answered."""
        return tuple(host for host in self.hosts if host.missing is None)

    @property
    def exclude(self) -> tuple[str, ...]:
        """The hosts to leave out, in their order."""
        blamed = {host for finding in self.findings for host in finding.exclude}
        return tuple(host.name for host in self.hosts if host.name in blamed)

    @property
    def status(self) -> int:
        """The exit status: 0 where nothing is to mend."""
        kinds = {finding.kind for finding in self.findings if not finding.is_note}
        return next((status for kind, status in STATUSES.items() if kind in kinds), 0)

    def to_json(self) -> dict[str, Any]:
        """Return what --json prints."""
        found: dict[str, Any] = _plain(self)
        return {**found, "exclude": [*self.exclude], "status": self.status}


def _plain(value: Any) -> Any:
    """Return records as objects, all the way down."""
    if hasattr(value, "_asdict"):
        return {name: _plain(its) for name, its in value._asdict().items()}
    return [_plain(its) for its in value] if isinstance(value, tuple) else value
