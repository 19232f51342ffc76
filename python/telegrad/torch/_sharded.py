"""What FSDP2 shards, and sums of its shards' gradients that run beside backward."""
from __future__ import annotations

import functools
from typing import Any, Dict

import torch

from .._arrays import stream_of
from ..store import Store


def sharded_modules(model: Any) -> Dict[str, Any]:
    """Those that `fully_shard` was called on, by name, where the installed torch has a
    hook for them; else none."""
    return {name or "model": module for name, module in model.named_modules()
            if hasattr(module, "set_all_reduce_hook")}


def parts_of(module: Any) -> Any:
    """Its parameters without those of sharded modules within it, as FSDP2 has them; None
    where there are none."""
    return module._get_fsdp_state()._fsdp_param_group


def _dtype_of(parts: Any, each: Any) -> Any:
    """In which a parameter's gradient is reduced, as FSDP2 decides with the first step."""
    own = each.sharded_param.dtype
    if hasattr(parts, "mp_policy"):  # before torch 2.15
        return parts.mp_policy.reduce_dtype or parts.mp_policy.param_dtype or own
    return each.mp_policy.reduce_dtype or getattr(each.sharded_param, "grad_dtype", own) or own


def blank_of(parts: Any) -> Any:
    """As the gradient that FSDP2 hands to the hook: [n], shards padded to one size."""
    trained = _trained(parts)
    size = sum(each.padded_sharded_param_size.numel() for each in trained)
    dtypes = [_dtype_of(parts, each) for each in trained] or [None]
    return torch.empty(size, device=parts.device,
                       dtype=functools.reduce(torch.promote_types, dtypes))


def _trained(parts: Any) -> Any:
    return [each for each in parts.fsdp_params if each.sharded_param.requires_grad]


def may_follow(parts: Any, gradient: Any) -> bool:
    """Whether sums may come once backward is over: nobody reads or divides the gradient
    between the hook and then."""
    return (gradient.dtype in (torch.float32, torch.bfloat16)
            and not getattr(parts, "force_sum_reduction_for_comms", False)
            and not any(each.offload_to_cpu or getattr(
                each.sharded_param, "_post_accumulate_grad_hooks", None)
                for each in _trained(parts)))


class Sum:
    """Of a module's gradients, in memory of its own, while backward goes on."""

    def __init__(self, store: Store, key: int) -> None:
        self._store, self._key = store, key
        self._memory: Any = None  # [n]
        self._tag = 0
        self._parts: Any = None  # until `give`
        self._is_added = False

    def start(self, parts: Any, gradient: Any) -> None:
        """`gradient` [n]: as FSDP2 hands it to the hook, before it adds it to what there
        is of its parameters."""
        self.settle()
        if self._memory is None or self._memory.dtype != gradient.dtype:
            self._memory = torch.empty_like(gradient)
        self._memory.copy_(gradient)
        self._parts = parts
        self._is_added = any(each.sharded_param.grad is not None for each in _trained(parts))
        if self._is_added:
            gradient.zero_()
        self._tag = self._store.start("push_pull", [self._key], [self._memory],
                                      [self._memory])

    def give(self) -> None:
        """Behind backward: parameters get the sum as FSDP2 would give it. The host waits
        for no device."""
        parts, self._parts = self._parts, None
        self._store.queue.wait_on(self._tag, stream_of(self._memory))
        reduced = getattr(parts, "_post_reduce_event", None)  # that FSDP2 has not awaited
        if reduced is not None and self._memory.is_cuda:
            torch.cuda.current_stream(self._memory.device).wait_event(reduced)
        begin = 0
        for each in _trained(parts):
            own = torch.as_strided(self._memory, each.sharded_size,
                                   each.contiguous_sharded_stride, begin)
            begin += each.padded_sharded_param_size.numel()
            with torch.no_grad():
                to = each.sharded_param.grad.to_local()
                if self._is_added:
                    to.add_(own.to(to.dtype))
                else:
                    to.copy_(own)

    def settle(self) -> None:
        """Waits for the end of the last one, of which nobody wants the result any more or
        has it."""
        tag, self._tag, self._parts = self._tag, 0, None
        if tag:
            self._store.queue.wait(tag)
