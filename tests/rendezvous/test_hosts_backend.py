"""The scheduler's first host is tried at the job's own ports, again and again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from gathering import ATTEMPT, PATIENCE_S, SECRET, Clock

from mingle_hooks.rendezvous import discovery
from mingle_hooks.rendezvous.backend import Context
from mingle_hooks.rendezvous.connection import Loop, is_local, resolve

if TYPE_CHECKING:
    from mingle_hooks.rendezvous.connection import Endpoint


def context(loop: Loop, found: list[Endpoint], **parts: object) -> Context:
    """Return what the way works with."""
    some = {"loop": loop, "attempt": ATTEMPT, "secret": SECRET, "dial": found.append, "ports": (20_001, 20_002)}
    return Context(**{**some, "reject": print, "note": print, **parts})  # type: ignore[arg-type]


def settle(loop: Loop, found: list[Endpoint], count: int) -> None:
    """Serve until so many leads are there."""
    deadline = time.monotonic() + PATIENCE_S
    loop.run(lambda: len(found) >= count or time.monotonic() > deadline)
    assert len(found) >= count


def test_every_port_of_every_address_is_named_again_and_again() -> None:
    """Until it is told to stop."""
    found: list[Endpoint] = []
    with Loop() as loop:
        backend = discovery.hosts_backend(context(loop, found, leader_hosts=("127.0.0.1",)))
        assert backend is not None
        backend.search(wanted=True)
        settle(loop, found, 6)
        backend.search(wanted=False)
        count = len(found)
        done: list[int] = []
        loop.after(0.1, lambda: done.append(1))
        loop.run(lambda: bool(done))
        assert len(found) == count
        backend.close()
    assert {(endpoint.address, endpoint.port, endpoint.backend) for endpoint in found} == {
        ("127.0.0.1", 20_001, "hosts"),
        ("127.0.0.1", 20_002, "hosts"),
    }


def test_a_name_that_nobody_knows_holds_up_no_other_and_is_reported() -> None:
    """Each is looked up by itself."""
    found: list[Endpoint] = []
    with Loop(Clock()) as loop:
        names = ("no-such-host.invalid", "bad..name", "-", "x" * 300, "\u00fc", "127.0.0.1")
        backend = discovery.hosts_backend(context(loop, found, leader_hosts=names))
        assert backend is not None
        backend.search(wanted=True)
        settle(loop, found, 2)
        deadline = time.monotonic() + PATIENCE_S
        loop.run(lambda: len(backend._addresses) == len(names) or time.monotonic() > deadline)
        assert "no-such-host.invalid" in backend.tried()
        assert "not known" in backend.tried()
        backend.close()
    assert {endpoint.address for endpoint in found} == {"127.0.0.1"}


def test_a_name_that_was_not_known_is_looked_up_again() -> None:
    """It may have been registered only now."""
    clock, name = Clock(), "no-such-host.invalid"
    with Loop(clock) as loop:
        backend = discovery.hosts_backend(context(loop, [], leader_hosts=(name,)))
        assert backend is not None
        backend.search(wanted=True)
        deadline = time.monotonic() + PATIENCE_S
        loop.run(lambda: name in backend._addresses or time.monotonic() > deadline)
        assert (backend._addresses, backend._lookups) == ({name: []}, {})
        clock.ahead += discovery.LOOK_UP_AGAIN_S
        loop.run(lambda: name in backend._lookups or time.monotonic() > deadline)
        assert name in backend._lookups
        backend.close()


def test_the_name_on_the_fast_network_is_tried_first() -> None:
    """And the host's own name too, as not every host need have another."""
    with Loop() as loop:
        backend = discovery.hosts_backend(context(loop, [], leader_hosts=("node1",), host_suffix="-ib"))
        assert backend is not None
        assert backend.tried().startswith("node1-ib, node1 ports ")
        backend.close()


def test_closing_does_not_wait_for_a_name_server() -> None:
    """A look-up that has begun is left to end by itself."""
    found: list[Endpoint] = []
    with Loop() as loop:
        backend = discovery.hosts_backend(context(loop, found, leader_hosts=("127.0.0.1", "localhost")))
        assert backend is not None
        backend.search(wanted=True)
        backend.close()
        assert not loop.poller.watched


def test_master_means_its_own_port_or_the_jobs() -> None:
    """As --master HOST[:PORT] says."""
    for port, expected in ((7000, {7000}), (None, {20_001, 20_002})):
        found: list[Endpoint] = []
        with Loop() as loop:
            backend = discovery.master_backend(context(loop, found, master=("127.0.0.1", port)))
            assert backend is not None
            backend.search(wanted=True)
            settle(loop, found, 2)
            backend.close()
        assert {endpoint.port for endpoint in found} == expected
        assert {endpoint.backend for endpoint in found} == {"master"}
    with Loop() as loop:
        assert discovery.master_backend(context(loop, [])) is None
        assert discovery.hosts_backend(context(loop, [])) is None


def test_an_address_is_local_when_a_socket_can_be_bound_to_it() -> None:
    """Names are looked up before; text that is no address is not."""
    assert is_local("127.0.0.1")
    assert is_local("127.0.1.1") or sys.platform != "linux"
    assert not is_local("192.0.2.1")
    assert not is_local("2001:db8::1")
    assert not is_local("nonsense")


def test_a_name_resolves_or_has_no_addresses() -> None:
    """Nothing raises, whatever the name."""
    assert resolve("127.0.0.1", 5.0) == ["127.0.0.1"]
    assert resolve("\0", 5.0) == []
    assert resolve("a" * 10_000, 5.0) == []
