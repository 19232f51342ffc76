"""HSDP: FSDP2 shards a model within a host, Telegrad sums between the replicas."""
from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Union

import torch
import torch.distributed as dist

from .._hosts import hosts_of
from .._log import LOGGER
from ..errors import Error, PeerDied, Unsupported, UsageError, WrongOrder
from ..optimizer import Rescale
from ..store import Store
from ._alike import optimizer_settings
from ._auto import Choice, OptimizerCheck
from ._dropped import close_when_dropped
from ._meeting import (check_names, is_first_of, job_of_group, job_of_store, leave_for_next,
                       ranks_of)
from ._options import ServersOptions, refuse_elastic
from ._residuals import Residuals, lost_text
from ._sharded import Sum, blank_of, may_follow, parts_of, sharded_modules
from ._states import remember
from .._texts import ratio

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _group_of(replicas: Any) -> Any:
    """Of a process group, or a device mesh of one dimension."""
    return replicas.get_group() if hasattr(replicas, "get_group") else replicas


class Replicas:
    """What `telegrad.torch.compress` makes with `replicas=`. A module's sharded
    gradients are one tensor of the store, [elements of this rank's shards]. They are
    exchanged from when FSDP2 has reduced them, beside the rest of backward, at whose end
    parameters get the means. In micro-steps with `set_requires_gradient_sync(False)` or
    `set_requires_all_reduce(False)` of FSDP2 nothing is exchanged::

        fully_shard(model, mesh=mesh["shard"])
        telegrad.torch.compress(model, gc_type="2bit", replicas=mesh["replicate"])

    Args:
        model: on which `fully_shard` of FSDP2 was called (torch 2.6 or newer).
        replicas: the ranks that hold the same shards: a process group, or a device mesh
            of one dimension, ``mesh["replicate"]``. They begin with the weights of its
            first rank.
        gc_type, threshold, reply, packing, nonfinite, min_bytes, warmup_steps, guard,
            allow: `telegrad.Store.set_compression`; patterns of `rules` are searched for
            in modules' names. With "auto" the replicas of each shard choose by
            themselves.
        optimizer, momentum, momentum_rate: as of `telegrad.torch.State`.
        normalize: "on" is refused, since shards lie in no optimizer as they are sent.
        elastic: all replicas do a step or none, so that after an error which is ``retryable``
            those that are left may `reconfigure` and do it again. Costs in each step a barrier,
            a number summed over shards and a copy of what codecs keep; without "auto".
        job_options: of `telegrad.Job`: transport, bind, link, timeouts.

    Raises:
        telegrad.UsageError: an option that cannot be, and what can.
        telegrad.Mismatch: on all replicas, which arguments differ between them, and how.
        telegrad.Unsupported: a mesh with replicas that FSDP sums itself.
    """

    def __init__(self, model: Any, gc_type: str, replicas: Any, *, rules: str = "",
                 threshold: Union[str, float] = "auto", reply: str = "auto", packing: str = "plain",
                 nonfinite: str = "error", min_bytes: int = 0, warmup_steps: int = 0,
                 guard: bool = True, allow: Optional[str] = None,
                 optimizer: Optional[Any] = None, momentum: str = "auto",
                 momentum_rate: Optional[float] = None, normalize: str = "auto",
                 elastic: bool = False, **job_options: "Unpack[ServersOptions]") -> None:
        check_names(job_options, Replicas, ServersOptions)
        if elastic:
            refuse_elastic(gc_type, job_options)
            job_options["tier1"] = "off"
        check = OptimizerCheck(gc_type, allow, rules, optimizer, model.parameters(),
                               is_first_of(_group_of(replicas)), momentum, momentum_rate,
                               normalize, "shards of replicas= lie in no optimizer as they are sent")
        self._check, allow, self._momentum = check, check.allow, check.momentum
        modules = {name: module for name, module in sharded_modules(model).items()
                   if parts_of(module) is not None}
        if any(parts_of(module)._is_hsdp for module in modules.values()):
            raise Unsupported("a model whose mesh has replicas, which FSDP sums itself, "
                              "before its hook: fully_shard(model, mesh=mesh['shard'])")
        blanks = {name: blank for name, module in modules.items()
                  if (blank := blank_of(parts_of(module))).numel() > 0}
        if not blanks:
            raise UsageError("the model has no parameter that needs a gradient")
        setting: Dict[str, Any] = {
            "rules": rules, "threshold": threshold, "reply": reply, "packing": packing,
            "nonfinite": nonfinite, "min_bytes": min_bytes, "warmup_steps": warmup_steps,
            "guard": guard, "allow": allow, **self._momentum.settings}
        group = _group_of(replicas)
        self.model: Callable[[], Any] = weakref.ref(model)
        self._gc_type, self._setting, self._group, self._blanks = gc_type, setting, group, blanks
        self._elastic = elastic
        self._held: Optional[Dict[str, Any]] = None  # until a job has it
        self._error: Optional[Error] = None  # of this backward
        self._mesh = parts_of(next(iter(modules.values()))).mesh_info
        self._steps = 0  # that all replicas have done, where elastic
        self._job_options: Dict[str, Any] = {**job_options, "settings": {
            "gc_type": gc_type, **setting, "elastic": elastic,
            **optimizer_settings("optimizer", optimizer)}}
        self._open(job_of_group(group=group, parameters=model.parameters(),
                                **self._job_options))
        with torch.no_grad():
            first = ranks_of(group)[0]
            for parameter in model.parameters():
                dist.broadcast(parameter.to_local(), src=first, group=group)
        self._partial: Dict[str, Any] = {}  # of micro-steps before the last
        self._under_way: List[str] = []  # in this backward
        self._backward = -1
        self._waited_before_s = 0.0  # of the step
        self.waited_s = 0.0
        self._closes = threading.Lock()
        for name in blanks:
            modules[name].set_all_reduce_hook(self._hook(name, parts_of(modules[name])))
        self._momentum.apply()
        if dist.get_rank() == 0:
            hosts_of(self._job).say()
            if self._momentum.note:
                LOGGER.info("%s", self._momentum.note)
        remember(self)
        close_when_dropped(model, self.close)

    def _open(self, job: Any, carried: Optional[Dict[str, Any]] = None) -> None:
        """A store in that job; what an earlier one held back."""
        self._job = job
        try:
            self._store = Store(job)
            self._store.set_compression(type=self._gc_type, **self._setting)
            self._store.set_optimizer(Rescale(1 / job.num_workers))
            keys = self._store.init([*self._blanks], [*self._blanks.values()])
        except Error as why:
            job.fail(str(why), why.exit_code)
            raise
        self.num_workers = job.num_workers
        self._keys = dict(zip(self._blanks, keys))
        self._sizes = {name: blank.numel() for name, blank in self._blanks.items()}
        mesh = self._mesh
        self._residuals = Residuals(
            self._store, self._keys, self._sizes,
            {"gc_type": self._gc_type, **self._setting,
             "shard": f"{mesh.shard_mesh_rank} of {mesh.shard_mesh_size}"}, self._group)
        self._residuals.carried = carried
        self._choice = Choice(self._store) if self._gc_type == "auto" else None
        self._sums = {name: Sum(self._store, key) for name, key in self._keys.items()}

    def reconfigure(self, store: Any, rank: int, world_size: int,
                    timeout: float = 60.0) -> None:
        """Goes on with these replicas, after a step that was not done: all ranks of each call it,
        and do the step again, with all its micro-steps. What this rank's codecs held back before
        it goes into that. Model and optimizer stay as they are.

        Args:
            store, rank, world_size, timeout: as of `telegrad.torch.State.reconfigure`; ranks are
                the replicas', and one prefix is for all shards.

        Raises:
            telegrad.Error: ``retryable`` where another call, with the replicas that are left
                and another prefix, may go well.
            telegrad.Mismatch: replicas differ in what they were given or have done.
            telegrad.WrongOrder: without ``elastic=True``; the model is gone.
        """
        model = self.model()
        if not self._elastic or model is None:
            raise WrongOrder("reconfigure of replicas without elastic=True, or a model")
        if self._held is None:
            self._held = self._residuals.held()
        leave_for_next(self._job, self._store, "replicas")
        self._partial.clear()
        self._under_way.clear()
        self._error, self._backward = None, -1
        options = {**self._job_options, "parameters": [*model.parameters()]}
        options["settings"] = {**options["settings"], "steps done": self._steps}
        own = dist.PrefixStore(f"shard{self._mesh.shard_mesh_rank}", store)
        lost = lost_text(self._held, self.num_workers, world_size)
        if rank == 0 and self._mesh.shard_mesh_rank == 0:
            LOGGER.info("%d replicas go on from step %d%s", world_size, self._steps, lost)
        self._open(job_of_store(own, rank, world_size, timeout, **options), dict(self._held))
        self._held = None

    def _hook(self, name: str, parts: Any) -> Callable[[Any], None]:
        return lambda gradient: self._exchange(name, parts, gradient)

    def _exchange(self, name: str, parts: Any, gradient: Any) -> None:
        """`gradient` [n]: this rank's shards, their mean over the shards' ranks; becomes
        the mean over replicas, too, at the end of backward."""
        start = time.monotonic()
        if (note := self._check.after_step()):  # there is an optimizer by now
            LOGGER.info("%s", note)
        if gradient.numel() != self._sizes[name]:
            raise UsageError(f"module {name} has gradients of {gradient.numel()} elements "
                             f"of {self._sizes[name]}: all its parameters must take part in "
                             "every step, those that needed a gradient in compress")
        partial = self._partial.pop(name, None)
        if partial is not None:
            gradient.add_(partial)
        if not parts.all_reduce_grads:
            self._partial[name] = gradient.clone()
            gradient.zero_()
            return
        backward = torch._C._current_graph_task_id()  # below 0: without autograd
        self._begin(backward)
        try:
            self._send(name, parts, gradient, backward)
        except Error as why:
            if not self._elastic or backward < 0:
                raise
            self._error = self._error or why  # FSDP2 ends this backward first
        if not self._residuals.carried and not self._elastic:
            self._residuals.step_done()
        self.waited_s += time.monotonic() - start

    def _send(self, name: str, parts: Any, gradient: Any, backward: int) -> None:
        if self._error is not None:
            return
        self._residuals.add_to(name, gradient)
        if backward >= 0 and may_follow(parts, gradient):
            self._sums[name].start(parts, gradient)
            self._under_way.append(name)
        else:
            self._store.push_pull([self._keys[name]], [gradient], [gradient])

    def _begin(self, backward: int) -> None:
        """Of an exchange in the backward of this number."""
        if self._choice is not None:
            self._choice.begin()
        if backward not in (-1, self._backward):
            self._backward = backward
            self._under_way.clear()  # of one that an error has ended
            if self._elastic:
                self._residuals.begin_step()
            # Behind FSDP2's own, in which it may reduce the last modules.
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _finish(self) -> None:
        """At the end of backward."""
        start = time.monotonic()
        names, self._under_way, self._backward = self._under_way, [], -1
        if self._elastic:
            self._end_together(names)
        else:
            self._give(names)
        if self._choice is not None:
            self._settle()
            self._choice.end()
        self.waited_s += time.monotonic() - start
        waited_s, self._waited_before_s = (self.waited_s - self._waited_before_s,
                                           self.waited_s)
        self._store._end_step(self.waited_s)
        if self._choice is not None:
            self._choice.after_step(waited_s)

    def _give(self, names: List[str]) -> None:
        for name in names:
            self._sums[name].give()

    def _end_together(self, names: List[str]) -> None:
        """On all ranks of all replicas that are left, or on none: who has an error makes one of
        all shards of its replica, and a barrier is passed by all replicas or by none."""
        why, self._error = self._error, None
        try:
            if why is None:
                self._give(names)
                self._job.barrier()
        except Error as error:
            why = error
        is_done = torch.tensor([int(why is None)], device=next(iter(self._blanks.values())).device)
        dist.all_reduce(is_done, dist.ReduceOp.MIN, group=self._mesh.shard_process_group)
        if why is None and not is_done.item():
            why = PeerDied("a rank with another shard of this replica has not done the step, "
                           "since others have died")
        if why is not None:
            raise why
        self._residuals.step_done()
        self._steps += 1

    def _settle(self) -> None:
        """Until no operation is under way, on a device neither."""
        for each in self._sums.values():
            each.settle()

    def report(self) -> Dict[str, Any]:
        """``decisions`` of each module, ``waited_s``, ``workers`` (replicas), what
        ``auto`` decided for this rank's shards, bytes of this rank as
        `telegrad.Store.stats`, ``push_ratio`` and ``pull_ratio``."""
        stats = self._store.stats()
        return {"decisions": self._store.report(), "waited_s": self.waited_s,
                "workers": self.num_workers,
                "push_ratio": ratio(stats, "push"), "pull_ratio": ratio(stats, "pull"),
                "auto": list(self._choice.decisions) if self._choice else [], **stats}

    def state_dict(self) -> Dict[str, Any]:
        """What codecs keep of this rank's shards, for `torch.save`; each rank has its own.
        All ranks call it, between steps.

        Raises:
            telegrad.WrongOrder: before the end of the first step after a "sum" was loaded.
        """
        self._settle()
        state = self._residuals.save()
        if self._choice is not None:
            state["choice"] = self._store.save_choice()
        return state

    def load_state_dict(self, state: Any, reshard: Optional[str] = None) -> None:
        """The rest of the run then has the bits of one that was never ended. All ranks
        call it, between steps; of "auto" before the first.

        Args:
            state, reshard: as of `telegrad.torch.State.load_state_dict`. For another
                number of replicas a list of states of this rank's shard.

        Raises:
            telegrad.UsageError: on all replicas of a shard, what does not fit: another
                model, setting, shard or number of replicas.
        """
        self._settle()
        if self._residuals.load(state, reshard) and self._choice is not None:
            self._choice.load(state["choice"])

    def close(self) -> None:
        """Leaves the job; the model cannot be stepped then."""
        with self._closes:  # the collector's thread may be at it
            self._momentum.release()
            self._store.close()
            self._job.close()
