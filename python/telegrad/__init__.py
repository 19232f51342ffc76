"""Telegrad: gradients with fewer bytes. docs/pytorch.md, docs/mxnet.md, docs/c.md.

`telegrad.torch` compresses what DistributedDataParallel sends, `telegrad.kvstore` is
MXNet's KVStore, `telegrad.Store` and `telegrad.Codec` are what both stand on.
"""
from __future__ import annotations

import json as _json
from typing import Any, Dict

from . import kvstore, optimizer
from ._library import LIBRARY as _LIBRARY
from ._library import text_of as _text_of
from .codec import Codec
from .errors import (AuthenticationError, Cancelled, DeviceFault, Error, Fenced,
                     IntegrityError, JoinTimeout, Mismatch, NumericFault, PeerDied,
                     ResourceLimit, SchedulerLost, ServerLost, Timeout, Unsupported,
                     UsageError, WrongOrder)
from .group import Group
from .job import SCHEDULER, SERVER, WORKER, Job
from .numbers import log_numbers, numbers_of
from .rows import RowSparse
from .store import Store

__version__ = _LIBRARY.telegrad_version().decode()
__all__ = ["AuthenticationError", "Cancelled", "Codec", "DeviceFault", "Error", "Fenced",
           "Group", "IntegrityError", "JoinTimeout", "Job", "Mismatch", "NumericFault",
           "PeerDied", "ResourceLimit", "RowSparse", "SCHEDULER", "SERVER", "SchedulerLost",
           "ServerLost", "Store", "Timeout", "Unsupported", "UsageError", "WORKER",
           "WrongOrder", "doctor", "kvstore", "log_numbers", "numbers_of", "optimizer",
           "set_log_level", "topology"]


def set_log_level(level: int) -> None:
    """Lines on standard error: `level` 0 all, 1 (as it is) warnings and errors, 2 errors
    alone."""
    if not isinstance(level, int):
        raise UsageError(f"level={level!r}: 0, 1 or 2")
    _LIBRARY.telegrad_set_log_level(level)


def topology() -> Dict[str, Any]:
    """What this machine has; docs/topology_json.md."""
    found: Dict[str, Any] = _json.loads(_text_of("topology"))
    return found


def doctor() -> Dict[str, Any]:
    """What is wrong with this machine; docs/doctor.md."""
    found: Dict[str, Any] = _json.loads(_text_of("doctor"))
    return found


set_log_level(1)
