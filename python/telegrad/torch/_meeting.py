"""How the ranks of torch.distributed find each other as members of a job."""
from __future__ import annotations

import difflib
import hmac
import inspect
import json
import logging
import os
import secrets
import socket
import time
from datetime import timedelta
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

import torch.distributed as dist

from .._environment import secret_of_file, seconds, tier_one
from .._hosts import host_identity
from ..errors import Error, JoinTimeout, Mismatch, PeerDied, UsageError, WrongOrder, make_error
from ..job import Job
from ._alike import check_alike, plain

_ELSEWHERE = "192.0.2.1"  # of no host (RFC 5737): the way to it is that to most
_REFUSED = "!"  # before exit code and reason, in place of an address
_INTERNAL = 11  # TELEGRAD_INTERNAL: the exit code says what it is
_LONGEST_PAUSE_S = 0.25
_FAREWELL_S = 5.0  # for the others to read why: rank 0 may have the store
_log = logging.getLogger("telegrad")
_OPEN_STORE = (
    "the job's secret travels through the store of torch.distributed, which authenticates nobody: "
    "who reaches the port of MASTER_ADDR can read it, join the job, and read and change "
    "gradients; name a file of 32 random bytes, the same on all hosts, by secret_file= or "
    "TELEGRAD_SECRET_FILE, or start the ranks by telegrad-launch")
_has_said: List[bool] = []  # that, once
_num_meetings: Dict[Tuple[int, ...], int] = {}  # of these ranks


def ranks_of(group: Optional[Any]) -> List[int]:
    """The group's ranks among all; None: all."""
    if group is None:
        return list(range(dist.get_world_size()))
    known = getattr(dist, "get_process_group_ranks", None)  # from torch 2.0 on
    return list(known(group) if known else dist.distributed_c10d._pg_group_ranks[group])


def is_first_of(group: Optional[Any]) -> bool:
    """Whether this rank says what concerns all of the group."""
    return dist.get_rank() == ranks_of(group)[0]


def check_names(options: Mapping[str, object], owner: Any, others: Any) -> None:
    """Of arguments that `owner` does not have itself, before anything is sent.

    Args:
        others: what it takes beside its own, a class of `_options`.

    Raises:
        telegrad.UsageError: one that is not among these, either.
    """
    known = [*inspect.signature(owner).parameters, *sorted(others.__annotations__)]
    for name in options:
        if name not in others.__annotations__:
            close = difflib.get_close_matches(name, known, 1)
            raise UsageError(f"no argument {name!r}"
                             + (f"; there is {close[0]!r}" if close else ""))


def has_key(store: Any, key: str) -> bool:
    """Whether somebody wrote it; may wait for a second, and raise a RuntimeError then."""
    if hasattr(store, "check"):
        return bool(store.check([key]))
    # Before torch 2; later ones write a line when a slice ends.
    store.wait([key], timedelta(seconds=1))
    return True


class _Board:
    """Notes on a store of torch.distributed, of one meeting of some ranks; without one on
    the default process group's."""

    def __init__(self, timeout: float, ranks: List[int], store: Optional[Any] = None) -> None:
        self._deadline = time.monotonic() + timeout
        self._prefix = "telegrad/"
        self._store: Any = store
        self._calls = "this, with the same prefix of the store"
        if store is None:
            self._calls = ("telegrad.torch.compress, or be started by torchrun with -m "
                           "telegrad.run")
            self._store = dist.distributed_c10d._get_default_store()
            count = _num_meetings[tuple(ranks)] = _num_meetings.get(tuple(ranks), 0) + 1
            # torchrun's store may outlive an attempt, whose names it would still have.
            attempt = "/".join(os.environ.get(name, "0") for name in (
                "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"))
            self._prefix += f"{attempt}/{'-'.join(map(str, ranks))}/{count}/"

    def put(self, name: str, text: str) -> None:
        self._store.set(self._prefix + name, text)

    def get(self, name: str) -> str:
        """In slices, between which Ctrl-C is heard."""
        key, pause = self._prefix + name, 0.005
        while True:
            reason = "it is not there"
            try:
                if has_key(self._store, key):
                    break
            except RuntimeError as why:  # a lost store, or a slice has passed
                reason = str(why).partition("\n")[0]
            if time.monotonic() > self._deadline:
                raise JoinTimeout(
                    f"nobody wrote {key} to the store of torch.distributed ({reason}): "
                    f"all ranks must call {self._calls}; a rank may have died") from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return str(self._store.get(key).decode())

    def refuse(self, why: Error, world: int) -> None:
        """Of rank 0: the others raise that, too."""
        who = "" if isinstance(why, Mismatch) else "rank 0: "
        self.put("scheduler", f"{_REFUSED}{why.exit_code} {who}{why}")
        self._deadline = min(self._deadline, time.monotonic() + _FAREWELL_S)
        try:
            for rank in range(1, world):
                self.get(f"read/{rank}")
        except JoinTimeout:
            pass

    def scheduler(self, rank: int) -> str:
        """Of another rank: the address.

        Raises:
            telegrad.Error: that of rank 0's `refuse`.
        """
        address = self.get("scheduler")
        if address.startswith(_REFUSED):
            self.put(f"read/{rank}", "")
            code, _, why = address[len(_REFUSED):].partition(" ")
            raise make_error(_INTERNAL, int(code), why)
        return address


def _master() -> Optional[str]:
    """The host where the process group met, where it has one."""
    method = getattr(dist.distributed_c10d, "_default_pg_init_method", None) or "env://"
    if method.startswith("tcp://"):
        return urlsplit(method).hostname
    return os.environ.get("MASTER_ADDR") if method.startswith("env://") else None


def _towards(host: Optional[str]) -> str:
    """This host's address by which it reaches that one; "": none."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM) if host else []
    except OSError:
        return ""
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return ""


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _is_here(address: str) -> bool:
    """Whether it is one of this host's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _scheduler_bind(notes: List[Dict[str, Any]]) -> str:
    """Where the job's rank 0 listens, if nobody says it: on loopback for ranks of one
    host, else at the address by which it reaches the others."""
    peers = [(note["host"], note["address"]) for note in notes]
    elsewhere = [address for identity, address in peers
                 if identity != host_identity() or (address and not _is_here(address))]
    if not elsewhere:
        return "127.0.0.1"
    for host in (_master(), *elsewhere, _ELSEWHERE):
        address = _towards(host)
        if address and not _is_loopback(address):
            return address
    raise UsageError("no address of this host is known by which the other hosts' ranks "
                     "reach it: say bind=ADDRESS, of this host")


def _secret(of_file: Optional[bytes], drawn: bytes) -> bytes:
    """Of one job: `drawn` tells those apart that have one file."""
    return drawn if of_file is None else hmac.digest(of_file, drawn, "sha256")


def _say_if_open(of_file: Optional[bytes], host: str) -> None:
    """Once, of rank 0, for ranks of several hosts."""
    if of_file is None and not _is_loopback(host) and not _has_said:
        _has_said.append(True)
        _log.warning(_OPEN_STORE)


def job_of_group(group: Optional[Any] = None, **options: Any) -> Job:
    """A job of a process group's ranks (None: of the default one); all call it. Its
    rank 0 has the scheduler, the first `servers` ranks (all, unless it says otherwise)
    have one server each; with `hosts_part` there are none. The address travels through
    the default group's store, and so does the secret, unless it is in `secret_file` or
    $TELEGRAD_SECRET_FILE. Where some of `parameters` are on a GPU network cards may use
    its memory, unless the option `gdr` says otherwise, those nearest to it, unless `gpu`
    does. With `hosts`, a `HostRanks`, it is found whether ranks of a host sum by the
    process group.

    Raises:
        telegrad.UsageError: an argument that cannot be, on all ranks.
        telegrad.Mismatch: on all ranks, which of `settings` differ, and the values.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise WrongOrder("torch.distributed has no process group: call "
                         "init_process_group first")
    ranks = ranks_of(group)
    timeout = seconds(options.get("join_timeout"), "JOIN_TIMEOUT", 60)
    return _job_of(_Board(timeout, ranks), ranks.index(dist.get_rank()), ranks, **options)


def job_of_part(ranks: List[int], servers: Optional[int] = None, **options: Any) -> Job:
    """Of those ranks, one of each host, who own the same part of their host's sums."""
    _has_said.append(True)  # the job of all did
    timeout = seconds(options.get("join_timeout"), "JOIN_TIMEOUT", 60)
    servers = None if servers is None else min(servers, len(ranks))
    return _job_of(_Board(timeout, ranks), ranks.index(dist.get_rank()), ranks, servers=servers,
                   **{**options, "tier1": "off"})


def leave_for_next(job: Any, store: Any, who: str, thread: Any = None) -> None:
    """Ends a job whose `who`, ranks or replicas, go on in another one.

    Args:
        store: of codes, in that job.
        thread: ends when the store is closed.
    """
    job.fail(f"{who} of the job go on in another one", PeerDied.exit_code)
    store.close()
    if thread is not None:
        thread.join(3)
    try:
        job.close(3)
    except Error:
        pass  # which is why this is called


def job_of_store(store: Any, rank: int, world: int, timeout: float,
                 servers: Optional[int] = None, **options: Any) -> Job:
    """As `job_of_group`, of ranks that have no process group but that store."""
    if not 0 <= rank < world:
        raise UsageError(f"rank {rank} of {world}")
    if servers is not None:
        servers = min(servers, world)
    ranks = list(range(world))
    return _job_of(_Board(timeout, ranks, store), rank, ranks, servers=servers,
                   **{**options, "join_timeout": timeout})


def _job_of(board: _Board, rank: int, ranks: List[int], servers: Optional[int] = None,
            bind: Optional[str] = None, hosts_part: bool = False,
            parameters: Iterable[Any] = (), settings: Mapping[str, Any] = {},
            hosts: Optional[Any] = None, **options: Any) -> Job:
    world = len(ranks)
    servers = world if servers is None else servers
    if not 1 <= servers <= world:
        raise UsageError(f"servers={servers}: 1 to {world}, one beside each rank")
    gpus = [p.device.index for p in parameters if p.is_cuda]
    options.setdefault("gdr", "auto" if gpus else None)
    options.setdefault("gpu", gpus[0] if gpus else None)
    of_file = secret_of_file(options.pop("secret_file", None))
    tier1 = tier_one(options.pop("tier1", None), has_group=True)
    own = plain({**settings, "servers": servers, "tier1": tier1,
                 "secret": "no file" if of_file is None else "a file"})
    note = {"host": host_identity(), "settings": own,
            "address": _towards(_master()) or _towards(_ELSEWHERE),
            **(hosts.note() if hosts is not None else {})}

    def joined(address: str, secret: bytes, **more: Any) -> Job:
        by_group = hosts is not None and bool(hosts.ranks)
        num = 1 if by_group else servers
        # A job of all hears who dies, and flags; gradients go by those of parts.
        about = {**options, **({"gdr": None, "metrics_port": "", "metrics_file": ""}
                               if by_group else {})}
        return Job(address, rank=rank, num_workers=world, num_servers=num,
                   servers_here=int(rank < num and not hosts_part), hosts_part=hosts_part,
                   tier1="off" if by_group or tier1 == "group" else tier1, secret=secret,
                   **about, **more)

    if rank > 0:
        board.put(f"note/{rank}", json.dumps(note))
        address = board.scheduler(rank)
        secret = _secret(of_file, bytes.fromhex(board.get("secret")))
        if hosts is not None:
            hosts.ranks, hosts.why = json.loads(board.get("hosts"))
        # "auto" is loopback where the scheduler is.
        return joined(address, secret, bind=bind or "auto").join()
    try:
        notes = [json.loads(board.get(f"note/{other}")) for other in range(1, world)]
        check_alike([own, *(note["settings"] for note in notes)], ranks)
        tier_one(tier1, has_group=hosts is not None)
        if hosts is not None:
            hosts.settle(tier1, [note, *notes])
            board.put("hosts", json.dumps([hosts.ranks, hosts.why]))
        host = _scheduler_bind(notes) if bind in (None, "auto") else bind
        _say_if_open(of_file, host)
        drawn = secrets.token_bytes(32)
        board.put("secret", drawn.hex())
        job = joined(f"[{host}]:0" if ":" in host else f"{host}:0", _secret(of_file, drawn),
                     has_scheduler=True, bind=host)
    except Error as why:
        board.refuse(why, world)
        raise
    board.put("scheduler", job.address)
    return job.join()
