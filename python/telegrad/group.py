"""Collectives over a job's workers, of dense arrays in host memory."""
from __future__ import annotations

import os
import threading
import time
from collections import deque
from ctypes import byref, c_int32, c_uint64, c_void_p
from typing import Any, Deque, List, Optional, Sequence

from ._arrays import tensor_in_order
from ._library import LIBRARY, PENDING, SLICE_S, call, error_of, interruptible, status
from .errors import Error, UsageError, WrongOrder
from .job import Job

OPS = ("sum", "min", "max", "product")  # by telegrad_reduce_op
# By telegrad_operation.
STARTS = ("allreduce", "allgather", "broadcast", "reduce_scatter", "alltoall", "barrier")
_UNAVAILABLE = 5  # TELEGRAD_UNAVAILABLE
_PATIENCE_S = 3.0  # of one that ends, until it has left
_YEAR_S = 365 * 86400.0  # as long as C waits at most
_main = threading.main_thread()
_left: List[Any] = []  # arrays that a thread which was left may still write


def number_of(what: str, name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise UsageError(f"{what} {name!r}: there are {', '.join(names)}")
    return names.index(name)


class Started:
    """What `Group.start` gives. Any thread may wait for it.

    Example::

        started = group.start("allreduce", gradient)
        ...                            # something else meanwhile
        started.wait()                 # `gradient` is the sum
    """

    def __init__(self, group: "Group", arrays: Any) -> None:
        self._group, self._arrays = group, arrays
        self._handle = c_void_p()
        self._error: Optional[Error] = None
        self._has_ended = False

    def end(self, timeout: Optional[float] = None) -> bool:
        """Whether it has ended after `timeout` seconds, well or not; None: waits until it
        has. Ctrl-C is heard, and ends the job."""
        until = time.monotonic() + (_YEAR_S if timeout is None else timeout)
        is_main = threading.get_ident() == _main.ident
        while not self._has_ended:
            left = max(0.0, until - time.monotonic())
            try:
                if left == 0 or is_main:
                    self._look(min(left, SLICE_S))  # a signal is heard between two
                else:
                    interruptible(lambda: self._look(left), self._group._stop)
            except BaseException as why:
                self._group._stop(why)
                raise
            if left <= SLICE_S:
                break
        return self._has_ended

    def wait(self, timeout: Optional[float] = None) -> bool:
        """As `end`.

        Args:
            timeout: in seconds; None: none.

        Raises:
            telegrad.Error: of the operation, as `Group`'s calls raise it.
        """
        has_ended = self.end(timeout)
        error = self.error()
        if error is not None:
            raise error
        return has_ended

    def error(self) -> Optional[Error]:
        """That with which it has ended."""
        if self._has_ended and self._error is not None:
            self._error = self._group._cause(self._error)
            return self._error
        return None

    def _look(self, seconds: float) -> None:
        found = status()
        code = LIBRARY.telegrad_work_wait(self._handle, seconds, byref(found))
        if code != PENDING and not self._has_ended:
            if code != 0:
                self._error = error_of(found)
            self._has_ended, self._arrays = True, None

    def __del__(self) -> None:
        if self._handle:
            LIBRARY.telegrad_work_free(self._handle)


class Group:
    """A job's workers, without a store. All make the same calls in the same order, of
    arrays (NumPy, torch, DLPack) of the same size and type: float32, float16, bfloat16,
    float64, int32, int64, int8, uint8 or bool. Arrays of several ranks lie by rank,
    without gaps. docs/collectives.md has algorithms and rounding.

    Example::

        group = telegrad.Group(job)       # joined; all workers
        group.allreduce(array)            # [n], in place: the sum
        group.allgather(array, out)       # [workers * n], by rank

    Raises:
        telegrad.PeerDied: a worker is gone; ``dead`` names it.
        telegrad.Mismatch: workers differ in the call; the message has both.
    """

    def __init__(self, job: Job) -> None:
        self._keep(job, c_void_p())
        self._run(lambda: call("group_create", job.handle, byref(self._handle)))
        job._groups.add(self)

    def _keep(self, job: Job, handle: c_void_p) -> "Group":
        self._job = job
        self._pid = os.getpid()
        self._handle = handle
        self._is_stuck = False  # a thread is in a call that was interrupted
        self._mutex = threading.Lock()
        self._started: Deque[Started] = deque()  # arrays live until an operation's end
        return self

    @property
    def handle(self) -> c_void_p:
        """Of the C interface."""
        if not self._handle:
            raise WrongOrder("the group is closed")
        return self._handle

    @property
    def rank(self) -> int:
        """This worker's, from 0 on."""
        return int(LIBRARY.telegrad_group_rank(self.handle))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(LIBRARY.telegrad_group_size(self.handle))

    def allreduce(self, array: Any, op: str = "sum", algorithm: str = "auto") -> Any:
        """Fills `array` [n] with the `op` ("sum", "min", "max", "product") over ranks;
        gives it. The `algorithm` ("ring", "recursive_doubling", "halving_doubling", "tree",
        "two_level"), the same on all, is chosen by size, ranks, hosts and link where it is
        "auto", or the one in ``TELEGRAD_ALLREDUCE``.

        Raises:
            telegrad.UsageError: there is no such algorithm; the message lists them.
        """
        tensor, number = tensor_in_order(array, writes=True), number_of("op", op, OPS)
        self._run(lambda: call("group_allreduce_by", self.handle, byref(tensor), number,
                               algorithm.encode()))
        return array

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """Fills `array` [n] with that of rank `root`; gives it."""
        tensor = tensor_in_order(array, writes=True)
        self._run(lambda: call("group_broadcast", self.handle, byref(tensor), root))
        return array

    def allgather(self, array: Any, out: Any) -> Any:
        """Fills `out` [ranks * n] with all ranks' `array` [n], by rank; gives it."""
        tensor, to = tensor_in_order(array), tensor_in_order(out, writes=True)
        self._run(lambda: call("group_allgather", self.handle, byref(tensor), byref(to)))
        return out

    def allgatherv(self, array: Any, out: Any, counts: Sequence[int]) -> Any:
        """Fills `out` [sum of counts] with all ranks' `array` [counts[rank]]; gives it.
        All ranks have the same `counts`."""
        tensor, to = tensor_in_order(array), tensor_in_order(out, writes=True)
        numbers = self._counts("counts", counts)
        self._run(lambda: call("group_allgatherv", self.handle, byref(tensor), byref(to),
                               numbers))
        return out

    def reduce_scatter(self, array: Any, out: Any, counts: Optional[Sequence[int]] = None,
                       op: str = "sum") -> Any:
        """Fills `out` [counts[rank]] with the `op` over ranks of this rank's block of
        `array` [sum of counts]; gives it. Without `counts` blocks are equal."""
        tensor, to = tensor_in_order(array), tensor_in_order(out, writes=True)
        numbers, number = self._counts("counts", counts), number_of("op", op, OPS)
        self._run(lambda: call("group_reduce_scatter", self.handle, byref(tensor),
                               byref(to), numbers, number))
        return out

    def alltoall(self, array: Any, out: Any, send_counts: Optional[Sequence[int]] = None,
                 recv_counts: Optional[Sequence[int]] = None) -> Any:
        """Block i of `array` [send_counts[i]] goes to rank i, block i of `out`
        [recv_counts[i]] comes from there; gives `out`. Without both blocks are equal."""
        tensor, to = tensor_in_order(array), tensor_in_order(out, writes=True)
        sends = self._counts("send_counts", send_counts)
        receives = self._counts("recv_counts", recv_counts)
        self._run(lambda: call("group_alltoallv", self.handle, byref(tensor), sends,
                               byref(to), receives))
        return out

    def barrier(self) -> None:
        """Returns after all ranks have called it."""
        self._run(lambda: call("group_barrier", self.handle))

    def start(self, kind: str, array: Any = None, out: Any = None, *, op: str = "sum",
              root: int = 0) -> Started:
        """Begins a collective and returns at once: a thread of the group's, which is none of
        Python's, does those that were started one after the other, in order. Until its end
        nothing else touches the arrays, nor does another thread call another collective.

        Args:
            kind: "allreduce", "allgather", "broadcast", "reduce_scatter", "alltoall" or
                "barrier"; blocks are equal.
            array, out: as of the method of that name; a barrier has none.
            op: of an allreduce or reduce_scatter.
            root: of a broadcast.

        Raises:
            telegrad.UsageError: another kind or op; an array that cannot be sent.
        """
        operation = number_of("operation", kind, STARTS)
        number = root if kind == "broadcast" else number_of("op", op, OPS)
        writes = kind in ("allreduce", "broadcast")
        tensor = None if array is None else tensor_in_order(array, writes)
        to = None if out is None else tensor_in_order(out, writes=True)
        return self._begin(operation, tensor, to, number, (array, out))

    def _begin(self, operation: int, tensor: Any, to: Any, number: int,
               arrays: Any) -> Started:
        """`start` of what C takes."""
        handle, started = self.handle, Started(self, arrays)
        with self._mutex:
            self._drop_ended()
            self._started.append(started)  # before it runs: Ctrl-C may come in between
            try:
                call("group_start", handle, operation, tensor, to, number,
                     byref(started._handle))
            except Error:
                self._started.pop()
                raise
        return started

    def _drop_ended(self) -> None:
        while self._started and self._started[0].end(0):
            self._started.popleft()

    def is_idle(self) -> bool:
        """Whether nothing that was started is under way."""
        with self._mutex:
            self._drop_ended()
            return not self._started

    def split(self, ranks: Sequence[int]) -> Optional["Group"]:
        """All call it with the same list of `ranks`. These get a group in which each has
        its place in the list, the others None."""
        part, listed = c_void_p(), (c_int32 * len(ranks))(*ranks)
        self._run(lambda: call("group_split", self.handle, listed, len(ranks),
                               byref(part)))
        if not part:
            return None
        made = Group.__new__(Group)._keep(self._job, part)
        self._job._groups.add(made)
        return made

    def set_timeout(self, seconds: float) -> None:
        """For `seconds` a call waits without any progress, from now on."""
        call("group_set_timeout", self.handle, seconds)

    def send(self, array: Any, to: int, tag: int = 0) -> None:
        """Gives rank `to` the `array` [n]; returns when it may be changed again. Sends and
        receives come in any order, from any thread, beside collectives; between two ranks
        those of one `tag` keep theirs."""
        tensor = tensor_in_order(array)
        self._run(lambda: call("group_send", self.handle, byref(tensor), to, tag))

    def recv(self, array: Any, source: int = -1, tag: int = 0) -> int:
        """Fills `array` [n] with what rank `source` (-1: any) sends with `tag`; gives the
        rank.

        Raises:
            telegrad.Mismatch: another size or type was sent; the group goes on.
        """
        tensor, sender = tensor_in_order(array, writes=True), c_int32(-1)
        self._run(lambda: call("group_recv", self.handle, byref(tensor), source, tag,
                               byref(sender)))
        return int(sender.value)

    def close(self) -> None:
        """A second call does nothing."""
        handle, self._handle = self._handle, c_void_p()
        self._job._groups.discard(self)
        if handle and self._pid == os.getpid() and not self._is_stuck:
            if self._started:  # it waits for the one that runs
                interruptible(lambda: LIBRARY.telegrad_group_free(handle), self._stop)
            else:
                LIBRARY.telegrad_group_free(handle)
        elif self._started:
            _left.append(self._started)

    def _counts(self, what: str, counts: Optional[Sequence[int]]) -> Any:
        if counts is None:
            return None
        if len(counts) != self.size or any(count < 0 for count in counts):
            raise UsageError(f"{what} {list(counts)}: one from 0 on for each of {self.size} "
                             "ranks")
        return (c_uint64 * len(counts))(*counts)

    def _stop(self, why: BaseException) -> None:
        self._is_stuck = True
        self._job.interrupt(why)

    def _cause(self, why: Error) -> Error:
        """The job knows best who is gone."""
        if why.code == _UNAVAILABLE:
            try:
                self._job.need_all("a collective", _PATIENCE_S)
            except Error as cause:
                return cause
        return why

    def _run(self, work: Any) -> None:
        try:
            interruptible(work, self._stop)
        except Error as why:
            raise self._cause(why)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
