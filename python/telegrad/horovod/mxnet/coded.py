"""Gradients of MXNet's optimizers through a codec."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..._log import LOGGER
from ..._momentum import check_given, codecs_of_rules, harms_squares, lead_of, taken_over
from ...errors import Unsupported
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
        momentum, rate, takes = taken_over(codec.momentum, codec.momentum_rate, own, codecs, kind,
                                           can=kind in ("SGD", "NAG"))
        setting: Dict[str, Any] = {"momentum": momentum, "momentum_rate": rate}
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
                        taken, kind, lead_of(self._momentum["momentum"]), kind)
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
