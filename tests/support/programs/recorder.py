"""Record what is said by multicast, without the key, and say all of it again and again. Arguments: id, own address.

Says "ready" when it listens; from the first line on stdin it repeats what it has heard, and says how much of what.
"""

import json
import selectors
import socket
import sys
import time

from mingle_hooks.rendezvous import multicast as beacon
from mingle_hooks.rendezvous.wire import Attempt, Secret, multicast_port

attempt = Attempt(sys.argv[1])
own = socket.inet_aton(sys.argv[2])
group = attempt.group4, multicast_port(attempt)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
udp.bind(("", group[1]))
udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + own)
udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
recorded: dict[bytes, str] = {}
with selectors.DefaultSelector() as selector:
    selector.register(udp, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while sys.stdin not in [key.fileobj for key, _ in selector.select()]:
        data = udp.recv(2048)
        packet = beacon.unpack_beacon(data, attempt.tag, Secret(b"not the key"))
        if packet is not None:
            kind = "beacon" if packet.kind == beacon.BEACON else "question"
            recorded[data] = "answer" if kind == "beacon" and packet.nonces else kind
kinds = list(recorded.values())
print(json.dumps({kind: kinds.count(kind) for kind in sorted(set(kinds))}), flush=True)
while True:
    for data in recorded:
        udp.sendto(data, group)
        time.sleep(0.005)
