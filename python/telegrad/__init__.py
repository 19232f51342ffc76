"""Telegrad: gradients with fewer bytes. docs/pytorch.md, docs/mxnet.md, docs/c.md.

`telegrad.torch` compresses what DistributedDataParallel sends, `telegrad.kvstore` is
MXNet's KVStore, `telegrad.Store` and `telegrad.Codec` are what both stand on.
"""
from __future__ import annotations

import json as _json
from typing import Any, Dict, List, Optional, Union

from . import kvstore, optimizer
from ._library import LIBRARY as _LIBRARY
from ._library import text_of as _text_of
from ._log import set_level as _set_level
from .codec import Codec
from .errors import (AuthenticationError, Cancelled, DeviceFault, EpochEnded, Error,
                     Fenced, IntegrityError, JoinTimeout, Mismatch, NumericFault,
                     PeerDied, ResourceLimit, SchedulerLost, ServerLost, Timeout,
                     Unsupported, UsageError, WrongOrder)
from .group import Group
from .job import SCHEDULER, SERVER, WORKER, Job, open_jobs as _open_jobs
from ._metrics import export_to_opentelemetry, metrics
from .numbers import log_numbers, numbers_of
from .operations import Operations
from .rows import RowSparse
from .store import Store

__version__ = _LIBRARY.telegrad_version().decode()
__all__ = ["AuthenticationError", "Cancelled", "Codec", "DeviceFault", "EpochEnded", "Error",
           "Fenced", "Group", "IntegrityError", "JoinTimeout", "Job", "Mismatch", "NumericFault",
           "Operations", "PeerDied", "ResourceLimit", "RowSparse", "SCHEDULER", "SERVER",
           "SchedulerLost", "ServerLost", "Store", "Timeout", "Unsupported", "UsageError", "WORKER",
           "WrongOrder", "about", "codecs", "doctor", "dump_flight_record",
           "export_to_opentelemetry", "kvstore", "log_numbers", "metrics", "numbers_of",
           "optimizer", "set_log_level", "topology"]


def set_log_level(level: Union[str, int]) -> None:
    """What is said from `level` on, by Python's logger "telegrad" and by the library on
    standard error: "debug" (0) all, "info" (1) what was decided and saved, and warnings: as
    it is unless $TELEGRAD_LOG_LEVEL says otherwise; "warning"; "error" (2); "off"."""
    _set_level(level)


def codecs() -> List[Dict[str, Any]]:
    """All codecs: ``name``, ``summary``, ``bits`` (of an element, at most, with the options'
    defaults), ``has_threshold``, ``has_residual``, and ``options`` with ``name``,
    ``default``, ``low``, ``high`` and ``help``; docs/codecs.md."""
    found: List[Dict[str, Any]] = about()["codecs"]
    return found


def dump_flight_record(folder: Optional[str] = None) -> List[str]:
    """`Job.dump_flight_record` of all open jobs of this process, those of hooks and stores
    among them: who waits for whom, at any time, from any thread. Into `folder`; None: that of
    `flight_recorder` of each job. Gives the files."""
    return [file for job in _open_jobs() for file in job.dump_flight_record(folder)]


def about() -> Dict[str, Any]:
    """``version``, ``transports`` (which can be opened here, else why not), ``cuda`` (a GPU,
    or why there is none) and ``codecs``. ``python -m telegrad`` prints it."""
    found: Dict[str, Any] = _json.loads(_text_of("about"))
    return found


def topology() -> Dict[str, Any]:
    """What this machine has; docs/topology_json.md."""
    found: Dict[str, Any] = _json.loads(_text_of("topology"))
    return found


def doctor() -> Dict[str, Any]:
    """What is wrong with this machine; docs/doctor.md."""
    found: Dict[str, Any] = _json.loads(_text_of("doctor"))
    return found

