"""telegrad-launch --status: a table of a running job, of what its processes count."""
from __future__ import annotations

import glob
import os
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .errors import Refused
from .exposition import Sample, samples_of

FIRST_PORT = 9108
_PORTS = 128
_TIMEOUT_S = 2
_MOST_BYTES = 1 << 20  # of a page
_PAUSE_S = 2
Page = Dict[str, List[Sample]]
Member = Tuple[str, str, int]  # host, role, rank
_ORDER = ("worker", "server", "scheduler")
_HEADINGS = ("host", "member", "step", "steps/s", "push", "pull", "raw/wire", "waits",
             "memory", "note")


def _fetch(address: str) -> Optional[Page]:
    # Proxies are for other hosts than a job's.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}/metrics", timeout=_TIMEOUT_S) as answer:
            page = samples_of(answer.read(_MOST_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    except Exception as why:  # whoever listens there may say anything
        if type(why).__module__ != "http.client":
            raise
        return None
    return page if "telegrad_memory_bytes" in page else None


def _read(path: str) -> Optional[Page]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return samples_of(file.read(_MOST_BYTES))
    except OSError:
        return None


class Places:
    """Where pages are: hosts, "host:port", files and folders of --metrics-file."""

    def __init__(self, given: List[str]) -> None:
        self._files = [each for each in given if "/" in each or os.path.exists(each)]
        self._hosts = []
        for each in given or ["127.0.0.1"]:
            if each in self._files:
                continue
            host, _, port = (each if ":" in each else f"{each}:{FIRST_PORT}").rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise Refused(f"--status {each}: a host, HOST:PORT, a file or a folder is wanted")
            self._hosts.append((host, int(port)))
        self._found: List[str] = []
        self._searched_at = float("-inf")

    def _addresses(self) -> List[str]:
        return [f"{host}:{port}" for host, first in self._hosts
                for port in range(first, min(first + _PORTS, 65536))]

    def pages(self) -> List[Page]:
        """Of all that can be reached; who has come since is looked for again and again."""
        paths = []
        for each in self._files:
            paths += sorted(glob.glob(os.path.join(each, "*.prom"))) if os.path.isdir(each) else [each]
        found = [page for page in map(_read, paths) if page]
        searches = time.monotonic() - self._searched_at > 10
        addresses = self._addresses() if searches else self._found
        with ThreadPoolExecutor(32) as pool:
            answers = list(zip(addresses, pool.map(_fetch, addresses)))
        self._found = [address for address, page in answers if page]
        if searches:
            self._searched_at = time.monotonic()
        return found + [page for _, page in answers if page]


class Seen(NamedTuple):
    """A member's numbers at a time, summed over labels of one name."""
    at: float
    values: Dict[str, float]
    page: Page


def members_of(pages: List[Page], at: float) -> Dict[Member, Seen]:
    found: Dict[Member, Seen] = {}
    for page in pages:
        memory = [each.value for each in page.get("telegrad_memory_bytes", [])
                  if each.labels.get("kind") == "now"]
        for name, samples in page.items():
            for labels, value in samples:
                if "role" not in labels or not labels.get("rank", "").isdigit():
                    continue
                who = (labels.get("node", "?"), labels["role"], int(labels["rank"]))
                seen = found.setdefault(who, Seen(at, {"memory": sum(memory)}, page))
                seen.values[name] = seen.values.get(name, 0) + value
    return found


def _number(value: float) -> str:
    """Of three digits or more, without an exponent."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _amount(value: float, unit: str) -> str:
    for prefix in ("", "K", "M", "G"):
        if value < 999.5:
            break
        value /= 1000
    else:
        prefix = "T"
    return f"{_number(value)} {prefix}{unit}"


def slow_ones(now: Dict[Member, Seen], before: Dict[Member, Seen]) -> Dict[str, str]:
    """"worker/1" -> why the others wait for it: a warning since, else what servers saw."""
    found: Dict[str, str] = {}
    waits: Dict[str, float] = {}
    for who, seen in now.items():
        earlier = before[who].page if who in before else {}

        def grown(name: str) -> Iterator[Tuple[Dict[str, str], float]]:
            old = {tuple(sorted(each.labels.items())): each.value
                   for each in earlier.get(name, [])}
            for labels, value in seen.page.get(name, []):
                if (labels.get("role"), labels.get("rank")) == (who[1], str(who[2])):
                    yield labels, value - old.get(tuple(sorted(labels.items())), 0)

        for labels, value in grown("telegrad_waited_for_seconds_total"):
            name = "worker/" + labels["worker"]
            waits[name] = waits.get(name, 0) + value
        for labels, _ in grown("telegrad_stragglers_total"):
            found[labels["who"]] = "slow: " + labels["cause"]
    total = sum(waits.values())
    for name, value in waits.items():
        if total > 0 and value > 0.6 * total and len(waits) > 1:
            found.setdefault(name, f"last in {100 * value / total:.0f} % of waits")
    return found


def rows_of(now: Dict[Member, Seen], before: Dict[Member, Seen]) -> List[List[str]]:
    slow = slow_ones(now, before)
    rows = []
    for who in sorted(now, key=lambda each: (_ORDER.index(each[1]) if each[1] in _ORDER else 9,
                                             each[2], each[0])):
        seen, old = now[who], before.get(who)

        def total(name: str) -> float:
            return seen.values.get(f"telegrad_{name}_total", 0)

        def rate(name: str) -> Optional[float]:
            name = f"telegrad_{name}_total"
            if old is None or name not in seen.values or seen.at <= old.at:
                return None
            return (seen.values[name] - old.values.get(name, 0)) / (seen.at - old.at)

        def shown(value: Optional[float], text: str) -> str:
            return "-" if value is None else text

        steps, wire = rate("steps"), total("push_wire_bytes") + total("pull_wire_bytes")
        raw = total("push_raw_bytes") + total("pull_raw_bytes")
        waiting, stepping = rate("wait_seconds"), rate("step_seconds")
        row = [who[0], f"{who[1]}/{who[2]}",
               f"{total('steps'):.0f}" if "telegrad_steps_total" in seen.values else "-",
               shown(steps, _number(steps or 0))]
        for side in ("push", "pull"):
            bytes_per_s = rate(f"{side}_wire_bytes")
            row.append(shown(bytes_per_s, _amount(bytes_per_s or 0, "B/s")))
        row.append(f"{raw / wire:.1f}" if wire > 0 else "-")
        row.append(f"{100 * (waiting or 0) / stepping:.0f} %" if stepping else "-")
        rows.append([*row, _amount(seen.values["memory"], "B"), slow.get(row[1], "")])
    return rows


def table(rows: List[List[str]]) -> str:
    columns = list(zip(_HEADINGS, *rows))
    widths = [max(map(len, column)) for column in columns]
    return "\n".join(
        "  ".join(text.ljust(width) if index in (0, 1, len(widths) - 1) else text.rjust(width)
                  for index, (text, width) in enumerate(zip(line, widths))).rstrip()
        for line in zip(*columns))


def show(places: List[str], out: Any = None) -> int:
    """On a terminal again and again, until Ctrl-C; else once."""
    out = out or sys.stdout
    found = Places(places)
    before: Dict[Member, Seen] = {}
    rounds = 0
    while True:
        now = members_of(found.pages(), time.monotonic())
        if not now and rounds == 0:
            raise Refused("no process of a job answers there: its programs need --metrics-port "
                          f"{FIRST_PORT}, Python's $TELEGRAD_METRICS_PORT")
        rounds += 1
        if out.isatty() and (rounds > 1):
            print("\033[H\033[2J" + table(rows_of(now, before)), file=out, flush=True)
        elif rounds > 1:
            print(table(rows_of(now, before)), file=out)
            return 0
        before = now
        try:
            time.sleep(_PAUSE_S if out.isatty() and rounds > 1 else 1)
        except KeyboardInterrupt:
            return 0
