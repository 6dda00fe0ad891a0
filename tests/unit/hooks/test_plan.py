"""What a hook's path holds, what is found of one that is installed, and which programs and runs there are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.hooks_image import OURS, at, key, program

from mingle_hooks.hooks import files, plan
from mingle_hooks.hooks.files import Chain, Entry, Found, Manifest, Site, checksum, render_hook
from mingle_hooks.hooks.plan import Finding, Where
from mingle_hooks.hooks.targets import hook

TEXT = render_hook(hook("slurm", "prolog"), Site())
PROLOG = f"{OURS}/prolog"
ENTRY = Entry("slurm", "prolog", PROLOG, checksum(TEXT.encode()), 0o755)
AGAIN = "mingle hooks install slurm"
KEY = "ab" * 32
EDITED, KEPT = "was edited by hand", "/etc/mingle/hooks/kept"


@pytest.mark.parametrize(
    ("now", "path", "entry", "origin"),
    [
        (None, PROLOG, ENTRY, "nobody"),
        (TEXT, PROLOG, None, "ours"),
        (TEXT.replace("exit", "exit "), PROLOG, ENTRY, "edited"),
        ("installed", "/opt/x", ENTRY._replace(sha256=checksum(b"installed")), "ours"),
        ("other", PROLOG, ENTRY, "edited"),
        ("other", "/opt/x", ENTRY, "site"),
        ("other", "/opt/x", None, "site"),
    ],
)
def test_a_file_is_from_mingle_or_the_site_or_edited(now: str | None, path: str, entry: Entry, origin: str) -> None:
    """A link is the site's, whatever its text; the copy of one leads to where the original led."""
    found = None if now is None else Found(now.encode(), 0o755, 0)
    assert plan.origin_of(found, path, entry) == origin
    if found is not None:
        assert plan.origin_of(found._replace(is_link=True), "/opt/x", entry) == "site"
    for copy, original in (("a.before-mingle", "a"), ("a.before-mingle.12", "a"), ("a.before-mingle.x", None)):
        link = Found(copy.encode(), 0o777, 0, is_link=True)
        assert plan.restored(link) == link._replace(data=(original or copy).encode())
        assert plan.restored(link._replace(is_link=False)).data == copy.encode()


# What is wrong with an installed file, and all that is said of it.
WRONG: dict[str, tuple[Callable[[Path], object], tuple[str, str] | None]] = {
    "nothing": (lambda _path: None, None),
    "gone": (lambda path: path.unlink(), ("is missing", AGAIN)),
    "mode": (lambda path: path.chmod(0o700), ("has mode 0700", f"chmod 0755 {PROLOG}")),
    "edited": (
        lambda path: path.write_text("#!/bin/sh\n"), (EDITED, f"{AGAIN}, which keeps the edited one in {KEPT}"),
    ),
    "another's": (
        lambda path: path.write_text(render_hook(hook("slurm", "prolog"), Site(), Chain("/opt/y"))),
        (f"comes from another installation than the manifest (mingle-hooks {files.__version__})", AGAIN),
    ),
    "a link": (lambda path: (path.unlink(), path.symlink_to("x")), ("is a link", f"removing it, then {AGAIN}")),
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_what_is_wrong_with_a_hook_is_said_with_its_remedy(tmp_path: Path, how: str) -> None:
    """One thing for each, and nothing of one that is right; of a foreign file elsewhere that it is one."""
    spoil, said = WRONG[how]
    spoil(program(tmp_path, PROLOG, TEXT))
    found = list(plan.file_findings(str(tmp_path), ENTRY, AGAIN))
    assert found == ([Finding(PROLOG, *said)] if said else [])
    program(tmp_path, "/opt/x", "x")
    foreign = list(plan.file_findings(str(tmp_path), ENTRY._replace(path="/opt/x"), AGAIN))
    assert foreign == [Finding("/opt/x", "is a foreign file", f"{AGAIN}, which keeps it")]


def test_what_is_wrong_around_a_hook_is_said_too(tmp_path: Path) -> None:
    """The site's own that is to be put back and that is called, directories that users cannot enter, or may write."""
    root, kept = str(tmp_path), f"{KEPT}/x"
    entry = ENTRY._replace(kept=kept, kept_sha256=checksum(b"kept"), chain="/opt/x", is_users=True)
    manifest = Manifest({PROLOG: entry})
    program(tmp_path, PROLOG, TEXT)
    key(tmp_path)

    def found(scheduler: str = "slurm") -> list[tuple[str, str]]:
        return [each[:2] for each in plan.check_health(root, manifest, scheduler, "/etc/mingle/key")]

    cannot = ("/opt/x", f"cannot be run, and {PROLOG} runs it")
    # A copy that is gone is said first: nothing else is of use then.
    assert found() == [(kept, f"is missing: the site's own {PROLOG}")]
    program(tmp_path, kept, "other")
    assert found() == [(kept, f"is not the copy of the site's own {PROLOG}"), cannot]
    program(tmp_path, kept, "kept")
    program(tmp_path, "/opt/x").chmod(0o655)
    assert found() == [cannot]
    at(tmp_path, "/opt/x").chmod(0o755)
    assert found() == []
    at(tmp_path, OURS).chmod(0o771)
    assert found() == [(OURS, "can be written by others (mode 0771)")]
    at(tmp_path, "/etc/mingle").chmod(0o750)
    at(tmp_path, OURS).chmod(0o755)
    (tmp_path / "run/mingle").mkdir(parents=True, mode=0o700)
    state = ("/run/mingle", "is not a directory of root's with mode 0755")
    assert found() == [("/etc/mingle", "is closed to users (mode 0750), so every task fails"), state]
    (tmp_path / "run/mingle").rmdir()
    assert found("pbs") == [("pbs", "has no hooks installed")]
    manifest = Manifest({PROLOG: entry._replace(scheduler="pbs", mode=0o644, is_users=False)}, is_rebuilt=True)
    at(tmp_path, "/etc/mingle/key").unlink()
    rebuilt = (files.MANIFEST_PATH, "is missing, or not what mingle hooks wrote")
    assert found("pbs") == [rebuilt, (PROLOG, "has mode 0755")]  # a server's host needs no key


@pytest.mark.parametrize(
    ("text", "mode", "what"),
    [
        *((text, mode, "") for text in ("ab" * 32, "ab" * 64 + "\n") for mode in (0o400, 0o600)),
        *(
            (text, 0o400, "hex digits")
            for text in ("ab" * 32 + "a", "ab" * 31, "ab" * 65, "AB" * 32, "ab" * 32 + "\n\n")
        ),
        *(("ab" * 32, mode, "regular file") for mode in (0o440, 0o404, 0o500)),
    ],
)
def test_the_site_s_key_is_of_hex_digits_and_root_s_alone(tmp_path: Path, text: str, mode: int, what: str) -> None:
    key(tmp_path, text).chmod(mode)
    found = [finding.what for finding in plan.site_key(str(tmp_path), "/etc/mingle/key")]
    assert [what in each for each in found] == ([True] if what else [])


def test_copies_are_numbered_and_the_first_free_number_is_taken(tmp_path: Path) -> None:
    """In the order of their numbers; a copy of the same content is not made again."""
    base = f"{KEPT}/torque-prologue"
    draft = plan.Draft(Site(), Where(str(tmp_path)))
    assert draft._copies(base) == {}
    for end in ("", ".10", ".2", ".1", ".x", ".02", "2"):
        program(tmp_path, f"{base}{end}", end)
    assert [*draft._copies(base).values()] == [base, f"{base}.2", f"{base}.10"]
    now = Found(b"new", 0o755, os.geteuid())
    assert draft._with_copy(base, now, now, "site").copy == plan.Copy(f"{base}.11", now)
    same = now._replace(data=b".10")
    assert draft._with_copy(base, now, same, "site") == plan.Present(now, "site", f"{base}.10", checksum(b".10"))


def test_a_scheduler_s_program_is_on_the_path_or_in_a_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (plan.program_path("sh"), plan.program_path("no-such-daemon")) == ("/usr/bin/sh", "")
    program(tmp_path, "/sh")
    assert plan.program_path("sh") == f"{tmp_path}/sh"
