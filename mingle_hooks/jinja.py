"""How jinja2 fills templates in: the same for job scripts and hooks, and from wherever the package is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jinja2

from mingle_hooks import files


class Shipped(jinja2.BaseLoader):
    """Loads the project's own templates, from a directory of templates/."""

    def __init__(self, directory: str) -> None:
        self._directory = f"templates/{directory}"
        self._names = files.shipped_names(self._directory)

    def get_source(
        self,
        environment: jinja2.Environment,
        template: str,
    ) -> tuple[str, str, Callable[[], bool]]:
        """Return a template's text, its path for messages, and that it stays as it is."""
        if template not in self._names:
            raise jinja2.TemplateNotFound(template)
        path = f"{self._directory}/{template}"
        return files.shipped_text(path), str(files.shipped_path(path)), lambda: True

    def list_templates(self) -> list[str]:
        """Return all names."""
        return [*self._names]


def environment(loader: jinja2.BaseLoader, filters: Mapping[str, Callable[..., str]]) -> jinja2.Environment:
    """Return the environment of templates that make shell scripts."""
    found = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # {# stands in every shell script that measures a variable or counts an array
        comment_end_string="##}",
        autoescape=False,  # noqa: S701 -- no HTML; each place has its own filter
    )
    found.filters |= filters
    return found
