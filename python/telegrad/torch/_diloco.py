"""Local steps; now and then the workers agree on what these changed."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist

from ..errors import Error, UsageError
from ..optimizer import Rescale
from ..store import Store
from ._hook import names_of
from ._meeting import check_names, job_of_group, ranks_of
from ._residuals import Residuals


def _average(anchors: List[Any]) -> Any:
    return torch.optim.SGD(anchors, lr=1.0)


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

    Args:
        model: a plain module, without DistributedDataParallel.
        inner: the ranks' optimizer, of the model's parameters.
        outer: makes the outer optimizer of a list of tensors that stand for the
            parameters; None: SGD with a rate of 1, which is plain averaging and, on
            small models, better than momentum.
        sync_every: inner steps between two exchanges.
        gc_type, threshold, min_bytes: the codec, as for `telegrad.torch.compress`. All
            parameters go with it.
        job_options: as there.
    """

    def __init__(self, model: Any, inner: Any, *, sync_every: int,
                 outer: Optional[Callable[[List[Any]], Any]] = None,
                 gc_type: str = "2bit", threshold: str = "auto", min_bytes: int = 0,
                 **job_options: Any) -> None:
        check_names(job_options, DiLoCo)
        if sync_every < 1:
            raise UsageError(f"sync_every={sync_every}: 1 or more")
        names = names_of(model)
        self._parameters = [p for p in model.parameters() if id(p) in names]
        self._names = [names[id(p)] for p in self._parameters]
        self._inner, self._sync_every = inner, sync_every
        self.steps = 0
        self._group = job_options.get("group")
        self._job = job_of_group(parameters=self._parameters, **job_options)
        try:
            self._store = Store(self._job)
            self._store.set_compression(type=gc_type, threshold=threshold,
                                        min_bytes=min_bytes)
            self._store.set_optimizer(Rescale(1 / self._job.num_workers))
            self._anchors = [p.detach().clone() for p in self._parameters]
            self._keys = self._store.init(self._names, self._anchors, values=True)
        except Error as why:
            self._job.fail(str(why), why.exit_code)
            raise
        for anchor in self._anchors:
            anchor.grad = torch.zeros_like(anchor)
        self.outer = (outer or _average)(self._anchors)
        self._residuals = Residuals(
            self._store, dict(zip(self._names, self._keys)),
            {name: p.numel() for name, p in zip(self._names, self._parameters)},
            {"gc_type": gc_type, "threshold": threshold, "min_bytes": min_bytes,
             "sync_every": sync_every}, self._group)
        self._take_anchors()

    def _take_anchors(self) -> None:
        with torch.no_grad():
            for parameter, anchor in zip(self._parameters, self._anchors):
                parameter.copy_(anchor)

    def step(self) -> bool:
        """An inner step; whether an exchange followed it."""
        self._inner.step()
        self.steps += 1
        if self.steps % self._sync_every != 0:
            return False
        changes = [anchor.grad for anchor in self._anchors]
        with torch.no_grad():
            for change, anchor, parameter in zip(changes, self._anchors,
                                                 self._parameters):
                torch.sub(anchor, parameter, out=change)
            for name, change in zip(self._names, changes):
                self._residuals.add_to(name, change)
        self._residuals.step_done()
        self._store.push_pull(self._keys, changes, changes)
        self.outer.step()
        self._take_anchors()
        return True

    def state_dict(self) -> Dict[str, Any]:
        """What this rank would lose, for `torch.save`: what the codec keeps, the outer
        optimizer's state, and the weights of the last exchange. The model's and the inner
        optimizer's are yours. All ranks call it, between steps.

        Raises:
            telegrad.WrongOrder: before the first exchange after a "sum" was loaded.
        """
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
        """Leaves the job."""
        self._store.close()
        self._job.close()
