"""MXNet's KVStore, on arrays of NumPy, torch and DLPack; docs/mxnet.md."""
from __future__ import annotations

import os
import re
import sys
from numbers import Real
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ._arrays import FLOAT16, INT32, assign, check_alike, copied, tensor_of
from ._backups import WithBackups
from ._elastic_store import StoreGoesOn
from ._hosts import hosts_of
from ._kvstore_job import end_failed, job_of
from ._kvstore_steps import Steps, Updater
from ._kvstore_values import Key, give, listed, room_for, rows_in_float32, sum_of
from ._library import NOT_FOUND
from ._log import LOGGER
from .errors import Error, Unsupported, UsageError, WrongOrder
from .job import WORKER, Job
from .rows import RowSparse, row_numbers, rows_of
from .store import Store

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,256}")
_OPTIONS = ("rules", "reply", "packing", "nonfinite", "min_bytes", "warmup_steps",
            "batch_size", "guard")


def create(name: str = "local", job: Optional[Job] = None,
           max_staleness: Optional[int] = None, drop_slowest: int = 0,
           **options: Any) -> "KVStore":
    """A store of the type, as ``mx.kv.create``.

    Args:
        name: "local", "device", "dist_sync", "dist_async" or "allreduce", or another
            name of MXNet for them.
        job: of the last three ("allreduce": with `hosts_part`); else the process group
            of torch.distributed where there is one, else the launcher's variables
            (DMLC_*, mpirun, srun, torchrun).
        max_staleness: of `telegrad.Store`, for "dist_async".
        drop_slowest: of `telegrad.Store`, for "dist_sync" and `set_optimizer`.
        options: of `telegrad.Job`.

    In a process that a launcher gave the role of a server or scheduler it serves, and
    ends the process when the job ends.

    Raises:
        telegrad.UsageError: a type or an option that there is not, and what there is.
        telegrad.Unsupported: "nccl".
        telegrad.JoinTimeout, telegrad.AuthenticationError, telegrad.SchedulerLost: the
            members have not come together.
    """
    if not isinstance(name, str):
        raise UsageError("the type of a store is a string")
    name = name.lower()
    if name == "nccl":
        raise Unsupported("kvstore type 'nccl' from Python, where a store has one array for "
                          "each key: take 'device', which adds what is listed for a key")
    if name.startswith(("local", "device")):
        if job is not None or max_staleness is not None or drop_slowest or options:
            raise UsageError(f"kvstore type '{name}' takes no job and no options")
        return KVStore(Store(None, name), name)
    _check_type(name)
    if job is not None and not isinstance(job, Job):
        raise UsageError(f"job={job!r}: a telegrad.Job is wanted")
    owns_job = job is None
    if job is None:
        if "async" in name or drop_slowest:  # those of a host would wait for each other
            options.setdefault("tier1", "off")
        job = job_of(dict(options, hosts_part=name in ("allreduce", "horovod")))
    if job.role != WORKER:
        job.serve()
        job.close()
        sys.exit(0)
    try:
        if job.rank < 0:
            job.join()
        rounds = max_staleness, drop_slowest
        store = KVStore(Store(job, name, *rounds), name, job if owns_job else None, rounds)
    except Error as why:
        if owns_job:
            end_failed(job, why)
        raise
    if job.rank == 0:
        hosts_of(job).say()
    return store


def _check_type(name: str) -> None:
    """Before a job is sought for it."""
    try:
        Store(None, name).close()
    except Error as why:
        if why.code == NOT_FOUND:
            raise


def write_whole(fname: Any, content: bytes) -> None:
    """The file is whole, or the one before."""
    part = os.fspath(fname) + ".part"
    with open(part, "wb") as file:
        file.write(content)
    os.replace(part, fname)


class KVStore(StoreGoesOn, WithBackups):
    """MXNet's KVStore, made by `create`. One thread. Sums, never means: divide by
    `num_workers`. Keys are integers or strings, not both. An array is one of NumPy, torch
    or DLPack, contiguous, of float32, float16 or bfloat16; all arrays of a key have as
    many elements. Where a key is, a list of keys may be, with a list of values::

        kv = telegrad.kvstore.create("dist_sync")
        kv.init("weight", numpy.zeros((2, 3), numpy.float32))
        kv.push("weight", gradient)                    # [2, 3]
        kv.pull("weight", out=gradient)                # the sum over workers

    Raises:
        telegrad.UsageError: an argument, by name, and what can be; of each call.
        telegrad.PeerDied, telegrad.ServerLost, telegrad.SchedulerLost: who is gone, of
            each call that waits.
    """

    def __init__(self, store: Store, type: str, own_job: Optional[Job] = None,
                 rounds: Tuple[Optional[int], int] = (None, 0)) -> None:
        self._rounds = rounds
        self._type = type
        self._own_job = own_job
        self._steps = Steps()
        self._begin(store)

    def _begin(self, store: Store) -> None:
        """Has no keys yet, also in the next epoch of an elastic job."""
        self._store = store
        self._keys: Dict[Key, int] = {}
        self._waiting: Dict[Key, Any] = {}  # init was called, the store knows not yet
        self._pushes: Dict[Key, int] = {}   # tags of pushes in flight
        # What was pushed last, for the next push: new memory costs more than a copy.
        self._copies: Dict[Key, Any] = {}
        self._row_elems: Dict[Key, int] = {}  # of keys with rows
        self._steps.begin()

    @property
    def type(self) -> str:
        """As `create` was given it, in small letters."""
        return self._type

    @property
    def rank(self) -> int:
        """This worker's, from 0."""
        return 0 if self._store.job is None else self._store.job.rank

    @property
    def num_workers(self) -> int:
        """Of the job; 1 where there is none."""
        return 1 if self._store.job is None else self._store.job.num_workers

    def init(self, key: Any, value: Any) -> None:
        """Once for each key, on all workers with the same; worker 0's value counts.

        Raises:
            telegrad.UsageError: a key that is there; integers beside strings.
        """
        keys, values = listed(key, value)
        found: Dict[Key, Any] = {}
        row_elems: Dict[Key, int] = {}
        for one, arrays in zip(keys, values):
            if one in self._keys or one in self._waiting or len(arrays) != 1:
                raise UsageError(f"init of key {one!r}, which takes one value, once")
            for other in list(self._keys)[:1] + list(self._waiting)[:1] + keys[:1]:
                if isinstance(other, int) != isinstance(one, int):
                    raise UsageError(f"key {one!r} beside {other!r}: all are integers, "
                                     "or all are strings")
            if not _NAME.fullmatch(str(one)):
                raise UsageError(f"key {one!r}: keys are of letters, digits and _.:/-, 1 to "
                                 "256 of them")
            check_alike(f"key {one!r}", arrays)
            rows = rows_of(arrays[0])
            if rows is not None:
                row_elems[one] = rows.row_elems
            found[one] = (copied(arrays[0]) if rows is None else
                          rows_in_float32(rows).to_dense())
            if tensor_of(found[one]).dtype == INT32:
                raise UsageError(f"key {one!r} of integers: a store sums floats")
        self._waiting.update(found)  # all, or none
        self._row_elems.update(row_elems)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sends gradients, which are copied. Returns before they are there; `pull` waits
        for that.

        Args:
            value: an array or a `telegrad.RowSparse` for each key, or a list of such,
                which are added first.
            priority: larger goes first.

        Raises:
            telegrad.WrongOrder: a key before its `init`.
        """
        keys, values = listed(key, value)
        self._follow_optimizer(keys)
        self._settle(keys)  # then their last copies are free
        grads = [sum_of(one, arrays, True, one in self._row_elems, self._copies.get(one))
                 for one, arrays in zip(keys, values)]
        for one, grad in zip(keys, grads):
            if self._steps.updater is not None:
                self._update(self._steps.updater, one, grad)
                continue
            rows = None
            if isinstance(grad, RowSparse) and one not in self._row_elems:
                grad = grad.to_dense()  # of a dense key, as MXNet
            if isinstance(grad, RowSparse):
                rows = [grad.indices]
                grad = grad.data
            else:
                self._copies[one] = grad
            self._pushes[one] = self._store.start(
                "push", [self._key(one)], [grad], priorities=[priority], rows=rows)

    def pull(self, key: Any, out: Any = None, priority: int = 0,
             ignore_sparse: bool = True) -> None:
        """Fills `out` with the key's whole value: the last sum, or the weights where the
        store steps them.

        Args:
            out: an array for each key, or a list of such, which all get it.
            priority: larger goes first.
            ignore_sparse: False is refused: `row_sparse_pull` gives rows.

        Raises:
            telegrad.WrongOrder: a key before its `init`.
        """
        if not ignore_sparse:
            raise Unsupported("pull with ignore_sparse=False: row_sparse_pull gives rows")
        keys, outs = listed(key, out)
        self._run("pull", keys, [], outs, priority)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Push and pull of each key in one.

        Args:
            value: as of `push`, but no rows. They are not copied.
            out: as of `pull`; None: `value`, in place.
            priority: larger goes first.
        """
        if self._steps.updater is not None:
            self.push(key, value, priority)
            self.pull(key, value if out is None else out, priority)
            return
        keys, values = listed(key, value)
        _, outs = listed(key, value if out is None else out)
        grads = [sum_of(one, arrays, False, one in self._row_elems)
                 for one, arrays in zip(keys, values)]
        self._follow_optimizer(keys)
        self._settle(keys)
        self._run("push_pull", keys, grads, outs, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init` of `key` with `value`, then `pull` into `out`, with that `priority`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def set_gradient_compression(self, compression_params: Dict[str, Any]) -> None:
        """As MXNet, before `init` is used.

        Args:
            compression_params: ``{'type': '2bit', 'threshold': 0.5}``. The threshold is in
                the unit of what is pushed, MXNet's sums over a batch. Further names are
                those of `telegrad.Store.set_compression`. ``'momentum'`` is "auto" here, but
                for MXNet's own ``'2bit'`` and ``'1bit'``: beside a codec of fewer than 4 bits
                workers take over that of SGD or NAG in `set_optimizer`, with Nesterov's lead.
                ``'momentum_rate'`` is one that no optimizer applies.

        Raises:
            telegrad.WrongOrder: after a key was used.
        """
        if not isinstance(compression_params, Mapping):
            raise UsageError(f"compression_params={compression_params!r}: a dictionary is "
                             "wanted, {'type': '2bit', 'threshold': 0.5}")
        params = dict(compression_params)
        if self._store.job is None:
            raise UsageError(f"kvstore type '{self._type}' sends nothing; compression "
                             "is for dist_sync")
        kind = str(params.pop("type", "2bit"))
        threshold = params.pop("threshold", 0.5 if kind == "2bit" else "auto")
        if kind == "1bit" and isinstance(threshold, Real):  # any number: what is above is 1
            kind, threshold = f"1bit:{float(threshold)!r}", "auto"
        self._steps.momentum.take(params, kind)
        unknown = sorted(set(params) - set(_OPTIONS))
        if unknown:
            raise UsageError(f"{', '.join(unknown)}: compression takes type, threshold, "
                             + ", ".join((*_OPTIONS, "momentum", "momentum_rate")))
        params.setdefault("guard", False)  # MXNet's rule to the end
        self._steps.momentum.compress(self._store, {"type": kind, "threshold": str(threshold),
                                                    **params})

    def set_optimizer(self, optimizer: Any) -> None:
        """The store applies gradients to weights, and `pull` gives weights. Before
        `init` is used; later, between rounds, by all workers alike, for other rates.

        Args:
            optimizer: SGD, NAG, Adam, AdamW, Adagrad or RMSProp of `telegrad.optimizer`,
                or an object of mxnet.optimizer or torch.optim that is translated to one; or
                ``Rescale`` of `telegrad.optimizer`: no optimizer, but means instead of sums.

        Raises:
            telegrad.Unsupported: another optimizer, or an option of it, by name.
        """
        given = self._steps.check(optimizer)
        self._settle(list(self._pushes))
        self._steps.take(self._store, optimizer, given)

    def _follow_optimizer(self, keys: Sequence[Key]) -> None:
        """Before each round: the object that `set_optimizer` was given may have other
        rates by now. A store of one process takes them."""
        changed = self._steps.changed(keys, self._store.job is None)
        if changed is not None:
            self.set_optimizer(changed)
            self._steps.begin_round(keys)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether a store has the `capability` "optimizer", MXNet's only one: yes."""
        if str(capability).lower() == "optimizer":
            return True
        raise UsageError(f"capability '{capability}': there is 'optimizer'")

    def barrier(self) -> None:
        """Returns when all workers have called it."""
        self._init_waiting()
        if self._store.job is not None:
            self._store.job.barrier()

    _barrier = barrier

    def num_dead_node(self, node_id: int = 0, timeout: float = 60) -> int:
        """How many members have died. A job ends with the first. MXNet's arguments
        `node_id` and `timeout` mean nothing here."""
        del node_id, timeout
        failure = None if self._store.job is None else self._store.job.failure()
        return 0 if failure is None else max(len(failure.dead), 1)

    get_num_dead_node = num_dead_node

    def stats(self) -> Dict[str, Any]:
        """Bytes so far: `telegrad.Store.stats`."""
        return self._store.stats()

    def timeline(self, on: bool = True) -> List[Dict[str, Any]]:
        """When operations began and ended while it was `on`: `telegrad.Store.timeline`."""
        return self._store.timeline(on)

    def close(self) -> None:
        """Leaves the job after what was pushed has arrived."""
        if not self._store._handle:
            return
        self._settle(list(self._pushes))
        self._store.close()
        if self._own_job is not None:
            self._own_job.close()

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0,
                        row_ids: Any = None) -> None:
        """Fetches some rows of keys that began as rows.

        Args:
            out: a `RowSparse` or several for each key, which get the rows in ascending
                order, each once; or an array of [row_ids, ...], which gets them in
                theirs.
            priority: larger goes first.
            row_ids: [rows] integers for all of `out`, or a list of such for each of it.
        """
        keys, outs = listed(key, out)
        flat = [(one, array) for one, arrays in zip(keys, outs) for array in arrays]
        lists = row_ids if isinstance(row_ids, (list, tuple)) and any(
            hasattr(ids, "__len__") for ids in row_ids) else [row_ids] * len(flat)
        if row_ids is None or len(lists) != len(flat):
            raise UsageError(f"row_ids: one array, or one for each of {len(flat)} outs")
        self._settle(keys)
        for (one, array), ids in zip(flat, lists):
            self._pull_rows(one, array, row_numbers(ids), priority)

    def _pull_rows(self, key: Key, out: Any, rows: Any, priority: int) -> None:
        import numpy
        number = self._key(key)
        data = out
        if isinstance(out, RowSparse):
            rows = numpy.unique(rows)
            data = numpy.empty((len(rows), out.row_elems), numpy.float32)
        elif tensor_of(out, writes=True).dtype == FLOAT16:
            data = numpy.empty(len(rows) * self._row_elems.get(key, 0), numpy.float32)
        self._store.queue.wait(self._store.start("pull", [number], [data], rows=[rows],
                                                 priorities=[priority]))
        if isinstance(out, RowSparse):
            out.assign(data.astype(out.data.dtype, copy=False), rows)
        elif data is not out:
            assign(out, data)

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Writes what the store's optimizer keeps (momentum, means) to the file `fname`,
        on rank 0. All workers call it, between rounds.

        Raises:
            telegrad.WrongOrder: of a store that runs no optimizer.
            telegrad.Unsupported: `dump_optimizer`.
            OSError: on rank 0, where the file cannot be written.
        """
        if dump_optimizer:
            raise Unsupported("save_optimizer_states with dump_optimizer: rates are "
                              "yours, give them to set_optimizer again")
        self._init_waiting()
        self._settle(list(self._pushes))
        states = self._store.save_states()
        if self.rank != 0:
            return
        write_whole(fname, states)

    def load_optimizer_states(self, fname: str) -> None:
        """Reads on rank 0 what `save_optimizer_states` has written to `fname`, for the same
        keys and kind of optimizer, and any number of workers. All call it, after `init`.

        Raises:
            telegrad.Error, OSError: what does not fit, or cannot be read.
        """
        self._init_waiting()
        self._settle(list(self._pushes))
        states, why = b"", None
        if self.rank == 0:
            try:
                with open(fname, "rb") as file:
                    states = file.read()
            except OSError as error:
                why = error
        try:
            self._store.load_states(states)  # of no bytes it raises, on all
        except Error:
            if why is None:
                raise
        if why is not None:
            raise why

    def set_updater(self, updater: Updater) -> None:
        """Of "local" and "device": a push calls ``updater(key, gradient, weight)``, which
        changes `weight` in place, and `pull` gives weights.

        Raises:
            telegrad.Unsupported: of a store with workers, whose servers run no Python.
        """
        if self._store.job is not None:
            raise Unsupported(f"set_updater of kvstore type '{self._type}', whose servers run "
                              "no Python: set_optimizer takes the optimizers of "
                              "telegrad.optimizer, or keep it on the workers")
        if not callable(updater):
            raise UsageError(f"updater={updater!r}: a function is wanted, of key, gradient "
                             "and weight")
        if self._steps.optimizer is not None:
            raise WrongOrder("set_updater after set_optimizer: a store has one of them")
        self._steps.updater = updater

    _set_updater = set_updater

    def _update(self, updater: Updater, key: Key, grad: Any) -> None:
        if isinstance(grad, RowSparse):
            grad = grad.merged()
        weight = grad.to_dense() if isinstance(grad, RowSparse) else copied(grad)
        keys = [self._key(key)]
        self._store.queue.wait(self._store.start("pull", keys, [weight]))
        updater(key, grad, weight)
        self._store.queue.wait(self._store.start("broadcast", keys, [weight]))

    def _send_command_to_servers(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported("_send_command_to_servers: servers take no commands")

    def _init_waiting(self) -> None:
        if not self._waiting:
            return
        if not self._keys:
            text = self._steps.momentum.settle(self._store, self._steps.optimizer,
                                               bool(self._row_elems))
            if text and self.rank == 0:
                LOGGER.info("%s", text)
        waiting, self._waiting = self._waiting, {}
        row_elems = [self._row_elems.get(key, 0) for key in waiting]
        keys = self._store.init([str(key) for key in waiting], list(waiting.values()),
                                values=True, rates=self._steps.rates_of(waiting),
                                row_elems=row_elems)
        self._keys.update(zip(waiting, keys))

    def _key(self, key: Key) -> int:
        self._init_waiting()
        if key not in self._keys:
            raise WrongOrder(f"key {key!r} before its init")
        return self._keys[key]

    def _settle(self, keys: Sequence[Key]) -> None:
        """Waits for pushes of these keys."""
        for key in keys:
            tag = self._pushes.pop(key, None)
            if tag is not None:
                self._store.queue.wait(tag)

    def _run(self, name: str, keys: List[Key], grads: List[Any],
             outs: List[List[Any]], priority: int) -> None:
        firsts = [room_for(key, arrays, key in self._row_elems)
                  for key, arrays in zip(keys, outs)]
        numbers = [self._key(key) for key in keys]
        if name == "pull" and not self._pushes.keys().isdisjoint(keys):
            self._pull_behind_pushes(keys, numbers, firsts, priority)
        else:
            lists = ([grads] if grads else []) + [firsts]
            self._store.queue.wait(self._store.start(name, numbers, *lists,
                                                     priorities=[priority] * len(keys)))
        for arrays, first in zip(outs, firsts):
            give(first, arrays)

    def _pull_behind_pushes(self, keys: List[Key], numbers: List[int], outs: List[Any],
                            priority: int) -> None:
        """Each key's pull runs beside the pushes of those behind it."""
        tags: List[int] = []
        try:
            for key, number, out in zip(keys, numbers, outs):
                self._settle([key])
                tags.append(self._store.start("pull", [number], [out],
                                              priorities=[priority]))
            while tags:
                self._store.queue.wait(tags[0])
                tags.pop(0)
        except BaseException:
            for tag in tags:  # the arrays are the caller's again
                self._store.queue.cancel(tag)
            raise

    def __enter__(self) -> "KVStore":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()

