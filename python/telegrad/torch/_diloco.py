"""Local steps; now and then the workers agree on what these changed."""
from __future__ import annotations

from ctypes import c_int32, c_uint64
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .._hosts import Hosts
from .._library import call
from .._log import LOGGER
from .._momentum import wants_momentum
from ..errors import Error, UsageError, WrongOrder
from ..optimizer import Rescale
from ..store import Store
from ._alike import optimizer_settings
from ._dropped import close_when_dropped
from ._exchange import Exchange, exchanges_of
from ._meeting import check_names, job_of_group, job_of_store, leave_for_next, ranks_of
from ._model import names_of
from ._momentum import settle
from ._options import DiLoCoOptions, refuse_elastic
from ._parts import HostRanks, Parts
from ._residuals import Residuals, lost_text

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _average(anchors: List[Any]) -> Any:
    return torch.optim.SGD(anchors, lr=1.0)


def _leave(job: Any, parts: Optional[Parts]) -> None:
    if parts is None:
        job.close()
        return
    if job._handle and job.failure() is None:
        parts.close()
    parts.job.close()
    job.close()


def turns_of(sizes: Sequence[int], steps: int, fragments: int) -> List[int]:
    """After which of `steps` steps each tensor begins its exchange."""
    turns = (c_int32 * len(sizes))()
    call("fragment_turns", (c_uint64 * len(sizes))(*sizes), len(sizes), steps, fragments, turns)
    return list(turns)


class DiLoCo:
    """Trains a model with `inner` on each rank alone; after `sync_every` steps the
    ranks send what these changed (pseudo-gradients), with a codec and error feedback,
    and an outer optimizer applies the mean. A step in between sends nothing::

        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        diloco = telegrad.torch.DiLoCo(model, inner, sync_every=32, gc_type="2bit")
        for batch in batches:
            inner.zero_grad()
            loss(model(batch)).backward()
            diloco.step()

    All ranks begin with rank 0's weights, and have the same weights after each
    exchange. Buffers (running means of BatchNorm) stay each rank's own.

    With `fragments` above 1 the parameters take turns (streaming DiLoCo, Douillard et
    al., 2025): each of so many parts begins its exchange after steps of its own, and it
    runs beside the steps until the next part's turn. What these steps change is kept, on
    top of the outer optimizer's result. Ranks then have the same weights after
    `exchange()`: call it before an evaluation and at the end.

    Args:
        model: a plain module, without DistributedDataParallel.
        inner: the ranks' optimizer, of the model's parameters.
        outer: makes the outer optimizer of a list of tensors that stand for the
            parameters; None: SGD with a rate of 1, which is plain averaging and, on
            small models, better than momentum.
        sync_every: inner steps between two exchanges of a parameter.
        fragments: parts that take turns, at most `sync_every`.
        gc_type, threshold, min_bytes: the codec, as for `telegrad.torch.compress`. All
            parameters go with it.
        momentum, momentum_rate: as of `telegrad.torch.State`, of the outer optimizer.
        elastic: all ranks do an exchange or none, so that after an error which is
            ``retryable`` those that are left may `reconfigure` and do it again. Costs a
            barrier and a copy of what codecs keep in each exchange; without `fragments`.
        job_options: as there.

    Raises:
        telegrad.UsageError: an argument that cannot be, and what can.
        telegrad.Mismatch: on all ranks, which arguments differ between them, and how; so of
            the rates of `inner` and of the outer optimizer.
        telegrad.WrongOrder: there is no process group.
    """

    def __init__(self, model: Any, inner: Any, *, sync_every: int, fragments: int = 1,
                 outer: Optional[Callable[[List[Any]], Any]] = None,
                 gc_type: str = "2bit", threshold: Union[str, float] = "auto", min_bytes: int = 0,
                 momentum: str = "auto", momentum_rate: Optional[float] = None,
                 elastic: bool = False,
                 **job_options: "Unpack[DiLoCoOptions]") -> None:
        check_names(job_options, DiLoCo, DiLoCoOptions)
        if sync_every < 1:
            raise UsageError(f"sync_every={sync_every}: 1 or more")
        if not 1 <= fragments <= sync_every:
            raise UsageError(f"fragments={fragments}: 1 to sync_every={sync_every}")
        if elastic:
            refuse_elastic(gc_type, job_options)
            job_options["tier1"] = "off"
            if fragments > 1:
                raise UsageError("elastic=True with fragments: one exchange ends within a step")
        names = names_of(model)
        self._parameters = [p for p in model.parameters() if id(p) in names]
        self._names = [names[id(p)] for p in self._parameters]
        self._inner, self._sync_every, self._fragments = inner, sync_every, fragments
        self._turns = turns_of([p.numel() for p in self._parameters], sync_every, fragments)
        self._running: Optional[Tuple[List[Exchange], List[int]]] = None  # of parameters
        self._ended: List[Exchange] = []  # which a device may be at
        self.steps = 0
        self._group = job_options.get("group")
        self._anchors = [p.detach().clone() for p in self._parameters]
        self.outer = (outer or _average)(self._anchors)
        self._momentum = settle(self.outer, momentum, momentum_rate, wants_momentum([gc_type]),
                                set(map(id, self._anchors)))
        self._setting: Dict[str, Any] = {"gc_type": gc_type, "threshold": threshold,
                                         "min_bytes": min_bytes, "sync_every": sync_every,
                                         **self._momentum.settings}
        self._elastic = elastic
        self._held: Optional[Dict[str, Any]] = None  # until a job has it
        self._job_options: Dict[str, Any] = {
            **job_options, "parameters": self._parameters, "settings": {
                **self._setting, "fragments": fragments, "elastic": elastic,
                **optimizer_settings("inner", inner),
                **optimizer_settings("outer", self.outer)}}
        self._changes = [torch.zeros_like(anchor) for anchor in self._anchors]
        hosts = HostRanks(self._group, self._parameters)
        self._open(job_of_group(hosts=hosts, **self._job_options), hosts=hosts)
        self._sent = ([torch.zeros_like(anchor) for anchor in self._anchors]
                      if fragments > 1 else [])  # the weights that the changes led to
        self._momentum.apply()
        if self._job.rank == 0:
            if self._parts:
                LOGGER.info("hosts sum first: %s", self._parts.why)
            else:
                Hosts(self._job.plan(), 0, self._job.num_servers, hosts.why).say()
            if self._momentum.note:
                LOGGER.info("%s", self._momentum.note)
        self._take_anchors()

    def _open(self, job: Any, carried: Optional[Dict[str, Any]] = None,
              hosts: Optional[HostRanks] = None) -> None:
        """A store in that job; what an earlier one held back."""
        self._job = job
        self._parts: Optional[Parts] = None
        named = dict(zip(self._names, self._anchors))
        try:
            if hosts is not None and hosts.ranks:
                self._parts = Parts(job, hosts, self._group, named, self._setting["min_bytes"],
                                    **{what: value for what, value in self._job_options.items()
                                       if what not in ("group", "parameters")})
            self._store = Store(self._parts.job if self._parts else job)
            self._store.set_compression(
                type=self._setting["gc_type"], threshold=self._setting["threshold"],
                min_bytes=self._setting["min_bytes"], **self._momentum.settings)
            self._store.set_optimizer(Rescale(1 / job.num_workers))
            self._num_workers = job.num_workers
            owned, has_values = named, True
            if self._parts:
                owned, has_values = self._parts.blanks, False
                self._take_root()
            self._keys = dict(zip(owned, self._store.init(
                [*owned], [*owned.values()], values=has_values) if owned else []))
        except Error as why:
            job.fail(str(why), why.exit_code)
            raise
        fragments = {"fragments": self._fragments} if self._fragments > 1 else {}
        self._residuals = Residuals(
            self._store, self._keys, {name: p.numel() for name, p in named.items()},
            {**self._setting, **fragments}, self._group, job,
            *((self._parts.numbers, self._parts.own) if self._parts else ()))
        self._residuals.carried = carried
        self._exchanges = {} if self._parts is None else exchanges_of(
            self._store, self._parts, self._names, self._changes, self._turns, self._keys, job)
        self._when_dropped = close_when_dropped(self, partial(_leave, job, self._parts))

    def _take_root(self) -> None:
        root = ranks_of(self._group)[0]
        for anchor in self._anchors:
            dist.broadcast(anchor, src=root, group=self._group)

    def reconfigure(self, store: Any, rank: int, world_size: int,
                    timeout: float = 60.0) -> None:
        """Goes on with these ranks, after an exchange that was not done, and does it with
        them: what they have done since the last one is in it, and what their codecs held
        back. The outer optimizer, and the inner one, stay as they are.

        Args:
            store, rank, world_size, timeout: as of `telegrad.torch.State.reconfigure`.

        Raises:
            telegrad.Error: ``retryable`` where another call, with the ranks that are left
                and another prefix, may go well.
            telegrad.Mismatch: ranks differ in what they were given or have done.
            telegrad.WrongOrder: without ``elastic=True``.
        """
        if not self._elastic:
            raise WrongOrder("reconfigure of a DiLoCo without elastic=True")
        if self._held is None:
            self._held = self._residuals.held()
        self._running, self._ended = None, []
        self._when_dropped.detach()
        leave_for_next(self._job, self._store, "ranks")
        options = {**self._job_options}
        options.pop("group", None)
        options["settings"] = {**options["settings"], "steps done": self.steps}
        lost = lost_text(self._held, self._num_workers, world_size)
        if rank == 0:
            LOGGER.info("%d ranks go on from step %d%s", world_size, self.steps, lost)
        self._open(job_of_store(store, rank, world_size, timeout, **options),
                   dict(self._held))
        self._held = None
        self.exchange()

    def _take_anchors(self) -> None:
        with torch.no_grad():
            for parameter, anchor in zip(self._parameters, self._anchors):
                parameter.copy_(anchor)

    def step(self) -> bool:
        """An inner step; whether an exchange followed it, or of a fragment began."""
        self._inner.step()
        self.steps += 1
        turn = self.steps % self._sync_every
        due = [i for i, each in enumerate(self._turns) if each == turn]
        if not due:
            return False
        self._finish()
        self._begin(due)
        if self._fragments == 1:
            self._finish()
        return True

    def exchange(self) -> None:
        """All parameters at once, after what is under way: the ranks have the same
        weights then. All ranks call it, between steps."""
        self._finish()
        self._begin(list(range(len(self._parameters))))
        self._finish()

    def _begin(self, due: List[int]) -> None:
        self._settle()
        changes = [self._changes[i] for i in due]
        if self._elastic:
            self._residuals.begin_step()
        with torch.no_grad():
            for i, change in zip(due, changes):
                torch.sub(self._anchors[i], self._parameters[i], out=change)
                self._residuals.add_to(self._names[i], change)
                if self._sent:
                    self._sent[i].copy_(self._parameters[i])
        if not self._residuals.carried and not self._elastic:
            self._residuals.step_done()
        begun: List[Exchange] = [
            each for turn in sorted({self._turns[i] for i in due})
            for each in self._exchanges.get(turn, [])]
        if not self._parts:
            begun = [Exchange(self._store, [self._keys[self._names[i]] for i in due], changes)]
        for each in begun:
            each.begin()
        self._running = begun, due

    def _finish(self) -> None:
        if self._running is None:
            return
        (begun, due), self._running = self._running, None
        for each in begun:
            each.end()
        self._ended = begun
        if self._elastic:
            self._settle()
            self._job.barrier()  # who comes through knows that all do
            self._residuals.step_done()
        for i in due:
            self._anchors[i].grad = self._changes[i]
        self.outer.step()
        with torch.no_grad():
            for i in due:
                self._anchors[i].grad = None
                if self._sent:  # with what steps have changed since
                    self._parameters[i].sub_(self._sent[i]).add_(self._anchors[i])
                else:
                    self._parameters[i].copy_(self._anchors[i])

    def _settle(self) -> None:
        ended, self._ended = self._ended, []
        for each in ended:
            each.settle()

    def state_dict(self) -> Dict[str, Any]:
        """What this rank would lose, for `torch.save`: what the codec keeps, the outer
        optimizer's state, and the weights of the last exchange. The model's and the inner
        optimizer's are yours: save them after this call, which waits for a fragment's
        exchange. All ranks call it, between steps.

        Raises:
            telegrad.WrongOrder: before the first exchange after a "sum" was loaded.
        """
        self._finish()
        self._settle()
        return {**self._residuals.save(), "steps": self.steps,
                "anchors": [anchor.detach().clone() for anchor in self._anchors],
                "outer": self.outer.state_dict()}

    def load_state_dict(self, state: Any, reshard: Optional[str] = None) -> None:
        """Of this rank, with the model and the inner optimizer of then. All ranks call it,
        between steps.

        Args:
            state, reshard: as of `telegrad.torch.State.load_state_dict`. On another number
                of workers all take the weights of the last exchange.

        Raises:
            telegrad.UsageError: on all ranks, what does not fit.
        """
        self._finish()
        self._settle()
        self._residuals.load(state, reshard)
        first = state if isinstance(state, dict) else (list(state) or [None])[0]
        root = ranks_of(self._group)[0]
        shared = [None if first is None else (first["steps"], first["outer"],
                                              first["workers"])]
        dist.broadcast_object_list(shared, src=root, group=self._group)
        if shared[0] is None:
            raise UsageError("no state on rank 0, whose weights all take")
        self.steps, outer, workers = shared[0]
        self.outer.load_state_dict(outer)
        with torch.no_grad():
            for i, anchor in enumerate(self._anchors):
                if first is not None:
                    anchor.copy_(first["anchors"][i])
                dist.broadcast(anchor, src=root, group=self._group)
        if workers != self._job.num_workers:
            self.steps -= self.steps % self._sync_every
            self._take_anchors()

    def report(self) -> Dict[str, Any]:
        """Bytes of this rank as `telegrad.Store.stats`; ``push_ratio`` and
        ``pull_ratio`` to what DistributedDataParallel would send in as many steps."""
        stats = self._store.stats()
        dense = 4 * self.steps * sum(p.numel() for p in self._parameters)
        return {"steps": self.steps, **stats,
                **{f"{side}_ratio": dense / max(stats[f"{side}_wire_bytes"], 1)
                   for side in ("push", "pull")}}

    def close(self) -> None:
        """Leaves the job; an exchange under way is thrown away."""
        self._momentum.release()
        self._store.close()
        _leave(self._job, self._parts)
