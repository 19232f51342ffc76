"""The communication hook: buckets of DDP go as tensors by their parameters' names."""
from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from .._hosts import Hosts
from .._log import LOGGER
from ..errors import Error, Unsupported, UsageError, WrongOrder
from ..job import is_failing
from ..optimizer import Rescale
from ..store import Store
from ._alike import optimizer_settings
from ._auto import Choice, OptimizerCheck
from ._bucket import Bucket, pattern_of, unwrapped
from ._dropped import close_when_dropped
from ._finite import FLAG, FiniteFlag
from ._forward import ForwardWatch, watch_forward
from ._meeting import check_names, is_first_of, job_of_group, job_of_store, leave_for_next
from ._model import left_out_of, mean_by_torch, names_of, refuse_what_cannot_be, takes
from ._normal import multiply
from ._options import JobOptions, refuse_elastic
from ._parts import HostRanks, Parts, Rows
from ._pending import Pending
from ._residuals import Residuals, lost_text
from ._states import forget, remember, states
from .._texts import decision_text, dense_text, left_out_text, ratio, summary

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _raise(why: Error) -> None:
    raise why


def _watch_of(model: Any) -> Optional[ForwardWatch]:
    found = [state for state in states()
             if isinstance(state, State) and state.model() is model]
    return found[-1]._watch if found else None


class State:
    """Of `hook`. `telegrad.torch.compress` makes one; by hand::

        state = telegrad.torch.State(model, "2bit", rules="embedding=topk:0.01")
        model.register_comm_hook(state, telegrad.torch.hook)

    Args:
        model: a DistributedDataParallel. Parameters of other types than float32, float16
            and bfloat16 are summed by torch, as without Telegrad.
        gc_type: the codec, docs/codecs.md; "auto": one of `allow`, or none, where and
            while it makes steps faster. Its steps begin dense.
        allow: codecs for "auto", the preferred one first: "fp16,2bit"; "int2", or "int4"
            beside an optimizer that few bits harm, or none.
        rules: of parameters by name, "PATTERN=CODEC;..." as --gc-rule.
        dense_1d: parameters of one dimension (biases, norms) go dense unless a rule
            says otherwise: 0.3 % of the elements that would make most of the error.
        threshold: "auto"; "0.002" in units of the gradient, a mean over the worker's
            batch; "2rms".
        nonfinite: "propagate": NaN or infinities on one rank reach all, as GradScaler
            expects: where codes are sent, all gradients of that step are NaN then;
            "error": the job ends; "zero".
        reply, packing, min_bytes, warmup_steps, guard: `telegrad.Store.set_compression`.
        servers: how many ranks have a server beside the worker; None: all.
        optimizer: warns where it and the codec do not go together; "auto" that may
            choose such a codec is refused.
        momentum: "auto": where `optimizer` is torch's SGD and a codec has fewer than 4 bits,
            its momentum is taken over: each worker keeps it, in front of the codec, and the
            optimizer's groups have "momentum" 0 and "telegrad_momentum" from then on. Few
            bits bear it there. "nesterov", "heavyball": with any codec, with or without the
            lead; "auto" has it. "off": it stays.
        momentum_rate: instead of an optimizer's momentum, which applies none by itself.
        normalize: "auto": where `optimizer` is torch's Adam, AdamW or NAdam and a codec is
            int2, int3 or one of their shared kinds, codecs get gradients divided by the root
            of its mean of squares, and Adam and AdamW get Nesterov's lead, as NAdam has it.
            Few bits harm them less then. "on": with any codec; "off": never.
        verbose: rank 0 says once what was decided, and at the end what was saved.
        elastic: all ranks do a step or none, so that after an error which is
            ``retryable``, such as `telegrad.PeerDied`, those that are left may
            `reconfigure` and do that step again. Costs a barrier and a copy of what
            codecs keep in each step.
        job_options: of `telegrad.Job`: transport, bind, link, timeouts, tier1; "group" of
            this one: ranks of a host sum by the model's process group, each a part, which
            "auto" does with GPUs and NCCL, and "on" with GPUs (docs/several_gpus.md).

    Raises:
        telegrad.UsageError: on all ranks, an option that cannot be, and what can.
        telegrad.Mismatch: on all ranks, which arguments differ between them, and how.
        telegrad.Unsupported: a model without a parameter of these types, with sparse
            gradients, or with torch.compile's "python_reducer".
        telegrad.WrongOrder: there is no process group.
        telegrad.JoinTimeout: a rank does not call it.
    """

    def __init__(self, model: Any, gc_type: str = "2bit", *, rules: str = "",
                 dense_1d: bool = True, threshold: Union[str, float] = "auto", reply: str = "auto",
                 packing: str = "plain", nonfinite: str = "propagate",
                 min_bytes: int = 0, warmup_steps: int = 0, guard: bool = True,
                 servers: Optional[int] = None, optimizer: Optional[Any] = None,
                 momentum: str = "auto", momentum_rate: Optional[float] = None,
                 normalize: str = "auto", allow: Optional[str] = None, verbose: bool = True,
                 elastic: bool = False,
                 **job_options: "Unpack[JobOptions]") -> None:
        check_names(job_options, State, JobOptions)
        if elastic:
            refuse_elastic(gc_type, job_options)
            job_options["tier1"] = "off"
        model = unwrapped(model)
        refuse_what_cannot_be(model)
        left_out = left_out_of(model)
        names = names_of(model.module, left_out)
        self._check = OptimizerCheck(gc_type, allow, rules, optimizer,
                                     model.module.parameters(),
                                     is_first_of(model.process_group), momentum,
                                     momentum_rate, normalize)
        allow = self._check.allow
        self._pid = os.getpid()
        self._group = model.process_group
        self.model: Callable[[], Any] = weakref.ref(model)
        parameters = {id(p): p for p in model.module.parameters() if id(p) in names}
        # Floats carry NaN by themselves; codes count them, and the flag carries that.
        flags = [FLAG] if nonfinite == "propagate" and (gc_type != "none" or rules) else []
        all_rules = [f"^{FLAG}$=none"] if flags else []
        all_rules += [rules] if rules else []
        one_dimensional = [names[key] for key, p in parameters.items() if p.dim() <= 1]
        if dense_1d and one_dimensional:
            all_rules.append(pattern_of(one_dimensional, names.values()) + "=none")
        setting: Dict[str, Any] = {
            "rules": rules, "threshold": threshold, "reply": reply, "packing": packing,
            "nonfinite": nonfinite, "min_bytes": min_bytes, "warmup_steps": warmup_steps,
            "guard": guard, "allow": allow, **self._check.momentum.settings}
        self._setting = {**setting, "rules": ";".join(all_rules)}
        self._settings = {"gc_type": gc_type, **self._setting,
                          "normalize": self._check.normal.is_on}
        self._flags = flags
        self._name_of = names
        self._elastic = elastic
        self._job_options = {
            **job_options, "servers": servers, "settings": {
                "gc_type": gc_type, **setting, "dense_1d": dense_1d, "elastic": elastic,
                "normalize": self._check.normal.is_on,
                **optimizer_settings("optimizer", optimizer)}}
        self._held: Optional[Dict[str, Any]] = None  # until a job has it
        self._buffers: List[Any] = []  # of this step
        self._closes = threading.Lock()
        self._has_callback = False
        self.steps = 0
        self.waited_s = 0.0
        self._verbose = verbose
        named = {name: parameters[key] for key, name in names.items()}
        hosts = HostRanks(model.process_group, named.values())
        self._open(job_of_group(model.process_group, parameters=named.values(), hosts=hosts,
                                **self._job_options), named, hosts=hosts)
        watch_forward(_watch_of)
        self._check.momentum.apply()
        self._check.normal.apply()
        remember(self)
        self._when_dropped = close_when_dropped(model, self.close)
        self._say(decision_text(self._decisions, self.num_workers, self._num_servers, self._plan,
                                str(job_options.get("link", "none")), gc_type == "auto")
                  + (", of the part of rank 0" if self._parts else ""))
        for text in (dense_text(self._decisions, gc_type), left_out_text(left_out),
                     self._hosts.why_off, self._check.note, self._check.momentum.note,
                     self._check.normal.note):
            self._say(text)

    def _open(self, job: Any, parameters: Dict[str, Any],
              carried: Optional[Dict[str, Any]] = None,
              hosts: Optional[HostRanks] = None) -> None:
        """A store in that job, and what goes with it; what an earlier one held back."""
        self._job = job
        self._parts: Optional[Parts] = None
        gc_type, flags, owned = self._settings["gc_type"], self._flags, parameters
        try:
            if hosts is not None and hosts.ranks:
                self._parts = Parts(job, hosts, self._group, parameters,
                                    self._setting["min_bytes"], **self._job_options)
                owned = self._parts.blanks
            summing = self._parts.job if self._parts else job
            self._store = Store(summing)
            flag_store = Store(job) if self._parts and flags else self._store
            self._store.set_compression(type=gc_type, **{
                **self._setting, **({"nonfinite": "zero"} if flags else {})})
            self._store.set_optimizer(Rescale(1 / job.num_workers))
            flag = torch.zeros(1)
            if self._parts:
                keys = self._store.init([*owned], [*owned.values()]) if owned else []
                keys += flag_store.init(flags, [flag]) if flags else []
            else:
                keys = self._store.init([*owned, *flags], [*owned.values()] + [flag] * len(flags),
                                        without_momentum=flags)
        except Error as why:
            job.fail(str(why), why.exit_code)
            raise
        self._choice = Choice(self._store) if gc_type == "auto" else None
        self._keys = dict(zip(owned, keys))
        self._residuals = Residuals(
            self._store, self._keys, {name: p.numel() for name, p in parameters.items()},
            self._settings, self._group, job,
            *((self._parts.numbers, self._parts.own) if self._parts else ()))
        self._residuals.carried = carried
        self._buckets: Dict[Tuple[int, ...], Union[Bucket, Rows]] = {}
        self._started: List[Tuple[Rows, Any, Any, int]] = []  # of this step, of parts
        self.rank, self.num_workers = job.rank, job.num_workers
        self._decisions = self._report_of_store()
        self._watch = ForwardWatch(job)
        self._pending = Pending(self._store, self._watch, self._choice, self._group,
                                job if self._parts else None)
        self._flag = FiniteFlag(self._store, self._pending, flag_store, keys[len(owned)],
                                flag) if flags else None
        self._plan = summing.plan()
        self._num_servers = summing.num_servers * (self._parts.num if self._parts else 1)
        self._hosts = Hosts(self._plan, self.rank, job.num_servers, hosts.why if hosts else "")
        if self._parts:
            self._hosts = Hosts.of_parts(summing.num_workers, summing.rank,
                                         summing.num_servers, self._parts.num, self._parts.why)

    def reconfigure(self, store: Any, rank: int, world_size: int,
                    timeout: float = 60.0) -> None:
        """Goes on with these ranks, as c10d's backends do: the job of before ends, and what
        this rank's codecs held back before the step that was not done goes into the next
        one. The model, its parameters and the optimizer stay as they are.

        Args:
            store: of torch.distributed, which these ranks reach, with a prefix that no call
                had before: ``PrefixStore(f"attempt{n}", store)``.
            rank, world_size: from 0, in the order in which the ranks were.
            timeout: seconds, until all have called it.

        Raises:
            telegrad.Error: ``retryable`` where another call, with the ranks that are left
                and another prefix, may go well.
            telegrad.Mismatch: ranks differ in what they were given or have done.
            telegrad.WrongOrder: without ``elastic=True``; the model is gone.
        """
        model = self.model()
        if not self._elastic or model is None:
            raise WrongOrder("reconfigure of a state without elastic=True, or a model")
        parameters = {id(p): p for p in model.module.parameters()}
        named = {name: parameters[key] for key, name in self._name_of.items()}
        if self._held is None:
            self._held = self._residuals.held()
            self.report()
        leave_for_next(self._job, self._store, "ranks", self._pending.thread)
        options: Dict[str, Any] = {**self._job_options, "parameters": named.values()}
        options["settings"] = {**options["settings"], "steps done": self.steps}
        lost = lost_text(self._held, self.num_workers, world_size)
        self._open(job_of_store(store, rank, world_size, timeout, **options), named,
                   self._held)
        self._held = None
        self._say(f"{world_size} ranks go on from step {self.steps}{lost}")

    def take_over(self, optimizer: Any) -> None:
        """The momentum of an optimizer that was made after the state, which was given that
        `momentum_rate`, or its mean of squares.

        Raises:
            telegrad.UsageError: it has another one, or one that cannot be taken over.
        """
        self._say(self._check.take(optimizer))
        self._residuals.settings["normalize"] = self._check.normal.is_on

    def exchange(self, bucket: Any) -> Any:
        """The hook's body: starts the sums of a bucket; gives its future."""
        buffer = bucket.buffer()
        if not takes(bucket.parameters()[0]):  # complex ones have a bucket of floats
            return mean_by_torch(buffer, self._group)
        devices = [buffer.device] if buffer.is_cuda else []
        future: Any = torch.futures.Future(devices=devices)
        if not self._has_callback:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
            self._has_callback = True
        sizes: List[Any] = []
        try:
            sizes = self._start(bucket, buffer, future)
        except BaseException as why:  # _finish raises it, where it keeps its type
            self._pending.note(why)
            future = torch.futures.Future(devices=devices)  # the other may be in use
            future.set_result(buffer)
        if not any(size is not None for size in sizes):
            return future
        gradients = bucket.gradients()

        def multiplied(done: Any) -> Any:
            multiply(gradients, sizes)
            return done.value()

        return future.then(multiplied)

    def _start(self, bucket: Any, buffer: Any, future: Any) -> List[Any]:
        """What gradients were divided by in front of the codec."""
        if self._pending.error is not None:
            raise self._pending.error
        model = self.model()
        if buffer.is_sparse:
            raise Unsupported("sparse gradients (Embedding(sparse=True)): take dense ones")
        if model is not None and getattr(model._join_config, "enable", False):
            raise Unsupported("DDP's join() for uneven inputs: give all ranks the same "
                              "number of batches (drop_last=True)")
        plan = self._plan_of(bucket, buffer)
        sizes = self._check.normal.divide(bucket.parameters(), bucket.gradients())
        if self._elastic and not self._buffers:
            self._residuals.begin_step()
        if self._residuals.carried:
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
                self._residuals.add_to(self._name_of[id(parameter)], gradient)
        self._buffers.append(buffer)
        if isinstance(plan, Bucket):
            self._pending.push_pull(plan, buffer, future)
        elif self._parts is not None:
            with self._parts.beside(buffer):
                plan.reduce(buffer)
                tag = (self._pending.push_pull(plan.bucket, buffer, None)
                       if plan.bucket.num else 0)
            self._started.append((plan, buffer, future, tag))
        return sizes

    def _plan_of(self, bucket: Any, buffer: Any) -> Union[Bucket, Rows]:
        ids = tuple(map(id, bucket.parameters()))
        plan = self._buckets.get(ids)
        if plan is None:
            if any(i not in self._name_of for i in ids):
                raise UsageError("a parameter that was not in the model when it was "
                                 "compressed: call compress after the last change")
            if buffer.dtype != bucket.parameters()[0].dtype:
                raise Unsupported(f"a bucket of {buffer.dtype} for parameters of "
                                  f"{bucket.parameters()[0].dtype}: take no wrapper of "
                                  "torch's around the hook, gc_type='fp16' has its bytes")
            names, gradients = [self._name_of[i] for i in ids], bucket.gradients()
            plan = self._buckets[ids] = (
                Rows(self._parts, names, gradients, buffer, self._keys) if self._parts else
                Bucket([self._keys[name] for name in names], gradients, buffer))
        if isinstance(plan, Bucket):
            plan.move_to(buffer)
        return plan

    def _finish(self) -> None:
        """At the end of backward, before DDP waits by itself: here Ctrl-C is heard,
        and errors keep their type."""
        self._has_callback = False
        try:
            self._end_step()
        except Error as why:
            if not self._elastic:
                raise
            # Behind DDP's own callback: its step has ended, and it takes another one.
            torch.autograd.Variable._execution_engine.queue_callback(partial(_raise, why))

    def _end_step(self) -> None:
        buffers, self._buffers = self._buffers, []
        start = time.monotonic()
        if self._parts:
            self._gather()
        self._pending.wait()
        if self._flag is not None:
            self._flag.spread(buffers)
        if self._elastic:
            self._job.barrier()  # who comes through knows that all do
        waited_s = time.monotonic() - start
        self.waited_s += waited_s
        self.steps += 1
        self._store._end_step(self.waited_s)
        self._residuals.step_done()
        self._say(self._check.after_step())
        if self.steps == 1 and self._verbose:
            self._say(self._hosts.text(self._store.stats(), 1))
        if self._choice is not None:
            self._tell(self._choice.after_step(waited_s))

    def _gather(self) -> None:
        """In the order of the sums, alike on all ranks of the host."""
        started, self._started = self._started, []
        for rows, buffer, future, tag in started:
            self._pending.wait(tag)
            try:
                rows.gather(buffer)
            except RuntimeError as why:  # of the process group
                raise self._watch.cause(why) from None
            future.set_result(buffer)
        used = [rows for rows, *_ in started]  # DDP makes other buckets after its first step
        self._buckets = {ids: rows for ids, rows in self._buckets.items() if rows in used}

    def report(self) -> Dict[str, Any]:
        """``decisions`` (of each parameter `telegrad.Store.report`, as it was while
        nothing was under way), ``plan`` (`telegrad.Job.plan`), ``steps``, ``waited_s``
        (in which backward only waited), bytes of this rank as `telegrad.Store.stats`,
        ``push_ratio``, ``pull_ratio``, ``host_bytes`` (that left its host, where ranks of
        a host sum first and it pushes for them, or a part; else None), and what
        ``auto`` decided; after the end what it was then."""
        if self._store._handle:
            self._last_stats = self._store.stats()
            if self._pending.is_idle:  # while no operation runs
                self._decisions = self._report_of_store()
        stats = self._last_stats
        return {"decisions": self._decisions, "steps": self.steps,
                "waited_s": self.waited_s, "workers": self.num_workers,
                "push_ratio": ratio(stats, "push"), "pull_ratio": ratio(stats, "pull"),
                "host_bytes": self._hosts.left(stats) if self._hosts.pushes else None,
                "auto": list(self._choice.decisions) if self._choice else [],
                "plan": self._plan, **stats}

    def __repr__(self) -> str:
        codecs = ", ".join(dict.fromkeys(line["codec"] for line in self._decisions))
        found = self.report()
        return (f"<telegrad.torch.State: {codecs}; {self.steps} steps, pushed "
                f"{found['push_ratio']:.2f}x, pulled {found['pull_ratio']:.2f}x smaller>")

    def _report_of_store(self) -> List[Dict[str, Any]]:
        return [line for line in self._store.report()
                if line["name"] != FLAG]

    def timeline(self, on: bool = True) -> List[Dict[str, Any]]:
        """When each parameter's sums began and ended while it was `on`:
        `telegrad.Store.timeline`."""
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
        """Leaves the job, and says what was saved; the model cannot be stepped then. All
        ranks call it. A second call does nothing. A model that is collected does it."""
        with self._closes:  # the collector's thread may be at it
            self._check.momentum.release()
            self._check.normal.release()
            self._leave()
            if self._parts and self._job._handle and self._job.failure() is None:
                self._parts.close()
            for job in [self._parts.job, self._job] if self._parts else [self._job]:
                has_failed = job._handle and job.failure() is not None
                try:
                    job.close(3 if has_failed else None)
                except Error:
                    if not has_failed:  # which was said
                        raise

    def give_up(self, text: str) -> None:
        """Of a state that no model takes: ends the job, and raises.

        Raises:
            telegrad.UsageError: that text.
        """
        error = UsageError(text)
        self._job.fail(text, error.exit_code)
        forget(self)
        self._when_dropped.detach()
        self._check.momentum.release(gives_back=True)
        self._check.normal.release()
        self.close()
        raise error

    def __reduce__(self) -> Any:
        """A copy of the model (deepcopy, torch.save) is one without a hook, as torch makes
        it: compress it where it is to have a codec."""
        return type(None), ()

    def _leave(self) -> None:
        if not self._store._handle or self._pid != os.getpid():
            return
        self._sum_up()
        self._store.close()
        if threading.current_thread() is not self._pending.thread:
            self._pending.thread.join(3)

    def _sum_up(self) -> None:
        found = self.report()
        if self.steps > 0 and self._pending.error is None:
            self._say("; ".join(filter(None, (summary(found),
                                              self._hosts.text(found, self.steps)))))

    def _tell(self, decisions: List[Dict[str, Any]]) -> None:
        for made in decisions:
            self._say("auto, step {step}: compression {choice}: {why}".format(**made))

    def _say(self, text: str) -> None:
        if self._verbose and self.rank == 0 and text:
            LOGGER.info("%s", text)


# Without annotations: DDP compares them with its own, which are no text.
def hook(state, bucket):  # type: ignore[no-untyped-def]
    """For ``model.register_comm_hook(state, hook)``: the [n] gradients of a `bucket` of
    DDP to a future of their average, in place."""
    return state.exchange(bucket)


def _sum_up_all() -> None:
    for state in states():
        # After an error the job fails, and nobody leaves it in order.
        if isinstance(state, State) and state._pid == os.getpid() and not is_failing():
            with state._closes:
                if state._store._handle:
                    state._sum_up()  # what is open then, exit() closes


atexit.register(_sum_up_all)
