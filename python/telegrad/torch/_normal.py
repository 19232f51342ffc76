"""Gradients of one size for the codec: divided by what an optimizer of torch divides by."""
from __future__ import annotations

import functools
import types
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from ..errors import UsageError
from ._momentum import with_inner

_KINDS = ("auto", "off", "on")
_BLOCK = 256  # elements that share a mean of squares
_FLOOR = .02  # of an element's square, in these means
_LEAST = 2. ** -126  # of such a mean; below it gradients stay as they are
_LACKS = ("amsgrad", "maximize")


def after_steps(optimizer: Any, work: Callable[[Any], None]) -> Callable[[], None]:
    """Calls ``work(optimizer)`` after each; gives what ends that."""
    if hasattr(optimizer, "register_step_post_hook"):
        remove: Callable[[], None] = optimizer.register_step_post_hook(
            lambda self, args, kwargs: work(self)).remove
        return remove
    works, step = [work], optimizer.step  # of torch before 2.0

    @functools.wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        for each in works:
            each(self)
        return result

    optimizer.step = types.MethodType(stepped, optimizer)
    return works.clear


def _steps_of(state: Dict[str, Any]) -> Any:
    """A number; on another device than the CPU a tensor, which nobody waits for."""
    steps = state["step"]
    if torch.is_tensor(steps) and steps.device.type != "cpu":
        return steps.double()
    return float(steps)


def _floor(steps: Any) -> Any:
    if torch.is_tensor(steps):
        return (1 / (steps + 1)).clamp(min=_FLOOR).float()
    return max(_FLOOR, 1 / (steps + 1))


def size_of(state: Dict[str, Any]) -> Optional[Any]:
    """What a gradient is divided by, of its shape, float32; None: 1, before a first step. In
    parts of the root of the block's mean: what a codec holds back keeps its size when all of a
    block grow or shrink."""
    square = state.get("exp_avg_sq")
    if square is None or "step" not in state or square.numel() == 0:
        return None
    flat = square.detach().reshape(-1).float()
    blocks = flat.numel() // _BLOCK * _BLOCK
    means = []
    if blocks:
        whole = flat[:blocks].view(-1, _BLOCK).mean(1, keepdim=True)
        means.append(whole.expand(-1, _BLOCK).reshape(-1))
    if blocks < flat.numel():
        means.append(flat[blocks:].mean().expand(flat.numel() - blocks))
    mean = torch.cat(means)
    size = (flat / mean).add_(_floor(_steps_of(state))).sqrt_()
    return torch.where(mean >= _LEAST, size, torch.ones_like(size)).view(square.shape)


class Normal:
    """Whether codecs get gradients of one size, and Adam, AdamW or NAdam of torch, whose mean
    of squares says it, Nesterov's lead. All ranks have the same mean: it is of what they
    pulled.

    Args:
        optimizer: None: codecs get gradients as they are.
        why: it was wanted, and cannot be.
    """

    def __init__(self, optimizer: Optional[Any] = None, why: str = "") -> None:
        self.why = why
        self._optimizer = optimizer
        self._release: Callable[[], None] = lambda: None

    @property
    def is_on(self) -> bool:
        return self._optimizer is not None

    @property
    def note(self) -> str:
        """What is to be said."""
        if not self.is_on:
            return ""
        name = type(self._optimizer).__name__
        lead = "" if self._has_lead else ", whose steps get Nesterov's lead"
        return (f"codecs get gradients divided by the root of the mean of squares of {name}"
                f"{lead}; normalize='off' leaves both out")

    @property
    def _has_lead(self) -> bool:
        return isinstance(self._optimizer, torch.optim.NAdam)

    def apply(self) -> None:
        """From now on steps have the lead."""
        if self.is_on and not self._has_lead:
            self._release = after_steps(self._optimizer, _lead)

    def release(self) -> None:
        """Steps are the optimizer's own again."""
        self._release()

    def divide(self, parameters: Sequence[Any], gradients: Sequence[Any]) -> List[Any]:
        """In front of the codec, in place; gives what `multiply` needs."""
        if not self.is_on:
            return []
        sizes = [self._size_of(each) for each in parameters]
        for size, gradient in zip(sizes, gradients):
            if size is not None:
                gradient.div_(size)
        return sizes

    def _size_of(self, parameter: Any) -> Optional[Any]:
        assert self._optimizer is not None
        state = self._optimizer.state.get(parameter)
        return size_of(state) if state else None


def multiply(gradients: Sequence[Any], sizes: Sequence[Any]) -> None:
    """Behind the codec, in place."""
    for size, gradient in zip(sizes, gradients):
        if size is not None:
            gradient.mul_(size)


def _lead(optimizer: Any) -> None:
    """After a step of Adam: as if its mean had been the next one's by the same gradient, as
    NAdam has it."""
    found_inf = getattr(optimizer, "found_inf", None)  # GradScaler's, of a fused step
    with torch.no_grad():
        for group in optimizer.param_groups:
            for p in group["params"]:
                state = optimizer.state.get(p)
                if p.grad is None or not state:
                    continue
                change = _change_of(p, state, group, isinstance(optimizer, torch.optim.AdamW))
                if found_inf is not None:
                    change = torch.where(found_inf.to(change.device) == 0, change,
                                         torch.zeros_like(change))
                p.add_(change)


def _change_of(p: Any, state: Dict[str, Any], group: Dict[str, Any], is_adamw: bool) -> Any:
    beta1, beta2 = map(float, group["betas"])
    steps = _steps_of(state)
    decay = float(group.get("weight_decay") or 0)
    now, then = 1 / (1 - beta1 ** steps), 1 / (1 - beta1 ** (steps + 1))
    below = (state["exp_avg_sq"] / (1 - beta2 ** steps)).sqrt_().add_(float(group["eps"]))
    grad = p.grad
    if decay and not (is_adamw or group.get("decoupled_weight_decay")):
        before = p + state["exp_avg"] / below * (group["lr"] * now)
        grad = grad + decay * before
    ahead = state["exp_avg"] * (beta1 * then - now) + grad * ((1 - beta1) * then)
    return ahead.div_(below).mul_(-group["lr"])


def _why_not(optimizer: Any) -> str:
    parts = with_inner(optimizer)
    kinds = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam)
    for part in parts:
        if type(part).__name__ == "ZeroRedundancyOptimizer":
            return "ZeroRedundancyOptimizer has each mean of squares on one rank"
    if not isinstance(parts[-1], kinds):
        return f"{type(parts[-1]).__name__} is none of torch's Adam, AdamW and NAdam"
    for i, group in enumerate(parts[-1].param_groups):
        for option in _LACKS:
            if group.get(option):
                return f"group {i} of {type(parts[-1]).__name__} has {option}"
    return ""


def settle_normal(optimizer: Optional[Any], normalize: str, is_wanted: bool,
                  why_not: str = "") -> Normal:
    """By what the caller said; nothing has changed yet.

    Args:
        normalize: "auto": where `is_wanted`.
        why_not: the surface has no such thing.

    Raises:
        telegrad.UsageError: what cannot be.
    """
    if normalize not in _KINDS:
        raise UsageError(f"normalize={normalize!r}: there are {', '.join(_KINDS)}")
    if normalize == "off" or normalize == "auto" and not is_wanted:
        return Normal()
    if not with_inner(optimizer):
        if normalize == "on":
            raise UsageError("normalize='on' by which mean of squares? optimizer= says it")
        return Normal()
    why = why_not or _why_not(optimizer)
    if not why:
        return Normal(with_inner(optimizer)[-1])
    if normalize == "on":
        raise UsageError(f"normalize='on' cannot be: {why}")
    return Normal(why=why)
