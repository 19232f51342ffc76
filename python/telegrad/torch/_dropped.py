"""A model that nobody has any more leaves its job."""
from __future__ import annotations

import _thread
import atexit
import os
import threading
import weakref
from typing import Any, Callable, List

from ..errors import Error
from ..job import is_failing

_DELAY_S = 0.1  # a model that is dropped because its program ends is in an open job yet
_at_work: List[Any] = []  # a lock of each thread that closes
_works: List[List[Callable[[], None]]] = []  # what they close, until they do
_ends = threading.Event()


def close_when_dropped(owner: Any, close: Callable[[], None]) -> "weakref.finalize[Any, Any]":
    """Calls `close` when `owner` is collected, unless the interpreter ends, where all jobs
    are closed. What it gives has ``detach()``."""
    found = weakref.finalize(owner, _start, close)
    found.atexit = False
    return found


def _start(close: Callable[[], None]) -> None:
    """On a thread of its own: it waits for other ranks, who may wait for this thread. The
    collector calls this anywhere, so that no lock of `threading` may be taken."""
    lock = _thread.allocate_lock()
    lock.acquire()
    work = [close]
    del close

    def run() -> None:
        try:
            # Not bound to a name: what it holds of torch must be gone when the lock is free,
            # since Python ends a thread that lives after its end within C++, too.
            if not _ends.wait(_DELAY_S):
                work.pop()()
        except Error:  # the job has failed, which who waited for it has heard
            pass
        finally:
            _at_work.remove(lock)
            lock.release()

    _at_work.append(lock)
    _works[:] = [each for each in _works if each] + [work]
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # the interpreter ends
        _at_work.remove(lock)


def _wait_for_all() -> None:
    _ends.set()
    for lock in list(_at_work):
        lock.acquire(timeout=3 if is_failing() else -1)


atexit.register(_wait_for_all)
os.register_at_fork(after_in_child=_at_work.clear)  # it has none of the threads
