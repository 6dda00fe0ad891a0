"""Say again and again what leaders of earlier tries of an id have said; arguments: id, own address, address, key.

Nobody is at the other address any more, and who calls there waits. To make what so many leaders said takes the key; to
say it again does not.
"""

import os
import socket
import sys
import time

from mingle_hooks.rendezvous import multicast
from mingle_hooks.rendezvous.wire import Attempt, Material, Secret, multicast_port

LEADERS = 200
attempt = Attempt(sys.argv[1])
secret = Secret.derive(Material(sys.argv[4].encode()), attempt)
said = [
    multicast.pack_beacon(
        multicast.Beacon(multicast.BEACON, attempt.tag, os.urandom(16), 0, 20_000 + number, (sys.argv[3],)), secret
    )
    for number in range(LEADERS)
]
group = attempt.group4, multicast_port(attempt)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[2]))
print("ready", flush=True)
while True:
    for data in said:
        udp.sendto(data, group)
        time.sleep(0.002)
