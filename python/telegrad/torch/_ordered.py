"""Sums by a codec of tensors that have no names: told apart by the order of the calls."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch

from .._log import LOGGER
from ..store import Store

_MAX_LEARNED = 8  # orders, each with memory for what its tensors hold back
_MAX_CALLS = 1024  # of a step


class Order:
    """The place of a call in a step, where calls repeat: known from sizes alone, so that
    all ranks know the same."""

    def __init__(self) -> None:
        self._sizes: List[int] = []  # of the last calls
        self._step: Tuple[int, ...] = ()  # sizes of a step's calls, once they are known
        self._place = 0

    def next(self, size: int) -> Optional[Tuple[Tuple[int, ...], int]]:
        """Of a call of that size: a step's sizes, and which of them this is; None while
        no step has come twice."""
        self._sizes = [*self._sizes[1 - 2 * _MAX_CALLS:], size]
        if self._step and self._step[self._place] == size:
            place = self._place
            self._place = (place + 1) % len(self._step)
            return self._step, place
        self._step = ()
        for period in range(1, len(self._sizes) // 2 + 1):
            if self._sizes[-period:] == self._sizes[-2 * period:-period]:
                self._step, self._place = tuple(self._sizes[-period:]), 0
                break
        return None


class Ordered:
    """Sums of a job's workers by a store with a codec, of flat tensors of float32. What a
    codec holds back of a call goes with the call at that place of the next step.

    Args:
        job: of workers that sum themselves.
        options: a `telegrad.torch.BackendOptions`.
    """

    def __init__(self, job: Any, options: Any) -> None:
        self._min_bytes = options.min_bytes
        self._store = Store(job, "allreduce")
        self._store.set_compression(type=options.codec, nonfinite=options.nonfinite)
        self._order = Order()
        self._keys: Dict[Tuple[int, ...], List[int]] = {}

    def takes(self, tensor: Any) -> bool:
        return (tensor.dtype is torch.float32
                and tensor.numel() * tensor.element_size() >= self._min_bytes)

    def __call__(self, flat: Any) -> bool:
        """Sums in place, unless the tensor is none for a codec, or of no known place."""
        if not self.takes(flat):
            return False
        found = self._order.next(flat.numel())
        if found is None:
            return False
        step, place = found
        if step not in self._keys:
            if len(self._keys) == _MAX_LEARNED:
                LOGGER.warning("calls of all_reduce repeat in no order for long: sums of this "
                               "process group go without the codec from now on")
                self._min_bytes = float("inf")
                return False
            number = len(self._keys)
            self._keys[step] = self._store.init(
                [f"order{number}.{place}" for place in range(len(step))],
                [flat.new_empty(size) for size in step])
        self._store.push_pull([self._keys[step][place]], [flat], [flat])
        return True

    def report(self) -> List[Dict[str, Any]]:
        """Of each key: codec, why it has it, and how it does."""
        return self._store.report()

    def stats(self) -> Dict[str, Any]:
        return self._store.stats()
