"""Rounds of a KVStore that do not wait for the slowest workers."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Sequence

if TYPE_CHECKING:
    from .store import Store


class WithBackups:
    """What a store that was made with `drop_slowest` has besides."""

    _store: "Store"
    _pushes: Dict[Any, int]

    def _settle(self, keys: Sequence[Any]) -> None:
        raise NotImplementedError

    def catch_up(self) -> int:
        """Waits for this worker's pushes: `telegrad.Store.catch_up`."""
        self._settle(list(self._pushes))
        return self._store.catch_up()

    def take_all(self, on: bool = True) -> None:
        """Waits for this worker's pushes: `telegrad.Store.take_all`.

        Args:
            on: False: rounds do not wait any more.
        """
        self._settle(list(self._pushes))
        self._store.take_all(on)
