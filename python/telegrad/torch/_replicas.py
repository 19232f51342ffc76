"""HSDP: FSDP2 shards a model within a host, Telegrad sums between the replicas."""
from __future__ import annotations

import time
import weakref
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist

from ..errors import Error, Unsupported, UsageError
from ..store import Store
from ._hook import remember
from ._meeting import job_of_group, ranks_of


def sharded_modules(model: Any) -> Dict[str, Any]:
    """Those that `fully_shard` was called on, by name, where the installed torch has a
    hook for them; else none."""
    return {name or "model": module for name, module in model.named_modules()
            if hasattr(module, "set_all_reduce_hook")}


def _group_of(replicas: Any) -> Any:
    """Of a process group, or a device mesh of one dimension."""
    return replicas.get_group() if hasattr(replicas, "get_group") else replicas


def _has_replicas(module: Any) -> bool:
    group = getattr(module._get_fsdp_state(), "_fsdp_param_group", None)
    return bool(getattr(group, "_is_hsdp", False))


class Replicas:
    """What `telegrad.torch.compress` makes with `replicas=`. A module's sharded
    gradients are one tensor of the store, [elements of this rank's shards]. They are
    exchanged when FSDP2 has reduced them, and backward waits for that.

    Args:
        replicas: the ranks that hold the same shards: a process group, or a device mesh
            of one dimension, ``mesh["replicate"]``. They begin with the weights of its
            first rank.
        gc_type, threshold, reply, packing, nonfinite, min_bytes, warmup_steps, guard:
            `telegrad.Store.set_compression`; patterns of `rules` are searched for in
            modules' names.
        job_options: of `telegrad.Job`: transport, bind, link, timeouts.
    """

    def __init__(self, model: Any, gc_type: str, replicas: Any, *, rules: str = "",
                 threshold: str = "auto", reply: str = "auto", packing: str = "plain",
                 nonfinite: str = "error", min_bytes: int = 0, warmup_steps: int = 0,
                 guard: bool = True, **job_options: Any) -> None:
        modules = sharded_modules(model)
        if any(map(_has_replicas, modules.values())):
            raise Unsupported("a model whose mesh has replicas, which FSDP sums itself, "
                              "before its hook: fully_shard(model, mesh=mesh['shard'])")
        if gc_type == "auto":
            raise Unsupported("'auto' between replicas: their sums are waited for one by "
                              "one, and it compares steps that overlap; name a codec")
        group = _group_of(replicas)
        self.model: Callable[[], Any] = weakref.ref(model)
        self._job = job_of_group(group=group, **job_options)
        try:
            self._store = Store(self._job)
            self._store.set_compression(
                type=gc_type, rules=rules, threshold=threshold, reply=reply,
                packing=packing, nonfinite=nonfinite, min_bytes=min_bytes,
                warmup_steps=warmup_steps, guard=guard)
        except Error as why:
            self._job.fail(str(why), why.exit_code)
            raise
        with torch.no_grad():
            first = ranks_of(group)[0]
            for parameter in model.parameters():
                dist.broadcast(parameter.to_local(), src=first, group=group)
        self.num_workers = self._job.num_workers
        self._keys: Dict[str, int] = {}
        self._sizes: Dict[str, int] = {}
        self.waited_s = 0.0
        for name, module in modules.items():
            module.set_all_reduce_hook(self._hook(name))
        remember(self)

    def _hook(self, name: str) -> Callable[[Any], None]:
        return lambda gradient: self._exchange(name, gradient)

    def _exchange(self, name: str, gradient: Any) -> None:
        """`gradient` [n]: this rank's shards, their mean over the shards' ranks; becomes
        the mean over replicas, too."""
        start = time.monotonic()
        if name not in self._keys:  # sizes are known now, and alike on all replicas
            (self._keys[name],) = self._store.init([name], [gradient])
            self._sizes[name] = gradient.numel()
        if gradient.numel() != self._sizes[name]:
            raise UsageError(f"module {name} has gradients of {gradient.numel()} elements "
                             f"and had {self._sizes[name]}: all its parameters must take "
                             "part in every step")
        self._store.push_pull([self._keys[name]], [gradient], [gradient])
        gradient.div_(self.num_workers)
        self.waited_s += time.monotonic() - start

    def report(self) -> Dict[str, Any]:
        """``decisions`` of each module, ``waited_s``, ``workers`` (replicas), and bytes
        of this rank as `telegrad.Store.stats`."""
        decisions: List[Dict[str, Any]] = self._store.report() if self._keys else []
        return {"decisions": decisions, "waited_s": self.waited_s,
                "workers": self.num_workers, **self._store.stats()}

    def close(self) -> None:
        """Leaves the job; the model cannot be stepped then."""
        self._store.close()
        self._job.close()
