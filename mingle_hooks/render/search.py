"""Where templates are found: directories in order, the first that has the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks import shipped
from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.files import config_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SITE = "/etc/mingle/templates"
BUILT_IN = "templates/job"
SUFFIX = ".sh.j2"
_LARGEST_BYTES = 1 << 20  # a template is a page


def path(given: Iterable[str], environ: Mapping[str, str], *, site: str = SITE) -> tuple[str, ...]:
    """Return the search path before the built-in templates: the given directories, the user's, the site's.

    `given` is --template-dir, or else MINGLE_TEMPLATES and the settings. One that does not exist is an error, as
    the built-in template would be used without a word. Raises UsageError.
    """
    for directory in given:
        if not os.path.isdir(directory):
            raise UsageError(
                "a directory of templates", directory, "mkdir, or correcting --template-dir or MINGLE_TEMPLATES"
            )
    user = config_directory(environ)
    rest = [f"{user}/templates" if user else "", site]
    return (*given, *(place for place in rest if place and os.path.isdir(place)))


def names(places: Iterable[str]) -> dict[str, str]:
    """Return template name -> the directory that it is taken from, sorted by name.

    Raises MingleError where the installation has none.
    """
    found: dict[str, str] = {}
    for place in places:
        for name in _inside(place):
            found.setdefault(name, place)
    for file in shipped.names(BUILT_IN):
        found.setdefault(file.removesuffix(SUFFIX), str(shipped.place(BUILT_IN)))
    return dict(sorted(found.items()))


def _inside(place: str) -> Iterator[str]:
    for directory, _, files in os.walk(place):
        for file in files:
            if file.endswith(SUFFIX):
                yield os.path.relpath(f"{directory}/{file}", place).removesuffix(SUFFIX)


def text(name: str, places: Iterable[str]) -> str:
    """Return a template's own text. Raises UsageError for an unknown name."""
    places = tuple(places)
    found = names(places)
    if name not in found:
        raise UsageError("the name of a template", repr(name), "one that `mingle template list` shows")
    if found[name] not in places:
        return shipped.text(f"{BUILT_IN}/{name}{SUFFIX}")
    with open(f"{found[name]}/{name}{SUFFIX}", encoding="utf-8") as file:
        return file.read(_LARGEST_BYTES)


def eject(name: str, places: Iterable[str], directory: str) -> str:
    """Copy a template into a directory for its owner to change, and return its path; never over another file.

    Raises UsageError and PlaceError.
    """
    content = text(name, places)
    target = os.path.join(directory, name + SUFFIX)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise PlaceError("no file of that name", target, "another --to, or removing it") from None
    except OSError as wrong:
        raise PlaceError("a directory to write to", f"{target}: {wrong.strerror}", "another --to") from None
    return target
