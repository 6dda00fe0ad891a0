"""A shell script as logical lines: what quotes, parentheses and backslashes join, and who runs it.

One pass over the text. A script whose quotes do not come out even is read line by line.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

# Each match takes at least one character, and none is looked at twice.
_PIECE = re.compile(r"[^\\'\"`$()#<\n]+|\\.|\$?\(\(?|\$|.", re.DOTALL)
_HERE = re.compile(r"<<-?[ \t]*[\\'\"]?(\w{1,255})['\"]?")
_ESCAPED = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)  # what follows $'
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB|\$)\s")
_COMMAND_TEXT = re.compile(r"\s-[a-z]{0,8}c\s{1,4}$")  # bash -c, bash -lc
_FUNCTION = re.compile(r"(?:function[ \t]+[\w:.-]+|[\w:.-]+[ \t]*\([ \t]*\))(?:[ \t]*\([ \t]*\))?\s*[{(]")


class Line(NamedTuple):
    """A logical line without comments, with a line feed for each that it is joined of.

    `here` is `text` with blanks for what single quotes keep for another shell. `early` are the places in it where
    this shell runs `$(mingle …)` within the text of `bash -c "…"`. `is_inside` tells what other lines start: a
    function's body or a here-document.
    """

    number: int  # of its first line in the file, from 1
    text: str
    here: str
    early: tuple[int, ...] = ()
    is_inside: bool = False


def parted(text: str) -> tuple[list[Line], list[Line]]:
    """Return the scheduler's directives and the lines of shell that hold something."""
    scanner = _Scanner(text, joins=True)
    scanner.run()
    if scanner.frames:  # a quote without an end, at least for this reader
        scanner = _Scanner(text, joins=False)
        scanner.run()
    return scanner.directives, _with_functions([line for line in scanner.lines if line.text.strip()])


class _Scanner:
    """The state between two pieces of text: open quotes and parentheses, and the logical line so far."""

    def __init__(self, text: str, *, joins: bool) -> None:
        self.source, self.joins = text, joins
        self.directives: list[Line] = []
        self.lines: list[Line] = []
        # What is open: " and c (the same, after bash -c), ( and $(, a for arithmetic.
        self.frames: list[str] = []
        self.commands = 0  # how many of them are c
        self.ends = {line.strip() for line in text.split("\n")}  # what can end a here-document
        self.pending: deque[str] = deque()
        self.number = self.first = 1
        self._clear()

    def _clear(self) -> None:
        self.texts: list[str] = []
        self.heres: list[str] = []
        self.early: list[int] = []
        self.length = 0

    def run(self) -> None:
        """Read the text to its end."""
        at, size = 0, len(self.source)
        while at < size:
            found = _PIECE.match(self.source, at)
            piece = found[0] if found else self.source[at]  # every character matches
            at = self._step(piece, at, at + len(piece))
        self._emit()

    def _step(self, piece: str, at: int, after: int) -> int:
        """Take one piece, and return where the next begins."""
        if piece == "\n":
            self._add(piece)
            return self._newline(after)
        if piece == "\\\n":
            self.number += 1
            self._add("\n")
        elif self.frames and self.frames[-1] in '"c':
            self._within_quotes(piece, after)
        elif "(" in piece and piece[0] in "$(":
            self._open(piece, after)
        else:
            return self._outside(piece, at, after)
        return after

    def _within_quotes(self, piece: str, after: int) -> None:
        if piece[0] == "$" and "(" in piece:
            self._open(piece, after)
            return
        if piece == '"':
            self.commands -= self.frames.pop() == "c"
        elif piece == "`":
            self._expanded(after)
        self._add(piece)

    def _outside(self, piece: str, at: int, after: int) -> int:
        if piece == "'":
            return self._single(at)
        if piece == "#" and (at == 0 or self.source[at - 1] in " \t\n;&|("):
            return self._comment(at)
        if piece == "<" and self.source.startswith("<<", at):
            return self._here_document(at)
        if piece == '"':
            self.frames.append("c" if _COMMAND_TEXT.search(self.source[max(0, at - 16) : at]) else '"')
            self.commands += self.frames[-1] == "c"
        elif piece == ")" and self.frames:
            self.frames.pop()
        self._add(piece)
        return after

    def _add(self, text: str, here: str | None = None) -> None:
        self.texts.append(text)
        self.heres.append(text if here is None else here)
        self.length += len(text)

    def _open(self, piece: str, after: int) -> None:
        parens = piece.count("(")
        self.frames += ["(" if parens == 1 else "a"] * parens
        if piece == "$(":
            self._expanded(after)
        self._add(piece)

    def _expanded(self, after: int) -> None:
        if self.commands and self.source.startswith("mingle ", after):
            self.early.append(self.length)

    def _single(self, at: int) -> int:
        if self.source[at - 1 : at] == "$":
            found = _ESCAPED.match(self.source, at + 1)
            end = found.end() - 1 if found else -1
        else:
            end = self.source.find("'", at + 1)
        if end < 0 or (not self.joins and self.source.find("\n", at + 1, end) >= 0):
            self._add("'")
            return at + 1
        text = self.source[at : end + 1]
        self._add(text, re.sub(r"[^\n]", " ", text))
        self.number += text.count("\n")
        return end + 1

    def _comment(self, at: int) -> int:
        end = self.source.find("\n", at)
        end = len(self.source) if end < 0 else end
        if self.source[at - 1 : at] in ("", "\n"):
            self._directive(self.source[at:end])
        return end

    def _directive(self, text: str) -> bool:
        if _DIRECTIVE.match(text):
            self.directives.append(Line(self.number, text, text))
            return True
        return False

    def _here_document(self, at: int) -> int:
        if self.source.startswith("<<<", at):
            self._add("<<<")
            return at + 3
        found = _HERE.match(self.source, at)
        if not found or found[1] not in self.ends or self.frames[-1:] == ["a"]:
            self._add("<<")
            return at + 2
        self.pending.append(found[1])
        self._add(found[0])
        return found.end()

    def _newline(self, at: int) -> int:
        self.number += 1
        if not self.joins:
            self.frames.clear()
            self.commands = 0
        bodies = []
        while self.pending and at < len(self.source):
            end = self.source.find("\n", at)
            end = len(self.source) if end < 0 else end
            text = self.source[at:end]
            at = end + 1
            if text.strip() == self.pending[0]:
                self.pending.popleft()
            elif not self._directive(text) and not text.lstrip().startswith("#"):
                bodies.append(Line(self.number, text, text, (), is_inside=True))
            self.number += 1
        if not self.frames:
            self._emit()
        self.lines += bodies
        return at

    def _emit(self) -> None:
        self.lines.append(Line(self.first, "".join(self.texts), "".join(self.heres), tuple(self.early)))
        self.first = self.number
        self._clear()


def _with_functions(lines: list[Line]) -> list[Line]:
    """Mark the bodies of functions, which end at a brace that stands as far to the left as their name."""
    found, indent = [], -1
    for line in lines:
        text = line.text.strip()
        here = len(line.text) - len(line.text.lstrip())
        begins = indent < 0 and bool(_FUNCTION.match(text))
        is_inside = line.is_inside or begins or indent >= 0
        found.append(line._replace(is_inside=is_inside))
        if begins and text[-1] not in "})":
            indent = here
        elif indent == here and text[0] in "})":
            indent = -1
    return found
