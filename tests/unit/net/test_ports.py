"""Everything here happens on real sockets of the loopback interface."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster.hosts import Hosts
from needs import only_with

from mingle_hooks.errors import NetworkError
from mingle_hooks.net.ports import DEFAULT_RANGE, bound, candidates, ephemeral_range, hold, keep, listen

REUSE = socket.SO_REUSEADDR


@pytest.fixture(params=["127.0.0.1", "::1"])
def address(request: pytest.FixtureRequest) -> str:
    """Return a loopback address of either family."""
    return str(request.param)


@pytest.fixture
def few() -> range:
    """Return three ports that were free a moment ago."""
    for start in range(27_100, 29_000, 3):
        holders = []
        try:
            for port in range(start, start + 3):
                holders.append(holding("127.0.0.1", port))
                holders.append(holding("::1", port))
        except OSError:
            continue
        finally:
            for holder in holders:
                holder.close()
        return range(start, start + 3)
    pytest.fail("no three free ports in a row")


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
def test_a_held_port_is_refused_to_every_bind_of_every_user_until_it_is_let_go(
    few: range, user: int, *, is_second_use: bool
) -> None:
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


def test_a_kept_port_is_refused_to_a_plain_bind(kept: tuple[str, int]) -> None:
    with pytest.raises(OSError, match="in use") as caught:
        holding(*kept)
    assert caught.value.errno == errno.EADDRINUSE


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


def test_the_kernel_gives_a_kept_port_to_nobody_who_asks_for_any(hosts: Callable[..., Hosts]) -> None:
    """Also where that one asks with SO_REUSEADDR, and there is no other port."""
    done = hosts(1)[0].run([sys.executable, "-c", ANY_PORT], check=True)
    assert done.stdout.split() == ["EADDRINUSE", "EADDRINUSE", "27101", "27101"]


def test_a_kept_port_is_given_to_a_bind_that_reuses_addresses(kept: tuple[str, int]) -> None:
    with holding(*kept, reuse=True) as listener, socket.create_connection(kept) as client:
        listener.accept()[0].close()
        assert client.recv(1) == b""


def test_a_kept_port_is_given_to_a_server_on_all_addresses(kept: tuple[str, int]) -> None:
    address, port = kept
    with holding("::" if ":" in address else "0.0.0.0", port, reuse=True) as listener:
        assert listener.getsockname()[1] == port


def test_another_world_passes_a_kept_port_over(kept: tuple[str, int], few: range) -> None:
    with listen(kept[0], [kept[1]], few) as listener:
        assert listener.getsockname()[1] != kept[1]


def test_a_port_can_be_kept_when_somebody_knocked_before(address: str, few: range) -> None:
    listener = listen(address, few, few)
    port = listener.getsockname()[1]
    with socket.create_connection((address, port)):
        keep(listener)
    listener.close()
    with pytest.raises(OSError, match="in use"):
        holding(address, port)
    holding(address, port, reuse=True).close()


def test_candidates_are_tried_in_order_and_then_the_rest(address: str, few: range) -> None:
    first, second, third = few
    taken = [listen(address, [third, second], few) for _ in few]
    ports = [listener.getsockname()[1] for listener in taken]
    for listener in taken:
        listener.close()
    assert ports == [third, second, first]


def test_a_full_range_is_an_error_that_counts_the_ports(address: str, few: range) -> None:
    holders = [listen(address, few, few) for _ in few]
    try:
        with pytest.raises(NetworkError, match="all of the 3 ports tried are taken"):
            listen(address, few[:2], few)
    finally:
        for holder in holders:
            holder.close()


def test_an_address_of_another_host_is_an_error(few: range) -> None:
    with pytest.raises(NetworkError, match=r"to listen on 192\.0\.2\.254"):
        listen("192.0.2.254", few, few)


def test_an_ipv6_listener_leaves_the_ipv4_port_to_others(few: range) -> None:
    with listen("::", few[:1], few) as six, holding("0.0.0.0", six.getsockname()[1]) as four:
        assert four.getsockname()[1] == six.getsockname()[1]


def test_candidates_are_the_same_for_the_same_seed_only() -> None:
    assert candidates(b"job 1", 8) == candidates(b"job 1", 8)
    assert candidates(b"job 1", 8) != candidates(b"job 2", 8)


def test_fewer_candidates_are_the_first_of_more() -> None:
    assert candidates(b"job", 4) == candidates(b"job", 9)[:4]


def test_candidates_never_change_between_versions() -> None:
    assert candidates(b"job", 4) == GOLDEN


GOLDEN = (20571, 20596, 22675, 23338)


def test_as_many_candidates_as_ports_are_all_of_them_once() -> None:
    ports = range(2000, 2100)
    assert sorted(candidates(b"job", 1000, ports)) == list(ports)


def test_the_default_range_is_outside_linux_own_ephemeral_range() -> None:
    assert not set(DEFAULT_RANGE) & set(range(32_768, 61_000))


def test_the_ephemeral_range_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "range").write_text("32768\t60999\n")
    assert ephemeral_range(str(tmp_path / "range")) == range(32_768, 61_000)


def test_without_the_kernels_word_the_ephemeral_range_is_ianas(tmp_path: Path) -> None:
    assert ephemeral_range(str(tmp_path / "absent")) == range(49_152, 65_536)


@pytest.mark.parametrize("text", ["32768", "32768 x", "x 32768 60999", "1 2 3", "32768 65536", "-1 60999", "٣ 60999"])
def test_what_is_no_range_of_ports_is_not_the_kernels_word(tmp_path: Path, text: str) -> None:
    (tmp_path / "range").write_text(text)
    assert ephemeral_range(str(tmp_path / "range")) == range(49_152, 65_536)
