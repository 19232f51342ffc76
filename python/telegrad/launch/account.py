"""--account: a line of JSON of each job, for whoever adds up what jobs have used."""
from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List

from . import verdict
from .errors import Refused
from .supervise import Outcome

_MOST_RESULTS = 1000


class Account:
    """`path` is appended to.

    Raises:
        Refused: it cannot be, before anything starts.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._started, self._begin = time.time(), time.monotonic()
        self._results: List[Dict[str, Any]] = []
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as why:
            raise Refused(f"--account {path}: {why.strerror}") from None

    def hear(self, text: str) -> None:
        """What a worker has printed: lines of --log-json and of Python's TELEGRAD_LOG_JSON."""
        for line in text.split("\n"):
            if not line.startswith('{"event"') or len(self._results) >= _MOST_RESULTS:
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if found.get("event") == "result":
                self._results.append({name: value for name, value in found.items()
                                      if name != "event" and not isinstance(value, (dict, list))})

    def write(self, options: Any, hosts: List[str], servers: int, starts: int,
              outcome: Outcome) -> None:
        code = verdict.exit_code(outcome.code)
        line = {"event": "job", "started_at": round(self._started, 3),
                "seconds": round(time.monotonic() - self._begin, 3),
                "cluster": options.cluster, "hosts": hosts, "workers": options.workers,
                "servers": servers, "program": options.program, "starts": starts, "code": code,
                "reason": verdict.REASONS.get(code, ""), "message": outcome.text,
                "results": self._results}
        try:
            os.write(self._file, (json.dumps(line) + "\n").encode())
        except OSError as why:
            raise Refused(f"--account {self._path}: {why.strerror}", outcome.code or 1) from None
