"""Workers of a host that sum first, so that one of them pushes (tier one)."""
from __future__ import annotations

from typing import Any, Dict, List

from ._log import LOGGER


class Hosts:
    """What the plan of a job that was joined says of them.

    Args:
        servers: of the job; the first so many workers have one each beside them.
    """

    def __init__(self, plan: Dict[str, Any], rank: int, servers: int) -> None:
        self.pushers: List[int] = plan["pushers"]  # who pushes for each; none: all do
        made = [each for each in plan["decisions"] if each["what"] == "tier1"]
        self._why = made[0]["why"].replace("--tier1 ", "tier1=") if made else ""
        self.pushes = bool(self.pushers) and self.pushers[rank] == rank  # for its host
        self._num = len(set(self.pushers))
        own = self.pushers[rank] if self.pushers else rank
        self._servers = servers
        self._servers_here = self.pushers[:servers].count(own)

    @property
    def why_off(self) -> str:
        """Why workers do not sum first where several hosts have several; else ""."""
        is_news = self._why and not self.pushers and not self._why.endswith("not leave")
        return f"hosts do not sum first: {self._why}" if is_news else ""

    def left(self, stats: Dict[str, Any]) -> float:
        """Bytes of frames that have left this host, by what its worker that pushes has
        counted: pushes to servers elsewhere, and replies of those here to other hosts."""
        here = self._servers_here / self._servers
        return float(stats["push_wire_bytes"] * (1 - here)
                     + stats["pull_wire_bytes"] * here * (self._num - 1))

    def text(self, stats: Dict[str, Any], steps: int) -> str:
        """That they do, and what of it leaves a host a step; "": they do not."""
        if not self.pushers:
            return ""
        return (f"hosts sum first: {self._why}; {self.left(stats) / steps / 1e6:.3g} MB a step "
                "leave this host")

    def say(self) -> None:
        """Of a job without steps of its own."""
        text = f"hosts sum first: {self._why}" if self.pushers else self.why_off
        if text:
            LOGGER.info("%s", text)


def hosts_of(job: Any) -> Hosts:
    """Of a job that was joined."""
    return Hosts(job.plan(), job.rank, job.num_servers)
