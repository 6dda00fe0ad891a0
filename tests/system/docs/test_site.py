"""`make site`: the pages as a site that is sound, needs nobody else's machine, and is searched by what people type."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import DOCS, ROOT
from needs import only_with

pytestmark = only_with("mkdocs", "material")


PLANTED = "\n[one](none.md), [other](run.md#none)\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Build it as `make site` does, with two links that lead nowhere; mkdocs writes all pages before it fails."""
    place = tmp_path_factory.mktemp("site")
    for name in ("docs", "packaging"):
        shutil.copytree(ROOT / name, place / name)
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, place)
    with (place / "docs/faq.md").open("a") as page:
        page.write(PLANTED)
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", "site"]
    env = {"PATH": os.environ["PATH"], "NO_MKDOCS_2_WARNING": "1", "REPOSITORY": "https://forge.example/blob/main"}
    done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, check=False)
    return subprocess.CompletedProcess([str(place)], done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def site(built: subprocess.CompletedProcess[str]) -> Path:
    """Give the site."""
    return Path(built.args[0]) / "site"


def test_a_link_that_leads_nowhere_fails_and_nothing_else_is_wrong(built: subprocess.CompletedProcess[str]) -> None:
    """A link may lead to a page or to a heading."""
    assert "Aborted with 2 warnings in strict mode" in built.stdout
    assert [name in built.stderr for name in ("'none.md'", "'run.md#none'")] == [True, True]
    assert built.returncode != 0


def pages_with(site: Path, words: str) -> set[str]:
    """Return the pages of the search's index with a section in which each of these words begins one."""
    sections: list[dict[str, Any]] = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = set()
    for section in sections:
        text = re.sub(r"<[^>]*>", " ", f"{section['title']} {section['text']}")
        if all(re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE) for word in words.split()):
            found.add(section["location"].partition("/#")[0].strip("/"))
    return found


def test_the_search_finds_what_people_type(site: Path) -> None:
    """All words in one section of that page."""
    assert "lint" in pages_with(site, "29500")
    for words in ("NCCL_SOCKET_IFNAME", "trains alone", "init_process_group"):
        assert "faq" in pages_with(site, words)
    assert "networks" in pages_with(site, "NCCL_SOCKET_IFNAME")
    assert "admin" in pages_with(site, "drain")


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


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """No fonts, no scripts, on no page; a link that somebody has to click may lead there."""
    for page in site.rglob("*.html"):
        tags = re.findall(r"<(?!a\b)[^>]*>", page.read_text())
        loaded = [address for tag in tags for address in re.findall(r"""\b(?:src|href)=["']?([^"'\s>]+)""", tag)]
        assert loaded
        assert [address for address in loaded if "//" in address] == [], page


def test_links_out_of_the_docs_lead_to_the_repository(site: Path) -> None:
    """They begin with REPOSITORY; those between pages stay on the site."""
    tutorial = (site / "tutorial/index.html").read_text()
    assert 'href="https://forge.example/blob/main/examples/train.py"' in tutorial
    assert re.search(r'href="\.\./(index\.html)?#install"', tutorial)
