"""The one system call for which Python has no name, through `_ctypes`: `ctypes` itself takes 4 ms more to load."""

from __future__ import annotations

_SET_CHILD_SUBREAPER = 36  # prctl(2)


def adopt_orphans() -> bool:
    """Become the parent of all descendants whose parents end; tell whether it worked."""
    try:
        import _ctypes
    except ImportError:  # a Python that was built without libffi
        return False

    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001
        _type_ = "L"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Long

    # None is this program itself.
    prctl = Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"))  # type: ignore[arg-type]
    status: int = prctl(*map(Long, (_SET_CHILD_SUBREAPER, 1, 0, 0, 0)))
    return status == 0
