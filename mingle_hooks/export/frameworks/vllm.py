"""vLLM: the address by which the other nodes reach this one's processes.

Read in vLLM, vllm/envs.py. The rest are options:
`vllm serve … --nnodes "$NNODES" --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"`.
"""

from __future__ import annotations

from mingle_hooks.world import View


def settings(view: View) -> dict[str, str]:
    """Return this node's address on the world's network."""
    return {"VLLM_HOST_IP": view.place.address} if view.place.address else {}
