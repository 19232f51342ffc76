"""Gradients of MXNet's optimizers through a codec."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..._log import LOGGER
from ..._momentum import (check_given, codecs_of_rules, harms_squares, kind_of, lead_of,
                          wants_momentum)
from ...errors import Unsupported, UsageError
from ..common import world
from ..common.coded import Codec, CodedSums, compression_of
from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import Average, start, synchronize
from .compression import Compression
from .wire import wires

_TAKEN = ("float32", "float16")  # by the store


class Coded(CodedSums):
    """The names of an optimizer's gradients in the operations' store. Momentum of SGD and
    NAG goes in front of the codec, where that wants it: the optimizer has none then.

    Args:
        optimizer: of MXNet.

    Raises:
        telegrad.Error: as `CodedSums`.
    """

    def __init__(self, codec: Codec, optimizer: Any) -> None:
        check_given(codec.momentum, codec.momentum_rate)
        kind = type(optimizer).__name__
        own = getattr(optimizer, "momentum", None) or 0.0
        codecs = [codec.type, *codecs_of_rules(codec.rules)]
        takes = (codec.momentum != "off" and codec.momentum_rate is None and own > 0
                 and kind in ("SGD", "NAG")
                 and (codec.momentum != "auto" or wants_momentum(codecs)))
        if codec.momentum not in ("auto", "off") and not takes and codec.momentum_rate is None:
            raise UsageError(f"momentum={codec.momentum!r} of {kind} with momentum {own:g}: it "
                             "is taken over from an SGD or NAG that has some, or momentum_rate "
                             "says it")
        if own and codec.momentum_rate is not None:
            raise UsageError(f"momentum in two places: {kind} has {own:g}, and ranks keep "
                             f"{codec.momentum_rate:g} in front of the codec")
        rate = own if takes else codec.momentum_rate or 0.0
        setting: Dict[str, Any] = {"momentum": kind_of(codec.momentum) if rate else "off",
                                   "momentum_rate": rate}
        super().__init__(codec, Average, setting)
        if takes:
            optimizer.momentum = 0.0
            optimizer.wd /= 1 - own  # what momentum would make of it in the long run
        if self._here.rank == 0:
            self._say(kind, own if takes else 0.0, codecs)

    def _say(self, kind: str, taken: float, codecs: Sequence[str]) -> None:
        harming = [each for each in codecs if harms_squares(each)]
        if taken:
            LOGGER.info("momentum %g of %s: ranks keep it in front of the codec, %s, and steps "
                        "apply none; momentum='off' of Compression.codec leaves it to %s",
                        taken, kind, lead_of(kind_of(self._codec.momentum)), kind)
        elif harming and any(part in kind.lower() for part in ("adam", "rmsprop", "lamb")):
            LOGGER.warning("%s with %s: it divides by the gradient's own scale, to which codes "
                           "of 2 bits or fewer add noise; int4 and int8 keep it",
                           ", ".join(harming), kind)

    def means(self, named: Sequence[Tuple[str, Any]], request: Dict[str, Any]) -> None:
        """All arrays become the ranks' means.

        Args:
            named: names and arrays.
            request: of `start`.
        """
        handles: List[int] = []
        for name, array in named:
            more = {"codec": self.codec_of(name, array.shape)} if (
                getattr(array.dtype, "__name__", str(array.dtype)) in _TAKEN) else {}
            handles.append(start("allreduce", wires([array], [array]), name, **request, **more))
        for handle in handles:
            synchronize(handle)


def coded_of(given: Any, optimizer: Any, process_set: ProcessSet, num_groups: int,
             coded: Optional[Coded] = None) -> Tuple[Any, Optional[Coded]]:
    """Of `compression=`: a compressor, and the sums through a codec, where that is one.

    Args:
        coded: that the optimizer has already.

    Raises:
        telegrad.Unsupported: a codec with groups or a process set.
    """
    if coded is not None:
        return Compression.none, coded
    is_plain = process_set is global_process_set and not num_groups
    found = compression_of(Compression, given, is_plain and not world.current().parts)
    if not isinstance(found, Codec):
        return found, None
    if not is_plain:
        raise Unsupported(f"compression {found.type} with a process set or groups: take fp16 "
                          "or none there")
    return Compression.none, None if world.size() == 1 else Coded(found, optimizer)
