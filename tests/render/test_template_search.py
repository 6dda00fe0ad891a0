"""Own templates: where they are found, how one is extended, and what is said of a mistake in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mingle_hooks.errors import PlaceError, UsageError
from mingle_hooks.scripts import script as search
from mingle_hooks.scripts.script import describe
from mingle_hooks.scripts.script import render_script as render

if TYPE_CHECKING:
    from pathlib import Path

JOB = describe({}, ["train.py"])


def test_the_path_is_given_then_user_then_site_then_built_in(tmp_path: Path) -> None:
    """The search path has its order, and holds only what there is."""
    given, home, site = (tmp_path / name for name in ("given", "home", "site"))
    for directory in (given, home / ".config/mingle/templates", site):
        directory.mkdir(parents=True)
    places = search.template_path([str(given)], {"HOME": str(home)}, site=str(site))
    assert places == (str(given), f"{home}/.config/mingle/templates", str(site))
    assert search.template_path([], {}, site="/no/such") == ()


def test_a_given_directory_that_is_missing_is_said() -> None:
    """The built-in template is not used without a word."""
    with pytest.raises(UsageError, match="/no/such"):
        search.template_path(["/no/such"], {})


def test_a_block_can_be_replaced_without_a_copy(tmp_path: Path) -> None:
    """A template of the user's that extends the built-in one by its path in the package changes one block."""
    (tmp_path / "slurm.sh.j2").write_text(
        '{% extends "built-in/script.sh.j2" %}\n{% block check %}\n# no check\n{% endblock %}\n'
    )
    text = render("slurm", describe({"launcher": "plain"}, ["train.py"]), places=(str(tmp_path),))
    assert "# no check\n# On every node" in text
    assert "  python3 train.py\n" in text


def test_a_variable_that_is_missing_is_said_with_file_and_line(tmp_path: Path) -> None:
    """The error names the template's file, its line and the variable."""
    (tmp_path / "slurm.sh.j2").write_text("#!/bin/bash\n\n{{ no_such_thing | sh }}\n")
    with pytest.raises(UsageError, match=rf"{tmp_path}/slurm.sh.j2:3: 'no_such_thing' is undefined"):
        render("slurm", JOB, places=(str(tmp_path),))


def test_a_mistake_in_a_template_is_said_there(tmp_path: Path) -> None:
    """Also in a file that another extends."""
    (tmp_path / "script.sh.j2").write_text("x\n{{ job.nodez }}\n")
    with pytest.raises(UsageError, match=r"script.sh.j2:2: .*nodez"):
        render("slurm", JOB, places=(str(tmp_path),))


def test_what_is_no_template_is_said_with_file_and_line(tmp_path: Path) -> None:
    """The error of the parser has its place too."""
    (tmp_path / "slurm.sh.j2").write_text("\n{% if %}")
    with pytest.raises(UsageError, match=rf"{tmp_path}/slurm.sh.j2:2: "):
        render("slurm", JOB, places=(str(tmp_path),))


def test_a_template_is_copied_out_once(tmp_path: Path) -> None:
    """Eject writes the built-in text, and never over a file that is there."""
    place = ()
    made = search.eject_template("script", place, str(tmp_path))
    assert (tmp_path / "script.sh.j2").read_text() == search.template_text("script", place)
    assert made == f"{tmp_path}/script.sh.j2"
    with pytest.raises(PlaceError, match=r"script\.sh\.j2"):
        search.eject_template("script", place, str(tmp_path))


@pytest.mark.parametrize("name", ["nothing", "../../etc/passwd", "/etc/passwd", ""])
def test_only_templates_can_be_shown(name: str) -> None:
    """A name that is none of the list is an error, whatever file it may lead to."""
    with pytest.raises(UsageError, match="name of a template"):
        search.template_text(name, ())
