"""Momentum in front of the codec, taken over from an optimizer of torch."""
from __future__ import annotations

import functools
import types
import weakref
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple

import torch

from .._momentum import check_given, kind_of, lead_of
from ..errors import UsageError

KEY = "telegrad_momentum"  # of a group: what workers keep in place of its "momentum"
_CHANGED = ("momentum", "nesterov", KEY)
_LACKS = ("dampening", "maximize")


def with_inner(optimizer: Any) -> List[Any]:
    """It, and what Accelerate, Lightning and ZeroRedundancyOptimizer have within."""
    found: List[Any] = []
    while hasattr(optimizer, "param_groups") and len(found) < 4:
        found.append(optimizer)
        optimizer = getattr(optimizer, "optimizer", None) or getattr(optimizer, "optim", None)
    return found


def _before_steps(optimizer: Any, work: Callable[..., Any]) -> Callable[[], None]:
    """Calls ``work(optimizer, args, kwargs)`` before each; what it gives takes the place of
    these. Gives what ends that."""
    if hasattr(optimizer, "register_step_pre_hook"):
        remove: Callable[[], None] = optimizer.register_step_pre_hook(work).remove
        return remove
    works, step = [work], optimizer.step  # of torch before 2.0

    @functools.wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        given: Tuple[Any, Any] = (self, *args), kwargs
        for each in works:
            given = each(self, *given) or given
        return step(*given[0][1:], **given[1])

    optimizer.step = types.MethodType(stepped, optimizer)
    return works.clear


class Momentum:
    """Who keeps a model's: workers, in front of the codec, or whoever steps.

    Args:
        kind, rate: what workers keep; "off": nothing.
        optimizer: given beside; with `is_taken` it had this momentum.
        why: workers were to keep it, and do not.
    """

    def __init__(self, kind: str = "off", rate: float = 0.0, optimizer: Optional[Any] = None,
                 is_taken: bool = False, why: str = "") -> None:
        self.kind, self.rate, self.why, self.note = kind, rate, why, ""
        self._optimizer = optimizer  # until `apply`
        self._is_taken = is_taken
        self._was: List[Tuple[Any, List[Dict[str, Any]], Dict[str, Any]]] = []
        self._release: Callable[[], None] = lambda: None

    @property
    def is_kept(self) -> bool:
        """By workers."""
        return self.kind != "off"

    @property
    def settings(self) -> Dict[str, Any]:
        """Of `telegrad.Store.set_compression`."""
        return {"momentum": self.kind, "momentum_rate": self.rate}

    def apply(self) -> None:
        """Now the optimizer applies none, nor may it later."""
        optimizer, self._optimizer = self._optimizer, None
        if optimizer is None or not self.is_kept:
            return
        parts = with_inner(optimizer)
        if self._is_taken:
            self.note = self._take(parts)
        self._release = _before_steps(parts[-1], self._before_step)

    def _take(self, parts: List[Any]) -> str:
        changed = {"momentum": 0, "nesterov": False, KEY: self.rate}
        self._was = [(weakref.ref(part),
                      [{name: group[name] for name in _CHANGED if name in group}
                       for group in part.param_groups],
                      {name: part.defaults[name] for name in _CHANGED if name in part.defaults})
                     for part in parts if hasattr(part, "defaults")]
        buffers = []
        for part in parts:
            for group in part.param_groups:
                group.update(changed)
            getattr(part, "defaults", {}).update(changed)  # of groups that are added
            for state in getattr(part, "state", {}).values():
                buffers.append(isinstance(state, dict) and state.pop("momentum_buffer", None))
        name = type(parts[-1]).__name__
        text = (f"momentum {self.rate:g} of {name}: workers keep it in front of the codec, "
                f"{lead_of(self.kind)}, and steps apply none; momentum='heavyball' is without "
                f"the lead, momentum='off' leaves it to {name}")
        if any(group.get("weight_decay") for group in parts[-1].param_groups):
            text += (f"; weight decay counts {1 / (1 - self.rate):.3g} times, as with momentum "
                     "in the long run")
        if any(torch.is_tensor(buffer) for buffer in buffers):
            text += f"; what {name} had gathered is dropped"
        return text

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """A hook of `optimizer`. Gradients are there then, or a closure makes them."""
        for i, group in enumerate(optimizer.param_groups):
            self._check_group(type(optimizer).__name__, i, group)
        if not self._is_taken:
            return None
        closure = kwargs["closure"] if "closure" in kwargs else (*args, None)[1]
        if closure is None:
            self._add_decay(optimizer)
            return None

        def closed() -> Any:
            loss = closure()
            self._add_decay(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": closed}

    def _check_group(self, name: str, i: int, group: Dict[str, Any]) -> None:
        self.refuse_second(name, i, group)
        if group.get(KEY, self.rate) != self.rate:
            raise UsageError(f"group {i} of {name} has {KEY} {group[KEY]:g}, and workers keep "
                             f"{self.rate:g}: load its state before compress")
        for option in _LACKS if self._is_taken else ():
            if group.get(option):
                raise UsageError(f"group {i} of {name} has {option}, which workers' momentum "
                                 "has not: momentum='off'")

    def refuse_second(self, name: str, i: int, group: Dict[str, Any]) -> None:
        """Of a group of an optimizer, which has momentum.

        Raises:
            telegrad.UsageError: by name.
        """
        if group.get("momentum"):
            raise UsageError(
                f"momentum in two places: group {i} of {name} has momentum "
                f"{float(group['momentum']):g}, and workers keep {self.rate:g} in front of the "
                "codec; leave the group's at 0 (of OneCycleLR by cycle_momentum=False), load "
                "its state before compress, or take momentum='off'")

    def _add_decay(self, optimizer: Any) -> None:
        """To each gradient what momentum would make of weight decay in the long run, less
        what the step itself adds."""
        more = self.rate / (1 - self.rate)
        scale: Any = getattr(optimizer, "grad_scale", None)  # GradScaler's, of a fused step
        with torch.no_grad():
            for group in optimizer.param_groups:
                decay = group.get("weight_decay") or 0
                stepped = [p for p in group["params"] if p.grad is not None] if decay else []
                if stepped and scale is None:
                    torch._foreach_add_([p.grad for p in stepped], stepped, alpha=decay * more)
                for p in stepped if scale is not None else ():
                    p.grad.add_(p * (scale * (decay * more)).to(p))

    def release(self, gives_back: bool = False) -> None:
        """Steps are not looked at any more; with `gives_back` the optimizer has its
        momentum again."""
        self._release()
        was, self._was = self._was, []
        for reference, groups, defaults in was if gives_back else ():
            part = reference()
            for group, before in zip(part.param_groups if part else (), groups):
                group.pop(KEY, None)
                group.update(before)
            if part:
                part.defaults.pop(KEY, None)
                part.defaults.update(defaults)


def _movable(optimizer: Any, parameters: Collection[int]) -> Tuple[float, str]:
    """Its momentum, and why that cannot be moved; 0, "": it has none."""
    parts = with_inner(optimizer)
    groups = parts[0].param_groups
    rates = [float(group.get("momentum") or group.get(KEY) or 0) for group in groups]
    for i, rate in enumerate(rates):
        if rate != rates[0]:
            return 0.0, f"group 0 has momentum {rates[0]:g}, and group {i} {rate:g}"
    if not any(rates):
        return 0.0, ""
    if not isinstance(parts[-1], torch.optim.SGD):
        return 0.0, f"{type(parts[-1]).__name__} is no torch.optim.SGD"
    for i, group in enumerate(groups):
        for option in _LACKS:
            if group.get(option):
                return 0.0, f"group {i} has {option}"
    own = {id(p) for group in groups for p in group["params"]}
    missing = sum(each not in own for each in parameters)
    if missing:
        return 0.0, f"it steps {len(parameters) - missing} of {len(parameters)} parameters"
    return rates[0], ""


def settle(optimizer: Optional[Any], momentum: str, rate: Optional[float], is_wanted: bool,
           parameters: Collection[int]) -> Momentum:
    """Who keeps it, by what the caller said; nothing has changed yet.

    Args:
        momentum, rate: "auto", None: whoever `is_wanted` says, of an optimizer that is given.
        parameters: those of the store, by id.

    Raises:
        telegrad.UsageError: what cannot be; momentum in two places, or in none.
    """
    check_given(momentum, rate)
    kind = kind_of(momentum)
    if not with_inner(optimizer):
        optimizer = None
    groups = [] if optimizer is None else optimizer.param_groups
    kept = next((group[KEY] for group in groups if group.get(KEY)), 0.0)
    if rate is not None:
        found = Momentum(kind, float(rate), optimizer, is_taken=bool(kept))
        for i, group in enumerate(groups):
            found._check_group(type(optimizer).__name__, i, group)
        return found
    if momentum == "off" or optimizer is None:
        if kept:
            raise UsageError(
                f"momentum='off' leaves momentum to nobody: the optimizer's groups say that "
                f"workers keep it ({KEY} {kept:g}). To give it back: for group in "
                f"optimizer.param_groups: group['momentum'] = group.pop('{KEY}')")
        if momentum in ("nesterov", "heavyball"):
            raise UsageError(f"momentum={momentum!r} of what? optimizer= has its momentum taken "
                             "over; momentum_rate= says one that no optimizer applies")
        return Momentum()
    if momentum == "auto" and not is_wanted and not kept:
        return Momentum()
    found_rate, why = _movable(optimizer, parameters)
    if found_rate:
        found = Momentum(kind, found_rate, optimizer, is_taken=True)
        for i, group in enumerate(groups if kept else ()):
            found._check_group(type(optimizer).__name__, i, group)
        return found
    if momentum == "auto" and not kept:
        return Momentum(why=why)
    raise UsageError(f"momentum={momentum!r} takes over what the optimizer has, but "
                     + (why or "it has none"))
