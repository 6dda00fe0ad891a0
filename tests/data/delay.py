"""Pass packets between two interfaces, each after some seconds: `delay.py ib0p3 slow0 0.03`."""

import select
import socket
import sys
import time
from collections import deque

# linux/if_packet.h: packets with the kernel's notes on their checksums, and none of our own.
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 15, 23, 3
ends = []
for name in sys.argv[1:3]:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.bind((name, ETH_P_ALL))
    ends.append(end)
waiting: deque[tuple[float, socket.socket, bytes]] = deque()
while True:
    left_s = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
    for end in select.select(ends, [], [], left_s)[0]:
        waiting.append((time.monotonic() + float(sys.argv[3]), ends[end is ends[0]], end.recv(1 << 17)))
    while waiting and waiting[0][0] <= time.monotonic():
        _, to, packet = waiting.popleft()
        to.send(packet)
