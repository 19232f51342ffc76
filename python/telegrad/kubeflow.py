"""Tells Kubeflow Trainer how far a job is, where it wants to know: docs/pytorch.md::

    telegrad.kubeflow.report(step, steps, loss=loss)

Trainer's controller says so by $KUBEFLOW_TRAINER_STATUS_URL, _TOKEN and _CA_CERT (its
feature gate TrainJobStatus).
"""
from __future__ import annotations

import datetime
import json
import os
import threading
import time
from typing import Any, Dict, Optional, Tuple

from ._log import LOGGER

__all__ = ["report"]

_PREFIX = "KUBEFLOW_TRAINER_STATUS_"
_PAUSE_S = 5.0  # between two reports
_TIMEOUT_S = 5.0


def _text(value: Any) -> str:
    return str(value.item() if hasattr(value, "item") else value)  # of a tensor, too


class _Reporter:
    """One request at a time, by a thread: no step waits for it but the last."""

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self._due = 0.0
        self._first: Optional[Tuple[float, int]] = None  # time and step of the first report
        self._is_told = False

    def report(self, step: int, steps: Optional[int], metrics: Dict[str, Any]) -> None:
        now = time.monotonic()
        if self._first is None or step < self._first[1]:
            self._first = now, step
        is_last = steps is not None and step >= steps
        if not is_last and (now < self._due or self._thread and self._thread.is_alive()):
            return
        self._due = now + _PAUSE_S
        status: Dict[str, Any] = {
            "lastUpdatedTime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "metrics": [{"name": name, "value": _text(value)} for name, value in metrics.items()]}
        if steps:
            status["progressPercentage"] = min(100, 100 * step // steps)
            done = step - self._first[1]
            if is_last or done > 0:
                left = 0 if is_last else (now - self._first[0]) / done * (steps - step)
                status["estimatedRemainingSeconds"] = int(left)
        body = json.dumps({"trainerStatus": status}).encode()
        if self._thread is not None and is_last:
            self._thread.join(_TIMEOUT_S)
        self._thread = threading.Thread(target=self._post, daemon=True, args=(
            body, *(os.environ.get(f"{_PREFIX}{name}", "") for name in ("URL", "TOKEN", "CA_CERT"))))
        self._thread.start()
        if is_last:  # else it may end with the process
            self._thread.join(_TIMEOUT_S)

    def _post(self, body: bytes, url: str, token_file: str, authority: str) -> None:
        try:
            import ssl
            import urllib.request
            if not url.startswith("https://"):
                raise ValueError(f"{url}: https is wanted, which hides the token")
            with open(token_file, encoding="ascii") as file:
                token = file.read().strip()  # anew: Kubernetes replaces it each hour
            trust = ssl.create_default_context(cafile=authority or None)
            request = urllib.request.Request(url, body, {
                "Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trust):
                pass
        except Exception as why:  # whatever it is, the job goes on
            if not self._is_told:
                self._is_told = True
                LOGGER.warning("Kubeflow Trainer does not hear how far the job is: %s", why)


_REPORTER = _Reporter()


def is_wanted() -> bool:
    """Whether this rank's reports go anywhere."""
    return bool(os.environ.get(f"{_PREFIX}URL")) and os.environ.get("RANK", "0") == "0"


def report(step: int, steps: Optional[float] = None, **metrics: Any) -> None:
    """Rank 0 tells it, at most each 5 s and at the end, beside the training; elsewhere, on
    other ranks and when it fails, nothing happens but one warning.

    Args:
        step: that were made.
        steps: of the whole job; without it there is neither a percentage nor a time left.
        metrics: numbers by name, such as ``loss``; a tensor is read when it is told.
    """
    if is_wanted():
        try:
            end = int(steps) if steps and 0 < steps < float("inf") else None
            _REPORTER.report(int(step), end, {"step": int(step), **metrics})
        except Exception as why:
            LOGGER.warning("telegrad.kubeflow.report: %s", why)
