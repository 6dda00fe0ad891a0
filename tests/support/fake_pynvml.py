"""A pynvml whose driver is a directory of JSON: `0.json` has what the first GPU answers otherwise than a sound one."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DRIVER = Path("/run/nvml")
NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND = 9, 12
NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 15, 16
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_NVLINK_MAX_LINKS = 1, 0, 18
UNSUPPORTED = 3
_ANSWERS: dict[str, Any] = {
    "TotalEccErrors": 0,
    "RemappedRows": (3, 0, 0, 0),
    "CurrentClocksThrottleReasons": 0x05,  # idle, and at its power limit
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkGeneration": 5,
    "PowerManagementLimit": 700_000,
    "EccMode": (1, 1),
    "NvLinkState": 1,
    "ComputeRunningProcesses": [],
}


class NVMLError(Exception):
    """One of NVML's errors, by its number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def _read(name: str, default: Any) -> Any:
    file = DRIVER / name
    return json.loads(file.read_text()) if file.exists() else default


def nvmlInit() -> None:  # noqa: N802 - its name
    """Fail with the error in `init`, or hang."""
    if found := _read("init", 0):
        time.sleep(60 if found == "hang" else 0)
        raise NVMLError(found)


def nvmlDeviceGetCount() -> int:  # noqa: N802
    """Return how many GPUs there are."""
    return int(_read("count", 8))


def __getattr__(name: str) -> Callable[..., Any]:
    what = name.removeprefix("nvmlDeviceGet")

    def ask(gpu: int, *_more: object) -> Any:
        answers = {"HandleByIndex": gpu, "UUID": f"GPU-{gpu:02}", **_ANSWERS, **_read(f"{gpu}.json", {})}
        answer = answers.get(what, {"error": UNSUPPORTED})
        if isinstance(answer, dict):
            raise NVMLError(answer["error"])
        return [SimpleNamespace(pid=pid) for pid in answer] if what == "ComputeRunningProcesses" else answer

    if what == name:
        raise AttributeError(name)
    return ask
