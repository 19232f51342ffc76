"""The keys and arrays of a call of a KVStore."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union

from ._arrays import added, assign, check_alike, copied, in_float32, is_in_order
from .errors import Unsupported, UsageError
from .rows import RowSparse, joined, rows_of

Key = Union[int, str]


def listed(key: Any, value: Any) -> Tuple[List[Key], List[Any]]:
    """Keys and their values, each a list of arrays."""
    if isinstance(key, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(key):
            raise UsageError(f"{len(key)} keys need as many values")
        keys, values = list(key), list(value)
    else:
        keys, values = [key], [value]
    merged: Dict[Key, List[Any]] = {}
    for one, arrays in zip(keys, values):
        if isinstance(one, bool) or not isinstance(one, (int, str)):
            raise UsageError(f"key {one!r}: keys are integers or strings")
        merged.setdefault(one, []).extend(
            arrays if isinstance(arrays, (list, tuple)) else [arrays])
    return list(merged), list(merged.values())


def rows_in_float32(rows: RowSparse) -> RowSparse:
    """As the store has rows."""
    return RowSparse(in_float32(rows.data), rows.indices, rows.shape)


def sum_of(key: Key, arrays: List[Any], copies: bool, has_rows: bool, into: Any = None) -> Any:
    """What a push of these sends.

    Args:
        arrays: of NumPy and its like, or all `telegrad.RowSparse`.
        copies: the caller's memory is not kept.
        has_rows: the key began as rows.
        into: an array to be used again.
    """
    if not arrays:
        raise UsageError(f"key {key!r} without a value")
    rows = [found for found in map(rows_of, arrays) if found is not None]
    if rows:
        if not copies or len(rows) < len(arrays):
            raise Unsupported(f"rows of key {key!r} "
                              + ("beside arrays" if copies else "in pushpull: push "
                                 "them, and row_sparse_pull"))
        return joined([rows_in_float32(each) for each in rows] if has_rows else rows)
    check_alike(f"key {key!r}", arrays)
    if has_rows:
        arrays = list(map(in_float32, arrays))
    is_usable = len(arrays) == 1 and not copies and is_in_order(arrays[0])
    return arrays[0] if is_usable else added(arrays, into)


def room_for(key: Key, arrays: List[Any], has_rows: bool) -> Any:
    """An array that the store fills for them: results come in the order of elements, and a
    transposed tensor has another one."""
    if not arrays:
        raise UsageError(f"key {key!r} without an array for the result")
    check_alike(f"key {key!r}", arrays)
    first = arrays[0]
    if has_rows:
        return in_float32(first)
    return first if is_in_order(first) else copied(first)


def give(first: Any, arrays: List[Any]) -> None:
    """All of the `arrays` get what `room_for` made of them has."""
    for other in arrays:
        if other is not first:
            assign(other, first)
