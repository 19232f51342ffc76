"""The job of a KVStore that was given none."""
from __future__ import annotations

import os
import sys
from typing import Any, Dict

from .errors import Error, UsageError
from .job import Job


def job_of(options: Dict[str, Any]) -> Job:
    """Of torch.distributed's process group where there is one, else of the launcher's
    variables.

    Args:
        options: of `telegrad.Job`.
    """
    limit = os.environ.get("TELEGRAD_JOIN_TIMEOUT")
    if limit is not None and "join_timeout" not in options:
        options["join_timeout"] = _seconds(limit)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and (
            distributed.is_initialized()):
        from .torch._meeting import job_of_group
        return job_of_group(**options)
    return Job(from_launcher=True, **options)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"TELEGRAD_JOIN_TIMEOUT={text!r}: seconds are wanted, such as 300")
    return seconds


def end_failed(job: Job, why: Error) -> None:
    """Tells the others, and leaves."""
    job.fail(str(why), why.exit_code)
    try:
        job.close(3)
    except Error:
        pass  # it has failed, which was said
