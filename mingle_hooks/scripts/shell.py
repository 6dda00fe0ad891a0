"""A reader of shell scripts: their simple commands, with the position of every word.

It knows quotes, expansions, substitutions, functions, loops, here-documents and arrays, as bash and POSIX shells have
them, in one pass and without running anything. If a quote never ends, it treats all quotes as text, and reports that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from os.path import basename
from typing import Literal, NamedTuple

MOST_NESTED = 40  # quotes within substitutions within quotes: real scripts have four
_MOST_FRAMES = 60


class Text(NamedTuple):
    """Text of a script: `at` has the position in the file of each character, and of the end.

    `early` has the positions of the `$` and backquotes that the shell around it expands.
    """

    text: str
    at: Sequence[int]
    early: frozenset[int] = frozenset()

    @property
    def start(self) -> int:
        """Return where it begins in the file."""
        return self.at[0]

    @property
    def end(self) -> int:
        """Return where it ends in the file."""
        return self.at[-1]

    def part(self, start: int, end: int) -> Text:
        """Return a part of it."""
        return Text(self.text[start:end], self.at[start : end + 1], self.early)

    @property
    def plain(self) -> str:
        """Return it without quotes, and with its expansions as they are written."""
        return self.text if _BARE.fullmatch(self.text) else unquote(self).text


FrameKind = Literal["loop", "function", "if", "case", "group", "subshell", "substitution", "text"]


class Frame(NamedTuple):
    """What a command stands in: a loop, a function's body, text that another shell runs."""

    kind: FrameKind
    name: str  # of a function
    start: int  # in the file


@dataclass(slots=True)
class Command:
    """A simple command. `before` and `after` are the operators around it, such as `||` and `&`."""

    before: str = ""
    after: str = ""
    assignments: list[Text] = field(default_factory=list)
    words: list[Text] = field(default_factory=list)
    outputs: list[Text] = field(default_factory=list)  # files that it writes
    here_documents: list[Text] = field(default_factory=list)
    frames: tuple[Frame, ...] = ()
    start: int = -1
    end: int = -1  # of its last word or redirection

    @property
    def name(self) -> str:
        """Return its first word without quotes and directories."""
        return basename(self.words[0].plain) if self.words else ""

    @property
    def function(self) -> str:
        """Return the name of the innermost function whose body it stands in, "" if it stands in none."""
        return next((frame.name for frame in reversed(self.frames) if frame.kind == "function"), "")

    def has_frame(self, *kinds: FrameKind) -> bool:
        """Return whether it stands in one of these."""
        return any(frame.kind in kinds for frame in self.frames)


class Script(NamedTuple):
    """A script's commands in order.

    `is_whole` is false if a part could not be read. `ends` has the end of each frame, by its start.
    """

    commands: tuple[Command, ...]
    is_whole: bool
    ends: dict[int, int]


class _UnreadableError(Exception):
    """A quote or a substitution without an end, or too many within each other."""


def whole(text: str) -> Text:
    """Return a file's text."""
    return Text(text, range(len(text) + 1))


def read(source: Text, frames: tuple[Frame, ...] = ()) -> Script:
    """Return the commands of a script, or of text that a shell runs within one."""
    try:
        reader, is_whole = _Reader(source, frames), True
    except _UnreadableError:
        reader, is_whole = _Reader(source, frames, is_literal=True), False
    commands = sorted(reader.commands, key=lambda command: command.start)
    return Script(tuple(commands), is_whole, reader.ends)


_BARE = re.compile(r"[^\\'\"$`]*")
_PLAIN = re.compile(r"[^\s\\'\"`$<>|&;()]+")
_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n(?=[\s\\]|\Z)|(?<=\s)\\\r?\n)+")
_SINGLE = re.compile("[^']*'")
_DOUBLE = re.compile(r'[^"\\`$]+')
_BRACE = re.compile(r"[^}\\'\"`$]+")
_ARITHMETIC = re.compile(r"[^()'\"`$\\]+")
_BACKQUOTED = re.compile(r"(?:[^`\\]|\\.)*`", re.DOTALL)
_ANSI = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_OPERATOR = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[;&|]")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|<>|<&|>&|>>|>\||&>>|&>|[<>])")
_DESCRIPTOR = re.compile(r"\d*-?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\s]*\])?\+?=")
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_SPACE = re.compile(r"(?:\s|\\\r?\n|#[^\n]*(?=\n|\Z))+")
_TEST = re.compile(r"(?:[^\\'\"`$\]]|\](?!\]))+")


class _Reader:
    """Reads one source. Every method takes a position and returns the next."""

    def __init__(self, source: Text, frames: tuple[Frame, ...], *, is_literal: bool = False, depth: int = 0) -> None:
        self.source, self.text, self.size = source, source.text, len(source.text)
        self.frames = frames
        self.is_literal = is_literal  # quotes and what begins with $ are text
        self.commands: list[Command] = []
        self.ends: dict[int, int] = {}
        self.pending: list[tuple[str, bool, bool, list[Text]]] = []  # here-documents whose text follows the line
        self.part = Command()  # so far
        self.function: str | None = ""  # whose body comes next; None: the next word is its name
        self.depth = depth
        self._list(0, "")

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise _UnreadableError

    def _list(self, at: int, closing: str) -> int:
        """Read commands up to `closing`, which is `)` in a substitution."""
        frames, part, function = self.frames, self.part, self.function
        self.part, self.function = Command(), ""
        while True:
            if blank := _BLANK.match(self.text, at):
                at = blank.end()
            if at >= self.size:
                if closing:
                    raise _UnreadableError
                self._finish("")
                break
            if self.text[at] == ")":
                self._finish(")")
                if len(self.frames) > len(frames) and self.frames[-1].kind in ("subshell", "function"):
                    self._leave(self.source.at[at + 1], "subshell", "function")
                elif closing and not (self.frames and self.frames[-1].kind == "case"):
                    at += 1
                    break
                at += 1
            else:
                at = self._piece(at)
        self.frames, self.part, self.function = frames, part, function
        return at

    def _piece(self, at: int) -> int:
        """Read a word, an operator, a redirection, a comment or the end of a line."""
        text, char = self.text, self.text[at]
        if char == "\n":
            self._finish("\n")
            return self._here_documents(at + 1)
        if char == "#":
            end = text.find("\n", at)
            return self.size if end < 0 else end
        if char == "(":
            return self._parenthesis(at)
        if (char not in "<>" or text[at + 1 : at + 2] != "(") and (found := _REDIRECT.match(text, at)):
            return self._redirect(found)
        if operator := _OPERATOR.match(text, at):
            self._finish(operator[0])
            return operator.end()
        end = self._word(at)
        if not self.part.words and text[at:end] == "[[" and not self.is_literal:
            end = self._enclosed(end, _TEST, "]]")  # operators in it end no command
        self._take(self.source.part(at, end))
        return end

    def _take(self, word: Text) -> None:
        """Take a word: a reserved one, an assignment, or a word of the command."""
        part = self.part
        if not (part.words or part.assignments) and word.text in _RESERVED:
            if self._reserved(word):
                return
        elif self.function is None:
            self.function = word.text
            return
        if part.start < 0:
            part.start = word.start
        part.end = word.end
        if not part.words and _ASSIGNMENT.match(word.text):
            part.assignments.append(word)
        else:
            part.words.append(word)

    def _reserved(self, word: Text) -> bool:
        """Follow the structure; return whether the word is no part of a command."""
        name = word.text
        if name in _OPENS:
            self._push(_OPENS[name], word.start)
            return name not in _WITH_WORDS
        if name == "function":
            self.function = None
        elif name in _ENDS:
            self._leave(word.end, *_ENDS[name])
        return True

    def _push(self, kind: FrameKind, start: int) -> None:
        """Enter what a command stands in, which may be the body of the function that was named before."""
        name = self.function or "" if kind in ("group", "subshell") else ""
        if len(self.frames) < _MOST_FRAMES:
            self.frames = (*self.frames, Frame("function" if name else kind, name, start))
        self.function = ""

    def _leave(self, end: int, *kinds: FrameKind) -> None:
        if self.frames and self.frames[-1].kind in kinds:
            self.ends[self.frames[-1].start] = end
            self.frames = self.frames[:-1]

    def _finish(self, operator: str) -> None:
        """End a command."""
        if self.part.start >= 0:  # words, or redirections alone, as those after `done`
            self.part.frames, self.part.after = self.frames, operator
            self.commands.append(self.part)
        elif operator == "\n":  # an empty line: `||` and `;;` count on the next
            return
        self.part = Command(operator)
        if operator != "\n":
            self.function = ""

    def _parenthesis(self, at: int) -> int:
        part = self.part
        if len(part.words) == 1 and (found := _FUNCTION.match(self.text, at)):
            self.part, self.function = Command(part.before), part.words[0].text
            return found.end()
        if self.function and (found := _FUNCTION.match(self.text, at)):  # function NAME ()
            return found.end()
        is_loop = len(part.words) == 1 and part.words[0].text == "for"
        if (is_loop or not part.words) and self.text.startswith("((", at) and not self.is_literal:
            end = self._enclosed(at + 2, _ARITHMETIC, ")", opened=2)
            self._take(self.source.part(at, end))
            return end
        if not part.words and not self._is_pattern():
            self._push("subshell", self.source.at[at])
        return at + 1

    def _is_pattern(self) -> bool:
        """Return whether a pattern of `case` comes next."""
        if not self.frames or self.frames[-1].kind != "case":
            return False
        is_first = [(self.frames[-1].start, "\n")] == [(one.start, one.after) for one in self.commands[-1:]]
        return is_first or self.part.before in (";;", ";&", ";;&")

    def _redirect(self, found: re.Match[str]) -> int:
        part = self.part
        operator, at = found[0].lstrip("0123456789"), found.end()
        if part.start < 0:
            part.start = self.source.at[found.start()]
        if blank := _BLANK.match(self.text, at):
            at = blank.end()
        end = self._word(at) if at < self.size and self.text[at] not in "\n;&|()" else at
        word = self.source.part(at, end)
        end = max(end, found.end())
        part.end = self.source.at[end]
        if operator.startswith("<<") and operator != "<<<" and not self.is_literal:
            if word.text:
                is_quoted = not _BARE.fullmatch(word.text)
                self.pending.append((word.plain, is_quoted, operator == "<<-", part.here_documents))
        elif ">" in operator and not (operator.endswith("&") and _DESCRIPTOR.fullmatch(word.text)):
            part.outputs.append(word)
        return end

    def _here_documents(self, at: int) -> int:
        """Read the texts of here-documents that the last line announced."""
        pending, self.pending = self.pending, []
        for delimiter, is_quoted, has_tabs, found in pending:
            start = at
            while at < self.size:
                end = self.text.find("\n", at)
                end = self.size if end < 0 else end
                line = self.text[at:end]
                if (line.lstrip("\t") if has_tabs else line).rstrip("\r") == delimiter:
                    break
                at = min(end + 1, self.size)
            else:
                raise _UnreadableError
            body = self.source.part(start, at)
            found.append(body if is_quoted else _unescape(body, "$`\\"))
            at = min(end + 1, self.size)
        return at

    def _word(self, at: int) -> int:
        self._enter()
        start, text = at, self.text
        while at < self.size:
            if plain := _PLAIN.match(text, at):
                at = plain.end()
            if at >= self.size:
                break
            char = text[at]
            if char in "\\'\"`$" and self.is_literal:
                at += 1
            elif _BLANK.match(text, at):  # a backslash at the end of a line, and blanks on the next
                break
            elif char == "\\":
                at = min(at + 2, self.size)
            elif char in "'\"`$":
                at = self._quoted(at)
            elif (after := self._opened(start, at)) is not None:
                at = after
            else:
                break
        self.depth -= 1
        return max(at, start + 1)

    def _opened(self, start: int, at: int) -> int | None:
        """Read what `<(`, `NAME=(` or `@(` opens within a word, None if it is no part of it."""
        text = self.text
        if self.is_literal:
            return None
        if text[at] in "<>" and at == start and text[at + 1 : at + 2] == "(":
            return self._substitution(at + 2)
        if text[at] != "(" or at == start:
            return None
        if _ASSIGNMENT.fullmatch(text, start, at):
            return self._array(at + 1)
        return self._enclosed(at + 1, _ARITHMETIC, ")") if text[at - 1] in "@?*+!" else None

    def _closed(self, at: int, pattern: re.Pattern[str]) -> int:
        """Read what `pattern` matches, to its end."""
        found = pattern.match(self.text, at)
        if not found:
            raise _UnreadableError
        return found.end()

    def _enclosed(
        self, at: int, plain: re.Pattern[str], closing: str, *, opened: int = 1, is_quoted: bool = False
    ) -> int:
        """Read up to the `closing` of each that is `opened`, over what is `plain`, quotes and expansions."""
        self._enter()
        while at < self.size:
            if found := plain.match(self.text, at):
                at = found.end()
            elif self.text.startswith(closing, at):
                at += len(closing)
                opened -= 1
                if not opened:
                    self.depth -= 1
                    return at
            elif self.text[at] == "(":  # which only arithmetic counts: elsewhere it is `plain`
                opened += 1
                at += 1
            elif self.text[at] == "\\":
                at += 2
            else:
                at = self._quoted(at, is_quoted=is_quoted)
        raise _UnreadableError

    def _backquoted(self, at: int) -> int:
        end = self._closed(at + 1, _BACKQUOTED)
        outer = self.frames
        self._push("substitution", self.source.at[at])
        inner = _Reader(self.source.part(at + 1, end - 1), self.frames, depth=self.depth)
        self.frames = outer
        self.commands += inner.commands
        self.ends |= inner.ends
        return end

    def _dollar(self, at: int, *, is_quoted: bool = False) -> int:
        follows = self.text[at + 1 : at + 2]
        if follows == "(":
            if self.text.startswith("((", at + 1):
                return self._enclosed(at + 3, _ARITHMETIC, ")", opened=2)
            return self._substitution(at + 2)
        if follows == "{":
            return self._enclosed(at + 2, _BRACE, "}", is_quoted=is_quoted)
        return self._closed(at + 2, _ANSI) if follows == "'" and not is_quoted else at + 1

    def _substitution(self, at: int) -> int:
        outer = self.frames
        self._push("substitution", self.source.at[at])
        at = self._list(at, ")")
        self.frames = outer
        return at

    def _quoted(self, at: int, *, is_quoted: bool = False) -> int:
        """Read a quote or an expansion; in double quotes, a single one is text."""
        char = self.text[at]
        if char == "'":
            return at + 1 if is_quoted else self._closed(at + 1, _SINGLE)
        if char == '"':
            return self._enclosed(at + 1, _DOUBLE, '"', is_quoted=True)
        return self._backquoted(at) if char == "`" else self._dollar(at, is_quoted=is_quoted)

    def _array(self, at: int) -> int:
        while True:
            if space := _SPACE.match(self.text, at):
                at = space.end()
            if at >= self.size:
                raise _UnreadableError
            if self.text[at] == ")":
                return at + 1
            at = self._word(at)


_OPENS: dict[str, FrameKind] = {
    **dict.fromkeys(("for", "select", "while", "until"), "loop"),
    "case": "case",
    "if": "if",
    "{": "group",
}
_WITH_WORDS = ("for", "select", "case")  # which begin a command, with the words behind them
_ENDS: dict[str, tuple[FrameKind, ...]] = {
    "done": ("loop",),
    "fi": ("if",),
    "}": ("group", "function"),
    "esac": ("case",),
}
_RESERVED = {"function", "do", "then", "else", "elif", "!", *_OPENS, *_ENDS}


_ESCAPE = re.compile(r"\\(.)|[$`]", re.DOTALL)


def _unescape(source: Text, escaped: str) -> Text:
    """Return text without the backslashes before `escaped`, and say which `$` the shell around it expands."""
    kept: list[str] = []
    at: list[int] = []
    early: set[int] = set(source.early)
    done = 0
    for match in _ESCAPE.finditer(source.text):
        start = match.start()
        if match[1] is None:
            early.add(source.at[start])
        elif match[1] in escaped:  # the backslash goes, and its position is the character's
            kept += [source.text[done:start], match[1]]
            at += [*source.at[done:start], source.at[start]]
            done = match.end()
    return Text("".join([*kept, source.text[done:]]), [*at, *source.at[done:]], frozenset(early))


_QUOTED = re.compile(r"'([^']*)'|\$?\"((?:[^\"\\]|\\.)*)\"|\\(.)|\$'((?:[^'\\]|\\.)*)'|[^'\"\\$]+|\$|.", re.DOTALL)


def unquote(word: Text) -> Text:
    """Return a word without its quotes: what a program gets, or the text that `bash -c` runs."""
    if _BARE.fullmatch(word.text):
        return word
    pieces: list[str] = []
    at: list[int] = []
    end = word.start
    early: set[int] = set(word.early)
    for match in _QUOTED.finditer(word.text):
        start, after = match.span(match.lastindex or 0)
        text, positions = word.text[start:after], word.at[start : after + 1]
        if match.lastindex == 2:  # noqa: PLR2004  # in double quotes
            text, positions, inner = _unescape(Text(text, positions), '$`\\"')
            early |= inner
        elif not match.lastindex and ("$" in text or "`" in text):
            early.update(positions[found.start()] for found in re.finditer(r"[$`]", text))
        pieces.append(text)
        at += positions[:-1]
        end = positions[-1]
    return Text("".join(pieces), [*at, end], frozenset(early))
