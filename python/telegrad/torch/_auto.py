"""Which codecs go with an optimizer, and "auto", which chooses one while it trains."""
from __future__ import annotations

import gc
import json
import sys
import time
import warnings
import weakref
from typing import Any, Dict, Iterable, List, Optional, Set

import torch

from .._momentum import codecs_of_rules, comes_late, harms_squares, wants_momentum
from .._momentum import standard_codec as standard_of
from .._momentum import wants_normal
from ..errors import UsageError
from ..store import Store
from ._momentum import Momentum, settle, with_inner
from ._normal import Normal, settle_normal

# Those that divide a gradient by its own scale have one of these in their names.
_ADAPTIVE = ("adam", "muon", "lamb", "rmsprop", "adafactor")
# Whose lines call an optimizer's or a model's, but are not the user's.
_NOT_USERS = ("telegrad", "torch", "runpy", "lightning", "pytorch_lightning", "accelerate",
              "transformers")
# What goes unless it is told, and what "auto" may use: with an optimizer that few bits do not
# harm, its momentum in front of them; with torch's Adam whose gradients have one size; and with
# others or where none is known.
_STANDARD, _NORMAL, _CAREFUL = map(standard_of, ("sgd", "normal", "any"))

_checked: "weakref.WeakSet[Any]" = weakref.WeakSet()  # by `telegrad.run`, or given


def codecs_of(gc_type: str, allow: Optional[str], rules: str) -> List[str]:
    """All that may be used."""
    own = (allow or _CAREFUL).split(",") if gc_type == "auto" else [gc_type]
    return own + codecs_of_rules(rules)


def standard_codec(optimizer: Optional[Any], normalize: str = "auto") -> str:
    """What a model without a hint gets."""
    if optimizer is None:
        return _CAREFUL
    normal = settle_normal(optimizer, normalize, wants_normal([_STANDARD]))
    if normal.is_on:
        return _NORMAL
    return _CAREFUL if _adaptive(optimizer) else _STANDARD


def _harming(codecs: Iterable[str], normal: Normal) -> List[str]:
    """Those that harm Adam and the like."""
    return [codec for codec in codecs
            if harms_squares(codec) and not (normal.is_on and wants_normal([codec]))]


def _adaptive(optimizer: Any) -> Optional[str]:
    """The name of its class where that, or one that it is derived from, is adaptive;
    within what Accelerate, Lightning and ZeroRedundancyOptimizer put around it."""
    for optimizer in with_inner(optimizer):
        kinds = [kind.__name__.lower() for kind in type(optimizer).__mro__]
        if any(part in kind for kind in kinds for part in _ADAPTIVE):
            return type(optimizer).__name__
    return None


def _momentum_of(optimizer: Any) -> float:
    """The largest; 0: none."""
    return max((float(group.get("momentum") or 0) for group in optimizer.param_groups), default=0.)


def _warn(text: str) -> None:
    """At the first line that is neither the package's nor of what calls it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and (
            frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_USERS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def _refuse_others(optimizer: Any) -> None:
    if not hasattr(optimizer, "param_groups"):
        raise UsageError(f"optimizer={type(optimizer).__name__}: an optimizer of torch is "
                         "wanted, the object that steps the model")


def check_optimizer(optimizer: Any, gc_type: str, allow: Optional[str], rules: str = "",
                    refuses: bool = True, momentum: Momentum = Momentum(),
                    normal: Normal = Normal()) -> None:
    """Warns of codes of 2 bits or fewer with Adam, RMSprop, Muon and the like, unless they
    get gradients of one size, and with momentum, unless workers keep it.

    Raises:
        telegrad.UsageError: with `refuses`, "auto" that may choose such codes; what is no
            optimizer.
    """
    _refuse_others(optimizer)
    if isinstance(optimizer, torch.optim.Optimizer):
        _checked.add(optimizer)
    small = _harming(codecs_of(gc_type, allow, rules), normal)
    if not small:
        return
    kind = _adaptive(optimizer)
    if kind is None:
        return None if momentum.is_kept else _check_momentum(optimizer, small, momentum.why)
    why = (f"{', '.join(dict.fromkeys(small))} with {kind}: it divides by the gradient's "
           "own scale, to which codes of 2 bits or fewer add noise")
    if gc_type == "auto" and refuses:
        raise UsageError(f"gc_type 'auto' that may choose {why}; allow='int4' or "
                         "'fp16,int8', or another optimizer")
    if normal.why:
        why += f"; it cannot be taken out in front of them, since {normal.why}"
    _warn(f"{why}; int4 and int8 keep it, telegrad.torch.DiLoCo and SGD do not mind")


def _check_momentum(optimizer: Any, small: List[str], why_not: str) -> None:
    momentum = _momentum_of(optimizer)
    late = [codec for codec in small if comes_late(codec, momentum) and wants_momentum([codec])]
    if late:
        cure = (f"it was not moved there, since {why_not}" if why_not else
                "compress(..., optimizer=) moves it there (telegrad.run: --gc-momentum-rate "
                f"{momentum:g}), unless momentum='off'")
        _warn(f"{', '.join(dict.fromkeys(late))} with momentum {momentum:g}: what few bits hold "
              "back comes late, and momentum after that costs accuracy; in front of the codec it "
              f"does not: {cure}; int4 bears it behind")


def optimizers_of(parameters: Set[int]) -> List[Any]:
    """All of torch's that step one of the parameters with these ids."""
    return [each for each in gc.get_objects()
            if issubclass(type(each), torch.optim.Optimizer)
            and any(id(parameter) in parameters for group in getattr(each, "param_groups", ())
                    for parameter in group["params"])]


class OptimizerCheck:
    """Whether the codecs go with a model's optimizer, and who keeps its momentum. An
    optimizer that is not given is looked for among what Python has, now and after the first
    step: the first rank warns of it, and all refuse a second momentum.

    Args:
        parameters: of the model.
        momentum, momentum_rate, normalize: of `telegrad.torch.State`.
        why_not_normal: the surface has no such thing.

    Raises:
        telegrad.UsageError: as `check_optimizer`, of one that is given; as `settle` and
            `settle_normal`.
    """

    def __init__(self, gc_type: str, allow: Optional[str], rules: str,
                 optimizer: Optional[Any], parameters: Iterable[Any], is_first: bool,
                 momentum: str = "auto", momentum_rate: Optional[float] = None,
                 normalize: str = "auto", why_not_normal: str = "") -> None:
        parameters = [*parameters]
        self._parameters = set(map(id, parameters))
        self._trained = {id(p) for p in parameters if p.requires_grad}
        self.allow = allow  # of "auto", in the end
        self.note = ""  # for the first rank, why
        is_careful = gc_type == "auto" and not allow
        known = [] if optimizer is None else [optimizer]
        if optimizer is None and (is_first or is_careful):
            known = optimizers_of(self._parameters)
        if optimizer is not None:
            _refuse_others(optimizer)
        codecs = codecs_of(gc_type, _STANDARD if is_careful else allow, rules)
        self.momentum = settle(optimizer, momentum, momentum_rate, wants_momentum(codecs),
                               self._trained)
        self._wants_normal = wants_normal(codecs) and not why_not_normal
        self._normalize = normalize
        self.normal = settle_normal(optimizer, normalize, wants_normal(codecs),
                                    why_not_normal)
        if is_careful:
            self._choose(known)
        self._setting = gc_type, self.allow, rules
        for each in known:
            if is_first or optimizer is not None:
                self._check(each, is_first, optimizer is not None)
        self._small = _harming(codecs_of(*self._setting), self.normal)
        self._is_given = optimizer is not None
        self._is_first = is_first
        self._is_open = (self.momentum.is_kept and not self._is_given
                         or is_first and bool(self._small) and not known)

    def _choose(self, known: List[Any]) -> None:
        if self.normal.is_on:
            self.allow = _NORMAL
            return
        if self.momentum.is_kept and not any(map(_adaptive, known)):
            self.allow = _STANDARD
            return
        harmed = [_adaptive(each) or f"momentum {_momentum_of(each):g}" for each in known
                  if _adaptive(each) or comes_late(_STANDARD, _momentum_of(each))]
        self.allow = _STANDARD if known and not harmed else _CAREFUL
        if harmed:
            self.note = f"auto may take {_CAREFUL}: 2 bits or fewer can harm steps with {harmed[0]}"
        elif not known:
            self.note = (f"auto may take {_CAREFUL}: no optimizer is known yet; "
                         f"optimizer= of SGD lets it take {_STANDARD}")

    def _check(self, optimizer: Any, is_first: bool, is_given: bool) -> None:
        with warnings.catch_warnings():
            if not is_first:
                warnings.simplefilter("ignore")
            check_optimizer(optimizer, *self._setting, is_given, self.momentum, self.normal)

    def after_step(self) -> str:
        """What is to be said after a step, mostly nothing."""
        if not self._is_open:
            return ""
        self._is_open = False
        found = optimizers_of(self._parameters)
        for each in found:
            for i, group in enumerate(each.param_groups if self.momentum.is_kept else ()):
                self.momentum.refuse_second(type(each).__name__, i, group)
            if self._is_first and each not in _checked:
                self._check(each, True, False)
        return "" if found or not self._small or not self._is_first else (
            f"{', '.join(dict.fromkeys(self._small))} does not go with Adam or momentum, and no "
            "optimizer of torch steps the model: compress(..., optimizer=) checks yours")

    def take(self, optimizer: Any) -> str:
        """The momentum of an optimizer that was made later, where workers keep it, or its mean
        of squares; what is to be said.

        Raises:
            telegrad.UsageError: it has another one, or one that cannot be taken over.
        """
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if self._is_given or own.isdisjoint(self._parameters):
            return ""
        if self._wants_normal and _adaptive(optimizer):
            return self._take_squares(optimizer)
        if not self.momentum.is_kept:
            return ""
        if not any(group.get("momentum") for group in optimizer.param_groups):
            return ""
        found = settle(optimizer, self.momentum.kind, None, True, self._trained)
        if found.rate != self.momentum.rate:
            raise UsageError(f"workers keep a momentum of {self.momentum.rate:g}, and "
                             f"{type(optimizer).__name__} has {found.rate:g}")
        self.momentum, self._is_given = found, True
        found.apply()
        return found.note

    def _take_squares(self, optimizer: Any) -> str:
        self.normal = settle_normal(optimizer, self._normalize, True)
        self._is_given = self.normal.is_on
        self._is_open &= not self.normal.is_on
        self.normal.apply()
        return self.normal.note


class Choice:
    """Of "auto": times of steps for the store, and what it decides from them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.decisions: List[Dict[str, Any]] = []
        self._last_step = time.monotonic()
        self._begin: Optional[float] = None
        self._end = 0.0

    def begin(self) -> bool:
        """A part of the step's gradients is pushed; whether it is the first."""
        is_first = self._begin is None
        if is_first:
            self._begin = time.monotonic()
        return is_first

    def end(self) -> None:
        """A part's answer is there."""
        self._end = time.monotonic()

    def load(self, choice: str) -> List[Dict[str, Any]]:
        """Of `Store.save_choice`, on all ranks; what is decided by that."""
        self._store.load_choice(choice)
        self._last_step = time.monotonic()
        if not choice:
            return []
        kept = json.loads(choice)
        self.decisions.append({
            "step": 0, "choice": f"{kept['codec']} for {len(kept['tensors'])} tensors",
            "why": "the run whose state was loaded had kept that"})
        return self.decisions[-1:]

    def after_step(self, waited_s: float) -> List[Dict[str, Any]]:
        """What was decided: ``step``, ``choice``, ``why``; mostly nothing. All ranks
        call it after each step, while nothing is under way."""
        begin, self._begin = self._begin, None
        if begin is None:  # nothing was sent
            return []
        now = time.monotonic()
        made = self._store.after_step(now - self._last_step, self._end - begin, waited_s)
        self.decisions += made
        self._last_step = time.monotonic()  # without what measuring took
        return made
