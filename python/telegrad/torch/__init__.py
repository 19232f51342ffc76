"""Compresses what DistributedDataParallel sends; docs/pytorch.md."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from torch.nn.parallel import DistributedDataParallel

from ..errors import Unsupported, WrongOrder
from ._diloco import DiLoCo
from ._hook import State, hook, states

__all__ = ["DiLoCo", "State", "compress", "hook", "report"]


def _refuse_others(model: Any) -> None:
    if isinstance(model, DistributedDataParallel):
        return
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if "FullyShardedDataParallel" in kind or "fsdp" in kind.lower():
        why = ("it reduces shards, which have no place for a residual; use "
               "DistributedDataParallel")
    elif "deepspeed" in kind.lower():
        why = "it has no hook for its communication; use DistributedDataParallel"
    else:
        why = "wrap it: model = DistributedDataParallel(model)"
    raise Unsupported(f"compress({kind}): {why}")


def compress(model: Any, gc_type: str = "2bit", **options: Any) -> State:
    """Sends the model's gradients through a store with a codec. The one line::

        model = DistributedDataParallel(model)
        telegrad.torch.compress(model, gc_type="2bit")

    All ranks call it with the same arguments. Gradients are averaged as before.

    Args:
        model: a DistributedDataParallel without a communication hook.
        gc_type: "none", "2bit", "topk:0.01" or what else docs/codecs.md has.
        options: of `State`.

    Returns:
        The state: its `report` says what was sent.

    Raises:
        telegrad.Unsupported: FSDP, DeepSpeed, sparse gradients: with the way out.
        telegrad.UsageError: an option that cannot be, and what can.
    """
    _refuse_others(model)
    if any(state.model() is model for state in states()):
        raise WrongOrder("the model is compressed already")
    state = State(model, gc_type, **options)
    model.register_comm_hook(state, hook)
    return state


def report(model: Optional[Any] = None) -> Dict[str, Any]:
    """What was decided and saved, of the model, or of the one compressed last."""
    found: List[State] = [state for state in states()
                          if model is None or state.model() is model]
    if not found:
        raise WrongOrder("no model is compressed")
    return found[-1].report()
