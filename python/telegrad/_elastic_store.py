"""How a KVStore goes on in a job that outlives its members."""
from __future__ import annotations

from typing import Any, Dict, Mapping

from .errors import EpochEnded, UsageError
from .job import Job
from .rows import rows_of
from .store import Store


class StoreGoesOn:
    """What a `KVStore` with `elastic` does when others die, or come."""

    _store: Store
    _type: str
    _rounds: Any
    _steps: Any
    _keys: Dict[Any, int]
    _waiting: Dict[Any, Any]
    init: Any
    pull: Any
    _begin: Any

    def let_in(self) -> None:
        """`telegrad.Job.let_in`: all workers call it, at the begin of a step.

        Raises:
            telegrad.EpochEnded: somebody has died, or comes in: `reconfigure`.
        """
        self._job_of_store().let_in()

    def share(self, value: Any = None) -> Any:
        """`telegrad.Job.share`: the elder's `value`, a number of steps, on all workers, who all
        call it, after `init` or `reconfigure`."""
        return self._job_of_store().share(value)

    def reconfigure(self, values: Mapping[Any, Any]) -> None:
        """After `telegrad.EpochEnded`: goes on with those that are left, and with those who
        came, who call `init` for the same keys in the same order, and `pull`. What was under
        way is given up; what codecs held back, and what an optimizer of the store kept, begins
        anew.

        Args:
            values: of each key, as of its `init`: the elder's count, and all arrays get them.

        Raises:
            telegrad.UsageError: other keys than the store has; nothing was done.
            telegrad.Error: as of `telegrad.Job.reconfigure`.
        """
        job = self._job_of_store()
        known = [*self._keys, *self._waiting]
        other = {*values} ^ {*known}
        if other:
            raise UsageError(f"reconfigure with other keys than the store has: {sorted(map(str, other))}")
        given = {key: values[key] for key in known}
        while True:
            job.reconfigure()
            try:
                self._begin(Store(job, self._type, *self._rounds))
                self._steps.begin_again(self._store)
                return self._begin_keys(given)
            except EpochEnded:  # another one has died, or one came that does not fit
                continue

    def _begin_keys(self, given: Mapping[Any, Any]) -> None:
        if not given:
            return
        self.init([*given], [*given.values()])
        dense = {key: value for key, value in given.items() if rows_of(value) is None}
        if dense:
            self.pull([*dense], [*dense.values()])

    def _job_of_store(self) -> Job:
        job = self._store.job
        if job is None:
            raise UsageError(f"kvstore type '{self._type}' is of one process, which nobody joins")
        return job
