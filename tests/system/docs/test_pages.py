"""The pages of docs/: every block is run or told why not, every script is sound, every link leads somewhere."""

import re
import subprocess
from pathlib import Path

from documents import CASES, DOCS, PAGES, ROOT, TROUBLE, blocks, find
from needs import only_with

NOT_RUN = {(page, mark): why for page, mark, why in CASES["not_run"]}
EXTENDING = "extending.md"  # all of it is run by test_extending.py


def test_every_block_is_run_or_it_is_told_why_not() -> None:
    """None is forgotten, and none that is named is gone."""
    kinds = ("allocated", "batch", "variables_of", "shell", "step", "tasks", "hosts")
    cases = [(case.get("page", TROUBLE), case["mark"]) for kind in kinds for case in CASES[kind]]
    tables = *CASES["blocks"].values(), CASES["own"].values(), NOT_RUN, cases
    named = [find(*where) for table in tables for where in table]
    every = [block for page in PAGES if page != EXTENDING for block in blocks(page)]
    assert sorted(set(named)) == sorted(every)
    assert len(named) == len(set(named))


@only_with("shellcheck")
def test_every_script_is_sound(tmp_path: Path) -> None:
    """Bash and shellcheck accept all scripts but the recipes to leave."""
    left = {find(*where) for where, why in NOT_RUN.items() if why == "this is the recipe to leave"}
    scripts = [block for page in PAGES for block in blocks(page) if block.language == "bash" and block not in left]
    for number, block in enumerate(scripts):
        (tmp_path / f"{number}.sh").write_text(block.text)
        subprocess.run(["bash", "-n", tmp_path / f"{number}.sh"], check=True)
    # In quotes on purpose: for the shell on the node. A line that stands alone takes its variables from a script.
    argv = ["shellcheck", "--shell=bash", "--exclude=SC2016,SC2154,SC2029", *sorted(tmp_path.iterdir())]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = re.findall(
        r"^#+ +(.*)$", re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_link_leads_to_a_file_or_heading_that_exists() -> None:
    """Links to other sites are not followed."""
    for page in ("../README.md", "../SECURITY.md", *PAGES):
        here = (DOCS / page).resolve()
        for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", here.read_text()):
            path, _, anchor = link.partition("#")
            target = (here.parent / path).resolve() if path else here
            is_there = target.exists() and target.is_relative_to(ROOT) and (not anchor or anchor in headings(target))
            assert is_there or "://" in link, (page, link)
