"""`make site`: the pages as a site that is sound, needs nobody else's machine, and is searched by what people type."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from documents import DOCS, ROOT
from needs import only_with

pytestmark = only_with("mkdocs", "material")


def build(source: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """Build it as `make site` does."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    env = {"PATH": os.environ["PATH"], "NO_MKDOCS_2_WARNING": "1", "REPOSITORY": "https://forge.example/blob/main"}
    return subprocess.run(words, cwd=source, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the site."""
    place = tmp_path_factory.mktemp("site")
    done = build(ROOT, place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_a_link_that_leads_nowhere_fails(tmp_path: Path) -> None:
    """To a page, or to a heading."""
    for name in ("docs", "packaging"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "docs/faq.md").open("a") as page:
        page.write("\n[one](none.md), [other](run.md#none)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert [name in done.stderr for name in ("'none.md'", "'run.md#none'")] == [True, True]


def pages_with(site: Path, words: str) -> set[str]:
    """Return the pages of the search's index with a section in which each of these words begins one."""
    sections: list[dict[str, Any]] = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = set()
    for section in sections:
        text = re.sub(r"<[^>]*>", " ", f"{section['title']} {section['text']}")
        if all(re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE) for word in words.split()):
            found.add(section["location"].partition("/#")[0].strip("/"))
    return found


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("NCCL_SOCKET_IFNAME", "networks"),
        ("NCCL_SOCKET_IFNAME", "faq"),
        ("trains alone", "faq"),
        ("drain", "admin"),
        ("init_process_group", "faq"),
        ("29500", "faq"),
    ],
)
def test_the_search_finds_what_people_type(site: Path, words: str, page: str) -> None:
    """All words in one section of that page."""
    assert page in pages_with(site, words)


def test_what_is_typed_is_not_torn_on_a_narrow_screen(site: Path) -> None:
    """An option stays in one line, a message is wrapped, and a table or a listing is not."""
    page = (site / "troubleshooting/index.html").read_text()
    assert '<code><span class="word">--timeout</span></code>' in page
    assert '<pre class="message"><span></span><code>mingle: expected all 2 nodes of the job' in page
    assert "<pre><span></span><code>node1: NAME " in page
    assert "\n.md-typeset .message code { white-space: pre-wrap }\n" in (site / "site.css").read_text()
    assert re.search(r'<link rel="stylesheet" href="[./]*site\.css">', page)


def test_every_page_is_in_the_navigation(site: Path) -> None:
    """README.md first, and all of docs/."""
    (navigation,) = re.findall(r"^nav:\n(.*)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r"\S+\.md", navigation)) == sorted(
        ["index.md", *(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))]
    )
    assert "<h1" in (site / "index.html").read_text()


class Loaded(HTMLParser):
    """What a page loads by itself: scripts, styles, images, not links that somebody has to click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note each address of the element."""
        if tag != "a":
            self.found += [value for name, value in attrs if name in ("src", "href") and value]


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """No fonts, no scripts, on no page."""
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.found
        assert [address for address in loaded.found if "//" in address] == [], page


def test_links_out_of_the_docs_lead_to_the_repository(site: Path) -> None:
    """They begin with REPOSITORY; those between pages stay on the site."""
    tutorial = (site / "tutorial/index.html").read_text()
    assert 'href="https://forge.example/blob/main/examples/train.py"' in tutorial
    assert re.search(r'href="\.\./(index\.html)?#install"', tutorial)
