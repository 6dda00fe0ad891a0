"""The templates of job scripts and hooks: where they are, and how they are filled in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import mingle_hooks
from mingle_hooks.errors import MingleError

if TYPE_CHECKING:
    import jinja2


def directory(kind: str) -> str:
    """Return where the templates of "job" or "hooks" are: in the wheel beside the modules, else beside the package."""
    package = os.path.dirname(os.path.abspath(mingle_hooks.__file__))
    for place in (f"{package}/templates/{kind}", f"{os.path.dirname(package)}/templates/{kind}"):
        if os.path.isdir(place):
            return place
    raise MingleError("the templates beside the package", f"none in {package}", "installing mingle-hooks again")


def environment(loader: jinja2.BaseLoader) -> jinja2.Environment:
    """Return what fills in text for shells; the caller adds a filter for each place that takes values."""
    import jinja2  # noqa: PLC0415 - 50 ms, which a list of templates does without

    return jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # {# stands in every shell script that measures a variable
        comment_end_string="##}",
        autoescape=False,  # noqa: S701 - no HTML; each place has its own filter
    )
