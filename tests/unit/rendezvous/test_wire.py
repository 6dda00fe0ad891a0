"""Frames, their proofs, and what is derived from the attempt and the key."""

import ipaddress
import json
from typing import Annotated, NamedTuple

import pytest
from support.gathering import OTHER, SECRET

from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.wire import Attempt, Material, Sealer, Secret, WireError, run_material

# Frames, their bounds, and the proof in each.


def sealed(sealer: Sealer, kind: int, body: wire.Body) -> tuple[int, bytes]:
    """Return kind and payload of a sealed frame."""
    data = sealer.seal(kind, wire.encode(body))
    return data[4], data[wire.HEADER.size :]


def test_frames_that_one_side_seals_the_other_opens_in_order() -> None:
    """Frames, 4 bytes of length, one of kind, and the payload, pass in both directions."""
    assert wire.frame(7, b"abc") == b"\0\0\0\3\7abc"
    sides = (b"member", b"leader"), (b"leader", b"member")
    member, leader = (Sealer(SECRET, b"m" * 16, b"l" * 16, *its) for its in sides)
    for number in range(3):
        assert leader.open(*sealed(member, wire.READY, {"n": number})) == {"n": number}
        assert member.open(*sealed(leader, wire.ANSWER, {"n": number})) == {"n": number}


@pytest.mark.parametrize("sides", [(b"member", b"leader"), (b"leader", b"member")], ids=["to a leader", "to a member"])
@pytest.mark.parametrize("harm", ["repeat", "drop", "reorder", "reflect", "kind", "bit", "mac", "key", "session"])
def test_a_frame_that_is_not_the_next_one_of_this_connection_is_refused(harm: str, sides: tuple[bytes, bytes]) -> None:
    """Repeated, dropped, reordered, reflected and changed frames fail their proof, whichever side hears them."""
    nonces = (b"m" * 16, b"l" * 16)
    speaker, hearer = Sealer(SECRET, *nonces, *sides), Sealer(SECRET, *nonces, *reversed(sides))
    first, second = sealed(speaker, wire.READY, {"n": 1}), sealed(speaker, wire.READY, {"n": 2})
    frames = {
        "repeat": [first, first],
        "drop": [second],
        "reorder": [second, first],
        "reflect": [sealed(hearer, wire.READY, {"n": 1})],
        "kind": [(wire.DONE, first[1])],
        "bit": [(first[0], first[1].replace(b'{"n":1}', b'{"n":3}'))],
        "mac": [(first[0], bytes([first[1][0] ^ 1]) + first[1][1:])],
        "key": [sealed(Sealer(OTHER, *nonces, *sides), wire.READY, {})],
        "session": [sealed(Sealer(SECRET, b"m" * 16, b"k" * 16, *sides), wire.READY, {})],
    }[harm]

    def open_all() -> None:
        for frame in frames:
            hearer.open(*frame)

    with pytest.raises(WireError, match="wrong MAC"):
        open_all()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 10_000, "[]", "NaN", "", "\ud800"])
def test_json_that_is_deep_long_or_no_object_is_refused(text: str) -> None:
    """Neither deep nesting nor long numbers do harm."""
    with pytest.raises(WireError):
        wire.decode(text.encode("utf-8", "surrogatepass"))


class Counted(NamedTuple):
    """A record with a number that may be unknown, a flag, and a field that may be left out."""

    n: Annotated[int, wire.within(0, 10)] | None
    is_last: bool
    more: Annotated[int, wire.within(0, 10)] | None = 3


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"n": None, "is_last": True}, (None, True, 3)),
        ({"n": 10, "is_last": False, "more": None}, (10, False, None)),
        ({"n": 1, "is_last": True, "of a later version": [{}]}, (1, True, 3)),
        ({"is_last": True}, None),
        ({"n": 1}, None),
        *(({"n": 1, "is_last": wrong}, None) for wrong in (None, 1, "true")),
        ({"n": 1, "is_last": True, "more": "3"}, None),
    ],
)
def test_a_record_has_its_fields_and_may_have_more(body: wire.Body, expected: tuple[object, ...] | None) -> None:
    """None is an unknown value, which has to be sent; only a field with a default may be left out."""
    if expected is not None:
        assert wire.parse(Counted, body) == expected
        return
    with pytest.raises(WireError):
        wire.parse(Counted, body)


NO_INTEGERS = [json.loads(text) for text in ("NaN", "1e3", "1.0", "true", '"1"', "null", "-1", "11", "[1]", "1" * 4000)]
NO_TEXTS = ["x" * 11, "a\nb", "\x1b[2J", "\u202e", "\x7f", 3, None, ["a"]]
NO_OCTETS = ["", "ab", "abc", "zz" * 2, "ab cd", "abcdef", "\uff41\uff42\uff43\uff44"]
# Names would make connect() ask the resolver.
NO_ADDRESSES = [
    *("node1", "dead", "1.2.3", "127.1", "fe80::1%eth0", "fe80::1%", "fe80::1%9999999999", "::1;reboot", "", "0", None)
]


@pytest.mark.parametrize(
    ("read", "value"),
    [
        *((wire.within(0, 10), value) for value in NO_INTEGERS),
        *((wire.printable_text(10), value) for value in NO_TEXTS),
        *((wire.hex_bytes(2), value) for value in NO_OCTETS),
        *((wire.address, value) for value in NO_ADDRESSES),
    ],
)
def test_a_value_of_another_kind_or_out_of_bounds_is_refused(read: wire.Reader, value: object) -> None:
    """Integers are no floats or booleans, text is printable and bounded, bytes are that many hex digits."""
    with pytest.raises(WireError):
        read({"v": value}, "v")


@pytest.mark.parametrize("value", ["10.0.0.1", "::1", "fd00::7", "fe80::1%3"])
def test_an_address_is_read_as_it_is(value: str) -> None:
    """It may be IPv4, IPv6, or link-local with the number of a zone."""
    assert wire.address({"a": value}, "a") == value


# Names, tags, groups and keys follow from id, step and restarts, and from nothing else.


def test_no_two_attempts_are_alike() -> None:
    """Text of one part cannot be taken for another part's."""
    parts = ("a1",), ("a", "1"), ("", "a1"), ("a", "", 1), ("a", "", 11), ("a", "1", 1), ("a", "11"), ("a", "", 0)
    attempts = [Attempt(*its) for its in parts]
    macs = [Secret.derive(Material(b"k" * 32), its).mac(b"x") for its in attempts]
    for derived in ([its.name for its in attempts], [its.tag for its in attempts], macs):
        assert len({*derived}) == len(parts)


def test_groups_are_multicast_and_ports_are_in_range() -> None:
    """Groups are in 239.255.0.0/16 (RFC 2365) and ff12::/16, and ports in the requested range."""
    some = range(30_000, 30_010)
    for attempt in (Attempt(f"{number}") for number in range(100)):
        assert ipaddress.ip_address(attempt.group4) in ipaddress.ip_network("239.255.0.0/16")
        assert ipaddress.ip_address(attempt.group6) in ipaddress.ip_network("ff12::/16")
        assert str(ipaddress.ip_address(attempt.group6)) == attempt.group6
        groups = wire.check_in_ports(attempt, Secret.derive(Material(b"k" * 32), attempt), some)
        assert [len(set(group)) for group in groups] == [2, 2]
        assert all(port in some for group in groups for port in group)
        assert 1024 <= wire.multicast_port(attempt) < 65536


def test_a_mac_depends_on_the_boundaries_of_its_parts() -> None:
    """Moving a byte from one part to the next changes it."""
    secret = Secret.derive(Material(b"k" * 32), Attempt("a"))
    assert secret.mac(b"p", b"ab", b"c") != secret.mac(b"p", b"a", b"bc")
    mac = secret.mac(b"p", b"a")
    assert [secret.agrees(its, of, b"a") for its, of in ((mac, b"p"), (mac, b"q"), (b"", b"p"))] == [True, False, False]


def test_the_worlds_port_follows_from_the_key_and_is_the_same_in_all_runs_of_a_job() -> None:
    """Tasks that a shell of ssh starts have no PBS_JOBCOOKIE, and --no-wait gives all nodes the same port."""
    one, another = Material(b"k" * 32), Material(b"l" * 32)
    first, second = Attempt("a", run=run_material("one")), Attempt("a", run=run_material("two"))
    assert Secret.derive(one, first).master_seed == Secret.derive(one, second).master_seed
    assert Secret.derive(one, first).master_seed == Secret.derive(one, Attempt("a")).master_seed
    assert Secret.derive(one, first).master_seed != Secret.derive(another, first).master_seed
    assert Secret.derive(one, first).master_seed != Secret.derive(one, Attempt("b")).master_seed


def test_a_key_is_not_shown() -> None:
    """No trace and no message contains it."""
    assert "kkk" not in repr(Material(b"kkk")) + repr(Secret(b"kkk")) + f"{Material(b'kkk')!r}"
