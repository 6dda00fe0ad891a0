"""A value that is none of those there are: one line with all of them and the nearest, before anything is done."""

import os
import re
from pathlib import Path

import pytest
from forked import Forked
from support.members import KEYED
from support.recorded import FOLDER, STEP

from mingle_hooks.files import toml

MISTAKES = toml((FOLDER.parent / "mistakes.toml").read_bytes())


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_answered_with_the_valid_values_and_the_nearest(
    forked: Forked, words: str, tmp_path: Path
) -> None:
    """The exit code is that for options; on a login node the error is that there is no job."""
    names, advice = MISTAKES[words]
    line = answered(forked, words, {}, 64, tmp_path)
    assert names in line
    assert line.endswith(f"; try {advice}\n")


def answered(forked: Forked, words: str, variables: dict[str, str], code: int, home: Path) -> str:
    """Return the one line of a call that fails with this code, and exports nothing."""
    done = forked.run(*words.split(), env={"PATH": os.environ["PATH"], "HOME": str(home), **variables})
    assert (done.returncode, "export" in done.stdout) == (code, False)
    assert re.fullmatch(r"mingle: expected [^\n]+; saw [^\n]+; try [^\n]+\n", done.stderr)
    return done.stderr


TWO = "env --id a --nodes 2"


@pytest.mark.parametrize(
    ("words", "variables", "code", "names"),
    [
        ("env", {**STEP, "SLURM_NODEID": "2", "SLURM_PROCID": "0"}, 65, "a node rank of 0 to 1; saw 2 (SLURM_NODEID)"),
        ("env --no-wait", {**STEP, "SLURM_NODEID": "0", "SLURM_PROCID": "0", "NODE_RANK": "1"}, 64, "saw NODE_RANK=1"),
        (f"{TWO} --iface nosuch0", KEYED, 71, "an address on nosuch0"),
        (TWO, {}, 77, "`umask 077; mkdir -p"),
        ("env --id a", {"MINGLE_NODES": "four"}, 78, "'four' (MINGLE_NODES)"),
        (TWO, {"MINGLE_ON_FAILURE": "x"}, 78, "exit or status; saw 'x' (MINGLE_ON_FAILURE); try exit"),
    ],
)
def test_what_else_is_wrong_has_a_code_of_its_own(
    forked: Forked, words: str, variables: dict[str, str], code: int, names: str, tmp_path: Path
) -> None:
    """The scheduler's variables, the network, the key and the settings."""
    assert names in answered(forked, words, variables, code, tmp_path)
