"""dash, bash, ash, mksh, ksh93 and zsh: `eval "$(mingle env)"`.

Unset comes first and `&&` ties the two together, for the sake of `readonly MASTER_ADDR` in the user's shell:
dash and ash then end the script, and bash, mksh, ksh93 and zsh export nothing and return 1, so no shell is
left with half a world. It also takes away attributes such as `typeset -i`, under which an assignment would be
evaluated as arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# In no shell is any of these special. `shlex` knows them too, and takes 3 ms to load.
_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_"


def quote(value: str) -> str:
    """Return `value` as one word in which nothing is special."""
    return "'" + value.replace("'", "'\\''") + "'"


def join(words: Sequence[str]) -> str:
    """Return words as a line that a shell reads back as them; those in which nothing is special stand as they are."""
    return " ".join(word if word and not word.strip(_PLAIN) else quote(word) for word in words)


def success(variables: Mapping[str, str], unset: Sequence[str]) -> str:
    """Return one `unset`, and after it one `export` a line: all of it happens, or nothing."""
    names = " ".join([*unset, *variables])
    exports = "".join(f"export {name}={quote(value)};\n" for name, value in variables.items())
    if not names:
        return ":;\n"
    return f"unset {names} && {{\n{exports}}};\n" if exports else f"unset {names};\n"


def failure(code: int, unset: Sequence[str], *, ends: bool) -> str:
    """Return a list whose last command ends with `code`: `eval` returns it, and `set -e` sees it.

    A shell that is not interactive `ends` by it.
    """
    fails = f"case $- in *i*) (exit {code});; *) exit {code};; esac" if ends else f"(exit {code})"
    return (f"unset {' '.join(unset)}; " if unset else "") + f"{fails};\n"
