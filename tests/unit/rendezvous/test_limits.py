"""Which limits are too low for how many members, and what is printed about them."""

import resource
import socket
from pathlib import Path

import pytest

from mingle_hooks.rendezvous import limits
from mingle_hooks.rendezvous.limits import Limits, capacity, shortfalls, warning

AMPLE = {
    "fs.file-max": 10**6,
    "net.core.somaxconn": 65_536,
    "net.ipv4.tcp_max_syn_backlog": 2048,
    "net.ipv4.tcp_syncookies": 1,
    "net.ipv4.neigh.default.gc_thresh3": 131_072,
    "net.netfilter.nf_conntrack_max": 262_144,
}


def host(open_files: int = 10**6, on_subnet: int = 0, **kernel: int) -> Limits:
    """Return the limits of a host with ample ones but for these, by the last part of their names."""
    names = {name.rpartition(".")[2].replace("-", "_"): name for name in AMPLE}
    return Limits(open_files, 20, {**AMPLE, **{names[key]: value for key, value in kernel.items()}}, on_subnet)


@pytest.mark.parametrize(
    ("nodes", "its", "found"),
    [
        (65_536, host(), []),
        (65_536, host(resource.RLIM_INFINITY), []),
        (65_536, Limits(10**6, 20, {}, 0), []),  # a kernel, or a namespace, that shows none
        (5000, host(5020), []),
        (5000, host(5019), [("ulimit -Hn", 5512, True)]),
        (5000, host(file_max=5019), [("fs.file-max", 10_512, True)]),
        (16_384, host(somaxconn=4096), []),
        (16_385, host(somaxconn=4096), [("net.core.somaxconn", 16_385, False)]),
        (5000, host(tcp_max_syn_backlog=128), []),  # there are cookies
        (5000, host(tcp_max_syn_backlog=128, tcp_syncookies=0), [("net.ipv4.tcp_max_syn_backlog", 5000, False)]),
        (5000, host(gc_thresh3=1024, on_subnet=254), []),  # the others come through a router
        (5000, host(gc_thresh3=1024, on_subnet=2046), [("net.ipv4.neigh.default.gc_thresh3", 2046, False)]),
        (5000, host(gc_thresh3=1024, on_subnet=65_534), [("net.ipv4.neigh.default.gc_thresh3", 5000, False)]),
        (5000, host(nf_conntrack_max=9999), [("net.netfilter.nf_conntrack_max", 10_000, False)]),
    ],
)
def test_a_limit_that_is_too_low_is_found_with_the_value_that_suffices(
    nodes: int, its: Limits, found: list[tuple[str, int, bool]]
) -> None:
    assert [(one.name, one.needed, one.is_fatal) for one in shortfalls(nodes, its)] == found


def test_only_what_cannot_hold_the_members_is_an_error() -> None:
    its = host(4096, somaxconn=128)
    short = capacity(5000, "node1", its)
    assert short is not None
    assert short.members == 4096 - 20
    assert str(short.failure.error()) == (
        "expected limits for 5000 nodes on node1, rank 0's host; saw ulimit -Hn 4096; "
        "try LimitNOFILE=5512 for the scheduler's daemon there, or `ulimit -Hn 5512` as root"
    )
    assert warning(5000, "node1", its) == (
        "node1, rank 0's host, delays some of 5000 nodes that connect at once (net.core.somaxconn 128); "
        "try `sysctl -w net.core.somaxconn=5000` there"
    )
    assert capacity(5000, "node1", host(somaxconn=128)) is None
    assert warning(5000, "node1", host(4096)) is None


def test_both_limits_of_descriptors_are_named_with_the_commands_that_raise_them() -> None:
    short = capacity(5000, "node1", host(4096, file_max=3000))
    assert short is not None
    assert short.members == 3000 - 20
    assert "saw ulimit -Hn 4096, fs.file-max 3000;" in str(short.failure.error())
    assert "`ulimit -Hn 5512` as root, and `sysctl -w fs.file-max=10512`" in str(short.failure.error())


def test_the_limits_are_the_kernels(tmp_path: Path) -> None:
    """What is missing, or no number, is left out; subnets are those of the leader's addresses, and no gateway's."""
    (tmp_path / "self/fd").mkdir(parents=True)
    for number in range(7):
        (tmp_path / "self/fd" / str(number)).touch()
    (tmp_path / "sys/net/core").mkdir(parents=True)
    (tmp_path / "sys/net/core/somaxconn").write_text("4096\n")
    (tmp_path / "sys/fs").mkdir()
    (tmp_path / "sys/fs/file-max").write_text("many\n")

    def route(network: str, flags: int, mask: str) -> str:
        def word(address: str) -> str:
            return f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}"

        return f"eth0\t{word(network)}\t00000000\t{flags:04X}\t0\t0\t0\t{word(mask)}\t0\t0\t0"

    (tmp_path / "net").mkdir()
    rows = [
        route("10.1.0.0", 1, "255.255.252.0"),
        "short",
        route("0.0.0.0", 3, "0.0.0.0"),
        route("10.9.9.0", 1, "255.255.255.0"),
        route("10.0.0.0", 3, "255.0.0.0"),
        route("172.17.0.0", 1, "255.255.0.0"),
    ]
    (tmp_path / "net/route").write_text("\n".join(["Iface\tDestination", *rows]) + "\n")
    found = limits.read(["fe80::1", "10.1.3.9", "10.9.9.9"], str(tmp_path))
    assert found == Limits(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 7, {"net.core.somaxconn": 4096}, 1022)
    assert limits.read(["10.1.3.9"], str(tmp_path / "none"))[1:] == (0, {}, 0)
