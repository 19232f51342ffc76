"""A line of JSON of each job that ends, for whoever adds up what jobs have used."""
from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict, Optional

from .launch.exposition import samples_of
from .launch.verdict import REASONS

# A field of summary.json in docs/numbers.md, and the metric that has it.
_FIELDS = {"steps": "steps_total", "seconds": "step_seconds_total",
           "comm_wait_s": "wait_seconds_total",
           "push_raw_bytes": "push_raw_bytes_total", "push_wire_bytes": "push_wire_bytes_total",
           "pull_raw_bytes": "pull_raw_bytes_total", "pull_wire_bytes": "pull_wire_bytes_total",
           "to_device_bytes": "to_device_bytes_total",
           "from_device_bytes": "from_device_bytes_total"}


def line_of(page: str, rank: int) -> Dict[str, Any]:
    """The numbers of that worker on a page of metrics."""
    samples = samples_of(page)
    found: Dict[str, Any] = {"event": "result", "rank": rank}
    for labels, _ in samples.get("telegrad_job_info", []):
        found["job_id"] = labels.get("job_id", "")
    for field, name in _FIELDS.items():
        values = [value for labels, value in samples.get("telegrad_" + name, [])
                  if (labels.get("role"), labels.get("rank")) == ("worker", str(rank))]
        if values:
            is_time = field in ("seconds", "comm_wait_s")
            found[field] = round(sum(values), 6) if is_time else int(sum(values))
    for labels, value in samples.get("telegrad_memory_bytes", []):
        if labels.get("kind") == "peak":
            found["worker_peak_bytes"] = int(value)
    return found


def write(job: Any, code: int, error: Optional[BaseException] = None) -> None:
    """Of rank 0, once: appends it to the file that ``TELEGRAD_LOG_JSON`` names ("-": standard
    output). That it cannot is a warning: the job has ended as it has."""
    path = os.environ.get("TELEGRAD_LOG_JSON", "")
    if not path or job._has_account or not job._handle or job.rank != 0:
        return
    job._has_account = True
    line = {**line_of(job.metrics_text(), 0), "workers": job.num_workers,
            "servers": job.num_servers, "ended_at": round(time.time(), 3), "code": code,
            "reason": REASONS.get(code, ""), "message": str(error or "")}
    text = (json.dumps(line) + "\n").encode()
    try:
        if path == "-":
            sys.stdout.flush()
            os.write(1, text)
            return
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, text)  # one call: lines of several jobs do not mix
        finally:
            os.close(file)
    except (OSError, ValueError) as why:
        from ._log import LOGGER
        LOGGER.warning("TELEGRAD_LOG_JSON=%s: %s", path, why)
