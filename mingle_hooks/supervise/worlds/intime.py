"""A call that may hang, such as one to a home whose server is away, and must not hold anything up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mingle_hooks.errors import MingleError

if TYPE_CHECKING:
    from collections.abc import Callable


def in_time(call: Callable[[], None], limit_s: float) -> bool:
    """Tell whether a call has returned within limit_s; else it goes on by itself. Raises the MingleError it raises."""
    wrong: list[MingleError] = []
    is_done = threading.Lock()
    is_done.acquire()

    def run() -> None:
        try:
            call()
        except MingleError as error:
            wrong.append(error)
        finally:
            is_done.release()

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError:  # no thread is left: then it may take its time
        run()
    returned = is_done.acquire(timeout=limit_s)
    if wrong:
        raise wrong[0]
    return returned
