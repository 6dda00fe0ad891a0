"""`mingle hooks`: what is printed of a plan, what is asked first, and which status says what."""

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pytest

from mingle_hooks import settings
from mingle_hooks.cli import hooks as cli
from mingle_hooks.cli.main import run
from mingle_hooks.hooks import files, plan as plans, verify
from mingle_hooks.hooks.files import Site
from mingle_hooks.hooks.plan import Finding, Line


def file(name: str, what: str, chain: str = "", kept: str = "", copy: str = "") -> Any:
    """Return a file of a plan."""
    entry = SimpleNamespace(name=name, path=f"/{name}", chain=chain, kept=kept)
    present = SimpleNamespace(copy=copy and (copy, None), origin="edited" if what == "replace" else "site")
    return SimpleNamespace(what=what, entry=entry, present=present, before="a\n", text="b\n")


FILES = [file("x", "create", chain="/c", kept="/k", copy="/d"), file("y", "replace", copy="/e")]
BAD, NOTE = Finding("/x", "is old", "new"), Finding("/yyy", "is odd", "", note=True)
DIFFS = [f"--- /{name}\n+++ /{name} (new)\n@@ -1 +1 @@\n-a\n+b\n" for name in "xy"]
HEAD = ["create  /x, calls /c, keeps the site's own as /k\n", "replace /y, keeps the edited one as /e\n"]
LINES = "\nslurm.conf:\nProlog=/x\nEpilog=/y    # already there\n"
ALL, ALL_DIFFS = "".join(HEAD) + LINES, HEAD[0] + DIFFS[0] + HEAD[1] + DIFFS[1] + LINES
WORSE = "note: n\nBAD  /x: is old; fix, before you reconfigure: new\n"
REMOVALS = [SimpleNamespace(what=what, entry=SimpleNamespace(path=f"/{what}")) for what in ("leave", "stub")]
STAYS = "undo\nleave   /leave\n"
STUB = (
    "stub: runs your own hooks only, as a slurmd may not have read slurm.conf yet; after {} s, run scontrol reconfigure"
)
GONE = f"{STAYS}stub    /stub\n{STUB.format(plans.STUB_S)}, then this again\n"
LEFT = "note: /left is left for its job; run this again after the job\n"
IS_ODD, BOTH = "note /yyy: is odd\n", "note /yyy: is odd\nBAD  /x:   is old; fix: new\n"
EDITED = "--- /y (as installed)\n+++ /y (as edited)\n@@ -1 +1 @@\n-b\n+a\n"
TRIALS = [
    SimpleNamespace(hook="prolog", environment="empty", status=status, milliseconds=ms, output=("said",))
    for status, ms in ((0, 2.0), (3, 11.0))
]
TRIED = "prolog             empty                       status {}{:8.1f} ms\n    said\n"
TRIED = f"{TRIED.format(0, 2)}{TRIED.format(3, 11)}\n2 runs, 1 failed, the slowest took 11 ms\n"
UNDER = "\nUnder Slurm the second of two tasks on {}, in a step of two nodes, would get:\n  {}\n"
NOTHING, SOMETHING = (UNDER.format(os.uname().nodename.partition(".")[0], end) for end in ("nothing\n  why", "A=1"))
NEW, SAW = "note: ignored a, which only a later version of mingle knows\n", "mingle: expected {}; saw {}; try {}\n"
CONF, WHOLE = "--slurm-conf", "an absolute path, which is below --root"
VERSION = "--slurm-version with the version from `slurmd -V`"
ASKS = {"err": True}
EXIT, YES, NO = "--detailed-exitcode", {"answer": True}, {"answer": False}
SILENCE = "\n" + SAW.format("an answer to the question, or --yes", "none, so nothing was changed", "--yes")


@pytest.mark.parametrize(
    ("words", "its", "status", "out", "err", "calls"),
    [
        ("install slurm --dry-run", {}, 0, ALL, "note: n\n", []),
        (f"install slurm --yes {EXIT}", {}, 2, ALL, "note: n\n", ["apply"]),
        ("install slurm", YES, 0, ALL, "note: n\n", ["confirm", "apply"]),
        ("install slurm", NO, 1, "".join(HEAD), "", ["confirm"]),
        ("install slurm", {}, 64, "".join(HEAD), SILENCE, ["confirm"]),
        ("install slurm --json", YES, 0, "{}\n", "", ["confirm", "apply"]),
        (f"install slurm {EXIT}", {"changes": False}, 0, ALL, "note: n\n", ["apply"]),
        (f"install slurm --yes --diff {EXIT}", {"closed": (BAD,)}, 1, ALL_DIFFS, WORSE, ["apply"]),
        ("uninstall slurm --dry-run", {}, 0, GONE, "", []),
        (f"uninstall slurm --yes {EXIT}", {}, 2, GONE, LEFT, ["uninstall"]),
        ("uninstall slurm", YES, 0, GONE, LEFT, ["confirm", "uninstall"]),
        ("uninstall slurm", NO, 1, GONE, "", ["confirm"]),
        ("uninstall slurm", {}, 64, GONE, SILENCE, ["confirm"]),
        ("uninstall slurm --json", YES, 0, "[]\n", LEFT, ["confirm", "uninstall"]),
        (f"uninstall slurm {EXIT} --yes", {"removals": REMOVALS[:1]}, 0, STAYS, LEFT, ["uninstall"]),
        (f"uninstall slurm {EXIT}", {"removals": []}, 0, "", LEFT, ["uninstall"]),
        ("verify slurm", {"found": [NOTE, BAD]}, 1, BOTH + EDITED, "", []),
        ("verify slurm", {"found": [NOTE]}, 0, IS_ODD + EDITED + "ok\n", "", []),
        ("verify slurm", {"hung": BAD}, 1, "BAD  /x: is old; fix: new\n", "", []),
        ("verify slurm --json", {"found": [BAD]}, 1, "[1]\n", "", []),
        ("verify slurm --quiet", {}, 0, "", "", []),
        ("doctor", {"found": [NOTE, BAD]}, 1, BOTH + NOTHING, "", []),
        ("doctor", {"found": [NOTE], "job": ["A=1"]}, 0, IS_ODD + SOMETHING, "", []),
        ("render slurm --diff", {}, 0, "".join(DIFFS), "", []),
        ("render slurm x --diff", {}, 0, DIFFS[0], "", []),
        ("render slurm x", {"left": ["a"]}, 0, "b\n", NEW, []),
        ("render slurm z", {}, 0, "slurm-z False", "", []),
        ("render slurm z --observe", {}, 0, "slurm-z True", "", []),
        ("render slurm z --diff", {}, 0, "", "", []),
        ("render slurm x", {"hung": BAD}, 73, "", SAW.format("files that answer", "/x, which is old", "new"), []),
        ("install slurm --root /no", {}, 64, "", SAW.format("a directory", "--root /no", "mkdir -p /no"), []),
        (f"verify slurm --root / {CONF} x", {}, 64, "", SAW.format(WHOLE, f"{CONF} x", f"{CONF} /x"), []),
        ("verify slurm --root / --pbs-home x", {}, 64, "", SAW.format(WHOLE, "--pbs-home x", "--pbs-home /x"), []),
        ("verify slurm --slurm-version x", {}, 64, "", SAW.format("a version such as 23.11", "'x'", VERSION), []),
        ("render slurm", {}, 0, "==> /x <==\nb\n\n==> /y <==\nb\n\n", "", []),
        ("simulate slurm", {}, 1, TRIED, "", []),
        ("rollout --check --nodes n[1-2] /dev/null", {}, 1, "BAD  /x: is old; fix: new\n", "", []),
    ],
)
def test_what_a_command_prints_asks_and_does(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: str, its: dict[str, Any], status: int, out: str, err: str, calls: list[str],
) -> None:  # fmt: skip
    """The plan comes before the question, and is printed once; a finding weighs more than a change."""
    lines = (Line("Prolog=/x"), Line("Epilog=/y", is_there=True))
    plan: Any = SimpleNamespace(root="", where="slurm.conf", notes=("n",), lines=lines, files=FILES)
    plan.changes = its.get("changes", True)
    found, previews = its.get("found", []), words.startswith("render")
    target = SimpleNamespace(plan=lambda _site, where: plan if where.is_preview == previews else None)
    target.undo, target.clear = ("undo",), lambda _where: ("/left",)
    done = mock.Mock(**{"confirm.return_value": its.get("answer")})
    done.confirm.side_effect = None if "answer" in its else click.Abort
    for place, name, value in (
        (click, "confirm", done.confirm),
        (cli, "TARGETS", {"slurm": target}),
        (cli, "hook", lambda *names: "-".join(names)),
        (settings, "load", lambda *_, **__: SimpleNamespace(left_out=its.get("left", ()))),
        (files, "read_site", lambda _given: Site()),
        (files, "render_hook", lambda name, site: f"{name} {site.observe}"),
        (files, "installation_lock", nullcontext),
        (files, "directory_locks", lambda *_: nullcontext()),
        (os, "geteuid", lambda: 0),
        (plans, "apply", done.apply),
        (plans, "uninstall", done.uninstall),
        (plans, "removals", lambda *_: its.get("removals", REMOVALS)),
        (plans, "closed_directories", lambda *_: its.get("closed", ())),
        (plans, "chain_findings", lambda *_: ()),
        (plans, "hung_finding", lambda *_: its.get("hung")),
        (plans, "quick_findings", lambda *_: ()),
        (verify, "suffix_findings", lambda *_: ()),
        (verify, "verify", lambda *_: found),
        (verify, "doctor", lambda *_: found),
        (verify, "preview_job", lambda *_: its.get("job", ())),
        (verify, "why_nothing", lambda *_: ("why",)),
        (verify, "installed_json", lambda *_, **__: "{}"),
        (verify, "removed_json", lambda *_, **__: "[]"),
        (verify, "verified_json", lambda _, given: f"[{len(given)}]"),
        (verify, "simulate", lambda *_: TRIALS),
        (verify, "compare_reports", lambda _text, wanted: [BAD] * (wanted == ("n1", "n2"))),
    ):
        monkeypatch.setattr(place, name, value)
    assert run(["hooks", *words.split()]) == status
    seen = capfd.readouterr()
    assert (seen.out, seen.err, [name for name, _, how in done.mock_calls if how in ({}, ASKS)]) == (out, err, calls)


def test_a_relative_path_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of any command; /etc/slurm/slurm.conf is not where somebody types slurm.conf."""
    monkeypatch.chdir(tmp_path)
    where = cli.hook_places({"root": "", "slurm_conf": "slurm.conf", "pbs_home": "../pbs"})
    assert (where.slurm_conf, where.pbs_home) == (f"{tmp_path}/slurm.conf", f"{tmp_path.parent}/pbs")
