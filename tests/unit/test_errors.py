"""Each error has its exit code, each message its bounds, and a resource that has run out is named with its limit."""

import errno
import os
import resource

import pytest

from mingle_hooks import errors
from mingle_hooks.errors import LimitError, MingleError, NoPortError, PlaceError, Shortage, by_exit_code, limit, reason

CODES = {
    "MingleError": 70,
    "UsageError": 64,
    "FactsError": 65,
    "MissingError": 69,
    "NetworkError": 71,
    "LimitError": 71,
    "PlaceError": 73,
    "ConflictError": 76,
    "SecretError": 77,
    "SettingsError": 78,
    "NotExecutableError": 126,
    "NotFoundError": 127,
}


def test_each_error_has_the_code_that_scripts_and_the_documentation_know() -> None:
    """And each code, but for one that no error has, its error."""
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert {name: kind.exit_code for name, kind in kinds.items() if issubclass(kind, MingleError)} == CODES
    assert [by_exit_code(code).__name__ for code in CODES.values()] == [
        "NetworkError" if name == "LimitError" else name for name in CODES
    ]
    assert by_exit_code(75) is MingleError


def test_a_message_is_one_line_of_three_bounded_parts() -> None:
    """No flag is set before something sets it."""
    error = PlaceError("a\nb", "x" * 400, "y" * 401)
    assert str(error) == rf"expected a\nb; saw {'x' * 400}; try {'y' * 399}…"
    assert (error.repeats_rank_0, error.is_about_arguments, error.is_printed) == (False, False, False)


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (PlaceError("a", "b", "c"), "expected a, saw b"),
        (OSError(errno.ENOENT, "None there", "file"), "None there: file"),
        (OSError(errno.ENOENT, "None there"), "None there"),
        (OSError("no number"), "OSError: no number"),
        (ImportError("no module"), "no module"),
        (ValueError("x" * 200), f"ValueError: {'x' * 137}…"),
        (NoPortError(errno.EADDRNOTAVAIL, "all 9 in use"), "all 9 in use"),
    ],
)
def test_a_reason_is_short(error: Exception, short: str) -> None:
    assert reason(error) == short


FILES = f"all {os.sysconf('SC_OPEN_MAX')} file descriptors that `ulimit -n` allows are in use"
OF_HOST = "all file descriptors of this host are in use (sysctl fs.file-max)"
MEMORY, THREADS = "no memory is left (RLIMIT_AS {})", "no thread could be started (RLIMIT_NPROC {})"


@pytest.mark.parametrize(
    ("error", "kind", "seen"),
    [
        (OSError(errno.EMFILE, "x"), "files", FILES),
        (ImportError(f"lib.so: {os.strerror(errno.EMFILE)}"), "files", FILES),
        (OSError(errno.ENFILE, "x"), "files", OF_HOST),
        (OSError(errno.ENOMEM, "x"), "memory", MEMORY),
        (OSError(errno.ENOBUFS, "x"), "memory", MEMORY),
        (MemoryError(), "memory", MEMORY),
        (RuntimeError("can't start new thread"), "threads", THREADS),
        (NoPortError(errno.EADDRNOTAVAIL, "all 9 in use"), "ports", "all 9 in use"),
        (LimitError(Shortage("check-in ports", "many")), "check-in ports", "many"),
        *((kind(text), None, "") for kind in (RuntimeError, ImportError) for text in ("other", "start no thread")),
        *((ValueError(text), None, "") for text in ("can't start new thread", os.strerror(errno.EMFILE))),
        (OSError(errno.ENOENT, os.strerror(errno.EMFILE)), None, ""),
    ],
)
@pytest.mark.parametrize("soft", [resource.RLIM_INFINITY, 7])
def test_what_has_run_out_is_named_with_its_limit(
    error: Exception, kind: errors.Limit | None, seen: str, soft: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever error Python makes of it; any other is none of these."""
    limits = {resource.RLIMIT_AS: "`ulimit -v` allows 7 bytes", resource.RLIMIT_NPROC: "`ulimit -u` allows 7 in all"}
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, resource.RLIM_INFINITY))
    found = limit(error)
    for number, name in ((resource.RLIMIT_AS, "RLIMIT_AS"), (resource.RLIMIT_NPROC, "RLIMIT_NPROC")):
        seen = seen.replace(f"{name} {{}}", limits[number] if soft == 7 else "a limit of this host or job")
    assert (found and (found.shortage, found.expected, found.seen)) == (
        kind and (Shortage(kind, seen), errors.LIMITS[kind][0], seen)
    )
