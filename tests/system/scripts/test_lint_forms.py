"""A job script with each kind of trap on a real Slurm: the trap shows, and with mingle one world forms."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import hosts as cluster_hosts, slurm as cluster_slurm
from cluster.paths import PROJECT
from support.forms import OF_TRAPS, Outcome, Proof, forms
from support.needs import skip_for_want_of

from mingle_hooks.files import toml
from mingle_hooks.scripts.rewrite import fix_script

TRAPS = PROJECT / "tests/data/traps.toml"
FORMS = {form.name: form for form in forms(TRAPS)}
FIXED = {row["name"]: row["fixed"].lstrip("\n") for row in toml(TRAPS.read_bytes())["form"]}
PLAIN, HARD = 4, 2
DEADLINE_S = 4.0  # how long each member of what does not form a world waits; a busy machine starts them one by one


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    """Start lanes for all tests here."""
    skip_for_want_of(cluster_hosts.missing() + cluster_slurm.missing())
    tmp_path_factory.getbasetemp().chmod(0o755)
    with Proof(tmp_path_factory.mktemp("proof"), PLAIN, HARD, deadline_s=DEADLINE_S) as started:
        yield started


def outcomes(proof: Proof, scripts: dict[tuple[str, bool], str]) -> dict[tuple[str, bool], Outcome]:
    """Run scripts as the trap of their name wants it, as many at a time as there are lanes."""

    def run(name: tuple[str, bool], script: str) -> Outcome:
        how, is_hard, _ = OF_TRAPS[name[0]]
        return proof.run(script, how=how, is_hard=is_hard)

    with ThreadPoolExecutor(2 * (PLAIN + HARD)) as pool:
        return dict(zip(scripts, pool.map(run, scripts, scripts.values()), strict=True))


def test_each_trap_shows_and_with_mingle_one_world_forms(proof: Proof) -> None:
    """Each kind that can keep a world from forming shows in its own way; as --fix has the script, one world forms.

    Beside another job, with hard names and interfaces and without scontrol; when a member fails all end.
    """
    assert {*FORMS} == {*OF_TRAPS}
    changed = {name: fix_script(form.script) for name, form in FORMS.items()}
    unsure = {name for name, its in changed.items() if its.unsure}
    assert unsure == {"tasks", "step-tasks"}  # how many start is the user's to choose
    scripts = {(name, False): form.script for name, form in FORMS.items()}
    scripts |= {(name, True): FIXED[name] if its.unsure else its.text for name, its in changed.items()}
    found = outcomes(proof, scripts)
    hidden = {
        name: its for (name, is_fixed), its in found.items() if not (is_fixed or its.verdict in OF_TRAPS[name][2])
    }
    assert not hidden
    wanted = dict.fromkeys(FIXED, "one world") | {"loop": "ended"}
    assert {name: its.verdict for (name, is_fixed), its in found.items() if is_fixed} == wanted, found


def test_the_place_is_the_only_thing_left(proof: Proof, tmp_path: Path) -> None:
    """A form's processes have ended with it."""
    assert not proof.slurm.strays()
    assert proof.slurm.has_no_job()
    assert not list(tmp_path.iterdir())
