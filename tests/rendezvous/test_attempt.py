"""Names, tags, groups and keys follow from id, step and restarts, and from nothing else."""

from __future__ import annotations

import ipaddress

from hypothesis import assume, given
from hypothesis import strategies as st

from mingle_hooks.rendezvous.wire import Attempt, Material, Secret, check_in_ports, multicast_port
from mingle_hooks.rendezvous.wire import run_material as run_of

ATTEMPTS = st.builds(Attempt, st.text(max_size=8), st.text("0123.", max_size=4), st.integers(0, 20))


@given(ATTEMPTS, ATTEMPTS)
def test_no_two_attempts_are_alike(one: Attempt, other: Attempt) -> None:
    """What stands in one part cannot be taken for another part."""
    assume(one != other)
    assert one.name != other.name
    assert one.tag != other.tag
    material = Material(b"k" * 32)
    assert Secret.derive(material, one).mac(b"x") != Secret.derive(material, other).mac(b"x")


@given(ATTEMPTS)
def test_groups_are_multicast_and_ports_are_in_range(attempt: Attempt) -> None:
    """239.255.0.0/16 (RFC 2365), ff12::/16, and ports from the range that was asked for."""
    assert ipaddress.ip_address(attempt.group4) in ipaddress.ip_network("239.255.0.0/16")
    assert ipaddress.ip_address(attempt.group6) in ipaddress.ip_network("ff12::/16")
    assert str(ipaddress.ip_address(attempt.group6)) == attempt.group6
    some = range(30_000, 30_010)
    groups = check_in_ports(attempt, Secret.derive(Material(b"k" * 32), attempt), some)
    assert [len(set(group)) for group in groups] == [2, 2]
    assert all(port in some for group in groups for port in group)
    assert 1024 <= multicast_port(attempt) < 65536


def test_a_mac_tells_its_parts_apart() -> None:
    """Moving a byte from one part to the next changes it."""
    secret = Secret.derive(Material(b"k" * 32), Attempt("a"))
    assert secret.mac(b"p", b"ab", b"c") != secret.mac(b"p", b"a", b"bc")
    assert secret.agrees(secret.mac(b"p", b"a"), b"p", b"a")
    assert not secret.agrees(secret.mac(b"p", b"a"), b"q", b"a")
    assert not secret.agrees(b"", b"p", b"a")


def test_the_worlds_port_follows_from_the_key_and_is_the_same_in_all_runs_of_a_job() -> None:
    """Tasks that a shell of ssh starts have no PBS_JOBCOOKIE, and --no-wait gives all nodes the same port."""
    one, another = Material(b"k" * 32), Material(b"l" * 32)
    first, second = Attempt("a", run=run_of("one")), Attempt("a", run=run_of("two"))
    assert Secret.derive(one, first).master_seed == Secret.derive(one, second).master_seed
    assert Secret.derive(one, first).master_seed == Secret.derive(one, Attempt("a")).master_seed
    assert Secret.derive(one, first).master_seed != Secret.derive(another, first).master_seed
    assert Secret.derive(one, first).master_seed != Secret.derive(one, Attempt("b")).master_seed


def test_a_key_is_not_shown() -> None:
    """Neither in a trace nor in a message."""
    assert "kkk" not in repr(Material(b"kkk")) + repr(Secret(b"kkk")) + f"{Material(b'kkk')!r}"
