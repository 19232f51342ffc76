"""Which parameters of a model the store takes, and which models cannot be compressed."""
from __future__ import annotations

import functools
import re
from typing import Any, Container, Dict

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..errors import Unsupported, UsageError

_TAKEN = (torch.float32, torch.float16, torch.bfloat16)


def takes(tensor: Any) -> bool:
    """Whether the store has its type."""
    return tensor.dtype in _TAKEN


def names_of(module: Any, without: Container[str] = ()) -> Dict[int, str]:
    """Of the parameters that have gradients, by id, in the model's order.

    Raises:
        telegrad.Unsupported: a type that the store has not, unless the name is in `without`.
    """
    names: Dict[int, str] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad or name in without:
            continue
        if not takes(parameter):
            raise _of_type(name, parameter)
        known = re.sub(r"[^A-Za-z0-9_.:/-]", "_", name)
        while known in names.values():
            known += "_"
        names[id(parameter)] = known
    if not names:
        raise UsageError("the model has no parameter that needs a gradient")
    return names


def _of_type(name: str, parameter: Any) -> Unsupported:
    return Unsupported(f"parameter {name} is {parameter.dtype}: the store takes float32, "
                       "float16 and bfloat16; convert the model, model.float(), or train it "
                       "without compress")


def left_out_of(model: Any) -> Dict[str, Any]:
    """Parameters of a DistributedDataParallel, by name, that the store does not sum: of
    other types, which torch sums, and those that DDP was told to ignore.

    Raises:
        telegrad.Unsupported: where no other is left.
    """
    trained = {name: p for name, p in model.module.named_parameters() if p.requires_grad}
    ignored = model.parameters_to_ignore
    found = {name: p for name, p in trained.items() if name in ignored or not takes(p)}
    if found and len(found) == len(trained):
        for name, parameter in found.items():
            if name not in ignored:
                raise _of_type(name, parameter)
    return found


def mean_by_torch(buffer: Any, group: Any) -> Any:
    """As DDP does it without a hook: a future of the mean over the group, in place."""
    numbers = torch.view_as_real(buffer) if buffer.is_complex() else buffer
    numbers.div_(dist.get_world_size(group))
    work = dist.all_reduce(numbers, group=group, async_op=True)
    return work.get_future().then(lambda _: buffer)


def refuse_what_cannot_be(model: Any) -> None:
    """Of a DistributedDataParallel, before anything is sent.

    Raises:
        telegrad.Unsupported: with the way out.
    """
    if getattr(model, "_use_python_reducer", False):
        raise Unsupported("torch._dynamo.config.optimize_ddp = 'python_reducer', which calls "
                          "no hook with a bucket: set 'ddp_optimizer', torch's standard, "
                          "before DistributedDataParallel is made")
    for name, module in model.module.named_modules():
        weight = getattr(module, "weight", None)
        if getattr(module, "sparse", False) is True and getattr(weight, "requires_grad", False):
            raise Unsupported(f"{name or 'the model'}, {type(module).__name__}(sparse=True), "
                              "has sparse gradients: make it with sparse=False")


def refuse_join(is_compressed: Any) -> None:
    """From now on `DistributedDataParallel.join` is an error of those models."""
    before = DistributedDataParallel.join

    @functools.wraps(before)
    def join(self: Any, divide_by_initial_world_size: bool = True, enable: bool = True,
             **options: Any) -> Any:
        if enable and is_compressed(self):
            raise Unsupported("DDP's join() for uneven inputs: give all ranks the same "
                              "number of batches (drop_last=True)")
        return before(self, divide_by_initial_world_size, enable, **options)

    setattr(DistributedDataParallel, "join", join)
