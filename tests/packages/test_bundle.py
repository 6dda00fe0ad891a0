"""Bundles: they hold what a start loads, and what comes from one is what its module's file would have been."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

import pytest
from building import ROOT
from needs import need

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.hosts import Hosts
    from cluster.slurm import SlurmCluster

    Loads = tuple[set[str], ...]

BUNDLES = ("member", "leader", "node", "launch", "runner")
# Asked where nobody has answered for a while, as on a machine that is busy; each is loaded then, from its own file.
MAY_BE_LOADED = re.compile(r"mingle_hooks\.(bundles|bundle_\w+|__main__|rendezvous\.discovery\.multicast.*)$")
IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| *(mingle_hooks\.\S+)$", re.MULTILINE)
# A Python that tells what it loads; its name is what the runner starts on each host.
TELLING = '#!/bin/sh\nexec "{python}" -X importtime "$@" 2>>"{place}/loaded.$$"\n'
RUN = """\
import sys
sys.executable, sys.argv = "{place}/python", ["mingle", "run", "true"]
from mingle_hooks.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Return packaging/bundle.py."""
    need("hatchling")
    spec = importlib.util.spec_from_file_location("bundle", ROOT / "packaging" / "bundle.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loaded(text: str) -> set[str]:
    """Return our modules that a Python says it loaded, without those that need not be in a bundle."""
    return {name for name in IMPORTED.findall(text) if not MAY_BE_LOADED.match(name)}


def usual(measure: Callable[[], Loads], expected: Loads) -> Loads:
    """Return what is loaded, measured again where it is not as expected: on a busy machine a start may need more."""
    for _ in range(3):
        if (found := measure()) == expected:
            break
    return found


def test_members_load_what_their_bundles_have(slurm: SlurmCluster, maker: ModuleType) -> None:
    """In a step as it usually is: by `mingle exec` and `mingle env`, on rank 0 and elsewhere.

    What a bundle lacks is a file more for each node, what it has too much is read for nothing.
    """
    mingle = Path(sys.executable).with_name("mingle")

    def measure() -> Loads:
        told: dict[str, set[str]] = {"0": set(), "1": set()}
        for words in (f"{mingle} exec -- true", f"sh -c 'eval \"$({mingle} env)\"'"):
            line = ("env", "PYTHONPROFILEIMPORTTIME=1", "sh", "-c", words)
            done = slurm.srun("-N2", "-l", *line, check=True, timeout=60)
            for rank in told:
                told[rank] |= loaded("\n".join(re.findall(rf"^{rank}: (.*)$", done.stderr, re.MULTILINE)))
        return told["1"], told["0"] - told["1"]

    expected = set(maker.listed("member")), set(maker.listed("leader"))
    assert usual(measure, expected) == expected


def test_a_run_loads_what_its_bundles_have(slurm: SlurmCluster, maker: ModuleType, tmp_path: Path) -> None:
    """On the runner's host, and on each: the supervisor's, and what it loads for COMMAND while others are awaited."""
    has = {name: set(maker.listed(name)) for name in BUNDLES}
    members = has["member"] | has["leader"]
    numbers = count()

    def measure() -> Loads:
        place = tmp_path / str(next(numbers))
        place.mkdir()
        place.chmod(0o777)
        python = place / "python"
        python.write_text(TELLING.format(python=sys.executable, place=place))
        python.chmod(0o755)
        (place / "run.py").write_text(RUN.format(place=place))
        script = f"#!/bin/sh\nexec {sys.executable} -X importtime {place}/run.py 2>{place}/runner\n"
        job = slurm.submit(script, "--nodes=2", f"--output={place}/out", cwd=str(place))
        assert slurm.wait(job, timeout=60) == "COMPLETED", (place / "runner").read_text()
        hosts = [loaded(path.read_text()) - members for path in place.glob("loaded.*")]
        return loaded((place / "runner").read_text()), *hosts

    expected = has["launch"] | has["runner"], has["node"] - members, has["node"] - members
    assert usual(measure, expected) == expected
    assert has["launch"].isdisjoint(has["runner"])
    assert has["member"].isdisjoint(has["leader"])


def test_a_start_reads_its_modules_from_bundles(hosts: Callable[..., Hosts]) -> None:
    """Not from their own files, which are looked for by no call to the kernel."""
    mingle = Path(sys.executable).with_name("mingle")
    code = "import sys; sys.argv = ['mingle', 'env', '--id', 'a', '--nodes', '1']\n"
    code += "import os; os._exit = lambda _code: None\n"
    code += "from mingle_hooks.__main__ import main; main()\n"
    code += "print(*sorted(name for name, its in sys.modules.items() if type(its.__loader__).__name__ == '_Bundle'))"
    (host,) = hosts(1)
    done = host.run([mingle.with_name("python"), "-c", code], check=True, cwd="/")
    assert "mingle_hooks.joining" in done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundled_module_is_as_its_file_would_have_made_it(maker: ModuleType, name: str) -> None:
    """The same names, of the same kinds; constants of the same values."""
    made: dict[str, object] = {}
    exec(compile(maker.bundle(name), name, "exec"), made)  # noqa: S102 - our own code
    rows = made["MODULES"]
    assert isinstance(rows, dict)
    assert [*rows] == maker.listed(name) == sorted(maker.listed(name))
    for module, (function, inside, is_package) in rows.items():
        path = ROOT / "mingle_hooks" / inside
        assert path.is_file()
        assert is_package == (path.name == "__init__.py")
        by_file, by_bundle = ModuleType(module), ModuleType(module)
        by_file.__dict__["__file__"] = by_bundle.__dict__["__file__"] = str(path)
        exec(compile(path.read_text(), str(path), "exec"), by_file.__dict__)  # noqa: S102 - our own code
        FunctionType(function.__code__, by_bundle.__dict__)()
        assert shape(by_bundle) == shape(by_file), module


def shape(module: ModuleType) -> dict[str, object]:
    """Return a module's names, each with its value, or, where two of it are never the same, with its type and names."""
    left_out = {"__doc__", "__annotations__", "annotations", "__builtins__", "_all"}
    found = {}
    for name, its in vars(module).items():
        if isinstance(its, type) and its.__module__ == module.__name__:
            found[name] = (type(its).__name__, sorted(set(vars(its)) - {"__doc__", "__annotations__"}))
        elif name not in left_out:
            is_plain = isinstance(its, (str, bytes, int, float, frozenset, ModuleType))
            found[name] = its if is_plain else type(its)
    return found


# What modules may have that a function cannot, or that stands there in another way.
SAMPLES = {
    "f-strings": """
x, w = "a\\"b'", 7
r = f"{{{x!r:>{w}}}} {x!s} {w:03d} {{}} {w=} {[f'{y}' for y in (1, 2)]}"
""",
    "fields": """
class A:
    x: int
    y: int = 3
r = list(A.__annotations__), A.y
""",
    "types of names": """
x: int
y: int = 3
r = y
if y:
    z: str = 'a'
""",
    "globals": """
n = 0
def more():
    global n, m
    n = m = n + 1
more()
r = n, m
""",
    "a class's own": """
x = 1
class A:
    x = x + 1
    def f(self):
        return x
r = A.x, A().f(), A.__qualname__
""",
    "closures": """
x = [1]
def f():
    return x
r = [y + z for y in x for z in x], (lambda a=x: a + x)(), f()
""",
    "walrus": "r = [last := y for y in (1, 2)], last",
    "exceptions": """
try:
    1 / 0
except ZeroDivisionError as e:
    r = str(e)
del r
r = 'e' in globals()
""",
    "star": """
from _stat import *
r = S_IFREG, 'filemode' in globals()
""",
    "types": """
from mingle_hooks.typed import TYPE_CHECKING
if TYPE_CHECKING:
    import nowhere
else:
    r = 1
""",
    "docstrings": """
def f(a: "x" = 1) -> "y":
    'Doc.'
class A:
    'Doc.'
r = f(), A.__name__
""",
    "named tuples": """
from mingle_hooks.typed import NamedTuple
class A(NamedTuple):
    x: int
    y: int = 2
r = A(1)._asdict()
""",
    "loops": """
for i, (j, *k) in enumerate([(1, 2, 3)]):
    pass
with open('/dev/null') as f:
    r = f.read(), i, j, k
""",
    "match": """
match {'a': [1, 2]}:
    case {'a': [x, *rest]}:
        r = x, rest
""",
    "imports": """
import os.path, errno as e
from os import path as p
r = os.path is p, e.ENOENT
""",
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_function_does_what_its_module_does(maker: ModuleType, tmp_path: Path, sample: str) -> None:
    text = f"'Doc.'\nfrom __future__ import annotations\n{SAMPLES[sample]}\n"
    by_file: dict[str, object] = {"__name__": "m"}
    exec(compile(text, "m", "exec"), by_file)  # noqa: S102 - the samples above
    made: dict[str, object] = {}
    exec(compile(maker._function("_0", text, str(tmp_path)), "m", "exec"), made)  # noqa: S102 - of the samples above
    by_bundle: dict[str, object] = {"__name__": "m", "__builtins__": __builtins__}
    function = made["_0"]
    assert isinstance(function, FunctionType)
    FunctionType(function.__code__, by_bundle)()
    assert by_bundle["r"] == by_file["r"]
    assert by_bundle.get("__doc__") is None


def test_a_package_of_a_bundle_has_the_rest_of_its_folder(maker: ModuleType, tmp_path: Path) -> None:
    """And is read once, however often it is asked for."""
    code = f"""
import sys, mingle_hooks
from mingle_hooks import bundles
mingle_hooks.__path__.append("{tmp_path}")
bundles.use("member"); bundles.use("member")
print(sum(type(its).__name__ == "_Bundle" for its in sys.meta_path))
from mingle_hooks import joining
from mingle_hooks.rendezvous import leader
from mingle_hooks.rendezvous.leader import timeline
for module in leader, timeline, joining:
    print(type(module.__loader__).__name__, module.__file__)
"""
    (tmp_path / "bundle_member.py").write_text(maker.bundle("member"))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    inside = ROOT / "mingle_hooks"
    assert done.stdout.splitlines() == [
        "1",
        f"_Bundle {inside}/rendezvous/leader/__init__.py",
        f"SourceFileLoader {inside}/rendezvous/leader/timeline.py",
        f"_Bundle {inside}/joining.py",
    ]


def test_a_checkout_has_no_bundles_and_loads_the_files() -> None:
    code = "from mingle_hooks.bundles import load, use; use('member'); load('node')\n"
    code += "import mingle_hooks.joining as module; print(type(module.__loader__).__name__)"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=environ, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "SourceFileLoader\n"
