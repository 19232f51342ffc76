"""Operations under way, and the handles that scripts have of them."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence
from zlib import crc32

from ...errors import Error, UsageError
from . import world
from .exceptions import HorovodInternalError
from .process_sets import ProcessSet, global_process_set, member_of

Average, Sum, Adasum, Min, Max, Product = range(6)
_NAMES = ("average", "sum", "adasum", "min", "max", "product")


def average_or(op: Optional[int], average: Optional[bool]) -> int:
    """The reduction, by `op` or by what Horovod had before it."""
    if op is not None and average is not None:
        raise UsageError("The op parameter supersedes average. Please provide only one of "
                         "them.")
    if average is not None:
        warnings.warn("Parameter `average` has been replaced with `op` and will be removed "
                      "in v1.0", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    return Average if op is None else op


def of_gradient(name: Optional[str], what: str = "gradient") -> Optional[str]:
    """Of the operation on gradients of the one of that name."""
    return f"{name}.{what}" if name else None


class Wire:
    """A framework's tensor as the library takes it.

    Attributes:
        sent, got: arrays; `got` None: the library keeps the result.
        shape: of what is sent.
    """
    sent: Any
    got: Any = None
    shape: List[int]

    def finish(self) -> Any:
        """The result, which is in `got`."""
        return self.got

    def made(self, rows: List[int], pointer: int, elems: int) -> Any:
        """The result that the library keeps, of `rows` from each rank."""
        raise NotImplementedError


class Pending:
    """What a handle stands for: one operation, or those of a group.

    Args:
        name: whole, of the group.
        ranks: of the process set.
        is_group: results come as a tuple.
    """

    def __init__(self, kind: str, name: str, ranks: List[int], wires: Sequence[Wire],
                 is_group: bool = False) -> None:
        self._kind, self._name, self._ranks = kind, name, ranks
        self._wires, self._is_group = wires, is_group
        self._numbers: List[int] = []

    def submit(self, here: world.World, request: Dict[str, Any]) -> None:
        """Starts them."""
        for i, wire in enumerate(self._wires):
            name = f"{self._name}.{i}" if self._is_group else self._name
            if "codec" in request:  # which rules find by the parameter's name
                name = name.partition(".")[2]
            self._numbers.append(here.operations.submit(
                self._kind, wire.sent, name=name, out=wire.got, shape=wire.shape, **request))

    def is_done(self, here: world.World) -> bool:
        return all(here.operations.poll(number) for number in self._numbers)

    def wait(self, here: world.World) -> Any:
        """The results.

        Raises:
            telegrad.Error: of the first that failed; all have ended.
        """
        results, error = [], None
        for number, wire in zip(self._numbers, self._wires):
            try:
                here.operations.wait(number)
                results.append(self._result(here, number, wire))
            except Error as why:
                error = error or why
            finally:
                here.operations.release(number)
        if error is not None:
            raise error
        return tuple(results) if self._is_group else results[0]

    def _result(self, here: world.World, number: int, wire: Wire) -> Any:
        if wire.got is not None:
            return wire.finish()
        if self._kind == "reducescatter":
            size, place = len(self._ranks), self._ranks.index(here.rank)
            rows = [wire.shape[0] // size + (place < wire.shape[0] % size)]
        else:
            rows = here.operations.rows(number)
        return wire.made(rows, *here.operations.result(number))


def start(kind: str, wires: Sequence[Wire], name: Optional[str],
          process_set: ProcessSet = global_process_set, *, is_group: bool = False, op: int = Sum, **request: Any) -> int:
    """Starts an operation, or a group of them; gives the handle.

    Args:
        request: of `telegrad.Operations.submit`.

    Raises:
        ValueError: arguments that cannot be.
        HorovodInternalError: the job has failed, or `shutdown` was called.
    """
    here = world.running()
    number = member_of(process_set, f"{kind} {name or ''}")
    handle = here.next_handle()
    if op not in range(len(_NAMES)):
        raise UsageError(f"op={op}: one of hvd.Average, Sum, Adasum, Min, Max, Product")
    if not wires:
        raise UsageError(f"{kind} of no tensor")
    if kind in ("allgather", "alltoall", "reducescatter") and not all(
            wire.shape for wire in wires):
        raise UsageError(f"{kind} of a tensor without a dimension: take tensor.reshape(1)")
    shown = name or f"noname.{handle}"
    if is_group:  # the same number in each step, where it has a name
        request.update(group=crc32(shown.encode()) + 1, group_size=len(wires))
    pending = Pending(kind, f"{kind}.{shown}", here.process_sets[number], wires, is_group)
    request.update(op=_NAMES[op], process_set=number)
    _submit(here, lambda: pending.submit(here, request))
    here.pending[handle] = pending
    return handle


def _submit(here: world.World, work: Callable[[], Any]) -> Any:
    """What is refused at once, while the job is sound, is a ValueError."""
    try:
        return world.internal(work)
    except HorovodInternalError as why:
        if here.job.failure() is not None:
            raise
        raise UsageError(str(why)) from why


def poll(handle: int) -> bool:
    """Whether `synchronize` of this handle would not wait."""
    here = world.running()
    pending = here.pending.get(handle)
    return pending is None or bool(world.internal(lambda: pending.is_done(here)))


def synchronize(handle: int) -> Any:
    """Waits for the operation; gives its result, of a group a tuple, of an alltoall with how
    many rows came from each rank. None, with a warning, where that was done before.

    Raises:
        HorovodInternalError: the operation failed.
    """
    here = world.running()
    pending = here.pending.pop(handle, None)
    if pending is None:
        warnings.warn(f"handle {handle} is none, or was synchronized before", RuntimeWarning,
                      stacklevel=2)
        return None
    try:
        return pending.wait(here)
    except Error as why:
        raise HorovodInternalError.of(why) from why


def join(device: int = -1) -> int:
    """This rank has no more data: zeros take its place in others' allreduces until all have
    called it. Gives the rank that did so last.

    Args:
        device: is not needed here.
    """
    return _without_tensor("join", 0)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the set have called it."""
    _without_tensor("barrier", member_of(process_set, "barrier"))


def _without_tensor(kind: str, number: int) -> int:
    """Gives the number that comes of it."""
    here = world.running()
    here.next_handle()
    operation = _submit(here, lambda: here.operations.submit(
        kind, name=f"{kind}.{number}", process_set=number))
    try:
        here.operations.wait(operation)
        return here.operations.number(operation) if kind == "join" else 0
    except Error as why:
        raise HorovodInternalError.of(why) from why
    finally:
        here.operations.release(operation)
