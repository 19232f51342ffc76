"""What ranks begin alike with."""
from __future__ import annotations

import pickle
import types
from typing import Any, List, Optional

import mxnet  # type: ignore[import-not-found]
import numpy

from ..common import world
from .mpi_ops import allgather, broadcast_


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None) -> Any:
    """That of `root_rank`, pickled: a rank trusts the others."""
    shown = name or type(obj).__name__
    is_root = world.rank() == root_rank
    own = numpy.frombuffer(pickle.dumps(obj) if is_root else b"", "u1")
    size = mxnet.nd.array([own.size], dtype="int64")
    broadcast_(size, root_rank, f"{shown}.sz")
    memory = (mxnet.nd.array(own, dtype="uint8") if is_root else
              mxnet.nd.zeros((int(size.asscalar()),), dtype="uint8"))
    broadcast_(memory, root_rank, f"{shown}.t")
    return obj if is_root else pickle.loads(memory.asnumpy().tobytes())


def allgather_object(obj: Any, name: Optional[str] = None) -> List[Any]:
    """Those of all ranks, by rank, pickled: a rank trusts the others."""
    shown = name or type(obj).__name__
    memory = mxnet.nd.array(numpy.frombuffer(pickle.dumps(obj), "u1"), dtype="uint8")
    sizes = allgather(mxnet.nd.array([memory.size], dtype="int64"), f"{shown}.sz").asnumpy()
    everything = allgather(memory, f"{shown}.t").asnumpy()
    return [pickle.loads(part.tobytes())
            for part in numpy.split(everything, numpy.cumsum(sizes)[:-1])]


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: Optional[str] = None) -> None:
    """All ranks get those of `root_rank`, in place; parameters whose shape is not known yet
    when they are made.

    Args:
        params: of ``Block.collect_params()``, or a dict of arrays.
        prefix: of names, where it is called more than once at a time.

    Raises:
        ValueError: something else.
    """
    if world.size() == 1:
        return
    if not hasattr(params, "items"):
        raise ValueError(f"invalid params of type: {type(params)}")
    for name, each in sorted(params.items()):
        shown = f"{prefix or ''}{name}"
        if not isinstance(each, mxnet.gluon.parameter.Parameter):
            broadcast_(each, root_rank, shown)
            continue
        try:
            arrays = each.list_data()
        except mxnet.gluon.parameter.DeferredInitializationError:
            _broadcast_when_made(each, root_rank, shown)
            continue
        _spread(each, arrays, root_rank, shown)


def _spread(parameter: Any, arrays: List[Any], root_rank: int, name: str) -> None:
    broadcast_(arrays[0], root_rank, name)
    for other in arrays[1:]:
        arrays[0].copyto(other)


def _broadcast_when_made(parameter: Any, root_rank: int, name: str) -> None:
    before = parameter._init_impl

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        before(*args, **kwargs)
        _spread(self, self.list_data(), root_rank, name)

    parameter._init_impl = types.MethodType(made, parameter)
