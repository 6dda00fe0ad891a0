"""Standard output: all of a text, or an error, and nothing of it left in a file."""

from __future__ import annotations

import errno
import os

from mingle_hooks.errors import PlaceError


def write(text: str) -> None:
    """Write the whole text to stdout at once; PlaceError when it cannot be written."""
    send(os.fsencode(text))


def send(data: bytes) -> None:
    """Write bytes to stdout, waiting where it is a pipe that is full and does not block by itself.

    Raises PlaceError.
    """
    written = 0
    while written < len(data):
        try:
            written += os.write(1, data[written:])
        except BlockingIOError:
            import select

            select.select([], [1], [])
        except OSError as error:
            _take_back(written)
            raise _unwritable(error) from None


def _take_back(written: int) -> None:
    """Cut the beginning of a text off its file again, unless somebody wrote after it: half a world is none."""
    try:
        end = os.lseek(1, 0, os.SEEK_CUR)
        if written and os.fstat(1).st_size == end:
            os.ftruncate(1, end - written)
            os.lseek(1, end - written, os.SEEK_SET)
    except OSError:  # a pipe, of which nobody reads more
        return


def _unwritable(error: OSError) -> PlaceError:
    if error.errno == errno.EPIPE:
        return PlaceError("a reader of the output", "a closed pipe", "a command that reads all of it")
    if error.errno == errno.EBADF:
        return PlaceError("an open standard output", "a closed one", "leaving out `>&-`")
    return PlaceError("to write the output", str(error.strerror), "another file or file system")
