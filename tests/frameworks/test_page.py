"""The page of frameworks, from what was seen."""

from __future__ import annotations

from cluster.names import NAMES

from frameworks import page
from frameworks.page import KINDS, Place
from frameworks.rows import Row

ROW = Row("Torch", "torch", "python train_torch.py {size}", "train_torch.py")
NEEDS = ROW._replace(name="Needs", needs_names="it asks for its host's name")
SEEN = {
    Place("bare", "names", "eth0"): "",
    Place("bare", "names", "ib0"): "",
    Place("bare", "127.0.1.1", "eth0"): "exit status 1",
    Place("bare", "127.0.1.1", "ib0"): "",
}


def test_the_page_tells_the_networks_of_each_kind_of_host_and_why_not() -> None:
    """A reason that is known stands there in its own words; what was not tried is a dash."""
    everywhere = {Place(kind, names, "eth0"): "late" if names == NAMES[2] else "" for kind in KINDS for names in NAMES}
    found = {"Torch": SEEN, "Needs": SEEN, "All": everywhere, "None": {Place("bare", "names", "eth0"): "late"}}
    rows = [ROW, NEEDS, ROW._replace(name="All"), ROW._replace(name="None")]
    text = page.text(rows, dict.fromkeys(found, "2.0") | {"Needs": ""}, found)
    assert "| framework | after `mingle exec` | bare | Slurm |\n|---|---|---|---|\n" in text
    assert "| Torch (2.0) | `python train.py` | eth0, ib0; no [1] with 127.0.1.1 over eth0 | - |\n" in text
    assert "| Needs | `python train.py` | eth0, ib0; no [2] with 127.0.1.1 over eth0 | - |\n" in text
    without = "eth0; no [3] with no names"
    assert f"| All (2.0) | `python train.py` | {without} | {without} |\n" in text
    assert "| None (2.0) | `python train.py` | no [3] with names | - |\n" in text
    assert "\n[1] exit status 1  \n[2] it asks for its host's name  \n[3] late\n" in text


def test_only_what_the_row_does_not_say_is_news() -> None:
    """A row that needs names is to fail without them, and nowhere else."""
    named, debian = Place("bare", "names", "eth0"), Place("bare", "127.0.1.1", "eth0")
    news = [page.is_news(row, place, why) for row in (ROW, NEEDS) for place in (named, debian) for why in ("", "late")]
    assert news == [False, True, False, True, False, True, True, False]
