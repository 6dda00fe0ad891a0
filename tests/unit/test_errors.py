"""Each error has its exit code, each message its bounds, and a resource that has run out is named with its limit."""

import errno
import os
import resource

import pytest

from mingle_hooks import errors
from mingle_hooks.errors import LimitError, MingleError, NoPortError, PlaceError, Shortage, by_exit_code, limit, reason

CODES = "MingleError 70, UsageError 64, FactsError 65, MissingError 69, NetworkError 71, LimitError 71, PlaceError 73, "
CODES += "ConflictError 76, SecretError 77, SettingsError 78, NotExecutableError 126, NotFoundError 127"


def test_each_error_has_a_code_and_each_code_its_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MingleError)]
    assert ", ".join(f"{kind.__name__} {kind.exit_code}" for kind in kinds) == CODES
    assert [by_exit_code(kind.exit_code) for kind in kinds if kind is not LimitError] == kinds[:5] + kinds[6:]
    assert by_exit_code(75) is MingleError


def test_a_message_is_one_line_of_bounded_parts_and_a_reason_is_shorter() -> None:
    error = PlaceError("a\nb", "x" * 400, "y" * 401)
    assert str(error) == rf"expected a\nb; saw {'x' * 400}; try {'y' * 399}…"
    assert (error.repeats_rank_0, error.is_about_arguments, error.is_printed) == (False, False, False)
    some = (PlaceError("a", "b", "c"), OSError(2, "None there", "x"), OSError("none"), ImportError("i"), MemoryError())
    short = ("expected a, saw b", "None there: x", "OSError: none", "i", "no memory is left (")
    assert [reason(one)[: len(text)] for one, text in zip(some, short, strict=True)] == [*short]
    assert reason(ValueError("x" * 200)) == f"ValueError: {'x' * 137}…"


FILES = f"all {os.sysconf('SC_OPEN_MAX')} file descriptors that `ulimit -n` allows are in use"
OF_HOST = "all file descriptors of this host are in use (sysctl fs.file-max)"
MEMORY, THREADS = "no memory is left ({0})", "no thread could be started ({1})"
LIMITS = {resource.RLIMIT_AS: "`ulimit -v` allows 7 bytes", resource.RLIMIT_NPROC: "`ulimit -u` allows 7 in all"}


@pytest.mark.parametrize(
    ("error", "kind", "seen"),
    [
        (OSError(errno.EMFILE, "x"), "files", FILES),
        (ImportError(f"lib.so: {os.strerror(errno.EMFILE)}"), "files", FILES),
        (OSError(errno.ENFILE, "x"), "files", OF_HOST),
        (ImportError(f"lib.so: {os.strerror(errno.ENFILE)}"), "files", OF_HOST),
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
    """Python has several errors for it; any other error is none of these."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft if which in LIMITS else 0, resource.RLIM_INFINITY))
    seen = seen.format(*(text if soft == 7 else "a limit of this host or job" for text in LIMITS.values()))
    found = limit(error)
    assert (found and found.shortage) == (kind and Shortage(kind, seen))
    assert found is None or (found.expected, found.seen) == (errors.LIMITS[found.shortage.kind][0], seen)
