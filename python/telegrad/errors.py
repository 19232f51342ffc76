"""What goes wrong, as exceptions: each has the exit code of docs/user_guide.md."""
from __future__ import annotations

from typing import Dict, Tuple, Type


class _Base(RuntimeError):
    """In whose place telegrad.mxnet puts MXNetError."""


class Error(_Base):
    """Base of all errors of Telegrad.

    Attributes:
        exit_code: as a program ends with it; Python does, too, when nobody
            catches the error.
        code: ``telegrad_code`` of the C interface.
        dead: who died, ``("worker/2@host:pid",)``; empty where nobody did.
    """

    exit_code = 70

    @property
    def retryable(self) -> bool:
        """Whether the same may succeed with the members that are left, or later."""
        return 20 <= self.exit_code <= 25 or self.exit_code in (41, 43)

    def __init__(self, message: str, exit_code: "int | None" = None,
                 code: int = 11, dead: Tuple[str, ...] = ()) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code
        self.code = code
        self.dead = tuple(dead)


class UsageError(Error, ValueError):
    """An argument that cannot work; the message names it."""
    exit_code = 2


class PeerDied(Error):
    """A worker is gone; ``dead`` names it."""
    exit_code = 20


class EpochEnded(PeerDied):
    """Others died, and ``dead`` names them, or others wait to come in: the job, one with
    `elastic`, goes on. `Job.reconfigure` takes this worker along."""


class Timeout(Error, TimeoutError):
    """An operation did not end in time; the message says what is missing."""
    exit_code = 21


class Fenced(Error):
    """The job went on without this process, which counts as dead."""
    exit_code = 22


class ServerLost(Error):
    """A server is gone; ``dead`` names it."""
    exit_code = 23


class SchedulerLost(Error):
    """The scheduler is gone, or was never there."""
    exit_code = 24


class JoinTimeout(Error, TimeoutError):
    """Not all members came in time; the message names who is missing."""
    exit_code = 25


class AuthenticationError(Error):
    """Another secret, or none, on one of two sides."""
    exit_code = 30


class Mismatch(Error):
    """Workers differ in a setting; the message has both values."""
    exit_code = 31


class ResourceLimit(Error):
    """Memory, descriptors or another limit."""
    exit_code = 32


class Cancelled(Error):
    """Somebody ended the job or the operation; nothing failed."""
    exit_code = 33


class NumericFault(Error, ArithmeticError):
    """A gradient holds NaN or infinities."""
    exit_code = 42


class IntegrityError(Error):
    """Bytes from a peer fail a check."""
    exit_code = 43


class DeviceFault(Error):
    """A GPU or its driver failed."""
    exit_code = 44


class Unsupported(Error, NotImplementedError):
    """Telegrad lacks it, by name; the message says what to do instead."""
    exit_code = 2


class WrongOrder(Error):
    """A call that comes too early, too late, or in a forked child."""
    exit_code = 70


_BY_EXIT_CODE: Dict[int, Type[Error]] = {
    kind.exit_code: kind
    for kind in (UsageError, PeerDied, Timeout, Fenced, ServerLost, SchedulerLost,
                 JoinTimeout, AuthenticationError, Mismatch, ResourceLimit,
                 Cancelled, NumericFault, IntegrityError, DeviceFault)
}
_EPOCH_ENDED = 13  # TELEGRAD_EPOCH_ENDED
# Of telegrad_code, where the exit code says no more than "internal".
_BY_CODE: Dict[int, Type[Error]] = {2: UsageError, 3: WrongOrder, 4: Unsupported,
                                    7: Cancelled}


def make_error(code: int, exit_code: int, message: str,
               dead: Tuple[str, ...] = ()) -> Error:
    """The exception for a status of the C interface."""
    if code == _EPOCH_ENDED:
        return EpochEnded(message, exit_code=exit_code, code=code, dead=dead)
    kind = _BY_EXIT_CODE.get(exit_code) or _BY_CODE.get(code) or Error
    if kind in _BY_CODE.values():
        exit_code = kind.exit_code
    return kind(message, exit_code=exit_code, code=code, dead=dead)
