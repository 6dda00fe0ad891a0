"""multicast_expert is loaded without asyncio, which takes as long as all else of it."""

from __future__ import annotations

import subprocess
import sys

USES = """
import sys
from mingle_hooks.rendezvous.multicast import carriers
carriers([])
print("asyncio" in sys.modules)
import multicast_expert
print(hasattr(multicast_expert, "AsyncMcastRxSocket"), "asyncio" in sys.modules)
print(hasattr(multicast_expert, "McastRxSocket"), hasattr(multicast_expert, "nosuch"))
"""


def test_only_who_asks_for_a_socket_of_asyncio_loads_it() -> None:
    """As in a program that has used `mingle_hooks` and then uses multicast_expert; before Python 3.11 it has none."""
    done = subprocess.run([sys.executable, "-c", USES], capture_output=True, text=True, check=True)
    has = sys.version_info >= (3, 11)
    assert done.stdout.splitlines() == ["False", f"{has} {has}", "True False"]
