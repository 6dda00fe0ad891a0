"""services_crowd.py SIZE LIMIT_S: so many hosts that offer and find services by zeroconf, in one process.

Print the seconds from when the last one comes, all others having found each other, until each has found all.
"""

import asyncio
import os
import socket
import sys
import time

from services import KIND, Found
from zeroconf import ServiceInfo
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

size, limit_s = int(sys.argv[1]), float(sys.argv[2])
own = socket.gethostbyname(socket.gethostname())


async def be(number: int, zeroconf: AsyncZeroconf) -> Found:
    """Come, and offer a service."""
    found = Found(size)
    AsyncServiceBrowser(zeroconf.zeroconf, KIND, listener=found)
    name = f"host{number}.{KIND}"
    await (await zeroconf.async_register_service(ServiceInfo(KIND, name, 1, addresses=[socket.inet_aton(own)])))
    return found


async def all_find(count: int, everyone: list[Found]) -> None:
    """Wait until each has found so many."""
    until_s = time.monotonic() + limit_s
    while (least := min(len(found.names) for found in everyone)) < count:
        if time.monotonic() > until_s:
            sys.exit(f"after {limit_s:g} s one had found {least} of {count}")
        await asyncio.sleep(0.005)


async def main() -> None:
    """Run all of them, and never end them one by one."""
    *first, last = [AsyncZeroconf(interfaces=[own]) for _ in range(size)]
    everyone = list(await asyncio.gather(*(be(number, host) for number, host in enumerate(first))))
    await all_find(size - 1, everyone)
    began_s = time.monotonic()
    everyone.append(await be(size, last))
    await all_find(size, everyone)
    print(time.monotonic() - began_s, flush=True)
    os._exit(0)  # hundreds of goodbyes take longer


if __name__ == "__main__":
    asyncio.run(main())
