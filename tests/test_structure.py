"""The package's shape: which part may use which, and how long a module and a function may be."""

import ast
import functools
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1] / "mingle_hooks"
PATHS = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = {name.removesuffix(".__init__"): path for name, path in PATHS.items()}
FOLDERS = sorted(name.removesuffix(".__init__") for name in PATHS if name.endswith(".__init__"))
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 800, 60
# From low to high: each imports only what stands before it.
LAYERS = (
    *("errors", "files", "net", "values", "plugins", "schedulers", "settings", "rendezvous", "export"),
    *("job", "joining", "scripts", "run", "check", "hooks", "api"),
    *("torchrun", "jax", "lightning", "cli", "__main__"),
)


@functools.cache
def tree(name: str) -> ast.Module:
    """Return what a module says."""
    return ast.parse(MODULES[name].read_text())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and all that are in it: what is of interest here is in no expression."""
    yield node
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for inner in getattr(node, name, ()):
            yield from statements(inner)


@functools.cache
def used(name: str) -> frozenset[str]:
    """Return our modules that a module imports at run time, now or later; types alone may come from anywhere."""
    found: set[str] = set()
    types = {
        inner
        for node in statements(tree(name))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for part in node.body
        for inner in statements(part)
    }
    for node in statements(tree(name)):
        if node in types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {module if module in MODULES else node.module for module in inner}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found & MODULES.keys())


def part(name: str, folder: str) -> str | None:
    """Return the part of a folder that a module is, or is in: a module, a folder below it, or its own __init__."""
    depth = folder.count(".") + 2
    return ".".join(name.split(".")[:depth]) if f"{name}.".startswith(f"{folder}.") else None


def parts(folder: str) -> dict[str, set[str]]:
    """Return each part of a folder with the other parts that it uses."""
    found: dict[str, set[str]] = {}
    for name in MODULES:
        if (its := part(name, folder)) is not None:
            others = {other for module in used(name) if (other := part(module, folder)) not in (None, its)}
            found.setdefault(its, set()).update(others)
    return found


def test_no_two_parts_of_a_folder_use_each_other() -> None:
    """No parts use each other in a circle, so no modules do."""
    for folder in FOLDERS:
        TopologicalSorter(parts(folder)).prepare()


def test_a_room_imports_only_lower_ones() -> None:
    """Data flows one way; the package's own name is its public interface, which no room uses. A new room is listed."""
    rooms = {name.split(".")[1]: others for name, others in parts("mingle_hooks").items() if "." in name}
    assert set(rooms) == set(LAYERS)
    for room, others in rooms.items():
        assert {other.split(".")[1] for other in others if "." in other} <= set(LAYERS[: LAYERS.index(room)]), room


def test_a_module_and_its_functions_can_be_read_in_one_sitting() -> None:
    """A longer one is a sign that it does several things. Decorators of a function do not count."""
    lengths = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lengths.items() if count > MOST_LINES} == {}
    functions = [(m, node) for m in MODULES for node in statements(tree(m)) if isinstance(node, ast.FunctionDef)]
    lines = {f"{module}.{its.name}": (its.end_lineno or 0) - its.lineno + 1 for module, its in functions}
    assert {name: count for name, count in lines.items() if count > MOST_LINES_OF_A_FUNCTION} == {}
