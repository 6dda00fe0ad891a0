"""One defect: a text of the project, what stands there instead, and the tests that must fail then."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]
# A row runs this long at most, in seconds: most tests named here take less than one.
LIMIT_S = 90.0


class Defect(NamedTuple):
    """A mistake that a programmer could make. `tests` are pytest's names, with blanks between them."""

    name: str
    file: str
    text: str  # a part of one line, found once in the file
    instead: str
    tests: str
    hangs: bool = False  # it is caught by a wait that does not end: running out of time is what is expected

    def applied(self, project: Path = PROJECT) -> str:
        """Return the file's text with the defect. Raises ValueError where it does not stand there once."""
        text = (project / self.file).read_text(encoding="utf-8")
        if text.count(self.text) != 1:
            raise ValueError(f"{self.file} has {text.count(self.text)} times, not once: {self.text}")
        return text.replace(self.text, self.instead)
