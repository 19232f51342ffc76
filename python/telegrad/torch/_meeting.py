"""How the ranks of torch.distributed find each other as members of a job."""
from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import timedelta
from typing import Any, Optional, Tuple

import torch.distributed as dist

from ..errors import Error, JoinTimeout, UsageError, WrongOrder
from ..job import Job

_REFUSED = "!"  # before the reason, in place of an address
_num_meetings = 0


class _Board:
    """Notes on the process group's store, of one meeting."""

    def __init__(self, timeout: float) -> None:
        global _num_meetings
        _num_meetings += 1
        self._prefix = f"telegrad/{_num_meetings}/"
        self._store = dist.distributed_c10d._get_default_store()
        self._deadline = time.monotonic() + timeout

    def put(self, name: str, text: str) -> None:
        self._store.set(self._prefix + name, text)

    def get(self, name: str) -> str:
        """In slices, between which Ctrl-C is heard."""
        key = self._prefix + name
        while True:
            try:
                self._store.wait([key], timedelta(seconds=1))
                break
            except RuntimeError:  # that of torch for a second that has passed
                if time.monotonic() > self._deadline:
                    raise JoinTimeout(
                        f"nobody wrote {key} to the store of torch.distributed: all "
                        "ranks must call telegrad.torch.compress") from None
        return str(self._store.get(key).decode())


def _addresses(board: _Board, rank: int, world: int, bind: Optional[str]) -> Tuple[str, str]:
    """Where this rank listens, and the scheduler of rank 0."""
    board.put(f"host/{rank}", socket.gethostname())
    hosts = {board.get(f"host/{other}") for other in range(world)}
    if len(hosts) == 1 and bind is None:
        return "127.0.0.1", "127.0.0.1"
    if rank > 0:
        return bind or "auto", ""
    if bind is None or bind == "auto":
        master = os.environ.get("MASTER_ADDR", socket.gethostname())
        try:
            bind = socket.gethostbyname(master)
        except OSError as why:
            raise UsageError(f"MASTER_ADDR {master}: {why}; say bind=ADDRESS, of this "
                             "host") from None
    return bind, bind


def job_of_group(servers: Optional[int] = None, bind: Optional[str] = None,
                 hosts_part: bool = False, **options: Any) -> Job:
    """A job of the process group's ranks; all call it. Rank 0 has the scheduler, the
    first `servers` ranks (all, unless it says otherwise) have one server each; with
    `hosts_part` there are none. Address and secret travel through the group's store.

    Raises:
        telegrad.UsageError: an argument that cannot be, on all ranks.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise WrongOrder("torch.distributed has no process group: call "
                         "init_process_group first")
    rank, world = dist.get_rank(), dist.get_world_size()
    servers = world if servers is None else servers
    if not 1 <= servers <= world:
        raise UsageError(f"servers={servers}: 1 to {world}, one beside each rank")
    timeout = float(options.get("join_timeout", 60))
    board = _Board(timeout)
    options.update(rank=rank, num_workers=world, num_servers=servers,
                   servers_here=int(rank < servers and not hosts_part),
                   hosts_part=hosts_part)
    if rank > 0:
        own, _ = _addresses(board, rank, world, bind)
        address = board.get("scheduler")
        if address.startswith(_REFUSED):
            raise UsageError(f"rank 0: {address[1:]}")
        secret = bytes.fromhex(board.get("secret"))
        return Job(address, bind=own, secret=secret, **options).join()
    try:
        own, host = _addresses(board, rank, world, bind)
        secret = secrets.token_bytes(32)
        board.put("secret", secret.hex())
        job = Job(f"[{host}]:0" if ":" in host else f"{host}:0", has_scheduler=True,
                  bind=own, secret=secret, **options)
    except Error as why:
        board.put("scheduler", _REFUSED + str(why))
        raise
    board.put("scheduler", job.address)
    return job.join()
