"""A process group of torch.distributed over a job of its ranks."""
from __future__ import annotations

import atexit
import functools
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence, Set

import torch
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, ReduceOp

from ..errors import Error, Timeout, Unsupported
from ..group import Group, Started
from ._backend import chosen_gpu
from ._collectives import Collectives, name_of
from ._dropped import close_when_dropped
from ._meeting import has_key, job_of_store
from ._ordered import Ordered
from ._staged import Staged, say_once, tensors_in
from ._work import Lanes, StartedWork, Work, seconds_of, wait_until

_PATIENCE_S = 3.0  # of one that ends, for operations under way


def _of(options: Any, name: str, standard: Any) -> Any:
    """What c10d's options have; their place may have the value itself."""
    return standard if options is None else getattr(options, name, options)


def _listed(what: Any) -> List[Any]:
    return [what] if isinstance(what, torch.Tensor) else list(what)


def _behind(started: Started, call: Callable[[], Any]) -> Any:
    """What runs once `started` has ended, well or not."""
    started.end()
    return call()


def _one(lists: Sequence[Any]) -> Any:
    if len(lists) != 1:
        raise Unsupported(f"{len(lists)} tensors of one rank: each process has one")
    return lists[0]


def _through_nccl(method: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors on GPUs go by torch's own NCCL, where it is there, but to codecs, and not where
    all is to be sealed."""
    @functools.wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        first = next(tensors_in(args), None) if self._has_gpus else None
        if first is None or not first.is_cuda or not self._takes_nccl(method.__name__, *args):
            return method(self, *args, **named)
        return getattr(self._nccl(), method.__name__)(*args, **named)
    return call


_Base: Any = ProcessGroup  # whose signatures differ between versions


class ProcessGroupTelegrad(_Base):  # type: ignore[misc]
    """What `init_process_group("telegrad")` and `new_group` make. Its collectives are done
    in order on a thread of its own, messages of two ranks beside them.

    Args:
        store: of torch.distributed, which all ranks reach, with a prefix of this group.
        timeout: of the meeting, and of each operation that makes no progress.
        options: a `telegrad.torch.BackendOptions`.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta,
                 options: Any) -> None:
        super().__init__(rank, size)
        self._store, self._options, self._timeout = store, options, timeout
        self._num_barriers = self._sequence = 0
        self._has_gpus = torch.cuda.is_available()
        self._name = "undefined"
        self._nccl_group: Optional[Any] = None
        limit = timeout.total_seconds()
        sums = options.is_compressed()  # where ranks have parts, each waits for all at the end
        self._job = job_of_store(store, rank, size, limit, servers=size if sums else 1,
                                 hosts_part=sums, settings=options.settings(),
                                 **{"operation_timeout": limit, "gpu": chosen_gpu(),
                                    **options.job_options})
        try:
            group = Group(self._job)
            ordered = Ordered(self._job, options) if sums else None
        except Error as why:
            self._job.fail(str(why), why.exit_code)
            raise
        self._ordered = ordered
        self._collectives = Collectives(group, rank, size, ordered)
        self._group = group
        # The last collective that the group's own thread got, and that a lane got.
        self._last_started: Optional[Started] = None
        self._last_put: Callable[[], Optional[Work]] = lambda: None
        threads = _Threads(self._job, group)
        self._lanes = threads.lanes
        self._end = close_when_dropped(self, threads.close)

    def getBackendName(self) -> str:
        return "telegrad"

    _get_backend_name = name = getBackendName

    def setGroupName(self, name: str) -> None:
        self._name = name  # C++ has it only of groups with backends

    def getGroupName(self) -> str:
        return self._name

    # ---- sums ----

    @_through_nccl
    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work:
        tensors = _listed(tensors)
        return self._put("allreduce", tensors, tensors, _of(opts, "reduceOp", ReduceOp.SUM))

    @_through_nccl
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)  # type: ignore[no-any-return]

    @_through_nccl
    def reduce(self, tensors: Any, opts: Any = None, op: Any = None,
               timeout: Any = None) -> Work:
        tensor = _one(_listed(tensors))
        return self._put("reduce", [tensor], tensor, _of(opts, "rootRank", 0),
                         getattr(opts, "reduceOp", op or ReduceOp.SUM))

    @_through_nccl
    def reduce_scatter(self, outs: Any, ins: Any, opts: Any = None,
                       timeout: Any = None) -> Work:
        if isinstance(outs, torch.Tensor):
            outs, ins = [outs], [ins]
        return self._put("reduce_scatter", list(outs), _one(outs), list(_one(ins)),
                         _of(opts, "reduceOp", ReduceOp.SUM))

    @_through_nccl
    def _reduce_scatter_base(self, out: Any, tensor: Any, opts: Any = None,
                             timeout: Any = None) -> Work:
        return self._put("reduce_scatter_from", [out], out, tensor,
                         _of(opts, "reduceOp", ReduceOp.SUM))

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        return self._last([self._reduce_scatter_base(*each, opts) for each in zip(outs, ins)])

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # ---- copies ----

    @_through_nccl
    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work:
        tensors = _listed(tensors)
        return self._put("broadcast", tensors, tensors, _of(opts, "rootRank", 0))

    @_through_nccl
    def allgather(self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None) -> Work:
        if isinstance(ins, torch.Tensor):
            outs, ins = [outs], [ins]
        outs = list(_one(outs))
        return self._put("allgather", outs, outs, _one(ins))

    def allgather_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        """`outs`: for each rank a list as `ins`."""
        return self._last([self.allgather([list(each)], [own], opts)
                           for each, own in zip(zip(*outs), ins)])

    @_through_nccl
    def _allgather_base(self, out: Any, tensor: Any, opts: Any = None,
                        timeout: Any = None) -> Work:
        return self._put("allgather_into", [out], out, tensor)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        return self._last([self._allgather_base(*each, opts) for each in zip(outs, ins)])

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    @_through_nccl
    def gather(self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None) -> Work:
        if isinstance(ins, torch.Tensor):
            outs, ins = [outs] if outs else [], [ins]
        outs = list(outs[0]) if outs else []
        return self._put("gather", outs, outs, _one(ins), _of(opts, "rootRank", 0))

    @_through_nccl
    def scatter(self, outs: Any, ins: Any, opts: Any = None, timeout: Any = None) -> Work:
        if isinstance(outs, torch.Tensor):
            outs, ins = [outs], [ins] if ins else []
        return self._put("scatter", list(outs), _one(outs), list(ins[0]) if ins else [],
                         _of(opts, "rootRank", 0))

    @_through_nccl
    def alltoall(self, outs: Any, ins: Any, opts: Any = None) -> Work:
        return self._put("alltoall", list(outs), list(outs), list(ins))

    @_through_nccl
    def alltoall_base(self, out: Any, tensor: Any, out_splits: Any, splits: Any,
                      opts: Any = None, timeout: Any = None) -> Work:
        return self._put("alltoall_single", [out], out, tensor, list(out_splits or ()),
                         list(splits or ()))

    all_to_all_single = alltoall_base

    # ---- between two ranks ----

    @_through_nccl
    def send(self, tensors: Any, to: int, tag: int = 0) -> Work:
        return self._start(("send", to, tag), "send", [], (_one(_listed(tensors)), to, tag))

    @_through_nccl
    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        tensor = _one(_listed(tensors))
        return self._start(("recv", source, tag), "recv", [tensor], (tensor, source, tag))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self.recv(tensors, -1, tag)  # type: ignore[no-any-return]

    recvAnysource = recv_anysource

    # ---- order ----

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        return self._put("barrier", [])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """By the store, so that it can say who is missing without an end of the group."""
        limit = seconds_of(timeout, -1)
        limit = self._timeout.total_seconds() if limit < 0 else limit
        deadline = time.monotonic() + limit
        self._num_barriers += 1
        key = f"barrier/{self._num_barriers}/"
        who, limit_ms = f"Rank {self.rank()}", f"{1000 * limit:.0f} ms"
        if self.rank() > 0:
            self._store.set(f"{key}{self.rank()}", "")
            if not wait_until(lambda: has_key(self._store, key + "end"), deadline) or (
                    self._store.get(key + "end")):
                raise Timeout(f"{who} successfully reached monitoredBarrier, but received "
                              "errors while waiting for send/recv from rank 0, which knows "
                              f"who is missing after {limit_ms}")
            return
        late: List[int] = []
        for rank in range(1, self.size()):
            if wait_all_ranks or not late:
                late += [rank] * (not wait_until(
                    lambda: has_key(self._store, f"{key}{rank}"), deadline))
        self._store.set(key + "end", "late" if late else "")
        if late:
            text = f"Rank{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
            raise Timeout(f"{who} timed out in monitoredBarrier: {text} failed to pass "
                          f"monitoredBarrier in {limit_ms}")

    def shutdown(self) -> None:
        self._end()

    def abort(self) -> None:
        self._job.fail(f"rank {self.rank()} aborted the process group")

    # ---- what torch asks ----

    @property
    def _device_types(self) -> List[Any]:
        # While a group is made, torch would attach recorders of C++'s backends.
        if self not in torch.distributed.distributed_c10d._world.pg_map:
            return []
        return [torch.device("cpu")] + [torch.device("cuda")] * torch.cuda.is_available()

    def _get_backend(self, _: Any) -> "ProcessGroupTelegrad":
        return self

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # ---- how ----

    def _put(self, name: str, filled: List[Any], *args: Any) -> Work:
        """In the order of the calls: by the group's own thread, unless some of it is work of
        Python's, or such work comes before it."""
        self._sequence += 1
        before = self._last_put()
        is_free = before is None or before.is_completed()
        direct = self._collectives.direct(name, *args) if is_free else None
        if direct is None:
            work = self._start(("collectives",), name, filled, args, self._last_started)
            self._last_put = weakref.ref(work)
            return work
        self._lanes.check()
        self._last_started = self._group._begin(*direct)
        return self._lanes.keep(StartedWork(self._last_started, filled, self._job.interrupt))

    def _start(self, lane: Any, name: str, filled: List[Any], args: Any,
               before: Optional[Started] = None) -> Work:
        method = getattr(self._collectives, name)
        if all(each.device.type == "cpu" for each in tensors_in(args)):
            call: Callable[[], Any] = functools.partial(method, *args)
        else:
            call = Staged(method, filled, args)
            if self.rank() == 0:
                say_once("this PyTorch is without NCCL"
                         if not torch.distributed.is_nccl_available()
                         else "encryption is asked for, and what NCCL sends cannot be sealed"
                         if self._options.is_sealed() else "sums have a codec")
        if before is not None and not before.end(0):
            call = functools.partial(_behind, before, call)
        return self._lanes.put(lane, Work(call, filled, self._job.interrupt))

    def _last(self, works: List[Work]) -> Work:
        """For all of them: they are done in order."""
        return works[-1].ends_after(works[:-1]) if works else self.barrier()

    def _takes_nccl(self, name: str, *args: Any) -> bool:
        codes = self._ordered is not None and name.startswith("allreduce") and (
            self._ordered.takes(_listed(args[0])[0]) and len(args) > 1
            and name_of(_of(args[1], "reduceOp", None)) in ("SUM", "AVG"))
        return (torch.distributed.is_nccl_available() and not codes
                and not self._options.is_sealed())

    def _nccl(self) -> Any:
        if self._nccl_group is None:
            from torch.distributed import ProcessGroupNCCL
            options = ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            self._nccl_group = ProcessGroupNCCL(PrefixStore("nccl", self._store),
                                                self.rank(), self.size(), options)
        return self._nccl_group


class _Threads:
    """What of a process group works without it."""

    def __init__(self, job: Any, group: Any) -> None:
        self._job, self._group = job, group
        self.lanes = Lanes()
        _open.add(self)

    def leave_group(self, patience_s: float) -> bool:
        """Whether nothing is in it any more; else it is not freed."""
        is_idle = wait_until(lambda: self.lanes.is_idle() and self._group.is_idle(),
                             time.monotonic() + patience_s)
        self._group._is_stuck = self._group._is_stuck or not is_idle
        return is_idle

    def close(self) -> None:
        _open.discard(self)
        self.lanes.close()
        if not self.leave_group(_PATIENCE_S):
            self._job.fail("the process group was destroyed while operations ran")
        self._job.close()


_open: Set[_Threads] = set()


def _leave_all() -> None:
    for each in list(_open):
        each.leave_group(0)


atexit.register(_leave_all)  # before jobs close
