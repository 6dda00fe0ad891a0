"""`make mutants SAMPLE=30 SEED=1`: break the package in one place at a time, and count what the quick tests notice.

Each mutant changes one operator, number or truth value, or drops one call. The quick tests that import its module run
against it, until the first one fails. Prints the score and what survived; a survivor is a test to write, or a change
that makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# A mutant may make a test wait for ever: that counts as noticed.
LIMIT_S = 120
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


class Mutant(NamedTuple):
    """A module of the package, and which of its nodes, in the order of ast.walk, is changed."""

    path: Path
    node: int

    def text(self) -> tuple[str, str]:
        """Return the module's text with the change, and the change as people read it."""
        tree = ast.parse((ROOT / self.path).read_text())
        node = list(ast.walk(tree))[self.node]
        before = copy.deepcopy(node)
        _change(node)
        what = f"{ast.unparse(before)}  ->  {ast.unparse(node)}".replace("\n", " ")
        return ast.unparse(tree), f"{self.path}:{getattr(node, 'lineno', 0)}  {what}"


def _operator(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return node.ops[0]
    return node.op if isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) else None


def _is_site(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int)
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return is_call or type(_operator(node)) in OPERATORS


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Expr):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.Compare):
        node.ops = [OPERATORS[type(node.ops[0])]()]  # type: ignore[list-item]
    else:
        node.op = OPERATORS[type(node.op)]()  # type: ignore[attr-defined]


def sites() -> list[Mutant]:
    """Return all mutants that there are."""
    paths = sorted((ROOT / "mingle_hooks").rglob("*.py"))
    return [
        Mutant(path.relative_to(ROOT), index)
        for path in paths
        for index, node in enumerate(ast.walk(ast.parse(path.read_text())))
        if _is_site(node)
    ]


def tests_of(path: Path) -> tuple[str, ...]:
    """Return the test files that name a module, else those that name its folder."""
    parts = path.with_suffix("").parts
    for name in (".".join(parts), f"{'.'.join(parts[:-1])} import {parts[-1]}", ".".join(parts[:-1])):
        if found := [str(test) for test in sorted((ROOT / "tests").rglob("test_*.py")) if name in test.read_text()]:
            return tuple(found)
    return ()


def passes(place: Path, tests: tuple[str, ...]) -> bool:
    """Tell whether the quick ones of these tests pass with the package that is in a folder."""
    words = ["-x", "-q", "--quick", "-p", "no:randomly", "-p", "no:cacheprovider", f"--timeout={LIMIT_S // 4}"]
    environ = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    line = [str(Path(sys.executable).with_name("pytest")), *words, *tests]  # as `python -m` would prefer this folder
    try:
        done = subprocess.run(line, cwd=ROOT, env=environ, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 5)  # 5: no quick test


def main() -> None:
    """Sample, run, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", default="", help="part of the paths to change, such as cli/")
    given = parser.parse_args()
    known = [mutant for mutant in sites() if given.only in str(mutant.path)]
    chosen = random.Random(given.seed).sample(known, min(given.sample, len(known)))
    print(f"{len(chosen)} of {len(known)} mutants, --seed {given.seed}", flush=True)
    survivors, tried = [], 0
    usual = functools.cache(passes)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for part, inside in (
            ("mingle_hooks", ""),
            ("templates", "mingle_hooks"),
            ("docs", "mingle_hooks"),
        ):  # a wheel's
            shutil.copytree(ROOT / part, place / inside / part, ignore=shutil.ignore_patterns("__pycache__"))
        for mutant in chosen:
            tests, (text, what) = tests_of(mutant.path), mutant.text()
            if not usual(place, tests):
                print(f"left out, as its tests fail without it: {what}", flush=True)
                continue
            (place / mutant.path).write_text(text)
            tried += 1
            if passes(place, tests):
                survivors.append(what)
                print(f"survived: {what}", flush=True)
            shutil.copy(ROOT / mutant.path, place / mutant.path)
    caught = tried - len(survivors)
    print(f"caught {caught} of {tried} mutants: {100 * caught // max(tried, 1)} %")


if __name__ == "__main__":
    main()
