"""The rooms of the rendezvous: which may use which. What is below knows nothing of what is above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "mingle_hooks" / "rendezvous"
# From the bottom up. A room is a folder, or a module that stands alone; those of one line may use each other.
ORDER = (
    ("poller", "loop"),
    ("protocol",),
    ("rejected",),
    ("member",),
    ("discovery",),
    ("local_peers",),
    ("request", "observer", "rejections"),
    ("leader",),
    ("report",),
    ("outcome", "search"),
    ("following",),
    ("rendezvous",),
)
LEVELS = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
MODULES = sorted(
    path.relative_to(ROOT) for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem != "__init__"
)


def room(path: Path) -> str:
    """Return the room of a module."""
    return path.parts[0].removesuffix(".py")


def used(path: Path) -> set[str]:
    """Return the rooms that a module imports at run time, now or later; types alone may come from anywhere."""
    found: set[str] = set()
    nodes: list[ast.AST] = [ast.parse((ROOT / path).read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module.split(".")] + [f"{node.module}.{alias.name}".split(".") for alias in node.names]
            found |= {name[2] for name in names if name[:2] == ["mingle_hooks", "rendezvous"] and len(name) > 2}
    return found & LEVELS.keys()


def test_every_module_is_in_a_room() -> None:
    """A new room gets its place in the order."""
    assert {room(path) for path in MODULES} == LEVELS.keys()


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_module_uses_a_room_above_its_own(path: Path) -> None:
    """So no two rooms use each other."""
    assert [other for other in used(path) if LEVELS[other] > LEVELS[room(path)]] == []
