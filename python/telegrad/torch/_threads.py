"""Threads of ours that work within torch, for which the interpreter's end waits."""
from __future__ import annotations

import _thread
import atexit
import os
import threading
from typing import Any, Callable

from .._library import wait_in_c_by

_PATIENCE_S = 10.0
_changed = threading.Condition()
_num_within = 0
_ends = False


def _enter() -> bool:
    """Whether it may: a thread that comes back from C++ when the interpreter ends aborts the
    process."""
    global _num_within
    with _changed:
        if not _ends:
            _num_within += 1
        return not _ends


def _leave() -> None:
    global _num_within
    with _changed:
        _num_within -= 1
        _changed.notify_all()


def set_result(future: Any, value: Any) -> None:
    """Not when the interpreter ends."""
    if _enter():
        try:
            future.set_result(value)
        finally:
            _leave()


def _enter_or_stay() -> None:
    if not _enter():
        never = _thread.allocate_lock()
        while True:
            never.acquire()


def run_within(work: Callable[[], None]) -> None:
    """Runs `work`, which calls torch, on a thread of ours. What it waits for in C does not
    keep the interpreter from its end, behind which it does not go on."""
    def wait(call: Callable[[], Any]) -> Any:
        _leave()
        try:
            return call()
        finally:
            _enter_or_stay()

    _enter_or_stay()
    try:
        wait_in_c_by(wait)
        work()
    finally:
        wait_in_c_by(None)
        _leave()


def _wait_for_all() -> None:
    global _ends
    with _changed:
        _ends = True
        _changed.wait_for(lambda: not _num_within, _PATIENCE_S)


def _forget() -> None:
    global _changed, _num_within
    _changed, _num_within = threading.Condition(), 0


atexit.register(_wait_for_all)
os.register_at_fork(after_in_child=_forget)  # it has none of the threads
