"""A process's place in a job: scheduler, servers, workers."""
from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import sys
from ctypes import byref, c_void_p, sizeof
from typing import Any, Dict, List, Optional, Set, Tuple, Union

from . import _account, _environment, _library
from ._library import (LIBRARY, PENDING, SLICE_S, JobOptions, call, encoded, fill,
                       interruptible, text_of)
from ._environment import metrics_outlet, seconds, secret_of_file, tier_one
from ._log import LOGGER
from ._elastic import GoesOn, limits_of
from .errors import Error, UsageError, WrongOrder

WORKER, SERVER, SCHEDULER = range(3)
_CANCELLED = 33
_INTERNAL = 70


class Job(GoesOn):
    """Members that exchange gradients. Thread-safe but for `close`.

    Without arguments it is a job of this worker alone, with its scheduler and server
    on threads of this process. Of several processes one has the scheduler::

        job = telegrad.Job("10.0.0.1:29400", rank=0, num_workers=2, has_scheduler=True,
                           servers_here=1)          # on the others: rank=1, no scheduler
        job.join()

    Args:
        scheduler: its "host:port"; with `has_scheduler` where it listens, port 0 for
            any free one, which `address` then says.
        rank: that is asked for; None: any.
        num_workers, num_servers: of the whole job, 1 to 1024.
        role: telegrad.WORKER, SERVER or SCHEDULER.
        servers_here: so many of the job's servers run on threads of this process.
        hosts_part: the worker sums a part for the others, as a store "allreduce" needs
            it; no server is anywhere then.
        from_launcher: role, rank, counts and scheduler come from the variables of
            DMLC's tracker, mpirun, srun or torchrun; secret and bind, where they are not
            given, from $TELEGRAD_SECRET_FILE and $TELEGRAD_BIND of telegrad-launch.
        secret: 32 bytes or more that all members share; demanded beyond loopback,
            unless `insecure`.
        num_threads: for codecs and sums; 0: none but those that must be.
        job_id: that all members share; jobs with another one are not heard.
        transport, tls, bind, link: as the flags of docs/user_guide.md.
        gdr: of a worker with tensors on GPUs, whether network cards read and write them
            (GPUDirect RDMA): "auto", "on", "off"; None: all are in host memory.
        gpu: CUDA's number of the GPU that they are on: of the cards that the planner takes
            (``transport="auto"``) those nearest to it are used; None: all of this host's.
        tier1: whether workers of a host sum first, in its memory, so that one of them
            pushes (docs/several_gpus.md): "auto" (or $TELEGRAD_TIER1), where there are
            several hosts and no tensors on GPUs; "on"; "off", which "dist_async" needs.
            "group", of a process group, is `telegrad.torch.compress`'s.
        encryption: of what goes over networks, by keys from the secret (SECURITY.md):
            "auto" (or $TELEGRAD_ENCRYPTION), as "auth" beyond loopback; "auth": nobody on
            the path alters it; "on": nor reads it; "off". All members have the same.
        join_timeout, dead_timeout, operation_timeout: seconds; without them 60 (or
            $TELEGRAD_JOIN_TIMEOUT), 10, 300 (or $TELEGRAD_OPERATION_TIMEOUT).
        metrics_port: Prometheus reads this process's numbers at the first free port from
            there on, 0: at any, which `metrics_address` says; on loopback, with a secret
            at `bind`. None: $TELEGRAD_METRICS_PORT, else no port.
        metrics_file: the same, every 10 s and at the end; None: $TELEGRAD_METRICS_FILE, in
            which a "%" is the process's number, else no file.
        elastic: (MIN, MAX), or MIN alone: the job goes on when workers die, while MIN are left,
            and lets others come until there are MAX; calls of those that are left raise
            `telegrad.EpochEnded`, and `reconfigure` takes them along. None: a death ends it;
            `from_launcher` what $TELEGRAD_ELASTIC of telegrad-launch says.
        flight_recorder: the folder in which this process writes what it did last when the job
            fails (docs/when_a_machine_dies.md); None: $TELEGRAD_FLIGHT_RECORDER, else none.

    Raises:
        telegrad.UsageError: arguments; nothing was started.
    """

    def __init__(self, scheduler: Optional[str] = None, *, rank: Optional[int] = None,
                 num_workers: int = 1, num_servers: int = 1, role: int = WORKER,
                 has_scheduler: bool = False, servers_here: int = 0,
                 from_launcher: bool = False, num_threads: int = 1,
                 job_id: Optional[str] = None, secret: Optional[bytes] = None,
                 insecure: bool = False, transport: str = "tcp",
                 tls: Optional[str] = None, bind: Optional[str] = None, link: str = "none",
                 join_timeout: Optional[float] = None, dead_timeout: float = 10,
                 operation_timeout: Optional[float] = None, hosts_part: bool = False,
                 gdr: Optional[str] = None, gpu: Optional[int] = None,
                 tier1: Optional[str] = None,
                 metrics_port: Optional[int] = None,
                 metrics_file: Optional[str] = None,
                 encryption: Optional[str] = None,
                 flight_recorder: Optional[str] = None,
                 elastic: Union[None, int, Tuple[int, int]] = None) -> None:
        options = JobOptions()
        LIBRARY.telegrad_job_options_init(byref(options), sizeof(options))
        join_timeout = seconds(join_timeout, "JOIN_TIMEOUT", 60)
        operation_timeout = seconds(operation_timeout, "OPERATION_TIMEOUT", 300)
        for name, value in (("num_workers", num_workers), ("num_servers", num_servers),
                            ("join_timeout", join_timeout), ("dead_timeout", dead_timeout),
                            ("operation_timeout", operation_timeout)):
            if value == 0:  # which in C stands for the standard
                raise UsageError(f"{name}=0: more is wanted")
        if from_launcher:
            secret = secret_of_file() if secret is None else secret
            bind = os.environ.get("TELEGRAD_BIND") if bind is None else bind
            elastic = _environment.elastic() if elastic is None else elastic
        if secret is not None and not isinstance(secret, bytes):
            raise UsageError(f"secret of {type(secret).__name__}: bytes are wanted")
        options.secret_bytes = len(secret or b"")
        fill(options, from_launcher=from_launcher, role=role,
             rank=-1 if rank is None else rank, num_workers=num_workers,
             num_servers=num_servers, has_scheduler=has_scheduler,
             servers_here=servers_here, num_threads=num_threads, insecure=insecure,
             hosts_part=hosts_part, scheduler=scheduler, job_id=job_id, transport=transport,
             tls=tls, bind="127.0.0.1" if bind is None else bind, link=link, join_timeout_s=join_timeout,
             dead_timeout_s=dead_timeout, operation_timeout_s=operation_timeout, gdr=gdr,
             gpu=-1 if gpu is None else gpu,
             tier1=tier_one(tier1 or ("off" if elastic else None)), **metrics_outlet(metrics_port, metrics_file),
             encryption=encryption or os.environ.get("TELEGRAD_ENCRYPTION") or "auto",
             flight_recorder=flight_recorder)
        options.elastic_min, options.elastic_max = limits_of(elastic)
        self._is_elastic = options.elastic_min > 0
        options.secret = secret
        self._handle = c_void_p()
        self._pid = os.getpid()
        self._has_said = False  # for whom it waits
        self._close_timeout = operation_timeout
        self._stores: Set[Any] = set()  # that are open, whoever else has forgotten them
        self._groups: Set[Any] = set()
        self._has_account = False  # its line is written
        self._failed_by: Optional[BaseException] = None
        interruptible(lambda: call("job_start", byref(options), byref(self._handle)),
                      lambda _: None)
        _open_jobs[self] = None

    @property
    def handle(self) -> c_void_p:
        """Of the C interface."""
        if not self._handle:
            raise WrongOrder("the job is closed")
        return self._handle

    @property
    def address(self) -> str:
        """The scheduler's "host:port"."""
        return str(LIBRARY.telegrad_job_address(self.handle).decode())

    @property
    def metrics_address(self) -> str:
        """Where Prometheus reads: "127.0.0.1:9108"; "" without a `metrics_port`."""
        return str(LIBRARY.telegrad_job_metrics_address(self.handle).decode())

    def metrics_text(self) -> str:
        """The numbers of its members in this process, in Prometheus' text format."""
        return text_of("job_metrics", self.handle)

    def dump_flight_record(self, folder: Optional[str] = None) -> List[str]:
        """Writes what its members in this process did last, for PyTorch's fr_trace: a file of
        each, whose names are returned. Without a `folder`: in that of `flight_recorder`."""
        return text_of("job_dump_flight_record", self.handle, encoded(folder)).splitlines()

    @property
    def role(self) -> int:
        """WORKER, SERVER or SCHEDULER; of a launcher's variables where they say so."""
        return int(LIBRARY.telegrad_job_role(self.handle))

    @property
    def rank(self) -> int:
        """This worker's; -1 before `join`."""
        return int(LIBRARY.telegrad_job_rank(self.handle))

    @property
    def num_workers(self) -> int:
        """Of the job; -1 before `join`."""
        return int(LIBRARY.telegrad_job_num_workers(self.handle))

    @property
    def num_servers(self) -> int:
        """Of the job; -1 before `join`."""
        return int(LIBRARY.telegrad_job_num_servers(self.handle))

    def join(self) -> "Job":
        """Returns when all members have joined."""
        interruptible(lambda: call("job_join", self.handle), self.interrupt, self._say_wait)
        return self

    def _say_wait(self) -> None:
        if self._has_said:
            return
        text = text_of("job_waits_for", self.handle)
        if text:
            self._has_said = True
            LOGGER.warning("%s", text)

    def plan(self) -> Dict[str, Any]:
        """How data goes between the members, after `join`: ``transport``, ``network``,
        ``link_bytes_per_s`` (0: not known), ``decisions`` with ``what``, ``choice`` and
        ``why``, and what else docs/planner.md has."""
        found: Dict[str, Any] = json.loads(text_of("job_plan", self.handle))
        return found

    def barrier(self) -> None:
        """Returns when all workers have called it."""
        self._interruptible(lambda: call("job_barrier", self.handle))

    def serve(self) -> None:
        """A server's or scheduler's part: returns when the job has ended in order."""
        found = _library.status()
        while True:
            code = LIBRARY.telegrad_job_serve(self.handle, SLICE_S, byref(found))
            if code == 0:
                return
            if code != PENDING:
                raise _library.error_of(found)
            self._say_wait()

    def failure(self) -> Optional[Error]:
        """Why the job has failed, or None."""
        found = _library.status()
        if LIBRARY.telegrad_job_failure(self.handle, byref(found)) == 0:
            return None
        return _library.error_of(found)

    def need_all(self, what: str, timeout: float = 0) -> None:
        """Ends the job for all when a worker has left it in order, or does within `timeout`
        seconds, so that `what` of this one can never end.

        Raises:
            telegrad.PeerDied: it has; another error where the job has failed.
        """
        self._interruptible(lambda: call("job_need_all", self.handle, encoded(what), timeout))

    def fail(self, message: str, exit_code: int = _CANCELLED) -> None:
        """Ends the job for all members, who get the `message` and the `exit_code`, 1 to 255,
        else 70; 33 means that somebody wanted it."""
        if self._handle:
            LIBRARY.telegrad_job_fail(self._handle, exit_code, encoded(message))

    def interrupt(self, why: BaseException) -> None:
        """Ends it for all because a signal's handler raised `why` during a wait."""
        self._fail_of(why, _CANCELLED)

    def _fail_of(self, error: BaseException, exit_code: Optional[int] = None) -> None:
        if isinstance(error, SystemExit) and error.__context__ is not None:
            error = error.__context__  # what the script caught before it ended
        what = "Ctrl-C" if _is_ctrl_c(error) else f"{type(error).__name__}: {error}"
        where = f"worker {self.rank}: " if self._handle and self.rank >= 0 else ""
        self.fail(where + what, _exit_code_of(error) if exit_code is None else exit_code)

    def close(self, timeout: Optional[float] = None) -> None:
        """Closes groups and stores, and leaves in order. Scheduler and servers on threads of
        this process end when all workers have left; after `timeout` seconds (the
        operation timeout) they are ended. A second call does nothing."""
        self._write_account()
        self._close_parts()
        _open_jobs.pop(self, None)
        limit = self._close_timeout if timeout is None else timeout
        handle = self._handle
        try:
            if handle and self._pid == os.getpid():
                interruptible(lambda: call("job_close", handle, limit), self.interrupt)
        finally:
            self._handle = c_void_p()

    def _write_account(self) -> None:
        """While its stores are there, which know the numbers."""
        if self._handle and self._pid == os.getpid():
            why = self._failed_by or _uncaught or self.failure()
            _account.write(self, 0 if why is None else _exit_code_of(why), why)

    def _close_parts(self) -> None:
        for part in [*self._groups, *self._stores]:
            part.close()

    def _interruptible(self, work: Any) -> None:
        interruptible(work, self.interrupt)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        is_failing = error is not None and not _is_orderly(error)
        if is_failing:
            self._failed_by = error
            self._fail_of(error)
        try:
            self.close(3 if is_failing else None)
        except Error:
            if error is None:
                raise


# They end in order, whoever has forgotten them; as they were made: one waits for another
# rank, which must not wait for this one in another job.
_open_jobs: Dict[Job, None] = {}
_uncaught: Optional[BaseException] = None


def open_jobs() -> List[Job]:
    """Of this process."""
    return [job for job in _open_jobs if job._handle and job._pid == os.getpid()]


_PACKAGE = os.path.dirname(__file__) + os.sep


def _is_orderly(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _is_ctrl_c(error: BaseException) -> bool:
    # Where it reaches a hook of torch's, that makes a RuntimeError of it.
    return isinstance(error, KeyboardInterrupt) or str(error).startswith("KeyboardInterrupt")


def _exit_code_of(error: BaseException) -> int:
    if _is_ctrl_c(error):
        return _CANCELLED
    return error.exit_code if isinstance(error, Error) else _INTERNAL


def _leave_out_own_frames(error: Error) -> None:
    """The traceback ends with the caller's line: the message says the rest."""
    last, frame = None, error.__traceback__
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            last = frame
        frame = frame.tb_next
    if last is not None:
        last.tb_next = None


def _watch_errors() -> None:
    """Other members hear why this one ends, and our errors' exit codes count."""
    before = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        global _uncaught
        if not (sys.flags.inspect or hasattr(sys, "ps1")):  # a prompt asks for more
            _uncaught = error
        if isinstance(error, Error) and error.exit_code != _INTERNAL:
            _leave_out_own_frames(error)
        before(kind, error, trace)

    sys.excepthook = hook


def note_failure(error: BaseException) -> None:
    """The process ends by it, and no hook of Python's sees that: others hear why."""
    global _uncaught
    _uncaught = error


def is_failing() -> bool:
    """Whether this process ends because of an error that nobody caught."""
    return _uncaught is not None


def _end_jobs() -> None:
    """At the interpreter's end. It does not know the exit status, by which members leave in
    order or fail the job: exit() does, after Python and what it holds have ended."""
    pid = os.getpid()
    own = [job for job in _open_jobs if job._handle and job._pid == pid]
    if _uncaught is None:
        for job in own:
            job._write_account()
        return _close_at_exit(own)
    for job in own:
        job._fail_of(_uncaught)
        try:
            job.close(3)
        except Error:
            pass  # others are told
    if isinstance(_uncaught, KeyboardInterrupt):
        return
    if isinstance(_uncaught, Error):
        _when_python_has_ended("_exit", _uncaught.exit_code)
    elif _is_ctrl_c(_uncaught):  # as Python itself ends then
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _when_python_has_ended("raise", signal.SIGINT)


def _close_at_exit(jobs: List[Job]) -> None:
    handles = (c_void_p * len(jobs))()
    stores = (c_void_p * len(jobs))()
    timeouts = (ctypes.c_double * len(jobs))()
    for i, job in enumerate(jobs):
        for group in [*job._groups]:
            group.close()
        handles[i], timeouts[i] = job._handle, job._close_timeout
        for store in job._stores:  # one
            stores[i] = store._handle
            # Arrays of operations under way outlive Python.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(store.queue))
    if jobs:
        call("jobs_close_at_exit", len(jobs), handles, stores, timeouts)
    for job in jobs:
        for store in job._stores:
            store._handle = c_void_p()
        job._handle = c_void_p()


def _when_python_has_ended(function: str, argument: int) -> None:
    """Calls that function of C: exit handlers have run by then, and files are written."""
    libc = ctypes.CDLL(None)
    for name, value in ((function, argument), ("fflush", 0)):  # C calls the last one first
        getattr(libc, "__cxa_atexit")(getattr(libc, name), c_void_p(value), None)


_watch_errors()
atexit.register(_end_jobs)
