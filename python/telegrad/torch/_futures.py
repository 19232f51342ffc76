"""Futures of torch, set by threads of ours."""
from __future__ import annotations

import atexit
import os
import threading
from typing import Any, List

_PATIENCE_S = 3.0
_changed = threading.Condition()
_being_set: List[Any] = []
_ends = False


def set_result(future: Any, value: Any) -> None:
    """Not when the interpreter ends: it aborts the process with a thread of ours that comes
    back from C++ then. Who ends waits for those that are being set."""
    with _changed:
        if _ends:
            return
        _being_set.append(future)
    try:
        future.set_result(value)
    finally:
        with _changed:
            _being_set.remove(future)
            _changed.notify_all()


def _wait_for_all() -> None:
    global _ends
    with _changed:
        _ends = True
        _changed.wait_for(lambda: not _being_set, _PATIENCE_S)


def _forget() -> None:
    global _changed
    _changed = threading.Condition()
    _being_set.clear()


atexit.register(_wait_for_all)
os.register_at_fork(after_in_child=_forget)  # it has none of the threads
