"""The supervisor's command line, which only a starter writes."""

from __future__ import annotations

from mingle_hooks.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Options(NamedTuple):
    """Which place this is, and where the environment comes from."""

    host: str = ""
    local: str = ""
    environ: str = ""
    is_stdin: bool = False
    keep: tuple[str, ...] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Options:
        """Return what stands there. Raises ValueError for what no starter writes."""
        words, found = iter(arguments), cls()
        for word in words:
            if word == "--stdin":
                found = found._replace(is_stdin=True)
            elif word == "--keep":
                found = found._replace(keep=(*found.keep, next(words, "")))
            elif word == "--host":
                found = found._replace(host=next(words, ""))
            elif word == "--local":
                found = found._replace(local=next(words, ""))
            elif word == "--environ":
                found = found._replace(environ=next(words, ""))
            else:
                raise ValueError(f"expected an option of the supervisor's, saw {word}")
        return found

    def words(self) -> tuple[str, ...]:
        """Return the place alone, as a command line."""
        host = ("--host", self.host) if self.host else ()
        return (*host, "--local", self.local) if self.local else host
