"""What a world that forms by multicast sends: no key, beacons that stay on the link, and ports of the range alone."""

import ipaddress
import struct
from typing import NamedTuple

from cluster.hosts import Hosts
from support.members import KEY, evaluating, members, one_world, program, stop

from mingle_hooks.net.addresses import DEFAULT_RANGE

# Prints each packet of IPv4 and IPv6 that this host sends or receives, in hex; "ready" first.
SNIFF = """
import socket
with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)) as tap:
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    print("ready", flush=True)
    while True:
        packet, where = tap.recvfrom(1 << 17)
        if where[1] in (0x0800, 0x86DD):
            print(packet.hex(), flush=True)
"""
TCP, UDP, SYN, SYN_ACK = 6, 17, 2, 18
GROUPS = (ipaddress.ip_network("239.255.0.0/16"), ipaddress.ip_network("ff12::/16"))


class Packet(NamedTuple):
    """What the headers say."""

    hops: int
    protocol: int
    receiver: ipaddress.IPv4Address | ipaddress.IPv6Address
    segment: bytes

    @property
    def port(self) -> int:
        """The receiver's."""
        port: int = struct.unpack_from("!H", self.segment, 2)[0]
        return port


def read(data: bytes) -> Packet:
    """Read an IPv4 or IPv6 packet."""
    if data[0] >> 4 == 4:
        return Packet(data[8], data[9], ipaddress.IPv4Address(data[16:20]), data[4 * (data[0] & 15) :])
    return Packet(data[7], data[6], ipaddress.IPv6Address(data[24:40]), data[40:])


def test_the_network_sees_no_key_no_distant_group_and_no_port_outside_the_range(four: Hosts) -> None:
    """Beacons and questions have a TTL of 1, and the range of their UDP port is the default one, whatever was asked."""
    tap = program(four[0], SNIFF)
    options = ("--id", "job", "--nodes", "2", "--via", "multicast", "--port-range", "31000-31099")
    one_world(members(list(four)[:2], lambda rank: evaluating(*options, "--rank", str(rank))))
    seen = [bytes.fromhex(line) for line in stop(tap).split()]
    assert not [data for data in seen if KEY.encode() in data or bytes.fromhex(KEY) in data]
    packets = [read(data) for data in seen]
    beacons = [
        packet for packet in packets if packet.protocol == UDP and any(packet.receiver in group for group in GROUPS)
    ]
    assert {packet.receiver.version for packet in beacons} == {4, 6}
    assert {(packet.hops, packet.port in DEFAULT_RANGE) for packet in beacons} == {(1, True)}
    dialled = [packet.port for packet in packets if packet.protocol == TCP and packet.segment[13] & SYN_ACK == SYN]
    assert {port in range(31_000, 31_100) for port in dialled} == {True}
