"""Which codecs go with an optimizer, and "auto", which chooses one while it trains."""
from __future__ import annotations

import json
import time
import warnings
from typing import Any, Dict, List, Optional

from ..codec import Codec
from ..errors import UsageError
from ..store import Store

_ADAPTIVE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam", "Muon", "Lamb",
             "RMSprop")
_SMALL_BITS = 2.1  # with the few bytes around codes
STANDARD = "2bit"  # what "auto" may use unless it is told


def bits_of(codec: str) -> float:
    """Of an element in a step, at most."""
    num = 1 << 16
    return 8 * Codec(codec, num).max_bytes / num


def check_optimizer(optimizer: Any, gc_type: str, allow: Optional[str]) -> None:
    """Warns of codes of 2 bits or fewer with Adam, RMSprop, Muon and the like.

    Raises:
        telegrad.UsageError: "auto" that may choose such codes.
    """
    kind = type(optimizer).__name__
    if kind not in _ADAPTIVE:
        return
    is_auto = gc_type == "auto"
    codecs = (allow or STANDARD).split(",") if is_auto else [gc_type]
    small = [codec for codec in codecs if bits_of(codec) < _SMALL_BITS]
    if not small:
        return
    why = (f"{', '.join(small)} with {kind}: it divides by the gradient's own scale, to "
           "which codes of 2 bits or fewer add noise")
    if is_auto:
        raise UsageError(f"gc_type 'auto' that may choose {why}; allow='int8' or "
                         "'fp16,int8', or another optimizer")
    warnings.warn(f"{why}; int8 keeps it, SGD does not mind", stacklevel=5)


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
