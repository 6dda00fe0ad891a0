"""Slurm's patterns in the name of an output file, such as logs/%x-%j.out, in another scheduler's words.

Source: sbatch(1), "filename pattern". A % that begins none of them stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mingle_hooks.scripts.fields import refused

_PATTERN = re.compile("%(?:%|([0-9]*)([AabJjNnstux]))")


def translated(field: str, path: str, words: Mapping[str, str]) -> str:
    """Return the path with what `words` says for each pattern's letter, and % for %%.

    Raises UsageError for another letter or a number of digits, which only Slurm has.
    """

    def word(match: re.Match[str]) -> str:
        digits, letter = match.groups()
        if letter is None:
            return "%"
        if digits or letter not in words:
            raise refused(field, path, f"a path without Slurm's {match[0]}", f"--{field} {_other(path, words)}")
        return words[letter]

    return _PATTERN.sub(word, path)


def _other(path: str, words: Mapping[str, str]) -> str:
    """Return a path that can be translated: with the job's number, or a directory."""
    if "j" not in words:
        directory = path.partition("%")[0].rpartition("/")
        return f"{directory[0]}{directory[1] or './'}, a directory (with the /), where the file is named after the job"
    return _PATTERN.sub(
        lambda match: match[0] if match[2] is None else f"%{match[2] if match[2] in words else 'j'}", path
    )
