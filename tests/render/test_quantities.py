"""Times and sizes in every usual spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingle_hooks.errors import UsageError
from mingle_hooks.scripts.job import as_hms as hms
from mingle_hooks.scripts.job import as_size as size
from mingle_hooks.scripts.job import mebibytes_of as mebibytes
from mingle_hooks.scripts.job import seconds_of as seconds

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[("90", 90 * 60), ("5:00", 300), ("1:30:00", 5400), ("1-12", DAY + 12 * 3600), ("1-12:30", DAY + 45_000)],
        *[("2-01:02:03", 2 * DAY + 3723), ("100:00:00", 360_000), (90, 5400)],
        *[
            ("90s", 90),
            ("30m", 1800),
            ("1h30m", 5400),
            ("1.5h", 5400),
            ("2d", 2 * DAY),
            ("1D 2H", DAY + 7200),
            ("0.5s", 1),
        ],
    ],
)
def test_a_time_is_read_as_sbatch_reads_it_or_with_units(text: object, expected: int) -> None:
    """Each spelling is so many seconds."""
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "1:2:3:4", "1-2-3", "h", "1.2.3h", "five", "1e3", "99999-00", True, None, "٣"]
)
def test_what_is_no_time_is_refused(text: object) -> None:
    """Anything else is an error that shows spellings."""
    with pytest.raises(UsageError, match="duration"):
        seconds(text)


@given(st.integers(1, 3650 * DAY))
def test_a_written_time_is_the_same_when_read(duration: int) -> None:
    """HH:MM:SS, as every scheduler gets it, is the time that it was."""
    assert seconds(hms(duration)) == duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        (4096, 4096),
        ("16G", 16_384),
        ("16gb", 16_384),
        ("16 GiB", 16_384),
        ("1.5T", 1_572_864),
        ("512k", 1),
        ("100MB", 100),
    ],
)
def test_a_size_is_in_mebibytes(text: object, expected: int) -> None:
    """Each spelling is so many MiB, rounded up; a number alone is MiB, as in sbatch."""
    assert mebibytes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1G", "16X", "G", "1e9", "16 G B", None, 1.5])
def test_what_is_no_size_is_refused(text: object) -> None:
    """Anything else is an error that shows spellings."""
    with pytest.raises(UsageError, match="size"):
        mebibytes(text)


def test_a_size_is_written_in_the_largest_whole_unit() -> None:
    """64 GiB are 64G for Slurm and 64gb for PBS; what is no whole GiB stays in MiB."""
    assert [size(65_536, ("M", "G")), size(65_536, ("mb", "gb")), size(1000, ("M", "G"))] == ["64G", "64gb", "1000M"]
    assert size(1536, ("M", "G")) == "1536M"
