"""What steps the weights of a KVStore."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from ._kvstore_values import Key
from ._momentum import MomentumOfStore
from .errors import UsageError, WrongOrder
from .optimizer import RunByStore, translate
from .store import Store

Updater = Callable[[Key, Any, Any], None]


class Steps:
    """An optimizer that the store runs, which follows the object that was given; or an
    updater of the caller; or neither: then pulls give sums."""

    def __init__(self) -> None:
        self.optimizer: Optional[RunByStore] = None
        self.updater: Optional[Updater] = None
        self.momentum = MomentumOfStore()
        self._watched: Any = None  # what `take` was given, and what it was then
        self._settings: Dict[str, float] = {}
        self.begin()

    def begin(self) -> None:
        """There are no keys yet."""
        self._rates: Dict[Key, Tuple[float, float]] = {}
        self._stepped: Set[Key] = set()  # in the round that is under way

    def begin_again(self, store: Store) -> None:
        """In the place of the store that was told."""
        self.momentum.begin_again(store, self.optimizer)

    def check(self, optimizer: Any) -> RunByStore:
        """What the store would run.

        Raises:
            telegrad.Unsupported: another optimizer, or an option of it, by name.
        """
        if self.updater is not None:
            raise WrongOrder("set_optimizer after set_updater: a store has one of them")
        given = translate(optimizer)
        for key, rates in self._rates.items():
            if given.rates_of(key) != rates:
                raise UsageError(f"lr_mult or wd_mult of key {key!r}, which is in use: "
                                 "they stay")
        return given

    def take(self, store: Store, optimizer: Any, given: RunByStore) -> None:
        """While nothing is under way.

        Args:
            given: what `check` made of the `optimizer`.
        """
        store.set_optimizer(self.momentum.stepped_by(given))
        self.optimizer = given
        self._watched, self._settings = optimizer, given.settings()
        self._stepped = set()

    def changed(self, keys: Sequence[Key], is_in_process: bool) -> Any:
        """Before each round: the optimizer to be taken again, as the object that was given
        has other rates by now; None: it has not.

        Args:
            is_in_process: the store can take them whenever one worker wants.
        """
        if self._watched is None:
            return None
        is_same_round = bool(self._stepped) and self._stepped.isdisjoint(keys)
        self._stepped = self._stepped.union(keys) if is_same_round else set(keys)
        if is_same_round:
            return None
        now = translate(self._watched)
        numbers = now.settings()
        others = [f"{name} is {numbers[name]}, and was {before}"
                  for name, before in self._settings.items() if numbers[name] != before]
        others += [f"lr_mult or wd_mult of key {key!r} is another"
                   for key, rates in self._rates.items() if now.rates_of(key) != rates]
        if others and not is_in_process:
            raise UsageError(f"the optimizer has changed since set_optimizer: {others[0]}. "
                             "Servers keep what they were given; call set_optimizer with it "
                             "again, on all workers, between rounds")
        return self._watched if others else None

    def begin_round(self, keys: Iterable[Key]) -> None:
        """What `changed` gave was taken."""
        self._stepped = set(keys)

    def rates_of(self, keys: Iterable[Key]) -> Optional[List[Tuple[float, float]]]:
        """Of keys that begin, which have them from then on."""
        own = self.optimizer
        if own is None:
            return None
        found = {key: own.rates_of(key) for key in keys}
        self._rates.update(found)
        return list(found.values())
