"""Job scripts in which `mingle run` starts a COMMAND that writes what it has been given, and what it wrote."""

import secrets
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cluster.paths import MINGLE

# What a shell says of itself, and Python where nothing says the language.
OF_SHELL = ("_", "SHLVL", "PWD", "OLDPWD", "LC_CTYPE")
SCRIPT = """\
umask {umask}
cd {place}/{directory}
export MINGLE_KEY={key} OMP_NUM_THREADS=7 LINES='two
lines' QUOTED="a 'b' \\"c\\" \\$d %e, \\\\f" EMPTY=
env -0 >{place}/batch
{mingle} run --quiet --keep-key {words} bash -c '{command}
    {{ echo $RANK; umask; pwd; cat; env -0; }} >{place}/told/$(uname -n).${{LOCAL_RANK:-0}}'
"""


class Told(NamedTuple):
    """What one COMMAND has written."""

    rank: str
    umask: str
    directory: str
    environ: dict[str, str]


def script(place: Path, *words: str, command: str = ":", directory: str = "a dir", umask: str = "0027") -> str:
    """Return a script whose COMMAND, after another, writes what it sees into `told`."""
    for name in (directory, "told"):
        (place / name).mkdir(exist_ok=True)
        (place / name).chmod(0o777)
    key, where = secrets.token_hex(32), shlex.quote(directory)
    said = {"words": shlex.join(words), "command": command, "key": key, "umask": umask}
    return SCRIPT.format(place=place, directory=where, mingle=MINGLE, **said)


def told(place: Path, of_host: Iterable[str] = (), directory: str = "a dir", umask: str = "0027") -> dict[str, Told]:
    """Return what each wrote by HOST.LOCAL, after the checks that hold for all.

    Each has the script's environment, but for variables that begin with those `of_host`.
    """
    own, left_out = batch(place), (*of_host, *OF_SHELL)
    found = {}
    for path in sorted((place / "told").iterdir()):
        *head, environ = path.read_text().split("\n", 3)
        found[path.name] = its = Told(*head, environ=_environ(environ))
        assert (its.umask, its.directory) == (umask, f"{place}/{directory}")
        same = {name: value for name, value in own.items() if not name.startswith(left_out)}
        assert {name: its.environ.get(name) for name in same} == same, sorted(its.environ.items() ^ own.items())
        assert not [name for name in its.environ if name.startswith("MINGLE_RUN_") and name != "MINGLE_RUN_ID"]
    assert not [*place.rglob(".mingle.*")]
    return found


def batch(place: Path) -> dict[str, str]:
    """Return the script's environment."""
    return _environ((place / "batch").read_text())


def _environ(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split("\0") if pair)
