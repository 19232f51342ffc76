"""How an alltoall's rows go to the ranks."""
from __future__ import annotations

from typing import Any, List, Sequence

from ...errors import UsageError


def rows_of(shape: Sequence[int], splits: Any, size: int) -> List[int]:
    """For each of `size` ranks; `splits` None: as many each.

    Raises:
        ValueError: what is not a whole number each, or does not add up.
    """
    num = shape[0] if len(shape) else 0
    if splits is None:
        if num % size:
            raise UsageError(f"alltoall of {num} rows among {size} ranks, which is no whole "
                             "number each: give splits")
        return [num // size] * size
    rows = list(splits)
    if any(isinstance(each, bool) or int(each) != each for each in rows):
        raise UsageError(f"splits={rows}: integers are wanted")
    if len(rows) != size or min(rows) < 0 or sum(rows) > num:
        raise UsageError(f"splits={rows} of a tensor of {num} rows: {size} numbers are "
                         "wanted, one for each rank, that add up to no more")
    return [int(each) for each in rows]
