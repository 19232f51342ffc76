"""Collectives over a job's workers, of dense arrays in host memory."""
from __future__ import annotations

import os
from ctypes import byref, c_void_p
from typing import Any

from ._arrays import tensor_in_order
from ._library import LIBRARY, call, interruptible
from .errors import Error, UsageError, WrongOrder
from .job import Job

SUM, MIN, MAX = range(3)
_UNAVAILABLE = 5  # TELEGRAD_UNAVAILABLE
_PATIENCE_S = 3.0  # of one that ends, until it has left
_OPS = {"sum": SUM, "min": MIN, "max": MAX}


class Group:
    """A job's workers, without a store. All make the same calls in the same order, of
    arrays (NumPy, torch, DLPack) of the same size and type: float32, float16, bfloat16
    or int32. docs/collectives.md has algorithms and rounding.

    Example::

        group = telegrad.Group(job)       # joined; all workers
        group.allreduce(array)            # [n], in place: the sum
        group.allgather(array, out)       # [workers * n], by rank

    Raises:
        telegrad.PeerDied: a worker is gone; ``dead`` names it.
        telegrad.Mismatch: workers differ in the call; the message has both.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pid = os.getpid()
        self._handle = c_void_p()
        self._is_stuck = False  # a thread is in a call that was interrupted
        self._run(lambda: call("group_create", job.handle, byref(self._handle)))
        job._groups.add(self)

    @property
    def handle(self) -> c_void_p:
        """Of the C interface."""
        if not self._handle:
            raise WrongOrder("the group is closed")
        return self._handle

    def allreduce(self, array: Any, op: str = "sum") -> Any:
        """Fills `array` [n] with the `op` ("sum", "min", "max") over workers; gives it."""
        if op not in _OPS:
            raise UsageError(f"op {op!r}: there are {', '.join(_OPS)}")
        tensor = tensor_in_order(array, writes=True)
        self._run(lambda: call("group_allreduce", self.handle, byref(tensor), _OPS[op]))
        return array

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """Fills `array` [n] with that of worker `root`; gives it."""
        tensor = tensor_in_order(array, writes=True)
        self._run(lambda: call("group_broadcast", self.handle, byref(tensor), root))
        return array

    def allgather(self, array: Any, out: Any) -> Any:
        """Fills `out` [workers * n] with all workers' `array` [n], by rank; gives it."""
        tensor, to = tensor_in_order(array), tensor_in_order(out, writes=True)
        self._run(lambda: call("group_allgather", self.handle, byref(tensor), byref(to)))
        return out

    def close(self) -> None:
        """A second call does nothing."""
        handle, self._handle = self._handle, c_void_p()
        self._job._groups.discard(self)
        if handle and self._pid == os.getpid() and not self._is_stuck:
            LIBRARY.telegrad_group_free(handle)

    def _run(self, work: Any) -> None:
        def stop(why: BaseException) -> None:
            self._is_stuck = True
            self._job.interrupt(why)

        try:
            interruptible(work, stop)
        except Error as why:
            if why.code == _UNAVAILABLE:  # the job knows best who is gone
                self._job.need_all("a collective", _PATIENCE_S)
            raise

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
