"""The page of frameworks, from what was seen."""

from __future__ import annotations

from frameworks import page
from frameworks.page import COLUMNS, Place
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
    text = page.text([ROW, NEEDS], {"Torch": "2.0", "Needs": ""}, {"Torch": SEEN, "Needs": SEEN})
    assert "| bare: names | bare: 127.0.1.1 | bare: no names | Slurm: names |" in text
    rest = " - |" * (len(COLUMNS) - 2)
    assert f"| Torch | 2.0 | `python train.py` | eth0, ib0 | eth0 no [1], ib0 |{rest}\n" in text
    assert f"| Needs | - | `python train.py` | eth0, ib0 | eth0 no [2], ib0 |{rest}\n" in text
    assert "\n[1] exit status 1  \n[2] it asks for its host's name\n" in text


def test_only_what_the_row_does_not_say_is_news() -> None:
    """A row that needs names is to fail without them, and nowhere else."""
    named, debian = Place("bare", "names", "eth0"), Place("bare", "127.0.1.1", "eth0")
    news = [page.is_news(row, place, why) for row in (ROW, NEEDS) for place in (named, debian) for why in ("", "late")]
    assert news == [False, True, False, True, False, True, True, False]
