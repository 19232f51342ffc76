"""Optimizers that a store runs, as numbers: nothing is pickled."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import Unsupported


@dataclass
class SGD:
    """MXNet's ``sgd``: g = rescale_grad * grad + wd * weight; momentum and weight
    follow in float32 (docs/c.md has the order of operations)."""
    learning_rate: float = 0.01
    momentum: float = 0.0
    wd: float = 0.0
    rescale_grad: float = 1.0


def _refuse(what: str) -> Unsupported:
    return Unsupported(f"{what}: a store runs sgd with momentum and weight decay; keep "
                       "this optimizer on the workers: push gradients, pull sums")


def translate(optimizer: Any) -> SGD:
    """An `SGD`, or an object of mxnet.optimizer.SGD or torch.optim.SGD.

    Raises:
        telegrad.Unsupported: another optimizer, or an option, by name.
    """
    if isinstance(optimizer, SGD):
        return optimizer
    kind = f"{type(optimizer).__module__}.{type(optimizer).__name__}"
    if kind.startswith("mxnet.optimizer") and kind.endswith(".SGD"):
        for option in ("clip_gradient", "lr_scheduler"):
            if getattr(optimizer, option, None) is not None:
                raise _refuse(f"{kind} with {option}")
        for option in ("lr_mult", "wd_mult"):
            if any(value != 1 for value in getattr(optimizer, option, {}).values()):
                raise _refuse(f"{kind} with {option}")
        return SGD(optimizer.lr, optimizer.momentum, optimizer.wd,
                   optimizer.rescale_grad)
    if kind.startswith("torch.optim") and kind.endswith(".SGD"):
        if len(optimizer.param_groups) != 1:
            raise _refuse(f"{kind} with {len(optimizer.param_groups)} groups")
        group = optimizer.param_groups[0]
        for option in ("dampening", "nesterov", "maximize"):
            if group.get(option):
                raise _refuse(f"{kind} with {option}")
        # MXNet's momentum has the rate in it: the same while the rate stays.
        return SGD(group["lr"], group["momentum"], group["weight_decay"])
    raise _refuse(f"optimizer {kind}")
