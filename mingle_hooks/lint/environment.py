"""The variables that change how a training runs; others are nobody's business."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mingle_hooks.lint.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mingle_hooks.lint.asked import Asked

_PREFIXES = ("NCCL_", "RCCL_", "TORCH_NCCL_", "GLOO_", "UCX_", "FI_", "OMP_", "HSA_", "NVSHMEM_")
_NAMES = (
    *("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "PYTORCH_CUDA_ALLOC_CONF"),
    *("TORCH_DISTRIBUTED_DEBUG", "XLA_FLAGS", "ZE_AFFINITY_MASK"),
)
# Lists of devices and interfaces: nodes name theirs as they like, but should have as many.
_LISTS = ("_VISIBLE_DEVICES", "_NET_DEVICES", "_IFNAME", "_HCA", "_AFFINITY_MASK")
# A member's frame is sealed, not encrypted: what may be a secret stays at home.
_SECRET = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")
_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
LONGEST_NAME = 48
# Settings are words, numbers and short lists; what is longer, or no plain text, travels as a hash.
LONGEST_VALUE = 15
_VALUE_CHARACTERS = f"{_CHARACTERS}abcdefghijklmnopqrstuvwxyz.,:;/^=+-"


def environment(asked: Asked) -> dict[str, str]:
    """Return the variables with their values: short ones as they are, lists of devices as a count, others as hashes."""
    return dict(_told(asked))


def _told(asked: Asked) -> Iterator[tuple[str, str]]:
    for name, value in asked.environ.items():
        if not name.startswith(_PREFIXES) and name not in _NAMES and not name.endswith("_VISIBLE_DEVICES"):
            continue
        if len(name) > LONGEST_NAME or name.strip(_CHARACTERS) or any(word in name for word in _SECRET):
            continue
        if name.endswith(_LISTS):
            yield name, f"{value.count(',') + 1} listed" if value else "empty"
        else:
            yield name, shortened(value, -1 if value.strip(_VALUE_CHARACTERS) else LONGEST_VALUE) or "empty"
