"""telegrad-launch --merge-timelines: the traces of a run's members as one, on one clock."""
from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .errors import Refused

_NAME = re.compile(r"(.+)-(worker|server)(\d+)\.json")
_MOST_BYTES = 1 << 30  # of a trace
Interval = Tuple[float, float]  # microseconds


class Trace(NamedTuple):
    events: List[Dict[str, Any]]
    # Of each row, "fc1.weight, chunk 0", the spans of a stage, in order.
    spans: Dict[Tuple[str, str], List[Interval]]


def _parse(path: str) -> Trace:
    try:
        with open(path, encoding="utf-8") as file:
            events = json.loads(file.read(_MOST_BYTES))
        if not isinstance(events, list):
            raise ValueError
        rows = {each["tid"]: each["args"]["name"] for each in events
                if each["name"] == "thread_name"}
        spans: Dict[Tuple[str, str], List[Interval]] = {}
        for each in events:
            if each["ph"] == "X":
                begin = float(each["ts"])
                spans.setdefault((str(rows[each["tid"]]), str(each["name"])), []).append(
                    (begin, begin + float(each["dur"])))
    except OSError as why:
        raise Refused(f"{path}: {why.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Refused(f"{path} is no trace of --timeline") from None
    for each in spans.values():
        each.sort()
    return Trace(events, spans)


def _ahead(worker: Trace, server: Trace) -> Optional[Interval]:
    """Between which times a server's clock is ahead of a worker's: the sum of a chunk ends after
    the worker's push has begun, and before its answer is there."""
    low, high = float("-inf"), float("inf")
    for (row, stage), sums in server.spans.items():
        pushes = worker.spans.get((row, "network and server"), []) if stage == "sum" else []
        # Both end with the last step that is noted.
        for (begin, end), (_, summed) in zip(reversed(pushes), reversed(sums)):
            low, high = max(low, summed - end), min(high, summed - begin)
    return (low, high) if low <= high < float("inf") else None


def _choose(bounds: Interval) -> float:
    """0 where the clocks may be the same, else the middle."""
    low, high = bounds
    return 0.0 if low <= 0 <= high else (low + high) / 2


def offsets_of(traces: Dict[str, Trace]) -> Dict[str, float]:
    """By member the microseconds by which its clock is ahead of the first worker's."""
    workers = [name for name in traces if name.startswith("worker")]
    found = {name: 0.0 for name in traces}
    for server in (name for name in traces if name.startswith("server")):
        bounds = _ahead(traces[workers[0]], traces[server]) if workers else None
        found[server] = _choose(bounds) if bounds else 0.0
        for worker in workers[1:]:
            bounds = _ahead(traces[worker], traces[server])
            if bounds and not found[worker]:
                found[worker] = -_choose((bounds[0] - found[server], bounds[1] - found[server]))
    return found


def merge(traces: Dict[str, Trace], offsets: Dict[str, float]) -> List[Dict[str, Any]]:
    """All events, on the clock of the first worker; `offsets`: `offsets_of` these."""
    events = []
    for name, ahead in offsets.items():
        for each in traces[name].events:
            moved = {**each, "ts": each["ts"] - ahead} if ahead and "ts" in each else each
            events.append(moved)
        if ahead:
            events.append({"ph": "M", "name": "process_labels",
                           "pid": traces[name].events[0].get("pid", 0),
                           "args": {"labels": f"clock set back by {ahead:.0f} us"}})
    return events


def merge_folder(folder: str) -> int:
    """Writes RUN-all.json beside the traces of each run, of the members that have left one."""
    runs: Dict[str, List[Tuple[str, int, str]]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.json"))):
        match = _NAME.fullmatch(os.path.basename(path))
        if match:
            runs.setdefault(match[1], []).append((match[2], int(match[3]), path))
    if not runs:
        raise Refused(f"--merge-timelines {folder}: no traces of --timeline are there")
    for run, members in sorted(runs.items()):
        members.sort(key=lambda each: (each[0] == "server", each[1]))
        traces = {f"{role}{rank}": _parse(path) for role, rank, path in members}
        offsets = offsets_of(traces)
        moved = [f"{name} by {ahead / 1000:.3f} ms" for name, ahead in offsets.items() if ahead]
        path = os.path.join(folder, f"{run}-all.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(merge(traces, offsets), file)
        os.replace(path + ".new", path)
        print(f"{path}: {', '.join(traces)}; clocks set back: {', '.join(moved) or 'none'}")
    return 0
