"""Indices of a data set, of which a run that goes on takes those that are left."""
from __future__ import annotations

import random
from typing import Any, Dict, Iterator, List

from ...common import world


class ElasticSampler:
    """For a DataLoader with ``shuffle=False``: each rank takes every size-th of the indices
    that were not processed in this epoch.

    Args:
        dataset: something with a length.
        shuffle: in an order by `seed` and epoch.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """At the epoch's end: all indices are left again."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Of this epoch since `reset`: batches 0 to `batch_idx` were processed."""
        self.processed_num = self._begin + (batch_idx + 1) * batch_size * world.size()

    def get_indices(self, batch_idx: int, batch_size: int) -> List[int]:
        """This rank's of that batch."""
        return self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size]

    def state_dict(self) -> Dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Goes on behind what that one had processed, with as many ranks as there are."""
        self.epoch, self.processed_num = state["epoch"], state["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Shares out what is left among the ranks that there are; the last may begin at the
        front again, so that all have as many."""
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self._begin = self.processed_num
        left = order[self._begin:]
        size = world.size()
        missing = -len(left) % size
        left += (left * missing)[:missing]
        self.indices = left[world.rank()::size]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)
