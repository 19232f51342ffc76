"""Which codecs go with an optimizer, and "auto", which chooses one while it trains."""
from __future__ import annotations

import gc
import json
import sys
import time
import warnings
import weakref
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

import torch

from ..codec import Codec
from ..errors import Error, UsageError
from ..store import Store

# Those that divide a gradient by its own scale have one of these in their names.
_ADAPTIVE = ("adam", "muon", "lamb", "rmsprop", "adafactor")
# Whose lines call an optimizer's or a model's, but are not the user's.
_NOT_USERS = ("telegrad", "torch", "runpy", "lightning", "pytorch_lightning", "accelerate",
              "transformers")
_SMALL_BITS = 2.5  # these two as in trainer/flags/optimizer_flags.h
_MUCH_MOMENTUM = .5
_NOT_LATE = ("dgc", "terngrad")  # has a momentum of its own; holds nothing back
# What "auto" may use unless it is told, as `telegrad-train` has it: with an optimizer that
# few bits do not harm, and with others or where none is known.
_STANDARD, _CAREFUL = "2bit", "int4"

_checked: "weakref.WeakSet[Any]" = weakref.WeakSet()  # by `telegrad.run`, or given


def bits_of(codec: str) -> float:
    """Of an element in a step, at most; of what is no codec, which the store refuses on all
    ranks, as of floats."""
    num = 1 << 16
    try:
        return 8 * Codec(codec, num).max_bytes / num
    except Error:
        return 32.0


def codecs_of(gc_type: str, allow: Optional[str], rules: str) -> List[str]:
    """All that may be used."""
    own = (allow or _CAREFUL).split(",") if gc_type == "auto" else [gc_type]
    return own + [rule.rpartition("=")[2] for rule in rules.split(";") if "=" in rule]


def _adaptive(optimizer: Any) -> Optional[str]:
    """The name of its class where that, or one that it is derived from, is adaptive;
    within what Accelerate, Lightning and ZeroRedundancyOptimizer put around it."""
    for optimizer in _with_inner(optimizer):
        kinds = [kind.__name__.lower() for kind in type(optimizer).__mro__]
        if any(part in kind for kind in kinds for part in _ADAPTIVE):
            return type(optimizer).__name__
    return None


def _with_inner(optimizer: Any) -> List[Any]:
    found: List[Any] = []
    while hasattr(optimizer, "param_groups") and len(found) < 4:
        found.append(optimizer)
        optimizer = getattr(optimizer, "optimizer", None) or getattr(optimizer, "optim", None)
    return found


def _momentum_of(optimizer: Any) -> Tuple[float, float]:
    """The first that harms, and the rate beside it; 0, 0: none."""
    for group in optimizer.param_groups:
        momentum = group.get("momentum") or 0
        if momentum >= _MUCH_MOMENTUM:
            return float(momentum), float(group.get("lr") or 0)
    return 0.0, 0.0


def _warn(text: str) -> None:
    """At the first line that is neither the package's nor of what calls it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and (
            frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_USERS):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def check_optimizer(optimizer: Any, gc_type: str, allow: Optional[str], rules: str = "",
                    refuses: bool = True) -> None:
    """Warns of codes of 2 bits or fewer with Adam, RMSprop, Muon and the like, and with
    momentum.

    Raises:
        telegrad.UsageError: with `refuses`, "auto" that may choose such codes; what is no
            optimizer.
    """
    if not hasattr(optimizer, "param_groups"):
        raise UsageError(f"optimizer={type(optimizer).__name__}: an optimizer of torch is "
                         "wanted, the object that steps the model")
    if isinstance(optimizer, torch.optim.Optimizer):
        _checked.add(optimizer)
    small = [codec for codec in codecs_of(gc_type, allow, rules)
             if bits_of(codec) < _SMALL_BITS]
    if not small:
        return
    kind = _adaptive(optimizer)
    if kind is None:
        return _check_momentum(optimizer, small)
    why = (f"{', '.join(dict.fromkeys(small))} with {kind}: it divides by the gradient's "
           "own scale, to which codes of 2 bits or fewer add noise")
    if gc_type == "auto" and refuses:
        raise UsageError(f"gc_type 'auto' that may choose {why}; allow='int4' or "
                         "'fp16,int8', or another optimizer")
    _warn(f"{why}; int4 and int8 keep it, telegrad.torch.DiLoCo and SGD without momentum do "
          "not mind")


def _check_momentum(optimizer: Any, small: List[str]) -> None:
    late = [codec for codec in small if codec.partition(":")[0] not in _NOT_LATE]
    momentum, rate = _momentum_of(optimizer)
    if late and momentum > 0:
        advice = f"momentum=0, lr={.4 * rate / (1 - momentum):.2g}" if (
            rate > 0 and momentum < 1) else "momentum=0 and a larger rate"
        _warn(f"{', '.join(dict.fromkeys(late))} with momentum {momentum:g}: what few bits hold "
              f"back comes late, and momentum after that costs accuracy; take int4, or {advice}")


def _optimizers_of(parameters: Set[int]) -> List[Any]:
    """All of torch's that step one of the parameters with these ids."""
    return [each for each in gc.get_objects()
            if issubclass(type(each), torch.optim.Optimizer)
            and any(id(parameter) in parameters for group in getattr(each, "param_groups", ())
                    for parameter in group["params"])]


class OptimizerCheck:
    """Whether the codecs go with a model's optimizer. One that is not given is looked for
    among what Python has, now and after the first step, and warned of by the first rank.

    Args:
        parameters: of the model.

    Raises:
        telegrad.UsageError: as `check_optimizer`, of one that is given.
    """

    def __init__(self, gc_type: str, allow: Optional[str], rules: str,
                 optimizer: Optional[Any], parameters: Iterable[Any], is_first: bool) -> None:
        self._parameters = set(map(id, parameters))
        self.allow = allow  # of "auto", in the end
        self.note = ""  # for the first rank, why
        is_careful = gc_type == "auto" and not allow
        known = [] if optimizer is None else [optimizer]
        if optimizer is None and (is_first or is_careful):
            known = _optimizers_of(self._parameters)
        if is_careful:
            self._choose(known)
        self._setting = gc_type, self.allow, rules
        for each in known:
            if is_first or optimizer is not None:
                self._check(each, is_first, optimizer is not None)
        self._small = [codec for codec in codecs_of(*self._setting)
                       if bits_of(codec) < _SMALL_BITS]
        self._is_open = is_first and not known and bool(self._small)

    def _choose(self, known: List[Any]) -> None:
        harmed = [_adaptive(each) or f"momentum {_momentum_of(each)[0]:g}" for each in known
                  if _adaptive(each) or _momentum_of(each)[0] > 0]
        self.allow = _STANDARD if known and not harmed else _CAREFUL
        if harmed:
            self.note = f"auto may take {_CAREFUL}: 2 bits or fewer harm steps with {harmed[0]}"
        elif not known:
            self.note = (f"auto may take {_CAREFUL}: no optimizer is known yet; "
                         f"optimizer= of SGD without momentum lets it take {_STANDARD}")

    def _check(self, optimizer: Any, is_first: bool, is_given: bool) -> None:
        with warnings.catch_warnings():
            if not is_first:
                warnings.simplefilter("ignore")
            check_optimizer(optimizer, *self._setting, is_given)

    def after_step(self) -> str:
        """What is to be said after a step, mostly nothing."""
        if not self._is_open:
            return ""
        self._is_open = False
        found = _optimizers_of(self._parameters)
        for each in found:
            if each not in _checked:
                self._check(each, True, False)
        return "" if found else (
            f"{', '.join(dict.fromkeys(self._small))} does not go with Adam or momentum, and no optimizer of torch "
            "steps the model: compress(..., optimizer=) checks yours")


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
