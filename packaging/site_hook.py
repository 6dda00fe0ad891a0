"""What mkdocs.yml calls: README.md becomes the first page, and links out of docs/ lead to the repository.

REPOSITORY is the address that they begin with, such as https://forge.example/blob/main; without it only their text
stays.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FIRST = "index.md"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as the first page."""
    files.append(File.generated(config, FIRST, content=(ROOT / "README.md").read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its links as they are on the site."""
    del config
    here = "README.md" if page.file.src_uri == FIRST else f"docs/{page.file.src_uri}"

    def link(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        path, mark, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        on_site = FIRST if place == "README.md" else place.removeprefix("docs/")
        if (place == "README.md" or place.startswith("docs/")) and files.get_file_from_path(on_site):
            start = posixpath.dirname(page.file.src_uri) or "."
            return f"{image}[{text}]({posixpath.relpath(on_site, start)}{mark}{anchor})"
        if place.startswith("docs/") and path.endswith(".md"):
            return found[0]  # it leads nowhere, and mkdocs says so
        repository = os.environ.get("REPOSITORY", "").rstrip("/")
        return f"[{text}]({repository}/{place}{mark}{anchor})" if repository else text

    return LINK.sub(link, markdown)
