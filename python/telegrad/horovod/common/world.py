"""This process's place among the ranks that a launcher started, and their operations."""
from __future__ import annotations

import atexit
import hashlib
import os
import sys
from collections import Counter
from typing import Any, Callable, Dict, List, Optional

from ..._hosts import host_identity, say_sums
from ...errors import EpochEnded, Error, Unsupported, UsageError
from ...group import Group
from ...job import WORKER, Job, is_failing
from ...operations import Operations
from . import environment, settings
from .exceptions import HorovodInternalError, HostsUpdatedInterrupt
from .numbers import Numbers

# One of these, of which the library knows more, is set by each launcher.
_LAUNCHERS = ("DMLC_ROLE", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID", "PMI_RANK",
              "MV2_COMM_WORLD_RANK", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",
              "SKYPILOT_NODE_RANK", "JOB_COMPLETION_INDEX", "PMIX_RANK")
_PATIENCE_S = 3.0  # until the job says who is gone
_NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


def _hosts_of(job: Job) -> List[int]:
    """A number of each rank's host, by rank."""
    own, everyone = Numbers(1), Numbers(job.num_workers)
    digest = hashlib.sha256(host_identity().encode()).digest()
    own.memory[0] = int.from_bytes(digest[:4], "little", signed=True)
    with Group(job) as group:
        group.allgather(own, everyone)
    return list(everyone.memory)


def _start() -> Job:
    if any(os.environ.get(name) for name in _LAUNCHERS):
        job = Job(from_launcher=True, hosts_part=True, **settings.job)
        if job.role != WORKER:  # DMLC's scheduler, which runs the same script
            job.serve()
            job.close()
            sys.exit(0)
        return job.join()
    if int(os.environ.get("HOROVOD_SIZE") or 1) > 1:
        raise UsageError(
            "HOROVOD_RANK of horovodrun, whose meeting place is its own: start the ranks by "
            "telegrad-launch, torchrun or mpirun")
    return Job(hosts_part=True).join()


class World:
    """What lasts from `init` to `shutdown`, but for the job, which the next `init` takes
    over.

    Args:
        job: joined.
        hosts: a number of each rank's host.
    """

    def __init__(self, job: Job, hosts: List[int]) -> None:
        self.job, self._hosts = job, hosts
        self.rank, self.size = job.rank, job.num_workers
        self.operations = Operations(job, **environment.options())
        self.process_sets: Dict[Optional[int], List[int]] = {0: list(range(self.size))}
        self.pending: Dict[int, Any] = {}  # by handle
        self._last = 0
        self.parts: List[Any] = []  # of optimizers with a codec; closed with it

    def next_handle(self) -> int:
        """Counts on all ranks alike, so that it names what has no name."""
        self._last += 1
        return self._last

    def add(self, ranks: List[int]) -> int:
        number = internal(lambda: self.operations.add_process_set(ranks))
        self.process_sets[number] = ranks
        return int(number)

    def remove(self, number: int) -> bool:
        if self.process_sets.pop(number, None) is None:
            return False
        internal(lambda: self.operations.remove_process_set(number))
        return True

    @property
    def own_host(self) -> List[int]:
        """The ranks there."""
        return [rank for rank, host in enumerate(self._hosts)
                if host == self._hosts[self.rank]]

    @property
    def hosts(self) -> List[int]:
        """In the order of their first ranks."""
        return list(dict.fromkeys(self._hosts))

    @property
    def across(self) -> List[int]:
        """The hosts with a rank of this local rank."""
        place = self.own_host.index(self.rank)
        counts = Counter(self._hosts)
        return [host for host in self.hosts if counts[host] > place]

    @property
    def is_homogeneous(self) -> bool:
        return len(set(Counter(self._hosts).values())) == 1

    def close(self) -> bool:
        """Whether the job is still this process's: a store leaves it."""
        has_store = self.operations.has_store
        if self.job.failure() is None:
            for part in self.parts:
                part.sum_up()
        self.operations.close()
        for part in self.parts:
            part.close()
        if has_store:
            self.job.close()
        return not has_store


_world: Optional[World] = None
_kept: List[Any] = []  # job and hosts, from one `init` to the next
_sets: Any = None  # process sets that `init` was given
_was_shut_down = False


def internal(work: Callable[[], Any]) -> Any:
    """Runs it; errors but those of arguments, which are ValueErrors, are Horovod's."""
    try:
        return work()
    except (UsageError, Unsupported, HorovodInternalError):
        raise
    except Error as why:
        raise HorovodInternalError.of(why) from why


def current() -> World:
    """
    Raises:
        ValueError: before `init`.
    """
    if _world is None:
        raise UsageError(_NOT_INITIALIZED)
    return _world


def running() -> World:
    """For an operation.

    Raises:
        HorovodInternalError: after `shutdown`.
    """
    if _world is None and _was_shut_down:
        raise HorovodInternalError("Horovod has been shut down; hvd.init() begins anew")
    return current()


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Meets the other ranks that a launcher started; alone where none did. A second call
    does nothing.

    Args:
        comm: None or a list of all ranks; neither some ranks nor a communicator.
        process_sets: to register; "dynamic" is taken, and needs not be said.

    Raises:
        telegrad.Error: the ranks do not meet, and why.
    """
    global _world, _sets
    if _world is not None:
        return
    environment.apply_log_level()
    if comm is not None and not isinstance(comm, (list, tuple)):
        raise UsageError("comm: a list of ranks; there is no MPI here")
    if _kept and _kept[0].failure() is not None:
        _kept.clear()
    if not _kept:
        job = _start()
        _kept[:] = [job, _hosts_of(job)]
        atexit.register(_at_exit)
    if comm and sorted(comm) != list(range(_kept[0].num_workers)):
        raise Unsupported(f"comm={list(comm)}: all ranks of the launcher take part; "
                          "hvd.add_process_set makes sets of some")
    _world = World(*_kept)
    if _world.rank == 0:
        environment.say_ignored()
        if not os.environ.get("TELEGRAD_ALLREDUCE"):
            say_sums(_world.job)
    from .process_sets import set_up
    _sets = None if isinstance(process_sets, str) else process_sets
    set_up(_sets)


def is_elastic() -> bool:
    """Whether the job goes on when ranks die."""
    return current().job.is_elastic


def elder() -> int:
    """The first of the ranks that are in the job longest, who have what was trained."""
    return current().job.elder


def let_in() -> None:
    """All ranks call it, between operations: who waits to come into an elastic job does.

    Raises:
        HostsUpdatedInterrupt: somebody did.
        HorovodInternalError: somebody has died.
    """
    job = running().job
    if not job.is_elastic:
        return
    try:
        internal(job.let_in)
    except HorovodInternalError as why:
        if why.dead or not isinstance(job.failure(), EpochEnded):
            raise
        raise HostsUpdatedInterrupt(False) from why


def goes_on() -> bool:
    """Whether `go_on` can be called, behind an error: others have died, or come in."""
    job = current().job
    if job.is_elastic and job.failure() is None:
        try:
            job.need_all("elastic.run", _PATIENCE_S)
        except Error:
            pass  # which `failure` has
    return isinstance(job.failure(), EpochEnded)


def go_on() -> None:
    """Takes part in the next epoch of an elastic job, with other ranks; all call it.

    Raises:
        HorovodInternalError: the job is over, or others have died again.
    """
    global _world
    before = current()
    internal(before.job.reconfigure)
    _kept[:] = [before.job, internal(lambda: _hosts_of(before.job))]
    after = internal(lambda: World(*_kept))
    _world = after
    from .process_sets import set_up
    for each in _sets or ():
        each._invalidate()
    set_up(_sets)
    for part in before.parts:
        internal(part.begin_again)


def shutdown() -> None:
    """Ends the operations of this process, in order. A second call does nothing."""
    global _world, _was_shut_down
    found, _world = _world, None
    if found is not None:
        _was_shut_down = True
        try:
            if not found.close():
                _kept.clear()
        except Error:
            if found.job.failure() is None:
                raise


def _at_exit() -> None:
    if not is_failing():  # the others, who wait for this rank, hear why
        shutdown()


def is_initialized() -> bool:
    return _world is not None


def rank() -> int:
    """This process's, from 0."""
    return current().rank


def size() -> int:
    """Number of ranks."""
    return current().size


def local_rank() -> int:
    """Among the ranks of this host."""
    return current().own_host.index(rank())


def local_size() -> int:
    """Number of ranks of this host."""
    return len(current().own_host)


def cross_rank() -> int:
    """This host's number among those that have a rank of this local rank."""
    here = current()
    return here.across.index(here._hosts[here.rank])


def cross_size() -> int:
    """Number of hosts that have a rank of this local rank."""
    return len(current().across)


def is_homogeneous() -> bool:
    """Whether all hosts have as many ranks."""
    return current().is_homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """From now on this rank's events go into a file, which `stop_timeline` or `shutdown`
    writes.

    Args:
        file_path: of rank 2 ".2" is behind it.
        mark_cycles: whether it has the cycles, too.

    Raises:
        ValueError: one is going on.
    """
    _timeline(lambda: current().operations.start_timeline(file_path, mark_cycles))


def stop_timeline() -> None:
    """Writes the file of `start_timeline`, or of $HOROVOD_TIMELINE.

    Raises:
        ValueError: none is going on.
    """
    _timeline(lambda: current().operations.stop_timeline())


def _timeline(work: Callable[[], Any]) -> None:
    try:
        internal(work)
    except HorovodInternalError as why:
        raise UsageError(str(why)) from why


def mpi_threads_supported() -> bool:
    """
    Raises:
        ValueError: there is no MPI.
    """
    raise UsageError("Horovod MPI is not enabled: Telegrad has transports of its own")


def mpi_built(verbose: bool = False) -> bool:
    """No: nothing here needs MPI."""
    return False


def gloo_built(verbose: bool = False) -> bool:
    """Yes: what Gloo gives, Telegrad's own collectives do."""
    return True


def nccl_built(verbose: bool = False) -> int:
    """0: tensors on GPUs go through host memory."""
    return 0


def _no(verbose: bool = False) -> bool:
    """No."""
    return False


mpi_enabled = ddl_built = ccl_built = rocm_built = _no
gloo_enabled = gloo_built


def cuda_built(verbose: bool = False) -> bool:
    """Whether tensors on GPUs are taken: wherever the framework has them."""
    return True
