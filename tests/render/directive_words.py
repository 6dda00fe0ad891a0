"""Directives taken apart into words, as the reader of each scheduler's own source does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def torque_words(text: str) -> list[str]:
    """Take a directive apart as make_argv() of Torque's qsub does."""
    words: list[str] = []
    word, rest, within = "", iter(text), False
    for char in rest:
        if char in "\"'":
            within = True
            for inner in rest:
                if inner == char:
                    break
                word += inner
            else:
                raise AssertionError(f"qsub: unmatched {char} in {text!r}")
        elif char == "\\":
            word += next(rest)
        elif char in " \t\n\v\f\r":
            words += [word] if word or within else []
            word, within = "", False
        else:
            word += char
    return words + ([word] if word or within else [])


def sge_words(text: str) -> list[str]:
    """Take a directive apart as parse_script_file(), string_list() and sge_strip_quotes() do."""
    words = re.findall(r"""(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|[^ \t\n"'])+""", text.partition("#")[0].rstrip())
    return [re.sub("[\"']", "", word) for word in words]


def lsf_words(text: str) -> list[str]:
    """Take a directive apart as parseLine() and getNextValueQ_() do."""
    read: list[str] = []
    words = text.split()
    while words:
        rest = " ".join(words)
        mark = "'" if "'" in rest and ('"' not in rest or rest.index("'") < rest.index('"')) else '"'
        word = words.pop(0)
        if word.startswith(mark):
            word = words.pop(0) if word == mark else word[1:]
            while mark not in word:
                word += " " + words.pop(0)
            word = word[: word.rindex(mark)]
        if word.startswith("#"):
            return read
        read.append(word)
    return read


READERS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "torque": ("#PBS", torque_words),
    "lsf": ("#BSUB", lsf_words),
    "sge": ("#$", sge_words),
}


def lines(scheduler: str, script: str) -> list[list[str]]:
    """Return the words of each directive of a script."""
    marker, reader = READERS[scheduler]
    return [reader(line.removeprefix(marker)) for line in script.split("\n") if line.startswith(marker)]
