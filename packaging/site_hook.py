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
BLOCK = re.compile(r"(<pre\b.*?</pre>)", re.DOTALL)
CODE = re.compile(r"<code>([^<]+)</code>")
STYLE = """\
.md-typeset .word { white-space: nowrap }
.md-typeset .message code { white-space: pre-wrap }
@media (max-width: 30em) {
  .md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: 0.6em 0.5em }
}
"""
# A word of inline code up to this length fits a phone.
WORD = re.compile(r"(?<!\S)\S{2,30}(?!\S)")
MESSAGE = re.compile(r"<pre>(?=<span></span><code>(?:mingle[a-z ]*: |torch)[^<\n]*\n(?:[^<\n]*\n)?</code></pre>)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as the first page, and the style of narrow screens."""
    files.append(File.generated(config, "site.css", content=STYLE))
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


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page as it fits a narrow screen: no option is torn at its hyphens, and a message is not cut off."""
    del page, config, files
    parts = BLOCK.split(MESSAGE.sub('<pre class="message">', html))
    return "".join(part if part.startswith("<pre") else CODE.sub(_unbroken, part) for part in parts)


def _unbroken(found: re.Match[str]) -> str:
    """Return inline code whose words stay in one line each."""
    return "<code>" + WORD.sub(r'<span class="word">\g<0></span>', found[1]) + "</code>"
