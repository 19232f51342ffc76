"""The communication hook: buckets of DDP go as tensors by their parameters' names."""
from __future__ import annotations

import atexit
import math
import re
import sys
import threading
import time
import weakref
from ctypes import c_uint32
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from .._arrays import stream_of, tensor_of
from .._library import SLICE_S, Tensor, call
from ..errors import Error, Unsupported, UsageError
from ..job import is_failing
from ..optimizer import Rescale
from ..store import Store
from ._auto import Choice, check_optimizer
from ._meeting import check_names, job_of_group
from ._residuals import Residuals

_FLAG = "telegrad.finite/"  # before a parameter's name: whether its bucket is finite
_states: List["weakref.ref[Any]"] = []


def remember(state: Any) -> None:
    """For `states`; has ``model()`` and ``report()``."""
    _states.append(weakref.ref(state))


def any_made() -> bool:
    """Whether this process has compressed a model."""
    return bool(_states)


def states() -> List[Any]:
    """Those that live, in the order in which they were made."""
    alive = [reference() for reference in _states]
    return [state for state in alive if state is not None]


def names_of(module: Any) -> Dict[int, str]:
    """Of the parameters that have gradients, by id, in the model's order."""
    names: Dict[int, str] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise Unsupported(f"parameter {name} is {parameter.dtype}: the store takes "
                              "float32, float16 and bfloat16")
        known = re.sub(r"[^A-Za-z0-9_.:/-]", "_", name)
        while known in names.values():
            known += "_"
        names[id(parameter)] = known
    if not names:
        raise UsageError("the model has no parameter that needs a gradient")
    return names


class _Bucket:
    """What C takes for a list of parameters; addresses change with DDP's buffer."""

    def __init__(self, keys: List[int], bucket: Any, flag: Optional[Any]) -> None:
        base = bucket.buffer().data_ptr()
        gradients = bucket.gradients()
        self.flag = flag
        self.tensors = (Tensor * len(keys))(
            *[tensor_of(gradient) for gradient in gradients],
            *([] if flag is None else [tensor_of(flag)]))
        self.keys = (c_uint32 * len(keys))(*keys)
        self.num = len(keys)
        self.num_gradients = len(gradients)
        self.base = base
        self.stream = stream_of(bucket.buffer())

    def move_to(self, buffer: Any) -> None:
        """The buffer and the stream may be others in each step."""
        base, stream = buffer.data_ptr(), stream_of(buffer)
        if base == self.base and stream == self.stream:
            return
        for i in range(self.num_gradients):
            self.tensors[i].data += base - self.base
            self.tensors[i].stream = stream
        self.base, self.stream = base, stream


class State:
    """Of `hook`, for ``model.register_comm_hook(State(model, "2bit"), hook)``.

    Args:
        gc_type: the codec, docs/codecs.md; "auto": one of `allow`, or none, where and
            while it makes steps faster. Its steps begin dense.
        allow: codecs for "auto", the preferred one first: "fp16,2bit"; "2bit".
        rules: of parameters by name, "PATTERN=CODEC;..." as --gc-rule.
        dense_1d: parameters of one dimension (biases, norms) go dense unless a rule
            says otherwise: 0.3 % of the elements that would make most of the error.
        threshold: "auto"; "0.002" in units of the gradient, a mean over the worker's
            batch; "2rms".
        nonfinite: "propagate": NaN or infinities on one rank make the whole bucket NaN
            on all, as GradScaler expects; "error": the job ends; "zero".
        reply, packing, min_bytes, warmup_steps, guard: `telegrad.Store.set_compression`.
        servers: how many ranks have a server beside the worker; None: all.
        optimizer: warns where it and the codec do not go together; "auto" that may
            choose such a codec is refused.
        verbose: rank 0 says once what was decided, and at the end what was saved.
        job_options: of `telegrad.Job`: transport, bind, link, timeouts.
    """

    def __init__(self, model: Any, gc_type: str = "2bit", *, rules: str = "",
                 dense_1d: bool = True, threshold: str = "auto", reply: str = "auto",
                 packing: str = "plain", nonfinite: str = "propagate",
                 min_bytes: int = 0, warmup_steps: int = 0, guard: bool = True,
                 servers: Optional[int] = None, optimizer: Optional[Any] = None,
                 allow: Optional[str] = None, verbose: bool = True, **job_options: Any) -> None:
        check_names(job_options, State)
        names = names_of(model.module)
        if optimizer is not None:
            check_optimizer(optimizer, gc_type, allow)
        self.model: Callable[[], Any] = weakref.ref(model)
        parameters = {id(p): p for p in model.module.parameters() if id(p) in names}
        flags = [_FLAG + name for name in names.values()] if (
            nonfinite == "propagate") else []
        all_rules = [f"^{_FLAG}=none"] if flags else []
        all_rules += [rules] if rules else []
        one_dimensional = [names[key] for key, p in parameters.items() if p.dim() <= 1]
        if dense_1d and one_dimensional:
            all_rules.append("^(" + "|".join(map(re.escape, one_dimensional)) + ")$=none")
        self._job = job_of_group(servers=servers, group=model.process_group,
                                 parameters=parameters.values(), **job_options)
        try:
            self._store = Store(self._job)
            self._store.set_compression(
                type=gc_type, rules=";".join(all_rules).replace("\\-", "-"),
                threshold=threshold, reply=reply, packing=packing,
                nonfinite="zero" if flags else nonfinite, min_bytes=min_bytes,
                warmup_steps=warmup_steps, guard=guard, allow=allow)
            self._store.set_optimizer(Rescale(1 / self._job.num_workers))
            blanks = [torch.empty(1) for _ in flags]
            keys = self._store.init(list(names.values()) + flags,
                                    [parameters[key] for key in names] + blanks)
        except Error as why:
            self._job.fail(str(why), why.exit_code)
            raise
        self._choice = Choice(self._store) if gc_type == "auto" else None
        self._key_of = dict(zip(names, keys))
        self._name_of = names
        self._residuals = Residuals(
            self._store, dict(zip(names.values(), keys)),
            {names[key]: p.numel() for key, p in parameters.items()},
            {"gc_type": gc_type, "rules": ";".join(all_rules), "threshold": threshold,
             "reply": reply, "packing": packing, "nonfinite": nonfinite,
             "min_bytes": min_bytes, "warmup_steps": warmup_steps, "guard": guard,
             "allow": allow},
            model.process_group)
        self._flag_of = dict(zip(names, keys[len(names):]))
        self.rank, self.num_workers = self._job.rank, self._job.num_workers
        self._verbose = verbose and self.rank == 0
        self._buckets: Dict[Tuple[int, ...], _Bucket] = {}
        self._pending: Dict[int, Tuple[Any, Any, _Bucket]] = {}
        self._changed = threading.Condition()
        self._error: Optional[BaseException] = None
        self._has_callback = False
        self.steps = 0
        self.waited_s = 0.0
        self._decisions = [line for line in self._store.report()
                           if not line["name"].startswith(_FLAG)]
        self._thread = threading.Thread(target=self._complete, daemon=True,
                                        name="telegrad-completions")
        self._thread.start()
        remember(self)
        atexit.register(_close_if_alive, weakref.ref(self))
        self._say(self._decision_text())

    def exchange(self, bucket: Any) -> Any:
        """The hook's body: starts the sums of a bucket; gives its future."""
        buffer = bucket.buffer()
        devices = [buffer.device] if buffer.is_cuda else []
        future: Any = torch.futures.Future(devices=devices)
        if not self._has_callback:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
            self._has_callback = True
        try:
            self._start(bucket, buffer, future)
        except BaseException as why:  # _finish raises it, where it keeps its type
            self._note(why)
            future = torch.futures.Future(devices=devices)  # the other may be in use
            future.set_result(buffer)
        return future

    def _start(self, bucket: Any, buffer: Any, future: Any) -> None:
        if self._error is not None:
            raise self._error
        model = self.model()
        if buffer.is_sparse:
            raise Unsupported("sparse gradients (Embedding(sparse=True)): take dense ones")
        if model is not None and getattr(model._join_config, "enable", False):
            raise Unsupported("DDP's join() for uneven inputs: give all ranks the same "
                              "number of batches (drop_last=True)")
        plan = self._plan_of(bucket, buffer)
        if self._residuals.carried:
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
                self._residuals.add_to(self._name_of[id(parameter)], gradient)
        if plan.flag is not None:
            plan.flag[0] = 0.0 if math.isfinite(float(buffer.sum())) else 1.0
        tag = self._store.queue.new_tag((buffer, plan))
        self._pending[tag] = (future, buffer, plan)  # without a lock that Ctrl-C may leave
        if self._choice is not None:
            self._choice.begin()
        try:
            call("store_push_pull", self._store.handle, plan.num, plan.keys, plan.tensors,
                 plan.tensors, None, self._store.queue.handle, tag)
        except Error:
            self._store.queue.forget(tag)
            self._pending.pop(tag)
            raise

    def _plan_of(self, bucket: Any, buffer: Any) -> _Bucket:
        ids = tuple(map(id, bucket.parameters()))
        plan = self._buckets.get(ids)
        if plan is None:
            unknown = [i for i in ids if i not in self._key_of]
            if unknown:
                raise UsageError("a parameter that was not in the model when it was "
                                 "compressed: call compress after the last change")
            keys = [self._key_of[i] for i in ids]
            flag = None
            if self._flag_of:
                keys.append(self._flag_of[ids[0]])
                flag = torch.zeros(1)
            plan = self._buckets[ids] = _Bucket(keys, bucket, flag)
        plan.move_to(buffer)
        return plan

    def _complete(self) -> None:
        """The thread on which operations end."""
        while True:
            try:
                done = self._store.queue.next(SLICE_S)
            except Error:  # closed
                return
            if done is None:
                continue
            tag, error = done
            with self._changed:
                future, buffer, plan = self._pending[tag]
            try:
                if error is not None:
                    raise error
                if plan.flag is not None and float(plan.flag[0]) != 0:
                    buffer.fill_(math.nan)
            except BaseException as why:
                self._note(why)
            future.set_result(buffer)
            if self._choice is not None:
                self._choice.end()
            with self._changed:
                self._pending.pop(tag)
                self._changed.notify_all()

    def _note(self, why: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = why
            self._changed.notify_all()

    def _finish(self) -> None:
        """At the end of backward, before DDP waits by itself: here Ctrl-C is heard,
        and errors keep their type. After one nothing is waited for: Ctrl-C may have
        come before what is noted as pending had begun."""
        self._has_callback = False
        start = time.monotonic()
        with self._changed:
            while self._pending and self._error is None:
                self._changed.wait(SLICE_S)
            error = self._error
        waited_s = time.monotonic() - start
        self.waited_s += waited_s
        self.steps += 1
        self._residuals.step_done()
        if error is not None:
            raise error
        if self._choice is not None:
            self._tell(self._choice.after_step(waited_s))

    def report(self) -> Dict[str, Any]:
        """``decisions`` (of each parameter codec, reason, reply), ``steps``,
        ``waited_s`` (in which backward only waited), bytes of this rank as
        `telegrad.Store.stats`, ``push_ratio``, ``pull_ratio``, and what ``auto``
        decided; after the end what it was then."""
        if self._store._handle:
            self._last_stats = self._store.stats()
        stats = self._last_stats
        return {"decisions": self._decisions, "steps": self.steps,
                "waited_s": self.waited_s, "workers": self.num_workers,
                "push_ratio": ratio(stats, "push"), "pull_ratio": ratio(stats, "pull"),
                "auto": list(self._choice.decisions) if self._choice else [], **stats}

    def timeline(self, on: bool = True) -> List[Dict[str, Any]]:
        """When each parameter's sums began and ended: `telegrad.Store.timeline`."""
        return self._store.timeline(on)

    def state_dict(self) -> Dict[str, Any]:
        """What codecs keep of this rank's gradients (residuals, agreed scales), for
        `torch.save`; each rank has its own. All ranks call it, between steps.

        Raises:
            telegrad.WrongOrder: before the first step after a "sum" was loaded.
        """
        state = self._residuals.save()
        if self._choice is not None:
            state["choice"] = self._store.save_choice()
        return state

    def load_state_dict(self, state: Any, reshard: Optional[str] = None) -> None:
        """The rest of the run then has the bits of one that was never ended. All ranks
        call it, between steps; of "auto" before the first. That goes on with the codec
        that it had chosen; while it measured, it measures anew.

        Args:
            state: of this rank by `state_dict`. For another number of workers a list of
                states, which has each old rank's on one rank, as
                ``[torch.load(f) for f in files[rank::world_size]]``.
            reshard: for another number of workers: "sum" adds what they held back to the
                next gradients; "drop" begins with residuals of zero.

        Raises:
            telegrad.UsageError: on all ranks, what does not fit: another model, setting
                or number of workers.
        """
        if self._residuals.load(state, reshard) and self._choice is not None:
            self._tell(self._choice.load(state["choice"]))

    def close(self) -> None:
        """Leaves the job, and says what was saved. A second call does nothing."""
        if not self._store._handle:
            return
        found = self.report()
        if self.steps > 0 and self._error is None:
            self._say(_summary(found))
        self._store.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(3)

    def _decision_text(self) -> str:
        by_setting: Dict[Tuple[str, str], List[int]] = {}
        for line in self._decisions:
            reason = line["reason"]
            if line["has_rule"] and reason.startswith("rule ^("):
                reason = "one-dimensional"
            by_setting.setdefault((line["codec"], reason), []).append(line["num_elems"])
        parts = [f"{codec} for {_count(len(sizes), 'tensor')} of {sum(sizes):,} elements "
                 f"({reason})" for (codec, reason), sizes in by_setting.items()]
        return (f"{_count(self.num_workers, 'worker')}, "
                f"{_count(self._job.num_servers, 'server')} beside them; " + ", ".join(parts))

    def _tell(self, decisions: List[Dict[str, Any]]) -> None:
        for made in decisions:
            self._say("auto, step {step}: compression {choice}: {why}".format(**made))

    def _say(self, text: str) -> None:
        if self._verbose:
            print(f"telegrad: {text}", file=sys.stderr, flush=True)


# Without annotations: DDP compares them with its own, which are no text.
def hook(state, bucket):  # type: ignore[no-untyped-def]
    """For ``model.register_comm_hook(state, hook)``: [n] gradients to their average."""
    return state.exchange(bucket)


def _close_if_alive(reference: "weakref.ref[State]") -> None:
    state = reference()
    # After an error the job fails, and nobody leaves it in order.
    if state is not None and state._job._handle and not is_failing():
        state.close()


def _count(num: int, what: str) -> str:
    return f"{num} {what}" + ("" if num == 1 else "s")


def ratio(stats: Dict[str, Any], side: str) -> float:
    """Raw bytes to those that were sent, of "push" or "pull"."""
    wire = stats[f"{side}_wire_bytes"]
    return stats[f"{side}_raw_bytes"] / wire if wire > 0 else 1.0


def _summary(found: Dict[str, Any]) -> str:
    sides = ", ".join(
        f"{side}ed {found[f'{side}_raw_bytes'] / 1e6:.3g} MB as "
        f"{found[f'{side}_wire_bytes'] / 1e6:.3g} ({found[f'{side}_ratio']:.2f}x)"
        for side in ("push", "pull"))
    return (f"rank 0 in {found['steps']} steps: {sides}; waited "
            f"{found['waited_s']:.3g} s for them")
