"""`make mutants SAMPLE=30 SEED=1`: break the package in one place at a time, and count what the tests notice.

A mutant changes one operator, number, truth value or name of a variable, or drops one statement, in a copy of the
package in build/mutants. The tests that ran the changed block run against it, those of its module first, then its
room's, the fastest first, until one fails, fails again by itself, and passes without the change. Those with test hosts
and schedulers come last, where there are any.
Which tests run which block is recorded once, and again for each test file that changes. Prints the score, by room, and
what survived: a survivor is a test to write, or a change that makes no difference.

As with mutmut, annotations, decorators and texts stay as they are. So does what is one more or less where that is no
defect: numbers whose name ends with a unit or says that it is a limit (MOST_LINKS), round ones and powers of two, and
whether such a limit, or a time, may just be reached (< or <=). A socket's option is on with 2 as with 1. Unlike with
mutmut, code outside of functions changes, too.
A block's tests are all that ran it, also those of its callers: its module's, its room's and others, each up to SHARE
of the time of all without hosts; those with hosts are up to MOST_ON_HOSTS, each up to LONG of the time of all with.

A mutant of what ends processes may end all processes of its user. As root, mutants see only their own, by a namespace;
another user should have no other work on the machine.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import copy
import hashlib
import json
import os
import py_compile
import random
import shutil
import signal
import site
import subprocess
import sys
import time
import venv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALL = ROOT / "build" / "mutants"
# Each of several processes has an environment of its own.
HOME = Path(sys.prefix) if Path(sys.prefix).parent == ALL else ALL / "0"
RECORD, ENDS = ALL / "record.json", "ends.json"
FAILED = HOME / "failed"
# How much of the time of all tests without hosts its module's, its room's and other tests may take, each.
SHARE = 0.04
# A Slurm starts in some seconds, and most of these tests wait: the longest takes 12 s where the machine is quiet.
MOST_ON_HOSTS, LONG = 12, 0.0075
CAUGHT, ON_HOSTS = "caught", "caught on hosts"
# Processes and a network of a mutant's own: it may end all processes of its user, and its tests take ports. The shell
# stays, to collect what is left behind.
_NETWORK = "ip link add eth0 type veth peer name eth1; ip addr add 192.0.2.1/24 dev eth0"
_NETWORK += "; ip link set lo up; ip link set eth0 up; ip link set eth1 up"
ALONE = ["unshare", "--fork", "--pid", "--kill-child", "--mount-proc", "--net"]
ALONE += ["sh", "-c", f'{_NETWORK}; "$@"; exit', "sh"]
# A mutant may make a test wait for ever: that counts as noticed. Their process, which a mutant may stop, too, gets this
# and four times what the tests usually take: a busy machine is no defect.
TEST_LIMIT_S = 15
HOSTS_LIMIT_S = 60
LIMIT_S, TIMES = 90, 4
# pytest's statuses where no test failed, and where there was none.
PASSED = (0, 5)
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
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
    ast.Mult: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.Break: ast.Continue,
    ast.Continue: ast.Break,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# A measure that its name gives the unit of: one more or less is no defect.
UNITS = ("_S", "_MS", "_US", "_BYTES", "_KIB", "_MIB", "_CHARACTERS", "_LINES")
LIMITS = ("MOST", "LONGEST", "LARGEST", "LEAST", "FEW")
CLOCKS = ("clock()", "time()", "monotonic()", "boottime()")
# What each process with the package notes in a file of its own: the name of a test, and the blocks that it runs.
SEEN = f"""
from os import O_APPEND, O_CREAT, O_WRONLY, close, environ, getpid, getuid, open, write
from os.path import exists
_at, _test, _known = 0, "", set()
def _read(path):
    with __builtins__["open"](path, errors="replace") as file:
        return file.read()
def _outer():
    try:
        owner = _read("/proc/self/mountinfo").rpartition(" mingle-hosts-")[2].partition(":")[2].partition(":")[0]
        process = int(owner) if owner.isdigit() else getpid()
        while process > 1:
            if exists(f"{HOME}/tests/{{process}}"):
                return _read(f"{HOME}/tests/{{process}}")
            process = int(_read(f"/proc/{{process}}/stat").rpartition(")")[2].split()[1])
    except OSError:
        pass
    return ""
def _write(line):
    try:
        file = open(f"{HOME}/seen/{{getpid()}}-{{getuid()}}", O_APPEND | O_CREAT | O_WRONLY, 0o666)
        write(file, line.encode())
        close(file)
    except OSError:
        return
def seen(block):
    global _at, _test, _known
    if getpid() != _at:
        _at, _test = getpid(), "?"
    test = environ.get("PYTEST_CURRENT_TEST")
    if test is None and _test == "?":
        test = _outer()
    if test is not None and test != _test:
        _test, _known = test, set()
        _write(f"\\n{{test}}\\n")
    if block not in _known:
        _known.add(block)
        _write(f"{{block}} ")
"""


class Mutant(NamedTuple):
    """A module of the package, which of its nodes, in the order of ast.walk, is changed, and the block that runs it."""

    path: Path
    node: int
    block: str

    def is_own(self, test: str) -> bool:
        """Tell whether a test is in the file that has the module's name."""
        return f"/test_{self.path.stem}.py::" in test

    def is_of_room(self, test: str) -> bool:
        """Tell whether a test is in the folder of the module's room."""
        return f"/{self.path.parts[1]}/" in test.partition("::")[0]

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


def _is_round(number: int) -> bool:
    """Tell whether a number is a size or another measure, which one more does no harm: 300, or 4096."""
    return number >= 64 and (number % 100 == 0 or number & (number - 1) == 0)


def _is_power(node: ast.AST) -> bool:
    """Tell whether a node is a size such as 1 << 20, which is round as 4096 is."""
    is_shift = isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift) and isinstance(node.right, ast.Constant)
    return is_shift and ast.unparse(node.left) == "1" and _is_round(1 << node.right.value)  # type: ignore[attr-defined]


def _is_site(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool) or (isinstance(node.value, int) and not _is_round(node.value))
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.BinOp) and (_is_text(node.left) or _is_text(node.right)):
        return False
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        sides = (node.left, *node.comparators)
        return len(node.ops) == 1 and not any(_is_measure(side) or ast.unparse(side).endswith(CLOCKS) for side in sides)
    is_name = isinstance(node, ast.Name) and node.id in NAMES
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    is_raise = isinstance(node, ast.Raise) and node.exc is not None
    return (
        is_name or is_not or is_raise or isinstance(node, ast.Break | ast.Continue) or type(_operator(node)) in SWAPPED
    )


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Expr):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.Compare):
        node.ops = [SWAPPED[type(node.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(node, ast.Name):
        node.id = NAMES[node.id]
    elif isinstance(node, ast.UnaryOp):  # `not` becomes bool()
        node.__class__ = ast.Call  # type: ignore[assignment]
        node.func, node.args, node.keywords = ast.Name("bool"), [node.operand], []  # type: ignore[attr-defined]
    elif isinstance(node, ast.Raise):
        node.__class__ = ast.Pass  # type: ignore[assignment]
    elif isinstance(node, ast.Break | ast.Continue):
        node.__class__ = SWAPPED[type(node)]  # type: ignore[assignment]
    else:
        node.op = SWAPPED[type(node.op)]()  # type: ignore[attr-defined]


def _makes_no_difference(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node in which a change is of wording, of types, or of a measure."""
    if isinstance(node, ast.arg | ast.Raise):  # of the latter its message; the statement itself may be dropped
        part = node.annotation if isinstance(node, ast.arg) else node.exc
        return [part] if part else []
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [*node.decorator_list, *([node.returns] if isinstance(node, ast.FunctionDef) and node.returns else [])]
    if isinstance(node, ast.AnnAssign):
        return [node.annotation, *([node.value] if node.value and _is_measure(node.target) else [])]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(node.targets[0].elts, node.value.elts, strict=False)
        return [value for target, value in pairs if _is_measure(target)]
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)  # a zip's strict=True looks whether we are right
        words = node.args if name.endswith(".setsockopt") else [w.value for w in node.keywords if name == "zip"]
        return [word for word in words if isinstance(word, ast.Constant) and word.value == 1]
    return [node] if _is_power(node) or (isinstance(node, ast.Assign) and _is_measure(node.targets[0])) else []


def _is_measure(target: ast.expr) -> bool:
    """Tell whether a name, in capitals, is one of a measure or a limit."""
    name = ast.unparse(target).rpartition(".")[2]
    return name.isupper() and (name.endswith(UNITS) or name.lstrip("_").startswith(LIMITS))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _blocks(node: ast.AST, name: str, count: Counter[str], *, is_inside: bool) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield each list of statements in functions, the outer one first, by its function's name and its number there."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef)
        is_inner = is_function or (is_inside and not isinstance(child, ast.ClassDef))
        inner = f"{name}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else name
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(child, field, None)
            if is_inner and isinstance(statements, list) and statements:
                count[inner] += 1
                yield f"{inner}#{count[inner]}", statements
        yield from _blocks(child, inner, count, is_inside=is_inner)


def sites() -> list[Mutant]:
    """Return all mutants that there are."""
    found = []
    for path in sorted((ROOT / "mingle_hooks").rglob("*.py")):
        tree, inside = ast.parse(path.read_text()), path.relative_to(ROOT)
        owner: dict[ast.AST, str] = {}
        for name, statements in _blocks(tree, f"{inside}:", Counter(), is_inside=False):  # an inner one comes later
            for statement in statements:
                owner |= dict.fromkeys(ast.walk(statement), name)
        skipped = {n for node in ast.walk(tree) for part in _makes_no_difference(node) for n in ast.walk(part)}
        found += [
            Mutant(inside, index, owner.get(node, f"{inside}:"))
            for index, node in enumerate(ast.walk(tree))
            if node not in skipped and _is_site(node)
        ]
    return found


def _instrument(package: Path) -> list[str]:
    """Have each block of a copy of the package report that it runs, by its number in the list that is returned."""
    names: list[str] = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        inside = path.relative_to(package.parent)
        for name, statements in list(_blocks(tree, f"{inside}:", Counter(), is_inside=False)):
            doc = int(isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant))
            statements.insert(doc, ast.parse(f"__import__('mutants_seen').seen({len(names)})").body[0])
            names.append(name)
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    return names


def _site_packages(home: Path = HOME) -> Path:
    return next((home / "lib").glob("python*")) / "site-packages"


def make_environment(home: Path) -> None:
    """Make an environment whose Python finds our copy of the package first, whatever variables a test gives it."""
    shutil.rmtree(home / "bin", ignore_errors=True)
    venv.EnvBuilder(symlinks=True).create(home)
    outer = Path(sys.executable).parent
    lines = "".join(f"import site; site.addsitedir({place!r})\n" for place in site.getsitepackages())
    (_site_packages(home) / "outer.pth").write_text(lines)
    for script in outer.iterdir():
        if not (home / "bin" / script.name).exists() and (text := script.read_bytes()).startswith(b"#!"):
            (home / "bin" / script.name).write_bytes(text.replace(bytes(outer), bytes(home / "bin")))
            (home / "bin" / script.name).chmod(0o755)
    copy_package(home)


def copy_package(home: Path = HOME) -> Path:
    """Copy the package as a wheel has it, and return where it is."""
    package = _site_packages(home) / "mingle_hooks"
    shutil.rmtree(package, ignore_errors=True)
    for part, inside in (("mingle_hooks", ""), ("templates", "mingle_hooks"), ("docs", "mingle_hooks")):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, package.parent / inside / part, ignore=ignored, dirs_exist_ok=True)
    # Each process of each test would compile the package anew. A digest, unlike a time, never takes a mutant for ours.
    by_digest = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(package, quiet=2, invalidation_mode=by_digest)
    return package


class Durations:
    """A plugin of pytest: what each test takes, in seconds, and which fail without a mutant."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what setup, call and teardown take."""
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


class Chosen:
    """A plugin of pytest: only these tests, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.place = {test: number for number, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the others."""
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda item: self.place[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the test that fails."""
        if report.failed:
            FAILED.write_text(report.nodeid)


class Record:
    """Which tests run each block, by test file: its digest, and for each test seconds and blocks."""

    def __init__(self) -> None:
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        digests = {
            str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted((ROOT / "tests").rglob("test_*.py"))
        }
        self.files = {name: kept for name, kept in known.items() if kept[0] == digests.get(name)}
        if missing := [name for name in digests if name not in self.files]:
            print(f"recording which blocks the tests of {len(missing)} files run", flush=True)
            found = self._run(missing)
            self.files |= {name: (digests[name], found[name]) for name in missing}
            RECORD.write_text(json.dumps(self.files))
        self.seconds: dict[str, float] = {}
        self.tests: defaultdict[str, set[str]] = defaultdict(set)
        for _, tests in self.files.values():
            for test, (seconds, blocks) in tests.items():
                self.seconds[test] = seconds
                for block in blocks:
                    for name in (block, block.partition("#")[0], block.partition(":")[0] + ":"):
                        self.tests[name].add(test)

    def _run(self, files: list[str]) -> defaultdict[str, dict[str, tuple[float, list[str]]]]:
        for name in ("seen", "tests"):
            shutil.rmtree(HOME / name, ignore_errors=True)
            (HOME / name).mkdir()
            (HOME / name).chmod(0o1777)
        (_site_packages() / "mutants_seen.py").write_text(SEEN)
        names = _instrument(copy_package())
        durations = Durations()
        words = ["-q", "-n9", "-p", "no:randomly", "-p", "no:rerunfailures", "-p", "mutants_worker"]
        worker = "import os\ndef pytest_runtest_setup(item):\n"
        worker += f"    with open(f'{HOME}/tests/{{os.getpid()}}', 'w') as file: file.write(item.nodeid + ' (')\n"
        (_site_packages() / "mutants_worker.py").write_text(worker)
        if _in_fork([*words, *files], durations, HOME / "recording.txt", 3600) not in (*PASSED, 1):
            raise SystemExit(f"pytest ended early: see {HOME}/recording.txt")
        copy_package()
        seen: defaultdict[str, set[str]] = defaultdict(set)
        for path in (HOME / "seen").iterdir():
            test = ""
            for line in path.read_text().splitlines():
                if line and not line[0].isdigit():
                    test = line.rpartition(" (")[0]
                elif test:
                    seen[test] |= {names[int(number)] for number in line.split()}
        told = json.loads((HOME / "durations.json").read_text())
        found: defaultdict[str, dict[str, tuple[float, list[str]]]] = defaultdict(dict)
        for test, seconds in told["seconds"].items():
            if test not in told["failed"]:
                found[test.partition("::")[0]][test] = (round(seconds, 4), sorted(seen[test]))
        return found

    def of(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests that run a mutant's block, up to limits: its module's, its room's, others, then on hosts."""
        block, function, module = mutant.block, mutant.block.partition("#")[0], f"{mutant.path}:"
        tests = next((self.tests[name] for name in (block, function, module) if name in self.tests), set[str]())
        cases: Counter[str] = Counter()  # one case of each test comes before the others
        far = {}
        for test in sorted(tests, key=self.seconds.__getitem__):
            cases[name := test.partition("[")[0]] += 1
            far[test] = (not mutant.is_of_room(test), cases[name], self.seconds[test], test)
        parts: list[list[str]] = [[], [], [], []]
        left = [SHARE * sum(seconds for test, seconds in self.seconds.items() if not _has_hosts(test))] * 3
        longest_s = LONG * sum(seconds for test, seconds in self.seconds.items() if _has_hosts(test))
        for test in sorted(tests, key=far.__getitem__):
            part = 3 if _has_hosts(test) else 0 if mutant.is_own(test) else 1 if mutant.is_of_room(test) else 2
            if part == 3:
                parts[3] += [test] * (self.seconds[test] <= longest_s)
            elif self.seconds[test] <= left[part]:
                left[part] -= self.seconds[test]
                parts[part].append(test)
        return [*parts[:3], parts[3][:MOST_ON_HOSTS]]


def _has_hosts(test: str) -> bool:
    return not test.startswith(("tests/unit/", "tests/simulator/"))


def _in_fork(words: Sequence[str], plugin: Durations | Chosen, output: Path, limit_s: float) -> int | None:
    """Run pytest in a fork of this process, which has loaded it, and return its status; None: it took too long."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        sys.dont_write_bytecode = False  # what pytest makes of the tests is kept
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 1)
        os.dup2(1, 2)
        os.chdir(HOME)  # below ROOT, `python -c` in a test would find the package there
        paths = [f"{ROOT}/{word}" if word.startswith("tests/") else word for word in words]
        status = int(pytest.main([f"--rootdir={ROOT}", f"--config-file={ROOT}/pyproject.toml", *paths], [plugin]))
        if isinstance(plugin, Durations):
            told = {"seconds": plugin.seconds, "failed": sorted(plugin.failed)}
            (HOME / "durations.json").write_text(json.dumps(told))
        sys.stdout.flush()
        os._exit(status)
    deadline = time.monotonic() + limit_s
    try:
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        return None
    finally:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(mutant: Mutant, record: Record) -> tuple[str, str]:
    """Return how a mutant ended, and what it is."""
    tests, (text, what) = record.of(mutant), mutant.text()
    if not any(tests):
        return "survived, as no test runs it", what
    changed = _site_packages() / mutant.path
    try:
        part = next((part for part in tests if part and _notice(part, text, changed, record)), None)
    finally:
        shutil.copy(ROOT / mutant.path, changed)
    return "survived" if part is None else ON_HOSTS if part is tests[3] else CAUGHT, what


def _notice(tests: list[str], text: str, changed: Path, record: Record) -> bool:
    """Tell whether tests notice a module's text; one that fails by chance, as the machine is busy, does not count."""
    before = changed.read_text()
    while tests:
        changed.write_text(text)
        status = _status(tests, record)
        if status in PASSED:
            changed.write_text(before)
            return False
        if not (failed := FAILED.read_text()):  # they cannot even be imported, or wait for ever
            changed.write_text(text if status is None else before)
            return (_status(tests, record) in PASSED) == (status is not None)
        fails_again = _status([failed], record) not in PASSED
        changed.write_text(before)
        if fails_again and _status([failed], record) in PASSED:
            return True
        tests = tests[tests.index(failed) + 1 :]
    return False


def _status(tests: Sequence[str], record: Record) -> int | None:
    """Return pytest's status for these tests, of which FAILED names the one that fails."""
    words = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:rerunfailures", "-p", "no:xdist"]
    words += [f"--timeout={HOSTS_LIMIT_S if _has_hosts(tests[0]) else TEST_LIMIT_S}"]
    words += [*dict.fromkeys(test.partition("::")[0] for test in tests)]
    FAILED.write_text("")
    limit_s = LIMIT_S + TIMES * sum(record.seconds.get(test, 0.0) for test in tests)
    return _in_fork(words, Chosen(tests), HOME / "output.txt", limit_s)


def main() -> None:
    """Sample, run, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time; most tests with hosts wait")
    parser.add_argument("--only", default="", help="part of the paths to change, such as cli/")
    given = parser.parse_args()
    if Path(sys.prefix) == HOME:
        run_part(given)
        return
    given.jobs = 1 if os.geteuid() else given.jobs  # tests that take the same ports need a network each
    homes = [ALL / str(number) for number in range(given.jobs)]
    words = [str(Path(__file__)), "--seed", str(given.seed), "--only", given.only, "--jobs", str(given.jobs)]
    environ = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    print(f"{given.sample} mutants, --seed {given.seed}", flush=True)
    for home in homes:
        make_environment(home)
    for sample, some in (0, homes[:1]), (given.sample, homes):  # the first one records
        lines = [
            [*ALONE * (not os.geteuid()), str(home / "bin/python"), *words, "--sample", str(sample)] for home in some
        ]
        running = [subprocess.Popen(line, cwd=ROOT, env=environ) for line in lines]
        statuses = [process.wait() for process in running]
        if any(statuses):
            raise SystemExit("mutants: a process failed")
    rooms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for home in homes:
        for room, ends in json.loads((home / ENDS).read_text()).items():
            rooms[room].update(ends)
    for room, ends in sorted(rooms.items()):
        print(f"{room:12} caught {ends[CAUGHT]} and {ends[ON_HOSTS]} on hosts of {ends.total()}")
    caught, count = (sum(map(of, rooms.values())) for of in (_caught, Counter.total))
    print(f"caught {caught} of {count} mutants: {100 * caught // max(count, 1)} %")


def _caught(ends: Counter[str]) -> int:
    return ends[CAUGHT] + ends[ON_HOSTS]


def run_part(given: argparse.Namespace) -> None:
    """Run the mutants that are this process's, and write how many of each room ended how."""
    sys.path.remove(str(Path(__file__).parent))
    record = Record()
    known = [mutant for mutant in sites() if given.only in str(mutant.path)]
    chosen = random.Random(given.seed).sample(known, min(given.sample, len(known)))
    rooms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant in chosen[int(HOME.name) :: given.jobs]:
        end, what = run(mutant, record)
        rooms[mutant.path.parts[1] if len(mutant.path.parts) > 2 else "root"][end.split(",")[0]] += 1
        if end != CAUGHT:
            print(f"{end}: {what}", flush=True)
    (HOME / ENDS).write_text(json.dumps(rooms))


if __name__ == "__main__":
    main()
