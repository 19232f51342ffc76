"""How jobs go on without those who died, or with others who come."""
from __future__ import annotations

import json
from typing import Any, Tuple

from ._library import LIBRARY, bytes_of, call, interruptible
from .errors import EpochEnded, UsageError


def limits_of(elastic: Any) -> Tuple[int, int]:
    """As C takes them: 0 and 0 without any.

    Raises:
        telegrad.UsageError: something else than None, MIN or (MIN, MAX).
    """
    if elastic is None:
        return 0, 0
    found = tuple(elastic) if isinstance(elastic, (tuple, list)) else (elastic, 0)
    if len(found) != 2 or any(isinstance(each, bool) or not isinstance(each, int)
                              or not 0 <= each < 1 << 31 for each in found) or found[0] < 1:
        raise UsageError(f"elastic={elastic!r}: MIN or (MIN, MAX) is wanted, numbers of workers "
                         "from 1 on, such as (2, 4)")
    return found[0], found[1]


class GoesOn:
    """What a `Job` with `elastic` does when others die, or come."""

    handle: Any
    _is_elastic: bool
    interrupt: Any
    failure: Any
    _close_parts: Any
    _interruptible: Any
    _say_wait: Any

    @property
    def is_elastic(self) -> bool:
        """Whether it was made so."""
        return self._is_elastic

    @property
    def epoch(self) -> int:
        """From 1 on: what begins when others die or come; -1 before `join`. Of one that comes
        into a running job it is above 1 after `join`."""
        return int(LIBRARY.telegrad_job_epoch(self.handle))

    @property
    def elder(self) -> int:
        """The first rank of those that are in the job longest, who have what was trained; 0
        without `elastic`, -1 before `join`."""
        return int(LIBRARY.telegrad_job_elder(self.handle))

    def let_in(self) -> None:
        """All workers call it, when none has an operation under way, as at the begin of a step:
        returns when all have, where nobody waits to come into the job.

        Raises:
            telegrad.EpochEnded: somebody did, and does by `reconfigure` of all.
            telegrad.WrongOrder: a job without `elastic`.
        """
        self._interruptible(lambda: call("job_let_in", self.handle))

    def reconfigure(self) -> None:
        """After `telegrad.EpochEnded`: closes groups, operations and the store, and returns when
        all that are left, and who came, have called it; who has not within `join_timeout` counts
        as dead. `rank`, `num_workers` and `num_servers` are others then. Make the store and the
        groups anew: values of `init` are the `elder`'s.

        Raises:
            telegrad.Error: why the job has ended meanwhile.
            telegrad.WrongOrder: a job without `elastic`, or whose epoch has not ended.
        """
        why = self.failure()
        if isinstance(why, EpochEnded):
            self._close_parts()
        elif why is not None:
            raise why
        interruptible(lambda: call("job_reconfigure", self.handle), self.interrupt,
                      self._say_wait)

    def share(self, value: Any = None) -> Any:
        """The elder's `value`, of what JSON takes, at most 1 MiB; all workers call it. A number
        of steps, for those that have come or did one more.

        Raises:
            telegrad.UsageError: a value that is too large, or none of JSON's.
        """
        try:
            text = json.dumps(value).encode()
        except (TypeError, ValueError) as why:
            raise UsageError(f"share: {why}") from None
        found = interruptible(lambda: bytes_of("job_share", self.handle, text, len(text)),
                              self.interrupt)
        return json.loads(found)
