"""Ranks of a host that sum first by their own process group, each of them a part."""
from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch
import torch.distributed as dist

from .._library import SLICE_S
from ..errors import UsageError
from ._bucket import Bucket
from ._meeting import job_of_part, ranks_of
from ._residuals import MIN_PART_ELEMS, part_ends

Pieces = Dict[str, List[Tuple[int, int, int]]]  # (begin, end, owner) of each tensor
_ROUND_ELEMS = 16  # where a piece begins, for wide loads
_IS_LOCAL = "use_local_synchronization"  # of torch 2: only a group's own ranks make it
_has_local = _IS_LOCAL in inspect.signature(dist.new_group).parameters


def _backend_of(group: Any, device: Any) -> str:
    group = dist.distributed_c10d._get_default_group() if group is None else group
    try:  # a group may have one for each kind of device
        return str(group._get_backend(device).name()).lower()
    except (AttributeError, RuntimeError):
        return str(dist.get_backend(group)).lower()


class HostRanks:
    """Which ranks of a process group share a host and sum first by it; the meeting of all of
    them finds it. Numbers are of the group."""

    def __init__(self, group: Any, parameters: Any) -> None:
        device = next((p.device for p in parameters), torch.device("cpu"))
        self._note = {"device": device.type, "backend": _backend_of(group, device),
                      "alone": not _has_local and len(ranks_of(group)) < dist.get_world_size()}
        self.ranks: List[List[int]] = []  # of each host; empty: they do not
        self.why = ""  # they do not, though others of GPUs do

    def note(self) -> Dict[str, Any]:
        """For rank 0."""
        return self._note

    def settle(self, tier1: str, notes: Sequence[Dict[str, Any]]) -> None:
        """On rank 0, by the notes of all.

        Raises:
            telegrad.UsageError: it was asked for and cannot be.
        """
        hosts: Dict[str, List[int]] = {}
        for rank, note in enumerate(notes):
            hosts.setdefault(note["host"], []).append(rank)
        found = [*hosts.values()]
        on_gpus = all(note["device"] != "cpu" for note in notes)
        if tier1 != "group" and not (on_gpus and tier1 in ("auto", "on")):
            return
        if tier1 == "auto" and (len(found) == 1 or len(found) == len(notes)):
            return
        why = _why_not(found, notes)
        if tier1 == "auto" and any(note["backend"] != "nccl" for note in notes):
            why = why or (f"the process group is {notes[0]['backend']}, by which GPUs sum through "
                          "the host's memory; init_process_group('nccl'), or tier1='group'")
        if why and tier1 != "auto":
            raise UsageError(f"tier1={tier1!r}: {why}")
        self.ranks, self.why = ([] if why or len(found[0]) == 1 else found), why


def _why_not(hosts: List[List[int]], notes: Sequence[Dict[str, Any]]) -> str:
    for each in hosts[1:]:
        if len(each) != len(hosts[0]):
            return (f"the host of rank {hosts[0][0]} has {len(hosts[0])} of the ranks, that of "
                    f"rank {each[0]} {len(each)}, and each must have the same parts; start as "
                    "many on all hosts, or tier1='off'")
    for rank, note in enumerate(notes):
        if note["device"] != notes[0]["device"]:
            return (f"tensors of rank 0 are on {notes[0]['device']}, those of rank {rank} on "
                    f"{note['device']}; move all to one kind of device, or tier1='off'")
    if any(note["alone"] for note in notes):
        return "a process_group= of some ranks takes torch 2, or tier1='off'"
    return ""


def pieces_of(sizes: Dict[str, int], ranks: int, min_bytes: int) -> Pieces:
    """Who of a host's ranks owns which elements: tensors are cut as between servers, into
    pieces that `min_bytes` does not find too small; who has least gets the next ones."""
    least = max(MIN_PART_ELEMS, -(-min_bytes // 4) + _ROUND_ELEMS)
    load = [0] * ranks
    found: Pieces = {}
    for name, size in sizes.items():
        ends = part_ends(size, max(1, min(size // least, ranks)))
        owners = sorted(sorted(range(ranks), key=load.__getitem__)[:len(ends)])
        found[name] = [*zip([0, *ends], ends, owners)] if size else []
        for begin, end, owner in found[name]:
            load[owner] += end - begin
    return found


def _group_of_host(hosts: List[List[int]], group: Any) -> Any:
    """Of the ranks of this one's, by all ranks' numbers."""
    own = dist.get_rank()
    is_whole = sum(map(len, hosts)) == dist.get_world_size()
    options: Dict[str, Any] = {} if is_whole else {
        _IS_LOCAL: True, "backend": dist.get_backend(group)}
    made = [(ranks, dist.new_group(ranks, **options)) for ranks in hosts
            if is_whole or own in ranks]
    return next(each for ranks, each in made if own in ranks)


class Parts:
    """What this rank owns of its host's sums, and how it gets and gives it.

    Args:
        whole: the job of all ranks.
        parameters: that are summed, by name.
        min_bytes: of the store.
        options: of `telegrad.torch._meeting.job_of_part`.
    """

    def __init__(self, whole: Any, hosts: HostRanks, group: Any, parameters: Dict[str, Any],
                 min_bytes: int, **options: Any) -> None:
        self._whole = whole
        ranks = ranks_of(group)
        self.numbers = [number for _, number in sorted(
            (rank, number) for host in hosts.ranks for number, rank in enumerate(host))]
        self.rank, self.num = self.numbers[ranks.index(dist.get_rank())], len(hosts.ranks[0])
        self.pieces = pieces_of({name: p.numel() for name, p in parameters.items()}, self.num,
                                min_bytes)
        self.own = {name: (begin, end) for name, pieces in self.pieces.items()
                    for begin, end, owner in pieces if owner == self.rank}
        self.blanks = {name: parameters[name].detach().new_empty(end - begin)
                       for name, (begin, end) in self.own.items()}
        self._group = _group_of_host([[ranks[i] for i in host] for host in hosts.ranks], group)
        self._backend = hosts.note()["backend"]
        self._stream: Any = None
        self.job = job_of_part([ranks[host[self.rank]] for host in hosts.ranks],
                               parameters=parameters.values(), **options)
        self.why = (f"{len(ranks)} workers on {len(hosts.ranks)} "
                    f"host{'s' * (len(hosts.ranks) > 1)}, by {self._backend}; each of a host's "
                    f"{self.num} pushes a part")

    @contextmanager
    def beside(self, buffer: Any) -> Iterator[None]:
        """Of a GPU a stream for the exchange: backward goes on."""
        if not buffer.is_cuda:
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream(buffer.device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(buffer.device))
        with torch.cuda.stream(self._stream):
            yield

    def await_it(self, buffer: Any) -> None:
        """What comes on the current stream finds what was done beside."""
        if buffer.is_cuda:
            torch.cuda.current_stream(buffer.device).wait_stream(self._stream)

    def reduce(self, rows: Any) -> None:
        """`rows` [ranks, n]: row `rank` becomes its sum over the host's ranks."""
        if self._backend == "nccl":
            dist.reduce_scatter_tensor(rows[self.rank], rows.view(-1), group=self._group)
            return
        wide = rows.float() if rows.element_size() == 2 else rows  # gloo has no bfloat16
        self._wait(dist.all_reduce(wide, group=self._group, async_op=True))
        if wide is not rows:
            rows.copy_(wide)

    def gather(self, rows: Any) -> None:
        """`rows` [ranks, n]: each rank of the host gives its row to all."""
        each = [row.view(torch.uint8) for row in rows]
        if self._backend == "nccl":
            dist.all_gather_into_tensor(rows.view(-1).view(torch.uint8), each[self.rank],
                                        group=self._group)
        else:
            self._wait(dist.all_gather(each, each[self.rank].clone(), group=self._group,
                                       async_op=True))

    def _wait(self, work: Any) -> None:
        """Of what the host waits for: Ctrl-C is heard, and that the job has failed."""
        done = threading.Event()
        work.get_future().then(lambda _: done.set())
        while not done.wait(SLICE_S):
            if (why := self._whole.failure()) is not None:
                raise why
        work.wait()

    def close(self) -> None:
        """Behind the last step, of a job that has not failed."""
        if self._stream is not None:
            self._stream.synchronize()
        if dist.is_initialized():
            dist.destroy_process_group(self._group)


class Rows:
    """A bucket of DDP by owners: row i has what rank i of the host owns of it.

    Args:
        names, gradients: in `buffer`'s order.
        keys: of this rank's pieces, by name.
    """

    def __init__(self, parts: Parts, names: Sequence[str], gradients: Sequence[Any],
                 buffer: Any, keys: Dict[str, int]) -> None:
        self._parts = parts
        self._places: List[Tuple[int, int, int, int]] = []  # begin, end; row, begin there
        ends = [0] * parts.num
        own = []
        for name, gradient in zip(names, gradients):
            at = (gradient.data_ptr() - buffer.data_ptr()) // buffer.element_size()
            for begin, end, owner in parts.pieces[name]:
                self._places.append((at + begin, at + end, owner, ends[owner]))
                if owner == parts.rank:
                    own.append((keys[name], ends[owner], end - begin))
                ends[owner] += -(-(end - begin) // _ROUND_ELEMS) * _ROUND_ELEMS
        self.memory = buffer.new_zeros(parts.num, max(ends))
        row = self.memory[parts.rank]
        self.bucket = Bucket([key for key, _, _ in own],
                             [row[at:at + size] for _, at, size in own], self.memory)
        self._base, self._pairs = 0, ([], [])  # type: Tuple[int, Tuple[List[Any], List[Any]]]

    def reduce(self, buffer: Any) -> None:
        """This rank's row becomes its host's sum of what is in `buffer`."""
        self._copy(buffer, is_in=True)
        self._parts.reduce(self.memory)
        self.bucket.move_to(self.memory)

    def gather(self, buffer: Any) -> None:
        """`buffer` gets what the owners have."""
        with self._parts.beside(buffer):
            self._parts.gather(self.memory)
            self._copy(buffer, is_in=False)
        self._parts.await_it(buffer)

    def _copy(self, buffer: Any, is_in: bool) -> None:
        if buffer.data_ptr() != self._base:
            self._base = buffer.data_ptr()
            self._pairs = ([self.memory[row, at:at + end - begin]
                            for begin, end, row, at in self._places],
                           [buffer[begin:end] for begin, end, _, _ in self._places])
        to, of = self._pairs if is_in else self._pairs[::-1]
        if hasattr(torch, "_foreach_copy_"):
            torch._foreach_copy_(to, of)
            return
        for left, right in zip(to, of):
            left.copy_(right)
