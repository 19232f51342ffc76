"""DDP sends buffers (BatchNorm's) and the order of buckets by torch's own process group:
who waits there for a rank that is gone hears from the job why."""
from __future__ import annotations

import functools
import time
from typing import Any, Callable, Optional

import torch
import torch.distributed
from torch.nn.parallel import distributed

from ..errors import Error
from ..job import Job

_WHAT = "a step of the model"
_PATIENCE_S = 3.0  # for the job's verdict, and for what a rank sent before it left


class ForwardWatch:
    """Of one model's job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._since: Optional[float] = None  # in what needs all ranks

    def run(self, model: Any, work: Callable[[], Any]) -> Any:
        """What DDP does by `work` in its forward.

        Raises:
            telegrad.PeerDied, and what else ended the job, instead of torch's error.
        """
        if not self._job._handle:
            return work()
        if model.training and torch.is_grad_enabled() and model.will_sync_module_buffers():
            self._job.need_all(_WHAT)
            self._since = time.monotonic()
        try:
            return work()
        except RuntimeError as why:
            if _is_of_torch(why):
                self._job.need_all(_WHAT, _PATIENCE_S)
            raise
        finally:
            self._since = None

    def cause(self, why: BaseException) -> BaseException:
        """Of what was heard from elsewhere than this job: the job's own error, where it has
        one soon; else all hear of `why`."""
        if isinstance(why, RuntimeError) and getattr(why, "retryable", True):
            try:
                self._job.need_all(_WHAT, _PATIENCE_S)
            except Error as found:
                return found
        if isinstance(why, Error):
            self._job.fail(str(why), why.exit_code)
        return why

    def check(self) -> None:
        """By another thread, now and then: nobody answers who has left."""
        since = self._since
        if since is not None and time.monotonic() - since > _PATIENCE_S:
            try:
                self._job.need_all(_WHAT)
            except Error:
                pass  # all are told, whose processes then end, and torch's calls with them


def _is_of_torch(why: BaseException) -> bool:
    """Raised by DDP itself, not by the module within."""
    trace = why.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename in (
        distributed.__file__, torch.distributed.__file__)


def watch_forward(watch_of: Callable[[Any], Optional[ForwardWatch]]) -> None:
    """From now on of all models for which there is a watch."""
    kind = distributed.DistributedDataParallel
    name = "_pre_forward" if hasattr(kind, "_pre_forward") else "forward"
    before = getattr(kind, name)
    if hasattr(before, "telegrad_watches"):
        return

    @functools.wraps(before)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch = watch_of(self)
        if watch is None:
            return before(self, *args, **kwargs)
        return watch.run(self, lambda: before(self, *args, **kwargs))

    if name == "_pre_forward" and hasattr(torch, "_disable_dynamo"):
        watched = torch._disable_dynamo(watched)  # which has nothing to compile there
    setattr(watched, "telegrad_watches", True)
    setattr(kind, name, watched)
