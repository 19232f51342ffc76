"""The exit code of a job out of those of its processes; docs/user_guide.md has the codes."""
from __future__ import annotations

import signal
from typing import List, NamedTuple, Optional

REASONS = {2: "usage", 20: "peer_died", 21: "operation_timeout", 22: "fenced",
           23: "server_lost", 24: "scheduler_lost", 25: "join_timeout",
           30: "authentication", 31: "mismatch", 32: "resource_limit", 33: "cancelled",
           40: "no_checkpoint", 41: "checkpoint_failed", 42: "numeric_fault",
           43: "integrity", 44: "device_fault", 70: "internal"}
FENCED, JOIN_TIMEOUT, MISMATCH, CANCELLED, DEVICE_FAULT = 22, 25, 31, 33, 44
# Another start may help; after a device's fault only on another host.
RETRYABLE = frozenset([*range(20, 26), 41, 43])
# No other start helps. 33 is not among them: of a Pod that Kubernetes moves the others tell it.
FINAL = frozenset([2, 30, 31, 32, 40, 42, 70])


class Ended(NamedTuple):
    title: str  # "worker 3@n2"
    code: int  # below 0: by that signal


def exit_code(code: int) -> int:
    """As a shell has it."""
    return code if code >= 0 else 128 - code


def name_of(code: int) -> str:
    """"20 (peer_died)", "137 (SIGKILL)"."""
    name = REASONS.get(code)
    if name is None and code > 128:
        try:
            name = signal.Signals(code - 128).name
        except ValueError:
            pass
    return f"{code} ({name})" if name else str(code)


def how(ended: Ended) -> str:
    if ended.code < 0:
        return f"{ended.title} was killed by {name_of(exit_code(ended.code))}"
    return f"{ended.title} ended with {name_of(ended.code)}"


def _class(code: int) -> int:
    """Who knows most of what happened comes first: one that tells why by its code, then
    programs that have codes of their own, then those that were ended."""
    if code in REASONS and code != CANCELLED:
        return 0
    if 0 < code < 128 and code != CANCELLED:
        return 1
    return 2 if code == CANCELLED else 3


def verdict(ended: List[Ended]) -> int:
    """`ended`: in order of time."""
    failed = [exit_code(each.code) for each in ended if each.code != 0]
    return min(failed, key=_class) if failed else 0


def culprit(ended: List[Ended]) -> Optional[Ended]:
    """Whose end was the first that was no success."""
    return next((each for each in ended if each.code != 0), None)
