"""Some rows of an array: what embeddings push and pull; docs/mxnet.md."""
from __future__ import annotations

import sys
from math import prod
from typing import Any, List, Optional, Sequence, Tuple

from .errors import Unsupported, UsageError


class RowSparse:
    """Of an array of `shape` the rows of these numbers, as MXNet's RowSparseNDArray.

    Args:
        data: [rows, ...] in host memory, of NumPy or torch: float32, or float16, which
            stores keep and send as float32.
        indices: [rows] their numbers, in any order; None: all.
        shape: of the whole array; None: that of `data`.

    Raises:
        telegrad.UsageError: shapes that do not fit each other; numbers that are none.

    Example::

        kv.init("table", telegrad.RowSparse(table))                # [1000, 8]
        kv.push("table", telegrad.RowSparse(grad, [7, 902], table.shape))  # grad [2, 8]
    """

    def __init__(self, data: Any, indices: Optional[Any] = None,
                 shape: Optional[Sequence[int]] = None) -> None:
        import numpy
        self.data = numpy.ascontiguousarray(data)
        self.shape: Tuple[int, ...] = tuple(self.data.shape if shape is None else shape)
        self.indices = (numpy.arange(len(self.data)) if indices is None else
                        row_numbers(indices))
        expected = (len(self.indices), *self.shape[1:])
        if not self.shape or self.data.shape != expected:
            raise UsageError(f"{len(self.indices)} rows of {self.shape} are no "
                             f"{self.data.shape}")
        if len(self.indices) and not (0 <= self.indices.min()
                                      and self.indices.max() < self.shape[0]):
            raise UsageError(f"rows {self.indices.min()} to {self.indices.max()} of "
                             f"{self.shape[0]}")

    @property
    def row_elems(self) -> int:
        """Elements of a row."""
        return prod(self.shape[1:])

    def assign(self, data: Any, indices: Any) -> None:
        """Becomes other rows of the same array: `data` [rows, ...], `indices` [rows]."""
        self.data, self.indices = data.reshape(-1, *self.shape[1:]), indices

    def merged(self) -> "RowSparse":
        """The same with each row once, in ascending order: those that come twice are
        added."""
        import numpy
        rows, places = numpy.unique(self.indices, return_inverse=True)
        sums = numpy.zeros((len(rows), *self.shape[1:]), self.data.dtype)
        numpy.add.at(sums, places, self.data)
        return RowSparse(sums, rows, self.shape)

    def to_dense(self) -> Any:
        """The whole array, 0 in other rows; rows that come twice are added."""
        import numpy
        whole = numpy.zeros(self.shape, self.data.dtype)
        numpy.add.at(whole, self.indices, self.data)
        return whole


def row_numbers(indices: Any) -> Any:
    """[rows] int64, of an array or a list of integers."""
    import numpy
    found = numpy.asarray(indices)
    if found.size and found.dtype.kind not in "iu":
        raise UsageError(f"row numbers of {found.dtype}: they are integers")
    return numpy.ascontiguousarray(found.reshape(-1), dtype=numpy.int64)


def rows_of(array: Any) -> Optional[RowSparse]:
    """A `RowSparse`, or a sparse tensor of torch as one; None: an array as others."""
    if isinstance(array, RowSparse):
        return array
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or (
            array.layout is torch.strided):
        return None
    if array.layout is not torch.sparse_coo or array.sparse_dim() != 1 or array.is_cuda:
        raise Unsupported(f"a tensor of {array.layout} on {array.device}: rows are those "
                          "of sparse_coo with one sparse dimension, in host memory")
    return RowSparse(array._values().detach(), array._indices()[0], array.shape)


def joined(parts: List[RowSparse]) -> RowSparse:
    """The sum, whose rows may come twice: a copy."""
    import numpy
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise UsageError(f"rows of arrays of {sorted(shapes)}: of one key they are alike")
    return RowSparse(numpy.concatenate([part.data for part in parts]),
                     numpy.concatenate([part.indices for part in parts]), parts[0].shape)
