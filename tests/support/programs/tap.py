"""Tell of each frame of some kinds that goes in or out of this host over IPv4, one a line; arguments: the kinds' names.

A line is kind, the sender's address, the receiver's, and the payload in hex. It is "ready" first. Whoever may listen to
a network sees as much: what has no proof and what has one are both sent in the clear.
"""

import socket
import struct
import sys

from mingle_hooks.rendezvous import wire

NAMES = {getattr(wire, name): name for name in sys.argv[1:]}
ALL_PROTOCOLS, BUFFER_BYTES, IPV4, TCP = 3, 1 << 24, 0x0800, 6


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return the frames that begin in a segment and end in it: small ones are sent one at a time."""
    found = []
    while len(data) >= wire.HEADER.size:
        length, kind = wire.HEADER.unpack_from(data)
        payload, data = data[wire.HEADER.size :][:length], data[wire.HEADER.size + length :]
        if len(payload) == length:
            found.append((kind, payload))
    return found


with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PROTOCOLS)) as tap:
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    print("ready", flush=True)
    while True:
        packet, where = tap.recvfrom(1 << 17)
        if where[1] != IPV4 or packet[9] != TCP:
            continue
        packet = packet[: struct.unpack_from("!H", packet, 2)[0] or len(packet)]
        segment = packet[4 * (packet[0] & 15) :]
        for kind, payload in frames(segment[4 * (segment[12] >> 4) :]):
            if kind in NAMES:
                ends = [socket.inet_ntoa(packet[start : start + 4]) for start in (12, 16)]
                print(NAMES[kind], *ends, payload.hex(), flush=True)
