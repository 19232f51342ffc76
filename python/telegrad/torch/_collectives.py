"""Collectives of torch.distributed by those of a `telegrad.Group`: they block, and are
of tensors in host memory."""
from __future__ import annotations

from functools import reduce as fold
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch._C._distributed_c10d import ReduceOp

from .._arrays import HOST, NAMES
from .._library import Tensor
from ..errors import Unsupported, UsageError
from ..group import OPS, STARTS

_BY_GROUP = {"SUM": "sum", "AVG": "sum", "MIN": "min", "MAX": "max", "PRODUCT": "product"}
_TYPES = {torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32,
          torch.int64, torch.int8, torch.uint8, torch.bool}
_NUMBERS = {getattr(torch, name): number for number, name in enumerate(NAMES)}
_ALLREDUCE, _ALLGATHER, _BROADCAST, _REDUCE_SCATTER, _ALLTOALL, _BARRIER = range(len(STARTS))
_FOLDS: Dict[str, Callable[[Any, Any], Any]] = {
    "SUM": torch.add, "AVG": torch.add, "MIN": torch.minimum, "MAX": torch.maximum,
    "PRODUCT": torch.mul, "BAND": torch.bitwise_and, "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor}


_OPS = {getattr(ReduceOp, name): name for name in _FOLDS}
_CPU = torch.device("cpu")


def name_of(op: Any) -> str:
    """Of a ReduceOp.

    Raises:
        telegrad.Unsupported: one that there is not here.
    """
    op = getattr(op, "op", op)
    name = _OPS.get(op) or str(op).rpartition(".")[2]
    if name not in _FOLDS:
        raise Unsupported(f"ReduceOp.{name} in backend telegrad: there are "
                          f"{', '.join(_FOLDS)}; multiply before the sum")
    return name


def _flat(tensor: Any) -> Any:
    """[n], the same memory where its elements lie in order."""
    return tensor.detach().contiguous().as_strided((tensor.numel(),), (1,))


def _bytes(flat: Any) -> Any:
    """[n] uint8, the same memory."""
    if flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    return flat.view(torch.uint8)


def _cat(tensors: Sequence[Any]) -> Any:
    flats = [_flat(each) for each in tensors]
    return flats[0] if len(flats) == 1 else torch.cat(flats)


def _is_plain(*tensors: Any) -> bool:
    """Whether all have elements, in host memory and in order."""
    for each in tensors:
        if not (each.layout is torch.strided and each.device == _CPU and each.is_contiguous()
                and each.numel()):
            return False
    return True


def _in_c(tensor: Any, dtype: Any = None) -> Tensor:
    """Of a plain tensor; without `dtype` its bytes."""
    if dtype is None:
        return Tensor(tensor.data_ptr(), tensor.numel() * tensor.element_size(),
                      _NUMBERS[torch.uint8], HOST, 0)
    return Tensor(tensor.data_ptr(), tensor.numel(), _NUMBERS[dtype], HOST, 0)


def _spread(flat: Any, tensors: Sequence[Any]) -> None:
    """Copies the elements to the tensors, one behind the other, where they are not there."""
    start = 0
    for each in tensors:
        part = flat[start:start + each.numel()]
        if part.data_ptr() != each.data_ptr():
            each.detach().copy_(part.view(each.shape))
        start += each.numel()


class Collectives:
    """Over `group`; `summed` may sum a flat tensor of float32 in its own way, and says
    whether it has."""

    def __init__(self, group: Any, rank: int, size: int,
                 summed: Optional[Callable[[Any], bool]] = None) -> None:
        self._group, self._rank, self._size = group, rank, size
        self._summed = summed

    def direct(self, name: str, *args: Any) -> Optional[Tuple[Any, ...]]:
        """What a `Group` begins for the method of that name, where that is all there is to
        do; None: it is not, or the method has to refuse it."""
        if name == "allreduce" and len(args[0]) == 1 and _is_plain(args[0][0]):
            return self._direct_sum(_ALLREDUCE, args[0][0], None, args[1])
        if name == "barrier":
            return _BARRIER, None, None, 0, None
        if name == "broadcast" and len(args[0]) == 1 and _is_plain(args[0][0]):
            return _BROADCAST, _in_c(args[0][0]), None, args[1], args[0]
        if name not in ("allgather_into", "reduce_scatter_from", "alltoall_single"):
            return None
        out, tensor = args[:2]
        if not _is_plain(out, tensor) or out.dtype != tensor.dtype:
            return None
        if name == "allgather_into" and out.numel() == tensor.numel() * self._size:
            return _ALLGATHER, _in_c(tensor), _in_c(out), 0, args
        if name == "reduce_scatter_from" and tensor.numel() == out.numel() * self._size:
            return self._direct_sum(_REDUCE_SCATTER, tensor, out, args[2])
        is_even = out.numel() == tensor.numel() and not any(args[2:]) and all(
            each.dim() and each.size(0) % self._size == 0 for each in (out, tensor))
        if name == "alltoall_single" and is_even:
            return _ALLTOALL, _in_c(tensor), _in_c(out), 0, args
        return None

    def _direct_sum(self, operation: int, tensor: Any, out: Any,
                    op: Any) -> Optional[Tuple[Any, ...]]:
        name = name_of(op)
        if tensor.dtype not in _TYPES or name not in _BY_GROUP or name == "AVG" or (
                name == "SUM" and self._summed is not None and operation == _ALLREDUCE):
            return None
        return (operation, _in_c(tensor, tensor.dtype),
                None if out is None else _in_c(out, tensor.dtype),
                OPS.index(_BY_GROUP[name]), (tensor, out))

    def allreduce(self, tensors: Sequence[Any], op: Any) -> None:
        """Of tensors of one type in one go."""
        name = name_of(op)
        if tensors[0].is_sparse:
            return self._sparse(tensors[0], name)
        same = len({each.dtype for each in tensors}) == 1
        for some in [tensors] if same else [[each] for each in tensors]:
            flat = _cat(some)
            self._reduce(flat, name)
            _spread(flat, some)

    def _reduce(self, flat: Any, name: str) -> None:
        """In place. What the group cannot is folded here from all ranks' tensors."""
        if flat.numel() == 0:
            return
        if name == "AVG" and not (flat.is_floating_point() or flat.is_complex()):
            raise UsageError(f"ReduceOp.AVG of {flat.dtype}")
        is_sum = name in ("SUM", "AVG")
        numbers = torch.view_as_real(flat).view(-1) if flat.is_complex() and is_sum else flat
        if numbers.dtype in _TYPES and name in _BY_GROUP:
            if not (is_sum and self._summed is not None and self._summed(numbers)):
                self._group.allreduce(numbers, _BY_GROUP[name])
        else:
            flat.copy_(fold(_FOLDS[name], self._all(flat)))
        if name == "AVG":
            flat.div_(self._size)

    def _all(self, flat: Any) -> List[Any]:
        """All ranks' tensors of that size."""
        found = flat.new_empty(self._size * flat.numel())
        self._group.allgather(_bytes(flat), _bytes(found))
        return list(found.view(self._size, -1))

    def _sparse(self, tensor: Any, name: str) -> None:
        if name != "SUM":
            raise Unsupported(f"ReduceOp.{name} of sparse tensors: there is SUM")
        own = tensor.coalesce()
        nums = [int(num) for num in self._all(torch.tensor([own.values().size(0)]))]
        indices, values = own.indices().t().contiguous(), own.values().contiguous()
        indices = self._rows(indices, nums)
        values = self._rows(values, nums)
        total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
        tensor.copy_(total)

    def _rows(self, own: Any, nums: Sequence[int]) -> Any:
        """All ranks' rows; rank i has nums[i]."""
        rows = own.new_empty((sum(nums), *own.shape[1:]))
        width = own.element_size() * (rows[0].numel() if sum(nums) else 0)
        if rows.numel():
            self._gather_bytes(_bytes(_flat(own)), _bytes(_flat(rows)),
                               [num * width for num in nums])
        return rows

    def _gather_bytes(self, own: Any, out: Any, counts: Sequence[int]) -> None:
        if len(set(counts)) == 1:
            self._group.allgather(own, out)
        else:
            self._group.allgatherv(own, out, counts)

    def reduce(self, tensor: Any, root: int, op: Any) -> None:
        """Other ranks' tensors stay."""
        flat = _flat(tensor)
        if self._rank != root and flat.data_ptr() == tensor.data_ptr():
            flat = flat.clone()
        self._reduce(flat, name_of(op))
        if self._rank == root:
            _spread(flat, [tensor])

    def broadcast(self, tensors: Sequence[Any], root: int) -> None:
        for tensor in tensors:
            if tensor.numel():
                flat = _flat(tensor)
                self._group.broadcast(_bytes(flat), root)
                _spread(flat, [tensor])

    def allgather(self, outs: Sequence[Any], tensor: Any) -> None:
        """Sizes may differ, the same on all ranks."""
        counts = [each.numel() for each in outs]
        if len(outs) != self._size or counts[self._rank] != tensor.numel():
            raise UsageError(f"all_gather of {tensor.numel()} elements into {counts} of "
                             f"{self._size} ranks")
        flat = tensor.new_empty(sum(counts))
        if flat.numel():
            self._gather_bytes(_bytes(_flat(tensor)), _bytes(flat),
                               [num * tensor.element_size() for num in counts])
            _spread(flat, outs)

    def allgather_into(self, out: Any, tensor: Any) -> None:
        self._check("all_gather", out.numel(), tensor.numel() * self._size)
        if tensor.numel():
            flat = _flat(out)
            self._group.allgather(_bytes(_flat(tensor)), _bytes(flat))
            _spread(flat, [out])

    def gather(self, outs: Sequence[Any], tensor: Any, root: int) -> None:
        """`outs`: of rank `root`, else none."""
        counts = [0] * self._size
        counts[root] = tensor.numel()
        self._exchange([tensor], counts, outs, [tensor.numel() if outs else 0] * self._size)

    def scatter(self, out: Any, tensors: Sequence[Any], root: int) -> None:
        """`tensors`: of rank `root`, else none."""
        counts = [0] * self._size
        counts[root] = out.numel()
        self._exchange(tensors or [out.new_empty(0)],
                       [out.numel() if tensors else 0] * self._size, [out], counts)

    def reduce_scatter(self, out: Any, tensors: Sequence[Any], op: Any) -> None:
        """Sizes may differ, the same on all ranks."""
        name, counts = name_of(op), [each.numel() for each in tensors]
        if len(counts) != self._size or counts[self._rank] != out.numel():
            raise UsageError(f"reduce_scatter of {counts} elements into {out.numel()}")
        self._reduce_scatter(out, _cat(tensors), counts, name)

    def reduce_scatter_from(self, out: Any, tensor: Any, op: Any) -> None:
        self._check("reduce_scatter", tensor.numel(), out.numel() * self._size)
        self._reduce_scatter(out, _flat(tensor), [out.numel()] * self._size, name_of(op))

    def _reduce_scatter(self, out: Any, flat: Any, counts: List[int], name: str) -> None:
        if flat.numel() == 0:
            return
        own = _flat(out)
        if flat.dtype in _TYPES and name in _BY_GROUP:
            self._group.reduce_scatter(flat, own,
                                       None if len(set(counts)) == 1 else counts,
                                       _BY_GROUP[name])
            if name == "AVG":
                own.div_(self._size)
        else:
            flat = flat.clone()
            self._reduce(flat, name)
            start = sum(counts[:self._rank])
            own = flat[start:start + out.numel()]
        _spread(own, [out])

    def alltoall(self, outs: Sequence[Any], tensors: Sequence[Any]) -> None:
        for what in (outs, tensors):
            if len(what) != self._size:
                raise UsageError(f"all_to_all of {len(what)} tensors for {self._size} ranks")
        self._exchange(tensors, [each.numel() for each in tensors], outs,
                       [each.numel() for each in outs])

    def alltoall_single(self, out: Any, tensor: Any, out_splits: Sequence[int],
                        splits: Sequence[int]) -> None:
        """Along the first dimension; no splits: equal ones."""
        self._exchange([tensor], self._counts(tensor, splits), [out],
                       self._counts(out, out_splits))

    def _counts(self, tensor: Any, splits: Sequence[int]) -> List[int]:
        rows = tensor.size(0) if tensor.dim() else 1
        if not splits:
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise UsageError(f"all_to_all of {rows} rows by {list(splits)}: that is one "
                             f"number for each of {self._size} ranks, in all {rows}")
        return [num * (tensor.numel() // max(rows, 1)) for num in splits]

    def _exchange(self, tensors: Sequence[Any], counts: Sequence[int], outs: Sequence[Any],
                  out_counts: Sequence[int]) -> None:
        """Block i of the tensors, one behind the other, to rank i."""
        flat, item = _cat(tensors), tensors[0].element_size()
        found = flat.new_empty(sum(out_counts))
        self._group.alltoall(_bytes(flat)[:sum(counts) * item], _bytes(found),
                             [num * item for num in counts],
                             [num * item for num in out_counts])
        _spread(found, outs)

    def send(self, tensor: Any, to: int, tag: int) -> None:
        self._group.send(_bytes(_flat(tensor)), to, tag)

    def recv(self, tensor: Any, source: int, tag: int) -> int:
        flat = _flat(tensor)
        sender = int(self._group.recv(_bytes(flat), source, tag))
        _spread(flat, [tensor])
        return sender

    def barrier(self) -> None:
        self._group.barrier()

    def _check(self, what: str, given: int, wanted: int) -> None:
        if given != wanted:
            raise UsageError(f"{what} with {given} elements for {wanted} of "
                             f"{self._size} ranks")
