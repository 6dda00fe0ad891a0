"""A call that may hang, such as one to a home whose server is away, and must not hold anything up."""

from __future__ import annotations

import _thread

from mingle_hooks.errors import MingleError
from mingle_hooks.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def in_time(call: Callable[[], None], limit_s: float) -> bool:
    """Tell whether a call has returned within limit_s; else it goes on by itself. Raises the MingleError it raises."""
    wrong: list[MingleError] = []
    is_done = _thread.allocate_lock()
    is_done.acquire()

    def run() -> None:
        try:
            call()
        except MingleError as error:
            wrong.append(error)
        finally:
            is_done.release()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # no thread is left: then it may take its time
        run()
    returned = is_done.acquire(timeout=limit_s)
    if wrong:
        raise wrong[0]
    return returned
