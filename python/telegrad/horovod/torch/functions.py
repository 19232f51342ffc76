"""What ranks begin alike with: parameters, an optimizer's state, any objects."""
from __future__ import annotations

import ctypes
import pickle
from typing import Any, Dict, List, Optional

import torch

from ..common import world
from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import synchronize
from .allgather import allgather_async
from .broadcast import broadcast_, broadcast_async_

_pickler: Any = pickle
try:  # takes functions of a script, too
    import cloudpickle as _pickler  # type: ignore
except ImportError:
    pass


def _in_bytes(found: Any) -> Any:
    return torch.frombuffer(bytearray(_pickler.dumps(found)), dtype=torch.uint8)


def _of_bytes(memory: Any) -> Any:
    return pickle.loads(ctypes.string_at(memory.data_ptr(), memory.numel()))


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """All ranks get those of `root_rank`, in place.

    Args:
        params: a dict, as ``model.state_dict()``, or a list of tensors or of (name, tensor).

    Raises:
        ValueError: something else.
    """
    if isinstance(params, dict):
        listed = sorted(params.items())
    elif isinstance(params, list):
        listed = [each if isinstance(each, tuple) else (None, each) for each in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    order = [(name, each, each.detach().contiguous()) for name, each in listed
             if torch.is_tensor(each)]
    handles = [broadcast_async_(sent, root_rank, name) for name, _, sent in order]
    for handle, (_, each, sent) in zip(handles, order):
        synchronize(handle)
        if sent.data_ptr() != each.data_ptr():
            each.detach().copy_(sent)


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """That of `root_rank`, pickled: a rank trusts the others."""
    shown = name or type(obj).__name__
    if world.rank() == root_rank:
        memory = _in_bytes(obj)
        size = torch.tensor([memory.numel()])
    else:
        size = torch.zeros(1, dtype=torch.int64)
    broadcast_(size, root_rank, f"{shown}.sz", process_set)
    if world.rank() != root_rank:
        memory = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(memory, root_rank, f"{shown}.t", process_set)
    return obj if world.rank() == root_rank else _of_bytes(memory)


def allgather_object(obj: Any, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> List[Any]:
    """Those of all ranks, by rank, pickled: a rank trusts the others."""
    shown = name or type(obj).__name__
    memory = _in_bytes(obj)
    sizes = allgather_async(torch.tensor([memory.numel()]), f"{shown}.sz", process_set)
    gathered = allgather_async(memory, f"{shown}.t", process_set)
    parts = synchronize(gathered).split(synchronize(sizes).tolist())
    return [_of_bytes(part) for part in parts]


def _fill_state(optimizer: Any, sparse: List[int]) -> None:
    """Makes what the optimizer keeps by a step, so that it can be received; parameters stay
    as they are where that step changes them."""
    before = [(p, p.detach().clone()) for group in optimizer.param_groups
              for p in group["params"]]
    for p, _ in before:
        if p.requires_grad:
            p.grad = torch.zeros_like(p)
            if isinstance(optimizer, torch.optim.SparseAdam) or id(p) in sparse:
                p.grad = p.grad.to_sparse()
    step_alone = getattr(optimizer, "step_alone", optimizer.step)
    step_alone()
    with torch.no_grad():
        for p, value in before:
            p.copy_(value)


def _sparse_of(model: Any) -> List[int]:
    return [id(p) for module in (model.modules() if model else ())
            if getattr(module, "sparse", False) is True for p in module.parameters()]


def broadcast_optimizer_state(optimizer: Any, root_rank: int, model: Any = None) -> None:
    """All ranks get `root_rank`'s state and settings of the optimizer, in place.

    Args:
        model: by whose modules sparse gradients are known.

    Raises:
        ValueError: torch.optim.LBFGS, whose state is not made of tensors.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if not optimizer.state_dict()["state"]:
        _fill_state(optimizer, _sparse_of(model))
    state = optimizer.state_dict()
    if not state["state"]:
        return
    tensors: List[Any] = []
    plain: Dict[str, Any] = {}
    for number, kept in state["state"].items():
        for name, value in kept.items():
            if torch.is_tensor(value):
                tensors.append((f"{name}.{number}", value))
            else:
                plain[f"{name}.{number}"] = value
    broadcast_parameters(tensors, root_rank)
    options = [{name: value for name, value in group.items() if name != "params"}
               for group in state["param_groups"]]
    options, plain = broadcast_object((options, plain), root_rank, "optimizer_state")
    for group, given in zip(optimizer.param_groups, options):
        group.update(given)
    if plain:  # state_dict's inner dicts are the optimizer's own
        for number, kept in state["state"].items():
            kept.update({name: plain[f"{name}.{number}"] for name in kept
                         if f"{name}.{number}" in plain})
