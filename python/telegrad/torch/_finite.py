"""Whether all gradients of a step were finite on all ranks."""
from __future__ import annotations

import math
from typing import Any, List

from ..store import Store
from ._bucket import Bucket
from ._pending import Pending

FLAG = "telegrad.finite"  # a tensor of one element


class FiniteFlag:
    """Codecs have counted what was not finite here, and sent 0 for it. One number more
    tells all ranks; nothing reads a gradient for this.

    Args:
        counts: the store of the gradients.
        pending: its operations.
        store: has `key`, and is `counts` or one of all ranks.
        value: [1], what was given to its `init`.
    """

    def __init__(self, counts: Store, pending: Pending, store: Store, key: int,
                 value: Any) -> None:
        self._counts, self._pending, self._store = counts, pending, store
        self._bucket = Bucket([key], [value])
        self._seen = 0

    def spread(self, buffers: List[Any]) -> None:
        """At the end of a step: NaN in all of its `buffers`, where one rank has had some."""
        (found,) = self._bucket.gradients
        seen = self._counts.stats()["num_nonfinite"]
        found[0] = float(seen > self._seen)
        self._seen = seen
        if self._store is self._counts:
            self._pending.push_pull(self._bucket, found, None)
            self._pending.wait()
        else:
            self._store.push_pull([*self._bucket.keys], [found], [found])
        if found[0] != 0:
            for buffer in buffers:
                buffer.fill_(math.nan)
