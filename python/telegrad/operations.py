"""Asynchronous operations of a job's workers, as Horovod's."""
from __future__ import annotations

import os
from ctypes import byref, c_int32, c_int64, c_void_p, sizeof
from typing import Any, Dict, Optional, Sequence, Tuple

from ._arrays import tensor_in_order
from ._library import (LIBRARY, PENDING, SLICE_S, OperationRequest, OperationsOptions,
                       call, encoded, error_of, fill, interruptible, status)
from .errors import Timeout, UsageError, WrongOrder
from .group import OPS as GROUP_OPS
from .group import number_of
from .job import Job
from .store import Store

KINDS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall", "barrier",
         "join")
OPS = (*GROUP_OPS, "average", "adasum")
_BARRIER = KINDS.index("barrier")


class Operations:
    """What all workers of a job submit by name, in any order; one thread of each process
    agrees with the others on what is ready everywhere, and runs it.
    docs/operations.md has all of it. Any thread may call it.

    Example::

        operations = telegrad.Operations(job)        # joined; all workers
        handle = operations.submit("allreduce", gradient, name="w", out=gradient,
                                   op="average")
        operations.wait(handle)                      # `gradient` is the average
        operations.release(handle)

    Args:
        job: joined; it outlives them.
        fusion_bytes: allreduces of one kind run as one up to so many; alike on all workers.
        cycle: seconds until others hear of what was submitted, unless somebody waits for it.
        cache_capacity: names whose requests cost a bit when they come again; alike on all.
        stall_warning, stall_deadline: seconds after which what a worker lacks is logged, and
            ends with an error; 0: never.
        timeline: a file for Chrome's trace events of what was done, written by `close`.
        marks_cycles: whether the timeline has the cycles, too.
        autotune: `fusion_bytes` and `cycle` are tuned while the operations run: worker 0
            measures, and all take what it says.
        autotune_log: a file of worker 0 for what was measured, as CSV.
        autotune_warmup: samples that come first and do not count.
        autotune_steps: how often one tensor comes in a sample.

    Raises:
        telegrad.PeerDied: a worker is gone; ``dead`` names it.
        telegrad.Mismatch: workers differ in an operation; the message has both values.
        telegrad.Timeout: a worker did not submit it by ``stall_deadline``.
    """

    def __init__(self, job: Job, *, fusion_bytes: int = 64 << 20, cycle: float = .001,
                 cache_capacity: int = 1024, stall_warning: float = 60,
                 stall_deadline: float = 0, timeline: Optional[str] = None,
                 marks_cycles: bool = False, autotune: bool = False,
                 autotune_log: Optional[str] = None, autotune_warmup: int = 3,
                 autotune_steps: int = 10) -> None:
        self._job = job
        self._pid = os.getpid()
        self._handle = c_void_p()
        # What lives until an operation's end: arrays, and elements' size.
        self._under_way: Dict[int, Tuple[Any, ...]] = {}
        self._members: Dict[int, Tuple[int, ...]] = {0: tuple(range(job.num_workers))}
        self._store: Optional[Store] = None
        options = OperationsOptions()
        LIBRARY.telegrad_operations_options_init(byref(options), sizeof(options))
        fill(options, fusion_bytes=fusion_bytes, cycle_s=cycle,
             cache_capacity=cache_capacity, stall_warning_s=stall_warning,
             stall_deadline_s=stall_deadline, timeline=timeline,
             marks_cycles=marks_cycles, autotune=autotune, autotune_log=autotune_log,
             autotune_warmup=autotune_warmup, autotune_steps=autotune_steps)
        interruptible(lambda: call("operations_create", job.handle, byref(options),
                                   byref(self._handle)), job.interrupt)
        job._groups.add(self)

    @property
    def handle(self) -> c_void_p:
        """Of the C interface."""
        if not self._handle:
            raise WrongOrder("the operations are closed")
        return self._handle

    def submit(self, kind: str, array: Any = None, *, name: str, out: Any = None,
               shape: Optional[Sequence[int]] = None, op: str = "sum",
               prescale: float = 1, postscale: float = 1, root: int = 0,
               splits: Optional[Sequence[int]] = None, process_set: int = 0,
               group: int = 0, group_size: int = 0, codec: Optional[str] = None) -> int:
        """Begins it and gives its handle. The caller touches neither array until `wait` has
        returned.

        Args:
            kind: "allreduce", "allgather", "broadcast", "reducescatter", "alltoall",
                "barrier", "join".
            array: this worker's input, in host memory or, on all workers alike, on a GPU;
                None of a barrier and a join.
            name: by which workers find it; not that of one under way.
            out: gets the result, where `array` is, and may be it; None: the library keeps
                it.
            shape: instead of the array's own; the first dimension is split and joined.
            op: of reductions: "sum", "min", "max", "product", "average", "adasum".
            prescale, postscale: factors of inputs of a reduction, and of its result.
            root: the worker whose array a broadcast gives to all.
            splits: rows of `array` for each worker, of an alltoall; None: alike.
            process_set: of `add_process_set`; 0: all workers.
            group, group_size: requests of one number run together once so many of them are
                ready; 0: none.
            codec: of an allreduce of op "sum" or "average" of all workers, by `store`: a codec
                as docs/codecs.md, "2bit:0.5"; "store": what the store's `set_compression`
                has for the name; None: none. What it holds back goes with the next one of
                the name, whose size and codec stay.

        Raises:
            telegrad.UsageError: what this worker can see to be wrong.
            telegrad.WrongOrder: `codec` in a job that has another store.
        """
        if codec is not None:
            self.store
        request = OperationRequest()
        LIBRARY.telegrad_operation_request_init(byref(request), sizeof(request))
        fill(request, name=name, prescale=prescale, postscale=postscale, root=root,
             process_set=process_set, group_size=group_size, group=group, codec=codec)
        request.operation = number_of("operation", kind, KINDS)
        request.op = number_of("op", op, OPS)
        if request.operation < _BARRIER:
            if array is None:
                raise UsageError(f"{kind} {name!r} without an array")
            setattr(request, "in", tensor_in_order(array))
            if out is not None:
                request.out = tensor_in_order(out, writes=True)
            dims = tuple(array.shape) if shape is None else tuple(shape)
            request.shape = (c_int64 * len(dims))(*dims)
            request.num_dims = len(dims)
        if splits is not None:
            request.splits = (c_int64 * max(1, len(splits)))(*splits)
            request.num_splits = len(splits)
        handle = c_int64()
        call("operations_submit", self.handle, byref(request), byref(handle))
        self._under_way[handle.value] = (process_set, array, out)
        return handle.value

    @property
    def store(self) -> Store:
        """The store "allreduce" by which requests with a codec go, made when it is first
        asked for, of a job with ``hosts_part=True``: its `set_compression` before the first
        such request, `report` and `stats`. Keys come with the requests' names."""
        if self._store is None:
            store = Store(self._job, "allreduce")
            call("operations_use_store", self.handle, store.handle)
            self._store = store
        return self._store

    @property
    def has_store(self) -> bool:
        """Whether `store` was made, which leaves the job with `close`."""
        return self._store is not None

    def poll(self, handle: int) -> bool:
        """Whether that of `handle` has ended, well or not."""
        done = c_int32()
        call("operations_poll", self.handle, handle, byref(done))
        return bool(done.value)

    def wait(self, handle: int, timeout: Optional[float] = None) -> None:
        """Until that of `handle` has ended; raises its error, and telegrad.Timeout after
        `timeout` seconds."""
        left = float("inf") if timeout is None else timeout
        found = status()
        while True:
            piece = max(0.0, min(left, SLICE_S))  # a signal is heard between two
            code = LIBRARY.telegrad_operations_wait(self.handle, handle, piece, byref(found))
            if code == 0:
                return
            if code != PENDING:
                raise error_of(found)
            left -= piece
            if left <= 0:
                raise Timeout(f"operation {handle} has not ended in {timeout} s")

    def result(self, handle: int) -> "Tuple[int, int]":
        """Address, in the memory that `array` was in, and number of elements of the result
        of `handle`, which has ended; both stay until `release`."""
        data, num = c_void_p(), c_int64()
        call("operations_result", self.handle, handle, byref(data), byref(num), None)
        return data.value or 0, num.value

    def rows(self, handle: int) -> "list[int]":
        """First dimensions of what came from each member, where `handle` is of an allgather or
        alltoall."""
        process_set = self._under_way.get(handle, (0,))[0]
        rows = (c_int64 * len(self._members[process_set]))()
        call("operations_result", self.handle, handle, None, None, rows)
        return list(rows)

    def number(self, handle: int) -> int:
        """Where `handle` is of a join: the worker that joined last."""
        return c_int64.from_address(self.result(handle)[0]).value

    def cancel(self, handle: int) -> None:
        """Ends that of `handle` on all workers that have submitted it, with
        telegrad.Cancelled, unless it is ready on all before they hear of it."""
        call("operations_cancel", self.handle, handle)

    def release(self, handle: int) -> None:
        """Forgets `handle`, which is unknown from now on."""
        call("operations_release", self.handle, handle)
        self._under_way.pop(handle, None)

    def start_timeline(self, path: str, marks_cycles: bool = False) -> None:
        """From now on this worker's events go into a file, which `stop_timeline` or `close`
        writes. Other workers need not call it.

        Args:
            path: of the file; of rank 2 ".2" is behind it.
            marks_cycles: whether it has the cycles, too.

        Raises:
            telegrad.WrongOrder: one is going on.
        """
        call("operations_start_timeline", self.handle, encoded(path, "path"), marks_cycles)

    def stop_timeline(self) -> None:
        """Writes the file of `start_timeline`, or of the option `timeline`.

        Raises:
            telegrad.WrongOrder: none is going on.
            telegrad.Error: it cannot be written.
        """
        call("operations_stop_timeline", self.handle)

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """A number for `process_set` of `submit`. All workers call it with the same
        `ranks`, which rise."""
        number = c_int32()
        array = (c_int32 * max(1, len(ranks)))(*ranks)
        interruptible(lambda: call("operations_add_process_set", self.handle, array,
                                   len(ranks), byref(number)), self._job.interrupt)
        self._members[number.value] = tuple(ranks)
        return number.value

    def remove_process_set(self, number: int) -> None:
        """All workers call it, with a `number` of `add_process_set`."""
        interruptible(lambda: call("operations_remove_process_set", self.handle, number),
                      self._job.interrupt)

    def close(self) -> None:
        """Agrees with the others on the end: what is under way anywhere ends with an
        error that names this worker. A second call does nothing."""
        handle, self._handle = self._handle, c_void_p()
        self._job._groups.discard(self)
        if handle and self._pid == os.getpid():
            interruptible(lambda: LIBRARY.telegrad_operations_free(handle),
                          self._job.interrupt)
        if self._store is not None:
            self._store.close()
        self._under_way.clear()

    def __enter__(self) -> "Operations":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
