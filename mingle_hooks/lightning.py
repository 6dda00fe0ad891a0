"""`Trainer(num_nodes=N, plugins=[MingleEnvironment()])`: Lightning's own environment, in the world that mingle gives.

Lightning 2.6 tries a fixed list of environments by itself, and takes any other as a plugin only.
"""

from __future__ import annotations

import os

from lightning.fabric.plugins.environments import LightningEnvironment

from mingle_hooks.api import export, join


class MingleEnvironment(LightningEnvironment):  # type: ignore[misc]  # lightning need not be installed
    """The world of `mingle_hooks.join()`; Lightning starts a node's other processes, which find it in the environment.

    Raises what `mingle_hooks.join` raises.
    """

    def __init__(self) -> None:
        super().__init__()
        if "LOCAL_RANK" not in os.environ:  # neither Lightning nor another launcher has started this process
            export(join())
