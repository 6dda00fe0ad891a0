"""A checker of directives that knows nothing of the renderer: what each scheduler documents stands in grammar_*.py.

A grammar has the form of each option's argument, and the rules that join options. Beside it, a reader says in plain
words what the directives ask for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from directive_words import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Form = str | Callable[[str], bool]  # a pattern for all of an argument, or a function that tells
    Options = dict[str, list[str]]

NUMBER = "[1-9][0-9]*"
# user[@host][,user[@host],...]
USERS = r"[^\s@,]+(?:@[A-Za-z0-9.-]+)?(?:,[^\s@,]+(?:@[A-Za-z0-9.-]+)?)*"
_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}


class GrammarError(AssertionError):
    """A directive that the scheduler's documentation does not allow."""


class Grammar(NamedTuple):
    """The options of one scheduler, each with its argument's form (None: no argument), and what joins them.

    `pairs` are options with two arguments, which are told with a blank between; `many` may stand in several directives.
    """

    scheduler: str
    options: Mapping[str, Form | None]
    is_consistent: Callable[[Options], bool]
    pairs: tuple[str, ...] = ()
    many: tuple[str, ...] = ()


def checked(grammar: Grammar, script: str) -> Options:
    """Return each option's arguments. Raises GrammarError for what the scheduler does not document."""
    options: Options = {}
    for words in lines(grammar.scheduler, script):
        rest = iter(words)
        for option in rest:
            options.setdefault(option, []).append(
                _argument(grammar, option, [next(rest, "") for _ in _places(grammar, option)])
            )
    for option, arguments in options.items():
        if len(arguments) > 1 and option not in grammar.many:
            raise GrammarError(f"{grammar.scheduler} {option} twice: {arguments}")
    if not grammar.is_consistent(options):
        raise GrammarError(f"{grammar.scheduler}: options that contradict each other: {options}")
    return options


def _places(grammar: Grammar, option: str) -> range:
    return range(0 if grammar.options.get(option) is None else 1 + (option in grammar.pairs))


def _argument(grammar: Grammar, option: str, words: Sequence[str]) -> str:
    argument = " ".join(words)
    if option not in grammar.options:
        raise GrammarError(f"{grammar.scheduler} has no {option}")
    form = grammar.options[option]
    if form is not None and not fits(form, argument):
        raise GrammarError(f"{grammar.scheduler} {option} takes no {argument!r}")
    return argument


def fits(form: Form, argument: str) -> bool:
    """Tell whether an argument has the form."""
    return bool(re.fullmatch(form, argument)) if isinstance(form, str) else form(argument)


def are_ranges(text: str, least: int, step: str = "") -> bool:
    """Tell whether these are numbers and ranges FIRST-LAST, of which none is below `least` or runs backwards."""
    for part in text.split(","):
        match = re.fullmatch(rf"([0-9]+)(?:-([0-9]+){step})?", part)
        if not match or not least <= int(match[1]) <= int(match[2] or match[1]):
            return False
    return True


def mebibytes(text: str) -> float:
    """Return a size such as 64G or 512mb in MiB."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z])[Bb]?", text)
    assert match, text
    return float(match[1]) * _MIB[match[2].lower()]


def seconds(hms: str) -> int:
    """Return a time HH:MM:SS in seconds."""
    hours, minutes, rest = map(int, hms.split(":"))
    return hours * 3600 + minutes * 60 + rest


def named(options: Options, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the only argument of each option by its field's name, "" where there is none."""
    return {field: options.get(option, [""])[0] for field, option in fields.items()}
