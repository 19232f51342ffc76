"""Stores over lists of arrays: what `telegrad.kvstore` and `telegrad.torch` stand on."""
from __future__ import annotations

import json
import os
import threading
import time
from ctypes import (byref, c_char_p, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p,
                    sizeof)
from numbers import Real
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _library
from ._arrays import tensors_of
from ._library import (LIBRARY, PENDING, SLICE_S, Compression, Optimizer, Rows, Stats,
                       StoreOptions, call, encoded, fill)
from .errors import Error, UsageError, WrongOrder
from .job import Job
from .optimizer import RunByStore


class Queue:
    """Operations that are done, in that order. Thread-safe."""

    def __init__(self) -> None:
        self._handle = c_void_p()
        call("queue_create", byref(self._handle))
        self._pid = os.getpid()
        self._lock = threading.Lock()  # one thread at a time waits in C
        self._tag_lock = threading.Lock()
        self._done: Dict[int, Optional[Error]] = {}
        self._arrays: Dict[int, Any] = {}  # of operations in flight: they live so long
        self._last_tag = 0
        self.waited_s = 0.0  # in `wait`

    @property
    def handle(self) -> c_void_p:
        return self._handle

    def new_tag(self, arrays: Any) -> int:
        with self._tag_lock:
            self._last_tag += 1
            self._arrays[self._last_tag] = arrays
            return self._last_tag

    def forget(self, tag: int) -> None:
        """Of an operation that did not start."""
        self._arrays.pop(tag, None)

    def next(self, timeout: float) -> Optional[Tuple[int, Optional[Error]]]:
        """The tag of the next operation that is done, and its error; None when none
        is within `timeout` seconds."""
        found = _library.status()
        tag = c_uint64()
        with self._lock:
            if not self._handle or self._pid != os.getpid():
                raise WrongOrder("the queue is closed, or of another process")
            code = LIBRARY.telegrad_queue_next(self._handle, timeout, byref(tag),
                                               byref(found))
            if code == PENDING:
                return None
            self._arrays.pop(tag.value, None)
            return tag.value, None if code == 0 else _library.error_of(found)

    def wait(self, tag: int) -> None:
        """Until that operation is done; raises its error. Ctrl-C is heard."""
        start = time.monotonic()
        try:
            while tag not in self._done:
                done = self.next(SLICE_S)
                if done is not None:
                    self._done[done[0]] = done[1]
        except KeyboardInterrupt:
            self.cancel(tag)
            raise
        finally:
            self.waited_s += time.monotonic() - start
        error = self._done.pop(tag)
        if error is not None:
            raise error

    def wait_on(self, tag: int, stream: int = 0) -> None:
        """Until the results of that operation are queued on their device: what `stream`, a
        cudaStream_t, is given from then on finds them. In host memory until it is done.
        Raises its error; `wait` or `next` is to be called yet. Ctrl-C is heard.

        Raises:
            telegrad.UsageError: no such operation is in flight.
        """
        found = _library.status()
        try:
            while True:
                with self._lock:
                    if not self._handle or self._pid != os.getpid():
                        raise WrongOrder("the queue is closed, or of another process")
                    if tag in self._done:
                        code, error = 0, self._done[tag]
                    else:
                        code, error = LIBRARY.telegrad_queue_wait_on(
                            self._handle, tag, stream, SLICE_S, byref(found)), None
                if code != PENDING:
                    break
        except KeyboardInterrupt:
            self.cancel(tag)
            raise
        if code != 0:
            error = _library.error_of(found)
        if error is not None:
            raise error

    def cancel(self, tag: int) -> None:
        """Ends that operation, whose arrays are the caller's again."""
        if self._handle and self._pid == os.getpid():
            LIBRARY.telegrad_queue_cancel(self._handle, tag)

    def close(self) -> None:
        with self._lock:
            handle, self._handle = self._handle, c_void_p()
        if handle and self._pid == os.getpid():
            LIBRARY.telegrad_queue_free(handle)


def _rows_in_c(rows: Optional[Any]) -> Rows:
    return Rows(None, -1) if rows is None else Rows(rows.ctypes.data, len(rows))


_OPERATIONS = ("push", "pull", "push_pull", "broadcast")


def _numbers(what: str, kind: Any, values: Sequence[int], num: int) -> Any:
    """A C array of them."""
    try:
        if len(values) == num:
            found = (kind * num)(*values)
            if list(found) == list(values):  # ctypes cuts what is too large
                return found
    except TypeError:
        pass
    raise UsageError(f"{what}={values!r}: {num} integers of {8 * sizeof(kind)} bits are "
                     "wanted, one for each key")


def _factors_of(rates: Sequence[Tuple[float, float]]) -> Any:
    try:
        return (c_float * (2 * len(rates)))(*[factor for rate, decay in rates
                                              for factor in (rate, decay)])
    except (TypeError, ValueError):
        raise UsageError(f"rates={rates!r}: pairs of numbers are wanted") from None


class Store:
    """Sums arrays by key over all workers of a job: NumPy's, torch's or DLPack's, without
    gaps, of float32, float16 or bfloat16. Elements are taken in the order in which they
    lie in memory, which is the workers' to have alike.

    Args:
        job: joined; None: this process alone, with the type "local".
        type: "dist_sync", "dist_async", "allreduce" (of a job with `hosts_part`),
            "local" or "device".
        max_staleness: of "dist_async": no worker is more steps ahead of the slowest;
            None: any number.
        drop_slowest: of "dist_sync" with an optimizer of the store: a round does not
            wait for so many of the workers, 0 to one less than there are. What they push
            late counts in the next one (`catch_up`).

    Raises:
        telegrad.UsageError: a type that there is not, and those that there are.
        telegrad.WrongOrder: a job that has not joined, or has a store already.

    Example::

        store = telegrad.Store(telegrad.Job().join())
        store.set_compression(type="2bit:0.5")
        keys = store.init(["weight"], [gradient])      # [1000] float32
        store.push_pull(keys, [gradient], [gradient])  # sums, never means
    """

    def __init__(self, job: Optional[Job] = None, type: str = "dist_sync",
                 max_staleness: Optional[int] = None, drop_slowest: int = 0) -> None:
        self._handle = c_void_p()
        self._pid = os.getpid()
        self.job = job
        options = StoreOptions()
        LIBRARY.telegrad_store_options_init(byref(options), sizeof(options))
        fill(options, drop_slowest=drop_slowest)
        if max_staleness is not None:
            fill(options, max_staleness=max_staleness)
            if max_staleness < 0:
                raise UsageError(f"max_staleness={max_staleness}: 0 or more; None: any")
        if job is not None and not isinstance(job, Job):
            raise UsageError(f"job={job!r}: a telegrad.Job is wanted")
        kind = encoded(type, "type")
        self._step_ended: Optional[Tuple[float, float]] = None  # when, waited so far
        self._sees_steps = True  # until somebody says when they end
        self.queue = Queue()
        try:
            call("store_create", None if job is None else job.handle, kind,
                 byref(options), byref(self._handle))
        except Error:
            self.queue.close()
            raise
        if job is not None:
            job._stores.add(self)

    @property
    def handle(self) -> c_void_p:
        """Of the C interface."""
        if not self._handle:
            raise WrongOrder("the store is closed")
        return self._handle

    def set_compression(self, *, type: str = "none", rules: str = "",
                        threshold: Union[str, float] = "auto", reply: str = "auto",
                        packing: str = "plain", nonfinite: str = "error",
                        min_bytes: int = 0, warmup_steps: int = 0, batch_size: int = 1,
                        guard: bool = True, allow: Optional[str] = None,
                        momentum: str = "off", momentum_rate: float = 0.0) -> None:
        """Before the first `init`.

        Args:
            type: the codec, as docs/codecs.md: "none", "2bit:0.5", "topk:0.01"; or
                "auto": one of `allow` or none, where and while that makes steps faster,
                of which `after_step` tells it.
            rules: codecs of some keys, "PATTERN=CODEC;...": the first pattern that is
                found in a key's name counts.
            threshold: of codecs that have one: "auto"; a number in the unit of what is
                pushed; "0.5:batch", that over `batch_size`; "2rms", of the gradient.
            reply: how sums come back: "auto", "dense" (floats), "sum" (of codes, exact),
                "reencode" (by the codec again, with a residual on the server).
            packing: "plain"; "radix": codes in fewer bits; "auto": that where the
                link is slower than a core packs.
            nonfinite: of NaN and infinities: "error", "zero", "propagate" (MXNet's: they
                stay in the residual).
            min_bytes: smaller tensors, as float32, go as floats.
            warmup_steps: the first so many rounds go as floats.
            guard: a key whose codec harms goes as floats from then on.
            allow: of "auto", the preferred one first: "fp16,2bit"; None: "int2".
            momentum: "nesterov" or "heavyball": this worker keeps momentum of
                `momentum_rate` in front of the codec, with Nesterov's lead or without, and
                pushes that; whoever steps applies none then. "off".

        Raises:
            telegrad.UsageError: the setting that cannot be, and what can.
        """
        setting = Compression()
        LIBRARY.telegrad_compression_init(byref(setting), sizeof(setting))
        if isinstance(threshold, Real):
            threshold = repr(float(threshold))
        fill(setting, type=type, rules=rules, threshold=threshold, reply=reply,
             packing=packing, nonfinite=nonfinite, min_bytes=min_bytes,
             warmup_steps=warmup_steps, batch_size=batch_size, has_guard=guard,
             allow=allow, momentum=momentum, momentum_rate=momentum_rate)
        call("store_set_compression", self.handle, byref(setting))

    def set_optimizer(self, optimizer: RunByStore) -> None:
        """The store runs the optimizer: pulls give weights; with
        `telegrad.optimizer.Rescale` there is none, and results are multiplied. Before the
        first `init`, which for an optimizer needs values; later, between rounds, by all
        workers alike, only rates may be others.

        Args:
            optimizer: of `telegrad.optimizer`.
        """
        setting = Optimizer()
        LIBRARY.telegrad_optimizer_init(byref(setting), sizeof(setting))
        if not isinstance(optimizer, RunByStore):
            raise UsageError(f"optimizer={optimizer!r}: one of telegrad.optimizer is wanted")
        fill(setting, **optimizer.settings())
        call("store_set_optimizer", self.handle, byref(setting))

    def save_states(self) -> bytes:
        """What the store's optimizer keeps (momentum, means), for `load_states`. All
        workers call it, between rounds; worker 0 gets it, the others ``b""``."""
        return bytes(self._interruptible(
            lambda: _library.bytes_of("store_save_states", self.handle)))

    def load_states(self, states: bytes) -> None:
        """Worker 0's `states` count, of the same tensors and kind of optimizer; all call
        it, between rounds.

        Raises:
            telegrad.Error: on all workers, what does not fit; nothing has changed.
        """
        states = _library.bytes_in("states", states)
        self._interruptible(
            lambda: call("store_load_states", self.handle, states, len(states)))

    def init(self, names: Sequence[str], arrays: Sequence[Any], values: bool = False,
             rates: Optional[Sequence[Tuple[float, float]]] = None,
             row_elems: Optional[Sequence[int]] = None,
             without_momentum: Sequence[str] = ()) -> List[int]:
        """Adds keys, and gives their numbers; all workers call it with the same.

        Args:
            names: of letters, digits and _.:/-, which no key has yet.
            arrays: one for each name; their sizes and types count.
            values: all arrays become worker 0's.
            rates: for each key what its learning rate and its weight decay are multiplied
                by.
            row_elems: of keys of which some rows may be pushed and pulled, how many
                elements a row has; 0 of others.
            without_momentum: names of what is no gradient: pushes go without the momentum of
                `set_compression`.

        Raises:
            telegrad.UsageError: names, arrays or lists that do not fit.
            telegrad.Mismatch: with the first operation, what workers differ in.
        """
        if isinstance(names, str):
            raise UsageError(f"names={names!r}: a list of texts is wanted")
        for what, given in (("arrays", arrays), ("rates", rates),
                            ("row_elems", row_elems)):
            if given is not None and len(given) != len(names):
                raise UsageError(f"{len(names)} names for {len(given)} {what}")
        texts = (c_char_p * len(names))(*[encoded(name) for name in names])
        keys = (c_uint32 * len(names))()
        tensors = tensors_of(arrays, writes=values)
        factors = None if rates is None else _factors_of(rates)
        rows = None if row_elems is None else (c_int64 * len(names))(*row_elems)
        for name in without_momentum:
            call("store_without_momentum", self.handle, encoded(name))
        self._interruptible(
            lambda: call("store_init_rows", self.handle, len(names), texts, tensors, rows,
                         factors, values, keys))
        return list(keys)

    def _interruptible(self, work: Callable[[], Any]) -> Any:
        job = self.job
        return _library.interruptible(
            work, lambda why: None if job is None else job.interrupt(why))

    def start(self, name: str, keys: Sequence[int], *lists: Sequence[Any],
              priorities: Optional[Sequence[int]] = None, root: int = 0,
              rows: Optional[Sequence[Any]] = None) -> int:
        """Starts "push", "pull", "push_pull" or "broadcast"; gives the tag that
        `queue` says in the end. The arrays are not touched until then.

        Args:
            name: of the operation.
            keys: of `init`.
            lists: gradients, outs, or both, each with an array for each key.
            priorities: for each key; larger goes first.
            root: of "broadcast": whose values all get.
            rows: of "push" and "pull": for each key [rows] int64 of NumPy, the rows that
                its array has one behind the other; None: all.
        """
        if name not in _OPERATIONS:
            raise UsageError(f"operation {name!r}: there are {', '.join(_OPERATIONS)}")
        for arrays in (*lists, *([] if rows is None else [rows])):
            if len(arrays) != len(keys):
                raise UsageError(f"{len(arrays)} arrays for {len(keys)} keys")
        tensors = [tensors_of(arrays, writes=name != "push") for arrays in lists]
        if rows is not None:
            name += "_rows"
            tensors.append((Rows * len(rows))(*map(_rows_in_c, rows)))
        c_keys = _numbers("keys", c_uint32, keys, len(keys))
        if name == "broadcast":
            rest: Tuple[Any, ...] = (root, *tensors)
        else:
            rest = (*tensors, None if priorities is None else
                    _numbers("priorities", c_int32, priorities, len(keys)))
        if self._sees_steps and name.startswith("push") and 0 in keys:
            self._count_step(self.queue.waited_s)  # a round of the first tensor begins
        return self._start_raw(name, len(keys), c_keys, rest, (lists, rows))

    def _start_raw(self, name: str, num: int, c_keys: Any, rest: Tuple[Any, ...],
                  arrays: Any) -> int:
        """The same of what C takes; `arrays` are kept alive."""
        tag = self.queue.new_tag((arrays, c_keys, rest))
        try:
            call("store_" + name, self.handle, num, c_keys, *rest, self.queue.handle, tag)
        except Error:
            self.queue.forget(tag)
            raise
        return tag

    def push_pull(self, keys: Sequence[int], grads: Sequence[Any], outs: Sequence[Any],
                  priorities: Optional[Sequence[int]] = None) -> None:
        """Sums `grads` over all workers into `outs`, which may be the same arrays: one
        for each of `keys`, whose `priorities`, where given, are larger for those that go
        first."""
        self.queue.wait(self.start("push_pull", keys, grads, outs,
                                   priorities=priorities))

    def save_codec(self, key: int) -> bytes:
        """What codecs keep of a key on this worker between rounds (residual, agreed
        scale), rank 0's with the servers', for `load_codec`. While no worker has an
        operation under way."""
        return _library.bytes_of("store_save_codec", self.handle, key)

    def save_own_codec(self, key: int) -> bytes:
        """The same of this worker alone, rank 0's, too, and whatever other workers do: while
        it has no operation of this key under way, also when the job has failed."""
        return _library.bytes_of("store_save_own_codec", self.handle, key)

    def load_codec(self, key: int, state: bytes) -> None:
        """`state` of `key` on the same rank, with as many workers and servers and the same
        settings. No worker may begin a round before all have loaded.

        Raises:
            telegrad.Error: bytes that do not fit; the store is of no use then.
        """
        state = _library.bytes_in("state", state)
        call("store_load_codec", self.handle, key, state, len(state))

    def after_step(self, step_s: float, exchange_s: float,
                   wait_s: float) -> List[Dict[str, Any]]:
        """Of type "auto": all workers call it after each step, while no operation
        runs.

        Args:
            step_s, exchange_s, wait_s: seconds of the step, from its first push to its
                last answer, and in which nothing else was done.

        Returns:
            What was decided: ``step``, ``choice``, ``why``; mostly nothing.
        """
        found: List[Dict[str, Any]] = json.loads(self._interruptible(
            lambda: _library.bytes_of("store_after_step", self.handle, step_s,
                                      exchange_s, wait_s)))
        return found

    def note_step(self, step_s: float, wait_s: float) -> None:
        """For `telegrad.metrics`, of a loop that knows better than the store, which takes
        a step to go from a push of its first tensor to the next one::

            store.note_step(time.monotonic() - begin, waited_s)

        Args:
            step_s, wait_s: seconds of a step, and of these in which the training did
                nothing but wait for communication.

        Raises:
            telegrad.UsageError: below 0, or no number.
        """
        if not all(isinstance(each, Real) and 0 <= each < float("inf")
                   for each in (step_s, wait_s)):
            raise UsageError(f"step_s={step_s!r}, wait_s={wait_s!r}: seconds of 0 or more")
        call("store_note_step", self.handle, step_s, wait_s)
        self._sees_steps = False

    def _end_step(self, waited_s: float) -> None:
        """A step ends, of a loop which has waited so long in all steps so far."""
        self._sees_steps = False
        self._count_step(waited_s)

    def _count_step(self, waited_s: float) -> None:
        now = time.monotonic()
        ended, self._step_ended = self._step_ended, (now, waited_s)
        if ended is not None:
            step_s = now - ended[0]
            call("store_note_step", self.handle, step_s,
                 min(step_s, max(0.0, waited_s - ended[1])))

    def save_choice(self) -> str:
        """What the type "auto" keeps, for `load_choice`; "" while it measures."""
        return _library.bytes_of("store_save_choice", self.handle).decode()

    def load_choice(self, choice: str) -> None:
        """Before the first step, of a store with the same tensors and settings: "auto"
        goes on with that `choice`; with "" it measures. All workers call it."""
        text = choice.encode()
        self._interruptible(
            lambda: call("store_load_choice", self.handle, text, len(text)))

    def catch_up(self) -> int:
        """Of a store with `drop_slowest`, while no operation runs: how many rounds have
        passed in which this worker pushed nothing. Its next pushes are of the round that
        is open. Who counts steps adds it, and so leaves out what the others have done::

            while step < steps:
                store.push_pull(keys, gradients(step), weights)
                step += 1 + store.catch_up()

        Raises:
            telegrad.WrongOrder: an operation runs, or each round waits for all.
        """
        missed = c_int64()
        call("store_catch_up", self.handle, byref(missed))
        return missed.value

    def take_all(self, on: bool = True) -> None:
        """Of a store with `drop_slowest`, while no operation runs, by all workers before
        the same step: rounds wait for all from now on. Behind such a round nothing that
        was pushed before is left out, and all have the same weights: at the end, and
        before states are saved.

        Args:
            on: False: rounds do not wait any more.

        Raises:
            telegrad.WrongOrder: an operation runs, or each round waits for all.
        """
        call("store_take_all", self.handle, bool(on))

    def timeline(self, on: bool = True) -> List[Dict[str, Any]]:
        """Notes from now on (or no more) when operations begin and end, and gives those
        that ended since the call before, and the stages of their chunks: Chrome's trace
        events, of process `rank` with a row for each key and each chunk. Perfetto and
        ``chrome://tracing`` read a file of them as JSON."""
        found: List[Dict[str, Any]] = json.loads(
            _library.bytes_of("store_timeline", self.handle, on))
        return found

    def stats(self) -> Dict[str, Any]:
        """Bytes since the first init: raw as elements, wire with headers. Of
        "dist_async" by how many steps this worker was ahead of the slowest; with
        `drop_slowest` by how many rounds its pushes were late, and how many of chunks were."""
        now = Stats()
        call("store_stats", self.handle, byref(now))
        return {name: getattr(now, name) for name, *_ in Stats._fields_}

    def report(self) -> List[Dict[str, Any]]:
        """Of each key: codec, why it has it, and how it does."""
        found: List[Dict[str, Any]] = json.loads(
            _library.text_of("store_report", self.handle))
        return found

    def close(self) -> None:
        """Cancels what is in flight, and leaves. A second call does nothing."""
        if self.job is not None and self._handle:
            self.job._write_account()
        handle, self._handle = self._handle, c_void_p()
        if not handle or self._pid != os.getpid():
            return
        _library.interruptible(lambda: LIBRARY.telegrad_store_close(handle),
                               lambda _: None)
        self.queue.close()
        if self.job is not None:
            self.job._stores.discard(self)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()


