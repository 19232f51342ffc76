"""Operations on NDArrays. Each returns when it is done; `priority` needs not be said."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence

import mxnet  # type: ignore[import-not-found]
import numpy

from ...errors import UsageError
from ..common.process_sets import ProcessSet, global_process_set, member_of
from ..common.splits import rows_of
from ..common.submission import Average, average_or, start, synchronize
from .wire import wires


def _reduced(arrays: Sequence[Any], outs: Sequence[Any], average: Optional[bool],
             name: Optional[str], prescale: float, postscale: float, process_set: ProcessSet,
             op: Optional[int], is_group: bool) -> Any:
    return synchronize(start("allreduce", wires(arrays, outs), name, process_set,
                             is_group=is_group, op=average_or(op, average), prescale=prescale,
                             postscale=postscale))


def allreduce(tensor: Any, average: Optional[bool] = None, name: Optional[str] = None,
              priority: int = 0, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set, op: Optional[int] = None) -> Any:
    """The reduction of all ranks' arrays of that name: the mean, unless `op` says
    otherwise."""
    return _reduced([tensor], [mxnet.nd.zeros_like(tensor)], average, name, prescale_factor,
                    postscale_factor, process_set, op, False)


def allreduce_(tensor: Any, average: Optional[bool] = None, name: Optional[str] = None,
               priority: int = 0, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set, op: Optional[int] = None) -> Any:
    """The same in place."""
    return _reduced([tensor], [tensor], average, name, prescale_factor, postscale_factor,
                    process_set, op, False)


def grouped_allreduce(tensors: Sequence[Any], average: Optional[bool] = None,
                      name: Optional[str] = None, priority: int = 0,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set,
                      op: Optional[int] = None) -> List[Any]:
    """`allreduce` of several arrays, which are sent together."""
    return list(_reduced(tensors, [mxnet.nd.zeros_like(each) for each in tensors], average,
                         name, prescale_factor, postscale_factor, process_set, op, True))


def grouped_allreduce_(tensors: Sequence[Any], average: Optional[bool] = None,
                       name: Optional[str] = None, priority: int = 0,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set,
                       op: Optional[int] = None) -> List[Any]:
    """The same in place."""
    return list(_reduced(tensors, tensors, average, name, prescale_factor, postscale_factor,
                         process_set, op, True))


def allgather(tensor: Any, name: Optional[str] = None, priority: int = 0,
              process_set: ProcessSet = global_process_set) -> Any:
    """All ranks' arrays by rank, along the first dimension, in which alone they may
    differ."""
    return synchronize(start("allgather", wires([tensor]), name, process_set))


def grouped_allgather(tensors: Sequence[Any], name: Optional[str] = None, priority: int = 0,
                      process_set: ProcessSet = global_process_set) -> List[Any]:
    """`allgather` of several arrays, which are sent together."""
    return list(synchronize(start("allgather", wires(tensors), name, process_set,
                                  is_group=True)))


def broadcast(tensor: Any, root_rank: int, name: Optional[str] = None, priority: int = 0,
              process_set: ProcessSet = global_process_set) -> Any:
    """The array of rank `root_rank`."""
    return synchronize(start("broadcast", wires([tensor], [mxnet.nd.zeros_like(tensor)]),
                             name, process_set, root=root_rank))


def broadcast_(tensor: Any, root_rank: int, name: Optional[str] = None, priority: int = 0,
               process_set: ProcessSet = global_process_set) -> Any:
    """The same in place."""
    return synchronize(start("broadcast", wires([tensor], [tensor]), name, process_set,
                             root=root_rank))


def alltoall(tensor: Any, splits: Any = None, name: Optional[str] = None, priority: int = 0,
             process_set: ProcessSet = global_process_set) -> Any:
    """The rows that all ranks have for this one, by rank; with `splits`, how many rows each
    rank gets, also how many came from each."""

    member_of(process_set, "alltoall")
    given = splits.asnumpy() if hasattr(splits, "asnumpy") else splits
    if given is not None and getattr(given, "dtype", numpy.dtype(int)).kind not in "iu":
        raise UsageError(f"splits of {given.dtype}: integers are wanted, dtype='int32'")
    rows = rows_of(tensor.shape, given, process_set.size())
    return synchronize(start("alltoall", wires([tensor[:sum(rows)]], None, splits is not None),
                             name, process_set, splits=rows))


def reducescatter(tensor: Any, op: int = Average, name: Optional[str] = None,
                  priority: int = 0, process_set: ProcessSet = global_process_set,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """This rank's rows of the reduction."""
    return synchronize(start("reducescatter", wires([tensor]), name, process_set, op=op,
                             prescale=prescale_factor, postscale=postscale_factor))


def grouped_reducescatter(tensors: Sequence[Any], op: int = Average,
                          name: Optional[str] = None, priority: int = 0,
                          process_set: ProcessSet = global_process_set,
                          prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[Any]:
    """`reducescatter` of several arrays, which are sent together."""
    return list(synchronize(start("reducescatter", wires(tensors), name, process_set,
                                  is_group=True, op=op, prescale=prescale_factor,
                                  postscale=postscale_factor)))
