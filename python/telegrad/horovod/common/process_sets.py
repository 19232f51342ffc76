"""Some of the ranks, that run operations together."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from . import world
from ...errors import UsageError


class ProcessSet:
    """Ranks, in ascending order; given to `init` or `add_process_set` it has a number, and
    operations take it as ``process_set=``.

    Args:
        ranks: integers; a communicator of mpi4py is refused.
    """
    process_set_id: Optional[int] = None
    ranks: Any = None
    mpi_comm = None

    def __init__(self, ranks: Sequence[int]) -> None:
        try:
            listed = sorted(ranks)
        except TypeError:
            raise UsageError("a ProcessSet is made of a list of ranks; there is no MPI "
                             "here, whose communicators could be given") from None
        if any(not isinstance(rank, int) for rank in listed):
            raise UsageError(f"a ProcessSet of {listed}: a list of ranks is wanted")
        self.ranks = listed

    def _invalidate(self) -> None:
        self.process_set_id = None

    def size(self) -> Any:
        """Number of ranks; None: it is not registered."""
        return None if self.process_set_id is None else len(self._known())

    def rank(self) -> Any:
        """This process's within the set; None: the set is not registered.

        Raises:
            ValueError: this process is not in it.
        """
        if self.process_set_id is None:
            return None
        if world.rank() not in self._known():
            raise UsageError("Process is not part of provided process set.")
        return self._known().index(world.rank())

    def included(self) -> Optional[bool]:
        """Whether this process is in it."""
        return None if self.ranks is None else world.rank() in self.ranks

    def _known(self) -> List[int]:
        known = world.current().process_sets.get(self.process_set_id)
        if known is None:
            raise UsageError("Process set does not exist or has not been registered.")
        return known

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def member_of(process_set: ProcessSet, what: str) -> int:
    """The set's number, for an operation of this process.

    Raises:
        ValueError: it has none, or this process is not in it, by set and rank.
    """
    if process_set.process_set_id is None:
        raise UsageError(f"{what}: {process_set} is not registered: give it to hvd.init or "
                         "hvd.add_process_set on all ranks first")
    if process_set.process_set_id != 0 and not process_set.included():
        raise UsageError(f"{what}: rank {world.rank()} is not in {process_set}")
    return process_set.process_set_id


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Registers it, and gives it; all ranks call it, in it or not.

    Raises:
        ValueError: there is one of the same ranks, or a rank that there is not.
    """
    here = world.current()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    ranks = process_set.ranks or []
    if ranks in here.process_sets.values():
        raise UsageError(f"Attempted to add a duplicate process set: {process_set}")
    wrong = [rank for rank in ranks if not 0 <= rank < here.size]
    if wrong or len(set(ranks)) < len(ranks):
        raise UsageError(f"{process_set}: ranks are 0 to {here.size - 1}, each once")
    process_set.process_set_id = here.add(ranks)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Whether it was registered; all ranks call it. The set of all stays."""
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    process_set._invalidate()
    return world.current().remove(number)


def set_up(given: Any) -> None:
    """Of `init`: fills the set of all, and registers those that are given."""
    global_process_set.ranks = list(range(world.size()))
    for i, each in enumerate(given or ()):
        if not isinstance(each, ProcessSet):
            raise UsageError(f"process_sets entry number {i} is no ProcessSet: {each!r}")
        add_process_set(each)
