"""Which codecs go with an optimizer, and "auto", which chooses one while it trains."""
from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any, Dict, List, Optional

from ..codec import Codec
from ..errors import UsageError
from ..store import Store

# Those that divide a gradient by its own scale have one of these in their names.
_ADAPTIVE = ("adam", "muon", "lamb", "rmsprop", "adafactor")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SMALL_BITS = 2.1  # with the few bytes around codes
_MUCH_MOMENTUM = .5  # as in trainer/optimizer_flags.h
_NOT_LATE = ("dgc", "terngrad")  # has a momentum of its own; holds nothing back
STANDARD = "2bit"  # what "auto" may use unless it is told


def bits_of(codec: str) -> float:
    """Of an element in a step, at most."""
    num = 1 << 16
    return 8 * Codec(codec, num).max_bytes / num


def codecs_of(gc_type: str, allow: Optional[str], rules: str) -> List[str]:
    """All that may be used."""
    own = (allow or STANDARD).split(",") if gc_type == "auto" else [gc_type]
    return own + [rule.rpartition("=")[2] for rule in rules.split(";") if "=" in rule]


def _adaptive(optimizer: Any) -> Optional[str]:
    """The name of its class where that, or one that it is derived from, is adaptive;
    within what Accelerate, Lightning and ZeroRedundancyOptimizer put around it."""
    for _ in range(4):
        kinds = [kind.__name__.lower() for kind in type(optimizer).__mro__]
        if any(part in kind for kind in kinds for part in _ADAPTIVE):
            return type(optimizer).__name__
        within = getattr(optimizer, "optimizer", None) or getattr(optimizer, "optim", None)
        if not hasattr(within, "param_groups"):
            return None
        optimizer = within
    return None


def _level_outside() -> int:
    """For `warnings.warn` in the caller: the first line that is not the package's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def check_optimizer(optimizer: Any, gc_type: str, allow: Optional[str],
                    rules: str = "") -> None:
    """Warns of codes of 2 bits or fewer with Adam, RMSprop, Muon and the like, and with
    momentum.

    Raises:
        telegrad.UsageError: "auto" that may choose such codes; what is no optimizer.
    """
    if not hasattr(optimizer, "param_groups"):
        raise UsageError(f"optimizer={type(optimizer).__name__}: an optimizer of torch is "
                         "wanted, the object that steps the model")
    small = [codec for codec in codecs_of(gc_type, allow, rules)
             if bits_of(codec) < _SMALL_BITS]
    if not small:
        return
    kind = _adaptive(optimizer)
    if kind is None:
        return _check_momentum(optimizer, small)
    why = (f"{', '.join(dict.fromkeys(small))} with {kind}: it divides by the gradient's "
           "own scale, to which codes of 2 bits or fewer add noise")
    if gc_type == "auto":
        raise UsageError(f"gc_type 'auto' that may choose {why}; allow='int8' or "
                         "'fp16,int8', or another optimizer")
    warnings.warn(f"{why}; int8 keeps it, SGD without momentum does not mind",
                  stacklevel=_level_outside())


def _check_momentum(optimizer: Any, small: List[str]) -> None:
    late = [codec for codec in small if codec.partition(":")[0] not in _NOT_LATE]
    for group in optimizer.param_groups:
        momentum, rate = group.get("momentum") or 0, group.get("lr")
        if late and momentum >= _MUCH_MOMENTUM:
            advice = f"momentum=0, lr={.4 * float(rate) / (1 - momentum):.2g}" if (
                rate and momentum < 1) else "momentum=0 and a larger rate"
            warnings.warn(f"{', '.join(dict.fromkeys(late))} with momentum {momentum:g}: what "
                          "few bits hold back comes late, and momentum after that costs "
                          f"accuracy; try {advice}", stacklevel=_level_outside())
            return


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
