"""Times and sizes in every usual spelling, and as each scheduler writes them."""

from __future__ import annotations

import re

from mingle_hooks.errors import UsageError
from mingle_hooks.values import duration

_DAY_S = 86_400
# Ten years: beyond any scheduler's longest job, and within the 32-bit minutes that Slurm counts in.
_LONGEST_S = 3650 * 86_400
# sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].
_CLOCK = re.compile(r"(?:(?P<days>[0-9]{1,5})-)?(?P<clock>[0-9]{1,9}(?::[0-9]{1,9}){0,2})")
# Schedulers count in powers of two, whatever the letter case and with or without the "i" and "B".
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?:([kmgtp])(?:i?b)?)?", re.IGNORECASE)
_KIB = {"k": 1, "m": 1024, "g": 1024**2, "t": 1024**3, "p": 1024**4}
_MOST_MIB = 1 << 40  # an exbibyte


def seconds(value: object) -> int:
    """Read a duration: what sbatch reads (90, 5:00, 1:00:00, 1-12, 1-12:00:00), or 90s, 30m, 1h30m, 1.5h, 2d.

    A number without a unit is minutes, as in sbatch. Returns seconds, rounded up. Raises UsageError.
    """
    text = str(value).strip().lower()
    found = 0.0
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        found = _clock(text) if _CLOCK.fullmatch(text) else duration(text)
    if not 0 < found <= _LONGEST_S:
        raise UsageError("a duration", repr(value), "90 (minutes), 1:30:00, 1-12:00:00, 30m, 1.5h or 2d")
    return -int(-found // 1)


def _clock(text: str) -> float:
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # After days come hours; alone, a number is minutes.
    units: tuple[int, ...] = (3600, 60, 1) if days else ((60,), (60, 1), (3600, 60, 1))[len(parts) - 1]
    return int(days or 0) * _DAY_S + sum(part * unit for part, unit in zip(parts, units, strict=False))


def hms(duration_s: int) -> str:
    """Write seconds as HH:MM:SS, which every scheduler reads the same."""
    return f"{duration_s // 3600:02}:{duration_s // 60 % 60:02}:{duration_s % 60:02}"


def mebibytes(value: object) -> int:
    """Read a size: 4096 (MiB, as in sbatch), 16G, 16gb, 16 GiB, 1.5T. Returns MiB, rounded up. Raises UsageError."""
    match = _SIZE.fullmatch(str(value).strip()) if isinstance(value, (str, int)) else None
    found = float(match[1]) * _KIB[(match[2] or "m").lower()] / 1024 if match else 0
    if not 0 < found <= _MOST_MIB:
        raise UsageError("a size of memory", repr(value), "4096 (MiB), 16G, 16gb or 1.5T")
    return -int(-found // 1)


def size(mib: int, units: tuple[str, str]) -> str:
    """Write MiB in the scheduler's units for mebi and gibi, the larger where it comes out whole."""
    return f"{mib}{units[0]}" if mib % 1024 else f"{mib // 1024}{units[1]}"
