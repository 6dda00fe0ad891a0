"""Everything here happens on real sockets of the loopback interface."""

import errno
import io
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from needs import only_with
from support.gathering import free_ports

from mingle_hooks.errors import NetworkError, NoPortError
from mingle_hooks.net import ports
from mingle_hooks.net.ports import DEFAULT_RANGE, bound, candidates, ephemeral_range, hold, keep, listen

REUSE = socket.SO_REUSEADDR


@pytest.fixture(params=["127.0.0.1", "::1"])
def address(request: pytest.FixtureRequest) -> str:
    """Return a loopback address of either family."""
    return str(request.param)


@pytest.fixture
def few() -> range:
    """Return three ports that were free a moment ago."""
    return free_ports(3)


def holding(address: str, port: int, *, reuse: bool = False) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        listener.bind((address, port))
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener


@pytest.fixture
def kept(address: str, few: range) -> tuple[str, int]:
    """Return address and port of one that is kept."""
    listener = listen(address, few[:1], few)
    port = listener.getsockname()[1]
    keep(listener)
    listener.close()
    return address, port


@only_with("root")
@pytest.mark.parametrize("user", [0, 61_002])
@pytest.mark.parametrize("is_second_use", [False, True])
def test_a_held_port_is_refused_to_every_users_bind_until_let_go(few: range, user: int, *, is_second_use: bool) -> None:
    """With SO_REUSEADDR, SO_REUSEPORT, both or none, also where the port was in TIME_WAIT when it was taken."""
    if is_second_use:
        first = listen("127.0.0.1", few[:1], few)
        keep(first)
        first.close()
    with bound("0.0.0.0", few[0], reuse=is_second_use) or pytest.fail("not bound") as listener:
        with socket.create_connection(("127.0.0.1", few[0])):
            hold(listener)
        for options in ((), (REUSE,), (socket.SO_REUSEPORT,), (REUSE, socket.SO_REUSEPORT)):
            assert not gets(few[0], user, options)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", few[0]))
    assert gets(few[0], user, (REUSE,))


def gets(port: int, user: int, options: tuple[int, ...]) -> bool:
    """Tell whether a user's socket with these options is bound to a port."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setresuid(user, user, user)
            sock = socket.socket()
            for option in options:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind(("0.0.0.0", port))
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_reserved_port_is_given_only_to_a_bind_that_reuses_addresses(kept: tuple[str, int], few: range) -> None:
    """A plain bind is refused, and another world passes it over; a server on all addresses may have it too."""
    address, port = kept
    with pytest.raises(OSError, match="in use") as caught:
        holding(*kept)
    assert caught.value.errno == errno.EADDRINUSE
    with listen(address, [port], few) as listener:
        assert listener.getsockname()[1] != port
    with holding(*kept, reuse=True) as listener, socket.create_connection(kept) as client:
        listener.accept()[0].close()
        assert client.recv(1) == b""
    with holding("::" if ":" in address else "0.0.0.0", port, reuse=True) as listener:
        assert listener.getsockname()[1] == port


# Prints what a bind to any port gets while the kept port is the only one to be had, and then where another is free.
ANY_PORT = """
import errno, socket
from pathlib import Path
from mingle_hooks.net.ports import keep, listen
listener = listen("127.0.0.1", [27100], range(27100, 27101))
keep(listener)
listener.close()
for last in (27100, 27101):
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"27100 {last}")
    for reuse in (0, 1):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            try:
                sock.bind(("0.0.0.0", 0))
                print(sock.getsockname()[1])
            except OSError as error:
                print(errno.errorcode[error.errno])
"""


def test_the_kernel_gives_a_reserved_port_to_no_bind_to_any_port(hosts: Callable[..., Hosts]) -> None:
    """Also where that one asks with SO_REUSEADDR, and there is no other port."""
    done = hosts(1)[0].run([sys.executable, "-c", ANY_PORT], check=True)
    assert done.stdout.split() == ["EADDRINUSE", "EADDRINUSE", "27101", "27101"]


def test_a_port_can_be_reserved_after_another_connection(address: str, few: range) -> None:
    listener = listen(address, few, few)
    port = listener.getsockname()[1]
    with socket.create_connection((address, port)):
        keep(listener)
    listener.close()
    with pytest.raises(OSError, match="in use"):
        holding(address, port)
    holding(address, port, reuse=True).close()


def test_candidates_are_tried_in_order_and_then_the_rest(address: str, few: range) -> None:
    """A full range is an error that counts the ports; so is an address of another host."""
    first, second, third = few
    with ExitStack() as stack:
        taken = [stack.enter_context(listen(address, [third, second], few)) for _ in few]
        assert [listener.getsockname()[1] for listener in taken] == [third, second, first]
        with pytest.raises(NetworkError, match="all of the 3 ports tried are taken"):
            listen(address, few[:2], few)
    with pytest.raises(NetworkError, match=r"to listen on 192\.0\.2\.254"):
        listen("192.0.2.254", few, few)


def test_an_ipv6_listener_leaves_the_ipv4_port_to_others(few: range) -> None:
    with listen("::", few[:1], few) as six, holding("0.0.0.0", six.getsockname()[1]) as four:
        assert four.getsockname()[1] == six.getsockname()[1]


def test_candidates_follow_from_the_seed_and_never_change_between_versions() -> None:
    """Fewer are the first of more; as many as there are ports are all of them, once."""
    assert candidates(b"job", 4) == candidates(b"job", 9)[:4] == (20571, 20596, 22675, 23338)
    assert candidates(b"job 1", 8) != candidates(b"job 2", 8)
    ports = range(2000, 2100)
    assert sorted(candidates(b"job", 1000, ports)) == list(ports)


@pytest.mark.parametrize(("options", "linger"), [({}, (0, 0)), ({"hold": False, "reuse": True}, (1, 0))])
def test_a_port_that_is_not_held_leaves_nothing_behind(
    address: str, few: range, options: dict[str, bool], linger: tuple[int, int]
) -> None:
    """It lingers for no time, on one family alone, and would not be shared with another socket that reuses it."""
    with bound(address, few[0], **options) or pytest.fail("not bound") as listener:
        assert struct.unpack("ii", listener.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == linger
        assert listener.getsockopt(socket.SOL_SOCKET, REUSE) == 0
        assert bound(address, few[0]) is None
        hold(listener)
        with pytest.raises(NetworkError, match=f"this host's own {address} port {few[0]}; saw Connection refused"):
            keep(listener)


def test_where_no_port_is_left_the_range_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless there is no address to connect from either, or it is another error."""
    monkeypatch.setattr(ports, "ephemeral_range", lambda: range(100, 201))
    full, other = OSError(errno.EADDRNOTAVAIL, "no"), OSError(errno.ECONNREFUSED, "no")
    found = ports.connect_error(full, socket.AF_INET, ("127.0.0.1", 9))
    which = "all 101 local ports for connections are in use (sysctl net.ipv4.ip_local_port_range: 100 to 200)"
    assert (type(found), found.errno, found.strerror) == (NoPortError, errno.EADDRNOTAVAIL, which)
    assert ports.connect_error(other, socket.AF_INET, ("127.0.0.1", 9)) is other
    assert ports.connect_error(full, socket.AF_INET6, ("127.0.0.1 9", 9)) is full


def test_closed_connections_that_hold_ports_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the wanted ports, those on which nothing listens; one of the kernel's tables may be missing."""
    states = {20_000: ("06",), 20_001: ("06", "0A"), 20_002: ("0A",), 20_003: ("06",), 20_004: ("01",)}
    rows = [f"  0: 00000000:{port:04X} 0100007F:0050 {its} 0:0 0" for port, found in states.items() for its in found]
    tables = {"/proc/net/tcp6": ["sl local_address rem_address st 4E24:4E24 06", *rows]}

    def table(path: str) -> io.StringIO:
        if path not in tables:
            raise FileNotFoundError(path)
        return io.StringIO("\n".join(tables[path]))

    monkeypatch.setattr(ports, "open", table, raising=False)
    closed = "by closed connections, for up to a minute (TIME_WAIT)"
    assert ports.time_wait_text([20_000, 20_001, 20_002, 20_004]) == f", 1 of them {closed}"
    assert ports.time_wait_text([20_000, 20_003]) == f", {closed}"
    assert ports.time_wait_text([20_001, 20_004]) == ""


@pytest.mark.parametrize(("python", "kernel"), [(True, True), (False, True), (True, False)])
def test_ipv6_is_there_if_python_and_the_kernel_have_it(
    monkeypatch: pytest.MonkeyPatch, *, python: bool, kernel: bool
) -> None:
    def opened(*_: object) -> io.StringIO:
        return io.StringIO() if kernel else os.open("/none", os.O_RDONLY)  # type: ignore[return-value]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "has_ipv6", python)
        patched.setattr(socket, "socket", opened)
        found = ports.has_ipv6()
    assert found is (python and kernel)


NO_RANGES = ("32768", "32768 x", "x 32768 60999", "1 2 3", "32768 65536", "-1 60999", "٣ 60999")


@pytest.mark.parametrize("text", ["32768\t60999\n", None, *NO_RANGES])
def test_the_ephemeral_range_is_the_kernels_or_else_ianas(tmp_path: Path, text: str | None) -> None:
    """The default range is outside of the kernel's."""
    if text is not None:
        (tmp_path / "range").write_text(text)
    expected = range(32_768, 61_000) if text == "32768\t60999\n" else range(49_152, 65_536)
    assert ephemeral_range(str(tmp_path / "range")) == expected
    assert not set(DEFAULT_RANGE) & set(range(32_768, 61_000))
