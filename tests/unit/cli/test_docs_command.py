"""`mingle docs NAME` finds a page by its name, by its last part and by what people call its subject."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mingle_hooks.cli.template import SUBJECTS, pages, search_names

if TYPE_CHECKING:
    from forked import Forked

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def first_line(forked: Forked, name: str) -> str:
    """Return the heading of the page that is printed."""
    done = forked.run("docs", name, env=ENVIRON)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\n")[0]


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("schedulers/slurm", "# Slurm"),
        ("slurm", "# Slurm"),
        ("SLURM", "# Slurm"),
        ("docs/schedulers/slurm.md", "# Slurm"),
        ("faq", "# FAQ"),
        ("nccl", "# Networks"),
        ("NCCL_SOCKET_IFNAME", "# Networks"),
        ("k8s", "# Kubernetes"),
        ("openpbs", "# OpenPBS and PBS Professional"),
        ("why_not", "# Why not just …?"),
    ],
)
def test_a_page_is_found_by_each_of_its_names(forked: Forked, name: str, heading: str) -> None:
    """In any case, with or without the directory and the suffix."""
    assert first_line(forked, name) == heading


@pytest.mark.parametrize(
    ("name", "known"), [("slrum", "slurm"), ("tutorail", "tutorial"), ("kubernets", "kubernetes"), ("xyz", "help")]
)
def test_the_nearest_name_is_offered(forked: Forked, name: str, known: str) -> None:
    """For one that no page has."""
    done = forked.run("docs", name, env=ENVIRON)
    assert done.returncode == 64
    assert done.stderr == f"mingle: expected a page that `mingle docs` lists; saw {name}; try `mingle docs {known}`\n"


def test_every_name_leads_to_a_page() -> None:
    """The last part of a page's path is no other page's, and every subject's page exists."""
    assert set(search_names().values()) == set(pages())
    assert set(SUBJECTS.values()) <= set(pages())
    assert not set(SUBJECTS) & {page.rpartition("/")[2] for page in pages()}
