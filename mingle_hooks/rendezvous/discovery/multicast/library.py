"""multicast_expert, whose sockets for asyncio are loaded only by who asks for one."""

from __future__ import annotations

import sys
from types import ModuleType

_ASYNC, _SOCKET = "multicast_expert.async_rx_socket", "AsyncMcastRxSocket"


def load() -> None:
    """Import multicast_expert without asyncio, which would take half of the time. Raises what the import raises.

    The name that it takes from there is given later, to whoever else in this process uses it.
    """
    if "multicast_expert" in sys.modules or "asyncio" in sys.modules:
        return
    sys.modules[_ASYNC] = stand_in = ModuleType(_ASYNC)
    setattr(stand_in, _SOCKET, None)
    try:
        import multicast_expert
    finally:
        del sys.modules[_ASYNC]
    if vars(multicast_expert).pop(_SOCKET, 0) is None:  # a Python that has no such socket there has no such name
        multicast_expert.__getattr__ = _later  # type: ignore[method-assign]


def _later(name: str) -> object:
    if name != _SOCKET:
        raise AttributeError(f"module 'multicast_expert' has no attribute {name!r}")
    from multicast_expert.async_rx_socket import AsyncMcastRxSocket

    return AsyncMcastRxSocket
