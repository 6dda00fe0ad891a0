"""Addresses against Python's own `ipaddress`, which knows them all."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mingle_hooks.fabric.address import Network, ip_address

ADDRESSES = st.one_of(
    st.ip_addresses(),
    st.sampled_from(("127.0.0.1", "127.255.0.9", "169.254.1.2", "224.0.0.1", "239.1.2.3", "240.0.0.1", "0.0.0.0")).map(
        ipaddress.ip_address
    ),
    st.sampled_from(("::", "::1", "fe80::1", "febf::9", "fec0::1", "ff02::1", "fd00::2", "::2")).map(
        ipaddress.ip_address
    ),
)


@given(ADDRESSES, st.integers(0, 128), ADDRESSES)
def test_an_address_is_what_python_takes_it_for(
    theirs: ipaddress.IPv4Address | ipaddress.IPv6Address,
    bits: int,
    other: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    # No interface carries one, and later versions of Python take it for the other family's.
    assume(getattr(theirs, "ipv4_mapped", None) is None)
    prefix = bits % (theirs.max_prefixlen + 1)
    whole = ipaddress.ip_interface(f"{theirs}/{prefix}")
    ours = ip_address(f"{theirs}/{prefix}")
    assert ours == ip_address(str(theirs), prefix)
    assert (ours.host, ours.version, ours.prefix) == (str(theirs), theirs.version, prefix)
    assert str(ours.network) == str(whole.network)
    assert ours.is_loopback == theirs.is_loopback
    assert ours.is_link_local == theirs.is_link_local
    assert ours.is_a_hosts == (not theirs.is_multicast and not theirs.is_unspecified)
    network = ip_address(f"{other}/{prefix % (other.max_prefixlen + 1)}").network
    assert ours.is_in(network) == (theirs in ipaddress.ip_network(str(network)))


def test_an_address_alone_is_a_network_of_one_and_its_zone_does_not_count() -> None:
    assert ip_address("10.0.0.1").network == Network(bytes((10, 0, 0, 1)), 32)
    assert ip_address("fe80::1%eth0").host == "fe80::1"
    assert ip_address("fe80::1%eth0/64").prefix == 64


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "10.0.0.256", "node1", "::g", "10.0.0.1/33", "::/129", "10.0.0.1/-1", "1/x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        ip_address(text)
