"""Words for schedulers where sites differ in whether a shell on the host reads them once more: the same either way."""

from __future__ import annotations

from mingle_hooks.errors import UsageError
from mingle_hooks.net.addresses import HOST_CHARACTERS

_PLAIN = HOST_CHARACTERS + "/@%+=:,"


def is_plain(text: str) -> bool:
    """Tell whether a shell reads this as one word, just as it is."""
    return bool(text) and not text.strip(_PLAIN)


def words(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words as they are. Raises UsageError for one that a shell might read otherwise."""
    for word in program:
        if not is_plain(word):
            raise UsageError(
                "paths of letters, digits and /._-, because this scheduler's shells may expand them again",
                repr(word),
                "mingle, its Python and the working directory at paths without other characters",
            )
    return program
