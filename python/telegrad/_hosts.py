"""Who shares a host, and workers of one that sum first, so that one of them pushes."""
from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Dict, List

from ._log import LOGGER


class Hosts:
    """What the plan of a job that was joined says of them.

    Args:
        servers: of the job; the first so many workers have one each beside them.
        why_off: instead of the plan's.
    """

    def __init__(self, plan: Dict[str, Any], rank: int, servers: int,
                 why_off: str = "") -> None:
        self._why_off = why_off
        self._parts = 1  # of a host, each pushed by a rank
        self.pushers: List[int] = plan["pushers"]  # who pushes for each; none: all do
        made = [each for each in plan["decisions"] if each["what"] == "tier1"]
        self._why = made[0]["why"].replace("--tier1 ", "tier1=") if made else ""
        self.pushes = bool(self.pushers) and self.pushers[rank] == rank  # for its host
        self._num = len(set(self.pushers))
        own = self.pushers[rank] if self.pushers else rank
        self._servers = servers
        self._servers_here = self.pushers[:servers].count(own)

    @classmethod
    def of_parts(cls, num_hosts: int, rank: int, servers: int, parts: int,
                 why: str) -> "Hosts":
        """Of a job of those who push the same of a host's `parts`."""
        found = cls({"pushers": [*range(num_hosts)], "decisions": []}, rank, servers)
        found._parts, found._why = parts, why
        return found

    @property
    def why_off(self) -> str:
        """Why workers do not sum first where several hosts have several; else ""."""
        if self._why_off:
            return f"hosts do not sum first: {self._why_off}"
        is_news = self._why and not self.pushers and not self._why.endswith("not leave")
        return f"hosts do not sum first: {self._why}" if is_news else ""

    def left(self, stats: Dict[str, Any]) -> float:
        """Bytes of frames, of this worker's part, that have left this host, by what it has
        counted: pushes to servers elsewhere, and replies of those here to other hosts."""
        here = self._servers_here / self._servers
        return float(stats["push_wire_bytes"] * (1 - here)
                     + stats["pull_wire_bytes"] * here * (self._num - 1))

    def text(self, stats: Dict[str, Any], steps: int) -> str:
        """That they do, and what of it leaves a host a step; "": they do not."""
        if not self.pushers:
            return ""
        left = self._parts * self.left(stats) / steps / 1e6
        return f"hosts sum first: {self._why}; {left:.3g} MB a step leave this host"

    def say(self) -> None:
        """Of a job without steps of its own."""
        text = f"hosts sum first: {self._why}" if self.pushers else self.why_off
        if text:
            LOGGER.info("%s", text)


def hosts_of(job: Any) -> Hosts:
    """Of a job that was joined."""
    return Hosts(job.plan(), job.rank, job.num_servers)


def say_sums(job: Any) -> None:
    """By which algorithms groups of all workers of a job that was joined sum."""
    for each in job.plan()["decisions"]:
        if each["what"] == "sums":
            LOGGER.info("sums: %s: %s", each["choice"], each["why"])


def host_identity() -> str:
    """Equal where loopback leads from one to the other: host names may be equal, too."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/net"):
        try:
            parts.append(os.readlink(path) if path.endswith("net")
                         else Path(path).read_text().strip())
        except OSError:
            parts.append("")
    return "/".join(parts)
