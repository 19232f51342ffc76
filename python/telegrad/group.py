"""Collectives over a job's workers, of dense arrays in host memory."""
from __future__ import annotations

import os
from ctypes import byref, c_int32, c_uint64, c_void_p
from typing import Any, Optional, Sequence

from ._arrays import tensor_in_order
from ._library import LIBRARY, call, interruptible
from .errors import Error, UsageError, WrongOrder
from .job import Job

OPS = ("sum", "min", "max", "product")  # by telegrad_reduce_op
_UNAVAILABLE = 5  # TELEGRAD_UNAVAILABLE
_PATIENCE_S = 3.0  # of one that ends, until it has left


def number_of(what: str, name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise UsageError(f"{what} {name!r}: there are {', '.join(names)}")
    return names.index(name)


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
            LIBRARY.telegrad_group_free(handle)

    def _counts(self, what: str, counts: Optional[Sequence[int]]) -> Any:
        if counts is None:
            return None
        if len(counts) != self.size or any(count < 0 for count in counts):
            raise UsageError(f"{what} {list(counts)}: one from 0 on for each of {self.size} "
                             "ranks")
        return (c_uint64 * len(counts))(*counts)

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
