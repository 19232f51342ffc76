"""A plug-in for MXNet: ``mx.kv.create('telegrad')``; docs/mxnet.md.

Import it before MXNet where DMLC's launcher starts the processes: in those of servers
and the scheduler it serves, and MXNet would start its own.
"""
from __future__ import annotations

import ctypes
import os
import sys
import types
import warnings
from typing import Any, Callable, Dict, List

from . import errors as _errors
from . import kvstore as _kvstore
from ._kvstore_values import listed
from .errors import Unsupported, UsageError
from .rows import RowSparse

_LAUNCHERS = ("DMLC_ROLE", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def _type() -> str:
    """$TELEGRAD_KVSTORE; else dist_sync where a launcher started this process."""
    started = any(name in os.environ for name in _LAUNCHERS)
    return os.environ.get("TELEGRAD_KVSTORE", "dist_sync" if started else "local")


if os.environ.get("DMLC_ROLE", "worker") != "worker":
    if "mxnet" in sys.modules:
        raise UsageError("import telegrad.mxnet before mxnet, which has started a server "
                         "of its own in this process")
    _kvstore.create(_type())  # serves, and ends the process

import mxnet  # type: ignore[import-not-found]  # noqa: E402
import numpy  # noqa: E402
from mxnet.base import _LIB, check_call  # type: ignore[import-not-found]  # noqa: E402
from mxnet.ndarray import array as ndarray  # type: ignore[import-not-found]  # noqa: E402
from mxnet.ndarray.sparse import (  # type: ignore[import-not-found]  # noqa: E402
    row_sparse_array, zeros)

# What a store of MXNet's raises is this; ours are it as well, wherever they are made.
_errors.Error.__bases__ = (mxnet.MXNetError,)


class View:
    """An NDArray's own memory, by NumPy's protocol."""
    typestrs = {"float32": "<f4", "float16": "<f2", "int32": "<i4"}

    def __init__(self, array: Any) -> None:
        if array.stype != "default" or array.context.device_type not in (
                "cpu", "cpu_pinned"):
            raise UsageError(f"an NDArray of {array.stype} on {array.context}: arrays are "
                             "dense or row_sparse, in host memory")
        dtype = getattr(array.dtype, "__name__", str(array.dtype))
        if dtype not in self.typestrs:
            raise UsageError(f"an NDArray of {dtype}: arrays are of "
                             f"{', '.join(self.typestrs)}; cast it first")
        check_call(_LIB.MXNDArrayWaitToWrite(array.handle))  # nobody reads or writes
        pointer = ctypes.c_void_p()
        check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
        self.array = array  # lives as long
        self.__array_interface__ = {"version": 3, "typestr": self.typestrs[dtype],
                                    "shape": array.shape, "data": (pointer.value, False)}


def _is_rows(array: Any) -> bool:
    return bool(array.stype == "row_sparse")


def _views(arrays: Any) -> Any:
    if isinstance(arrays, (list, tuple)):
        return [_views(array) for array in arrays]
    if not _is_rows(arrays):
        return View(arrays)
    numbers = arrays.indices.asnumpy()
    data: Any = View(arrays.data) if len(numbers) > 0 else (
        numpy.empty((0, *arrays.shape[1:]), arrays.dtype))
    return RowSparse(data, numbers, arrays.shape)


def _sparse(rows: RowSparse) -> Any:
    if len(rows.indices) == 0:
        return zeros("row_sparse", rows.shape, dtype=rows.data.dtype)
    return row_sparse_array((rows.data, rows.indices), shape=rows.shape,
                            dtype=rows.data.dtype)


def _row_ids(ids: Any) -> Any:
    """Integers, of whatever type; NDArrays are of float32 unless they are told."""
    numbers = ids.asnumpy().reshape(-1)
    if numbers.dtype.kind == "f" and numpy.array_equal(numbers, numpy.floor(numbers)):
        return numbers.astype(numpy.int64)
    return numbers


def _flat(values: Any) -> List[Any]:
    """The NDArrays of lists of lists."""
    if not isinstance(values, (list, tuple)):
        return [values]
    return [one for each in values for one in _flat(each)]


@mxnet.kvstore.KVStoreBase.register
class Telegrad(mxnet.kvstore.KVStore):  # type: ignore[misc]
    """`telegrad.kvstore.KVStore` on NDArrays in host memory, dense and row_sparse, for
    ``gluon.Trainer`` and by itself. Gradients that a launcher's workers push are summed,
    never averaged. What a method does not say is as there::

        import telegrad.mxnet, mxnet
        store = mxnet.kv.create("telegrad")

    Args:
        options: of `telegrad.kvstore.create`.
    """

    def __init__(self, **options: Any) -> None:
        # MXNet's own store has a handle of C, which is not ours.
        self._updater: Any = None
        self._kv = _kvstore.create(_type(), **options)

    def __del__(self) -> None:
        pass

    @property
    def type(self) -> str:
        """With "dist" in it where there are several workers, as MXNet looks for it."""
        return str(self._kv.type)

    @property
    def rank(self) -> int:
        """This worker's, from 0."""
        return int(self._kv.rank)

    @property
    def num_workers(self) -> int:
        """Of the job; 1 where there is none."""
        return int(self._kv.num_workers)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether a store has the `capability` "optimizer": yes."""
        return bool(_kvstore.KVStore.is_capable(capability))

    def init(self, key: Any, value: Any) -> None:
        """Once for each `key`, on all workers; worker 0's `value` counts."""
        self._kv.init(key, _views(value))

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sends gradients; those listed for a key are added first."""
        self._kv.push(key, _views(value), priority)

    def pull(self, key: Any, out: Any = None, priority: int = 0,
             ignore_sparse: bool = True) -> None:
        """Leaves row_sparse arrays in `out` alone, or gives them all rows."""
        keys, outs = listed(key, out)
        dense = [[array for array in arrays if not _is_rows(array)] for arrays in outs]
        wanted = [(one, arrays) for one, arrays in zip(keys, dense) if arrays]
        if wanted:
            self._kv.pull([one for one, _ in wanted],
                          [_views(arrays) for _, arrays in wanted], priority)
        for one, arrays in zip(keys, outs):
            for array in filter(_is_rows, [] if ignore_sparse else arrays):
                self._pull_all_rows(one, array, priority)

    def _pull_all_rows(self, key: Any, out: Any, priority: int) -> None:
        whole = numpy.empty(out.shape, out.dtype)
        self._kv.pull(key, whole, priority)
        with mxnet.autograd.pause():
            _sparse(RowSparse(whole)).copyto(out)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Push and pull of each key in one, dense; `out` is `value` unless it is given."""
        self._kv.pushpull(key, _views(value), None if out is None else _views(out),
                          priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def set_optimizer(self, optimizer: Any) -> None:
        """In a store of one process any of mxnet.optimizer, as MXNet's own store has it:
        rates may change later. Else objects of it are translated to numbers for the
        servers, or refused by name."""
        if self._is_alone() and isinstance(optimizer, mxnet.optimizer.Optimizer):
            self.set_updater(mxnet.optimizer.get_updater(optimizer))
            return
        self._kv.set_optimizer(optimizer)
        self._updater = types.SimpleNamespace(optimizer=optimizer)

    def _is_alone(self) -> bool:
        return self._kv._store.job is None

    def set_updater(self, updater: Callable[[Any, Any, Any], None]) -> None:
        """Of a store of one process: a push calls ``updater(key, gradient, weight)`` with
        NDArrays, which changes `weight` in place."""
        is_mxnets = isinstance(updater, mxnet.optimizer.Updater)

        def on_ndarrays(key: Any, gradient: Any, weight: Any) -> None:
            with mxnet.autograd.pause():
                is_rows = isinstance(gradient, RowSparse)
                given = (_sparse(gradient) if is_rows else
                         ndarray(gradient, dtype=gradient.dtype))
                # Some of MXNet's optimizers take rows of a weight of rows alone.
                theirs = (_sparse(RowSparse(weight)) if is_mxnets and is_rows
                          and key in self._kv._row_elems else
                          ndarray(weight, dtype=weight.dtype))
                updater(key, given, theirs)
                weight[...] = theirs.asnumpy()

        self._kv.set_updater(on_ndarrays)
        self._updater = updater

    _set_updater = set_updater

    def set_gradient_compression(self, compression_params: Dict[str, Any]) -> None:
        """``{'type': '2bit', 'threshold': 0.5}``, before a key is used."""
        self._kv.set_gradient_compression(compression_params)

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """To a file, on rank 0; all workers call it. Servers' rates are not in it, as
        `dump_optimizer` would have it: set_optimizer gives them again."""
        if isinstance(self._updater, mxnet.optimizer.Updater):
            _kvstore.write_whole(fname, self._updater.get_states(dump_optimizer))
            return
        if dump_optimizer:
            warnings.warn(f"{fname}: momentum and means are in it, learning rate and other "
                          "settings are not; the script that loads it sets them", stacklevel=3)
        self._kv.save_optimizer_states(fname)

    def load_optimizer_states(self, fname: str) -> None:
        """From rank 0's file; all workers call it."""
        if isinstance(self._updater, mxnet.optimizer.Updater):
            with open(fname, "rb") as file:
                self._updater.set_states(file.read())
            return
        self._kv.load_optimizer_states(fname)

    def barrier(self) -> None:
        """Returns when all workers have called it."""
        self._kv.barrier()

    _barrier = barrier

    def num_dead_node(self, node_id: int = 0, timeout: float = 60) -> int:
        """How many members have died: a job ends with the first."""
        return int(self._kv.num_dead_node(node_id, timeout))

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0,
                        row_ids: Any = None) -> None:
        """Fetches rows, in ascending order, each once: those of `row_ids`, an NDArray of
        whole numbers for all of `out`, or lists of such, one for each array of it."""
        keys, outs = listed(key, out)
        flat = [(one, array) for one, arrays in zip(keys, outs) for array in arrays]
        lists = _flat(row_ids)
        if row_ids is None or len(lists) not in (1, len(flat)):
            raise UsageError(f"row_ids: one NDArray, or one for each of {len(flat)} outs")
        for (one, array), ids in zip(flat, lists * len(flat)):
            if not _is_rows(array):
                raise UsageError(f"key {one!r}: rows are pulled into a row_sparse NDArray, "
                                 f"this one is of {array.stype}; tostype('row_sparse')")
            rows = RowSparse(numpy.empty((0, *array.shape[1:]), array.dtype), [],
                             array.shape)
            self._kv.row_sparse_pull(one, rows, priority, _row_ids(ids))
            with mxnet.autograd.pause():
                _sparse(rows).copyto(array)

    def _send_command_to_servers(self, head: Any, body: Any) -> None:
        raise Unsupported("_send_command_to_servers: servers take no commands")

    def stats(self) -> Dict[str, Any]:
        """Bytes so far: `telegrad.Store.stats`."""
        return dict(self._kv.stats())

    def close(self) -> None:
        """Leaves the job; the interpreter's end does, too."""
        self._kv.close()


# gluon.Trainer takes strings for stores of one device only where they say "dist".
mxnet.kvstore.KVStoreBase.kv_registry["dist_telegrad"] = Telegrad
