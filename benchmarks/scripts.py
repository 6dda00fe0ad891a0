"""Job scripts as people have them, on a real Slurm: which trap shows in the original, and what the fixed one does.

Training is a stand-in that reads what torchrun and others read, and meets the other hosts (tests/support/forms.py).
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from cluster.paths import PROJECT
from forms import FAILS, ONCE, Form, Outcome, Proof, forms

from mingle_hooks.scripts.rewrite import fix_script

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMS = PROJECT / "tests/data/lint"
PLAIN, HARD = 6, 3  # lanes
# Whoever waits for a lane takes no time of it.
AT_ONCE = 2 * (PLAIN + HARD)
Outcomes = dict[tuple[str, bool], Outcome]


class Row(NamedTuple):
    """A form, what its scripts did in each of its runs, and the words for what the fix was not sure of."""

    form: Form
    original: Outcomes
    fixed: Outcomes
    unsure: tuple[str, ...]

    @property
    def is_run(self) -> bool:
        """Whether its training came so far: that of many is in a file that only their project has."""
        return all(outcome.lines for outcome in self.original.values())


def is_well(outcomes: Outcomes) -> bool:
    """Tell whether each run of a script went as without a trap."""
    return all(outcome.is_well for outcome in outcomes.values())


def figures(paths: Iterable[Path] = ()) -> dict[str, object]:
    """Return how many traps showed and how many fixed scripts formed one world, and each form's outcomes."""
    its = [form for form in forms(*(paths or sorted(FORMS.glob("*.toml")))) if form.is_for_slurm]
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as place,
        Proof(Path(place), PLAIN, HARD) as proof,
        ThreadPoolExecutor(AT_ONCE) as pool,
        ThreadPoolExecutor(AT_ONCE) as rows_at_once,
    ):

        def outcomes(form: Form, text: str, runs: Iterable[tuple[str, bool]]) -> Outcomes:
            waits = {run: pool.submit(proof.run, text, form.nodes, how=run[0], is_hard=run[1]) for run in runs}
            return {run: its.result() for run, its in waits.items()}

        def row(form: Form) -> Row:
            original = outcomes(form, form.script, form.runs)
            fixed = fix_script(form.script, form.nodes or None)
            if fixed.unsure:
                return Row(form, original, {}, tuple(fixed.unsure))
            # Where a member fails no world is seen.
            runs = sorted({*form.runs, (ONCE, False)}) if form.runs == [(FAILS, False)] else form.runs
            return Row(form, original, outcomes(form, fixed.text, runs), ())

        rows = list(rows_at_once.map(row, its))
    for one in rows:
        show(one)
    found = totals(rows)
    for name, count in found.items():
        print(f"  {name:58} {count:5}")
    return {**found, "seconds": round(time.monotonic() - began), "forms' outcomes": [as_json(one) for one in rows]}


def totals(every: list[Row]) -> dict[str, int]:
    """Return the counts."""
    rows = [row for row in every if row.is_run]
    kinds = [(row, kind) for row in rows for kind in row.form.kinds]
    sound = [row for row in rows if not row.form.traps]
    sure = [row for row in rows if not row.unsure]
    worse = [row for row in sure if is_well(row.original) and not is_well(row.fixed)]
    return {
        "forms": len(every),
        "not run, as their training is in another file": len(every) - len(rows),
        "traps, each kind once a form": len(kinds),
        "traps that showed": sum(kind in row.form.shown(row.original) for row, kind in kinds),
        "forms with traps": len(rows) - len(sound),
        "forms with traps that formed one world all the same": sum(is_well(r.original) for r in rows if r.form.traps),
        "forms without traps": len(sound),
        "forms without traps that formed one world": sum(is_well(row.original) for row in sound),
        "fixed, where sure": len(sure),
        "fixed, where sure, that formed one world": sum(is_well(row.fixed) for row in sure),
        "fixed, where sure, that did worse than before": len(worse),
        "left as they were, as not sure": len(rows) - len(sure),
    }


def show(row: Row) -> None:
    """Print what the two scripts of a form did."""
    name, traps = row.form.name[:44], " ".join(row.form.kinds) or "none"
    print(
        f"  {name:44}  {traps:34}  {words(row.original):34}  {words(row.fixed) or 'not sure: ' + '; '.join(row.unsure)}"
    )


def words(outcomes: Outcomes) -> str:
    """Return the verdicts of a script's runs."""
    return ", ".join(starmap(_word, outcomes.items()))


def _word(run: tuple[str, bool], outcome: Outcome) -> str:
    how = " ".join([run[0]] * (run[0] != "once") + ["hard"] * run[1])
    return outcome.verdict + f" ({how})" * bool(how)


def as_json(row: Row) -> dict[str, object]:
    """Return a row for the results' file; of outputs only those that tell why a fixed script did not do."""
    return {
        "form": row.form.name,
        "seen": row.form.seen,
        "traps": row.form.kinds,
        "shown": row.form.shown(row.original),
        "original": words(row.original),
        "fixed": words(row.fixed),
        "unsure": row.unsure,
        "why not": [its.why for its in row.fixed.values() if not its.is_well],
    }


if __name__ == "__main__":
    figures([Path(name) for name in sys.argv[1:]])
