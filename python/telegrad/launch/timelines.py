"""telegrad-launch --merge-timelines: the traces of a run's members as one, on one clock."""
from __future__ import annotations

import glob
import json
import os
import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .errors import Refused

# What a member has written at its end, or the ring of one that had no good end.
_NAME = re.compile(r"(.+)-(worker|server)(\d+)\.(json|last)")
_MOST_BYTES = 1 << 30  # of a trace
Interval = Tuple[float, float]  # microseconds

# kvstore/trace_ring.h: magic, where the ring begins, its spans, spans noted so far;
# of a span what, key, chunk, begin, end.
_HEAD = struct.Struct("<16sQQQ")
_SPAN = struct.Struct("<24sIIqq")
_NONE = 0xffffffff  # no key, no chunk


class Trace(NamedTuple):
    events: List[Dict[str, Any]]
    # Of each row, "fc1.weight, chunk 0", the spans of a stage, in order.
    spans: Dict[Tuple[str, str], List[Interval]]
    is_ring: bool = False  # its last steps, not those that are noted


def _row_of(key: int, chunk: int, names: List[str]) -> str:
    if key == _NONE:
        return "step"
    name = names[key] if key < len(names) else "?"
    return name if chunk == _NONE else f"{name}, chunk {chunk}"


def events_of_ring(data: bytes) -> List[Dict[str, Any]]:
    """Chrome's trace events of a ring, oldest first. ValueError where it is none."""
    magic, begin, most, num = _HEAD.unpack_from(data)
    if magic != b"telegrad trace 1" or not 0 < most <= (len(data) - begin) // _SPAN.size:
        raise ValueError
    head = json.loads(data[_HEAD.size:begin])
    pid, zero_us, names = int(head["pid"]), float(head["zero_us"]), list(head["names"])
    events: List[Dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": pid,
                                     "args": {"name": str(head["process"])}}]
    rows: Dict[str, int] = {}
    for number in range(max(0, num - most), num):
        what, key, chunk, start, end = _SPAN.unpack_from(
            data, begin + number % most * _SPAN.size)
        stage = what.rstrip(b"\0").decode("ascii", "replace")
        if not stage or end < start:
            continue  # the process ended while it wrote
        name = _row_of(key, chunk, names)
        if name not in rows:
            rows[name] = len(rows)
            events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": rows[name],
                           "args": {"name": name}})
        events.append({"ph": "X", "name": stage, "pid": pid, "tid": rows[name],
                       "ts": zero_us + start / 1000, "dur": (end - start) / 1000})
    return events


def _parse(path: str) -> Trace:
    is_ring = path.endswith(".last")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES)
        events = events_of_ring(data) if is_ring else json.loads(data)
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
    except (ValueError, TypeError, KeyError, AttributeError, struct.error):
        raise Refused(f"{path} is no trace of --timeline") from None
    for each in spans.values():
        each.sort()
    return Trace(events, spans, is_ring)


def _bounds(pushes: List[Interval], sums: List[Interval], skips: Tuple[int, int]
            ) -> Optional[Interval]:
    low, high = float("-inf"), float("inf")
    for (begin, end), (_, summed) in zip(reversed(pushes[:max(0, len(pushes) - skips[0])]),
                                         reversed(sums[:max(0, len(sums) - skips[1])])):
        low, high = max(low, summed - end), min(high, summed - begin)
    return (low, high) if low <= high < float("inf") else None


def _ahead(worker: Trace, server: Trace) -> Optional[Interval]:
    """Between which times a server's clock is ahead of a worker's: the sum of a chunk ends after
    the worker's push has begun, and before its answer is there."""
    # Both end with the last step that is noted. Of two that had no good end one may be a step
    # further, chunk by chunk: the clocks are taken to differ least.
    is_cut = worker.is_ring or server.is_ring
    skips = ((0, 0), (0, 1), (1, 0), (0, 2), (2, 0)) if is_cut else ((0, 0),)
    low, high = float("-inf"), float("inf")
    for (row, stage), sums in server.spans.items():
        pushes = worker.spans.get((row, "network and server"), []) if stage == "sum" else []
        found = [_bounds(pushes, sums, each) for each in skips]
        best = min((each for each in found if each), key=lambda each: abs(_choose(each)),
                   default=None)
        if best:
            low, high = max(low, best[0]), min(high, best[1])
        elif pushes:
            return None
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
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*"))):
        match = _NAME.fullmatch(os.path.basename(path))
        if match and not (match[4] == "last" and os.path.exists(path[:-4] + "json")):
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
        rings = [name for name, each in traces.items() if each.is_ring]
        print(f"{path}: {', '.join(traces)}; clocks set back: {', '.join(moved) or 'none'}"
              + (f"; the last steps of {', '.join(rings)}, which had no good end" * bool(rings)))
    return 0
