"""SGLang: the address by which the other nodes reach this one's processes.

Read in SGLang, srt/utils/network.py. The rest are options: `python -m sglang.launch_server …
--nnodes "$NNODES" --node-rank "$NODE_RANK" --dist-init-addr "$MASTER_ADDR:$MASTER_PORT"`.
"""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return this node's address on the world's network."""
    return {"SGLANG_HOST_IP": view.place.address} if view.place.address else {}
