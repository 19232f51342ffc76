"""Errors by Horovod's names."""
from __future__ import annotations

from ...errors import Error


class HorovodInternalError(Error):
    """An operation failed on this rank: its message, exit code and `dead` are those of the
    Telegrad error that it comes from."""

    @classmethod
    def of(cls, why: Error) -> "HorovodInternalError":
        return cls(str(why), exit_code=why.exit_code, code=why.code, dead=why.dead)


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts have come or gone; without `skip_sync` state is to be synchronized."""

    def __init__(self, skip_sync: bool) -> None:
        super().__init__("hosts have come or gone")
        self.skip_sync = skip_sync
