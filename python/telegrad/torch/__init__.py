"""Compresses what DistributedDataParallel sends; docs/pytorch.md."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union, overload

from torch.nn.parallel import DistributedDataParallel

from .._environment import codec, is_disabled
from ..errors import Unsupported, UsageError, WrongOrder
from ._auto import standard_codec
from ._backend import BackendOptions, register
from ._bucket import unwrapped
from ._diloco import DiLoCo
from ._disabled import Disabled
from ._hook import State, hook
from ._model import refuse_join
from ._replicas import Replicas
from ._sharded import sharded_modules
from ._states import states

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import ReplicasOptions, StateOptions

__all__ = ["BackendOptions", "DiLoCo", "Replicas", "State", "compress", "hook", "report"]


def _is_compressed(model: Any) -> bool:
    return any(state.model() is model for state in states())


refuse_join(_is_compressed)
register()


def _refuse_others(model: Any) -> None:
    if isinstance(model, DistributedDataParallel):
        return
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if sharded_modules(model):
        why = ("FSDP within a host is fast without codecs; say which ranks hold the same "
               "shards, replicas=mesh['replicate'], or use DistributedDataParallel")
    elif "FullyShardedDataParallel" in kind or "fsdp" in kind.lower():
        why = ("it has no hook for the sum between replicas; take fully_shard of FSDP2 "
               "(torch 2.6 or newer) with replicas=, or DistributedDataParallel")
    elif "deepspeed" in kind.lower():
        why = "it has no hook for its communication; use DistributedDataParallel"
    else:
        why = "wrap it: model = DistributedDataParallel(model)"
    raise Unsupported(f"compress({kind}): {why}")


@overload
def compress(model: Any, gc_type: Optional[str] = None, *, replicas: None = None,
             **options: "Unpack[StateOptions]") -> State: ...


@overload
def compress(model: Any, gc_type: Optional[str] = None, *, replicas: Any,
             **options: "Unpack[ReplicasOptions]") -> Replicas: ...


def compress(model: Any, gc_type: Optional[str] = None, *, replicas: Optional[Any] = None,
             **options: Any) -> Union[State, Replicas]:
    """Sends the model's gradients through a store with a codec. The one line::

        model = DistributedDataParallel(model)
        telegrad.torch.compress(model, optimizer=optimizer)

    All ranks call it with the same arguments. Gradients are averaged as before.

    Args:
        model: a DistributedDataParallel without a communication hook.
        gc_type: "none", "2bit", "topk:0.01" or what else docs/codecs.md has; without it
            $TELEGRAD_CODEC, else "int2" beside an `optimizer` that bears two bits, as torch's
            SGD with momentum and AdamW, and "int4" beside others and none.
        replicas: for a model of FSDP2, the ranks that hold the same shards: a process
            group or a device mesh of one dimension. The sum between them is
            compressed, the one within is FSDP's.
        options: of `State`, or of `Replicas`.

    Returns:
        The state: its `report` says what was sent. With $TELEGRAD_DISABLE=1 a state
        without a job, and the model stays as it is.

    Raises:
        telegrad.Unsupported: FSDP, DeepSpeed, sparse gradients: with the way out.
        telegrad.UsageError: an option that cannot be, and what can.
    """
    model = unwrapped(model)
    if _is_compressed(model):
        raise WrongOrder("the model is compressed already, by telegrad.run or an earlier "
                         "call: leave one of them out, or close() its state first")
    if is_disabled():
        if replicas is not None:
            raise UsageError("TELEGRAD_DISABLE=1 with replicas=, which nothing else sums: "
                             "leave the variable out, or take gc_type='none'")
        return Disabled(model)
    gc_type = gc_type or codec() or standard_codec(
        options.get("optimizer"),
        "off" if replicas is not None else options.get("normalize", "auto"))
    if replicas is not None:
        if not sharded_modules(model):
            raise UsageError("replicas= is for a model of fully_shard (FSDP2, torch 2.6 or "
                             "newer); DistributedDataParallel has process_group=")
        return Replicas(model, gc_type, replicas, **options)
    _refuse_others(model)
    state = State(model, gc_type, **options)
    try:
        model.register_comm_hook(state, hook)
    except RuntimeError as why:  # torch's, of a model that has one
        state.give_up(f"the model has a communication hook already: {why}; wrap the "
                      "module in a new DistributedDataParallel")
    return state


def report(model: Optional[Any] = None) -> Dict[str, Any]:
    """What was decided and saved, of the model, or of the one compressed last."""
    found: List[Any] = [state for state in states()
                        if model is None or state.model() is unwrapped(model)]
    if not found:
        raise WrongOrder("no model is compressed")
    result: Dict[str, Any] = found[-1].report()
    return result
