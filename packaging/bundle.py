"""Makes one module of many: a start then asks its file system for one file instead of a hundred.

A list in packaging/bundles names what one kind of process loads. Each of its modules becomes a function here, which
`mingle_hooks.bundles` runs with the module's own dictionary for its globals. What only a reader or a type checker needs
is left out. The modules themselves stay in the wheel: they are what is loaded where there is no bundle.
"""

from __future__ import annotations

import ast
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parents[1]
LISTS = {path.stem: path for path in sorted((ROOT / "packaging" / "bundles").glob("*.txt"))}
NO_CONVERSION = -1
HEAD = '"""Made by packaging/bundle.py out of the modules beside it."""\n'


def listed(name: str) -> list[str]:
    """Return the names of a bundle's modules."""
    return LISTS[name].read_text().split()


def source(module: str) -> tuple[Path, bool]:
    """Return the file of one of our modules, and whether it is a package."""
    path = ROOT.joinpath(*module.split("."))
    return (path / "__init__.py", True) if path.is_dir() else (path.with_suffix(".py"), False)


def bundle(name: str) -> str:
    """Return the text of a bundle: a function a module, and MODULES, which names each with its file below the package.

    Raises SyntaxError where a module has something at its top that no function can have.
    """
    parts, rows = [HEAD], []
    for number, module in enumerate(listed(name)):
        path, is_package = source(module)
        parts.append(_function(f"_{number}", path.read_text(), str(path)))
        inside = path.relative_to(ROOT / "mingle_hooks").as_posix()
        rows.append(f"    {module!r}: (_{number}, {inside!r}, {is_package}),\n")
    return "\n\n".join([*parts, "MODULES = {\n" + "".join(rows) + "}\n"])


def _function(name: str, text: str, path: str) -> str:
    """Return a function whose body does what the module does, with the module's names as globals."""
    tree = ast.fix_missing_locations(_Lean().visit(ast.parse(text, path)))
    tree.body = [node for node in tree.body if not _is_future(node)]
    import symtable

    table = symtable.symtable(ast.unparse(tree), path, "exec")
    bound = (symtable.Symbol.is_assigned, symtable.Symbol.is_imported, symtable.Symbol.is_declared_global)
    names = sorted(its.get_name() for its in table.get_symbols() if any(is_so(its) for is_so in bound))
    body: list[ast.stmt] = [ast.Global(names)] if names else []
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    made = ast.FunctionDef(name, arguments, [*body, *tree.body] or [ast.Pass()], [])
    return ast.unparse(ast.fix_missing_locations(made))


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


class _Lean(ast.NodeTransformer):
    """Leaves out what has no effect at run time, and writes what a function cannot hold in another way."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        self.generic_visit(node)
        _drop_docstring(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        _drop_docstring(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """Name the fields, which named tuples read, without their types."""
        typed = [its.target for its in node.body if isinstance(its, ast.AnnAssign)]
        fields = tuple(target.id for target in typed if isinstance(target, ast.Name))
        self.generic_visit(node)
        _drop_docstring(node)
        if fields:
            node.body[:0] = ast.parse(f"__annotations__ = dict.fromkeys({fields!r})").body
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return list(node.orelse)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Drop the type, which needs `__future__`, a module more, and which no name has that is global."""
        self.generic_visit(node)
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """Write `import *`, which no function may have, in another way."""
        if [alias.name for alias in node.names] != ["*"]:
            return node
        shown = "{name: its for name, its in vars(_all).items() if name[:1] != '_'}"
        return ast.parse(f"import {node.module} as _all\nglobals().update({shown})").body

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Return the same as str.format: how quotes nest in f-strings is not the same in all versions of Python."""
        values: list[ast.expr] = []
        text = _format(node, values)
        if not values:
            return ast.Constant(text.format())
        return ast.Call(
            ast.Attribute(ast.Constant(text), "format", ast.Load()), [self.visit(value) for value in values], []
        )


def _drop_docstring(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del node.body[0]
    if not isinstance(node, ast.Module):
        node.body = node.body or [ast.Pass()]


def _format(node: ast.JoinedStr, values: list[ast.expr]) -> str:
    """Return an f-string as a format, and append its values in the order in which a format takes them."""
    parts = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            values.append(part.value)
            conversion = f"!{chr(part.conversion)}" if part.conversion != NO_CONVERSION else ""
            spec = f":{_format(part.format_spec, values)}" if isinstance(part.format_spec, ast.JoinedStr) else ""
            parts.append(f"{{{conversion}{spec}}}")
        elif isinstance(part, ast.Constant):
            parts.append(str(part.value).replace("{", "{{").replace("}", "}}"))
    return "".join(parts)


class BundleHook(BuildHookInterface[Any]):
    """Hatchling's hook: puts a bundle for each list into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make them. An editable installation has none, so that what is edited is what runs; nor has PyPy's."""
        self.made = None
        if version == "editable" or importlib.util.find_spec("_symtable") is None:
            return
        # As long as the hook lives; hatchling copies them before it ends.
        self.made = tempfile.TemporaryDirectory()
        for name in LISTS:
            path = Path(self.made.name, f"{name}.py")
            path.write_text(bundle(name))
            build_data["force_include"][str(path)] = f"mingle_hooks/bundle_{name}.py"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the files they were made in."""
        if self.made:
            self.made.cleanup()
