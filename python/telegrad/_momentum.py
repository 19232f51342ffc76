"""Momentum in front of the codec: which codecs want it, and who applies it then."""
from __future__ import annotations

from ctypes import byref, c_int32
from dataclasses import replace
from numbers import Real
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ._library import LIBRARY, call, encoded
from .errors import Error, UsageError
from .optimizer import SGD, RunByStore

_KINDS = ("auto", "off", "nesterov", "heavyball")
_MXNETS = ("2bit", "1bit")  # codecs whose bits must stay MXNet's


def few_bits(codec: str) -> Tuple[bool, bool]:
    """Whether they harm steps that divide by a mean of squares, and whether they want the
    momentum in front of them; of what is no codec, which the store refuses on all ranks,
    neither."""
    harms, wants = c_int32(), c_int32()
    try:
        call("codec_few_bits", encoded(codec, "codec"), byref(harms), byref(wants))
    except Error:
        return False, False
    return bool(harms.value), bool(wants.value)


def why_no_codec(codec: str) -> str:
    """Why it is none, with what there is; "" of a codec and of "auto"."""
    try:
        if codec.partition(":")[0] != "auto":
            call("codec_few_bits", encoded(codec, "codec"), byref(c_int32()), byref(c_int32()))
    except Error as why:
        return str(why)
    return ""


def wants_normal(codecs: Iterable[str]) -> bool:
    """Whether steps by a mean of squares bear one of them where each gradient is divided by
    the root of that mean in front of it."""
    wants = c_int32()
    for codec in codecs:
        try:
            call("codec_wants_normal", encoded(codec, "codec"), byref(wants))
        except Error:
            continue
        if wants.value:
            return True
    return False


def standard_codec(beside: str = "any") -> str:
    """What goes unless it is told, beside "sgd", an optimizer of torch's Adam that gets
    "normal" gradients, or "any"."""
    name: bytes = LIBRARY.telegrad_codec_standard({"sgd": 1, "normal": 2}.get(beside, 0))
    return name.decode()


def harms_squares(codec: str) -> bool:
    """Whether it harms Adam, RMSprop and the like."""
    return few_bits(codec)[0]


def codecs_of_rules(rules: str) -> List[str]:
    """Of "PATTERN=CODEC;...", which the store looks at."""
    return [rule.rpartition("=")[2] for rule in rules.split(";") if "=" in rule]


def wants_momentum(codecs: Iterable[str]) -> bool:
    """Whether one of them wants it in front."""
    return any(few_bits(codec)[1] for codec in codecs)


def comes_late(codec: str, momentum: float) -> bool:
    """Whether so much momentum behind it costs accuracy: of so few bits that most is held
    back for later steps."""
    late = c_int32()
    try:
        call("codec_comes_late", encoded(codec, "codec"), momentum, byref(late))
    except Error:
        return False
    return bool(late.value)


def check_given(momentum: Any, rate: Any) -> None:
    """Of a caller.

    Raises:
        telegrad.UsageError: what cannot be.
    """
    if momentum not in _KINDS:
        raise UsageError(f"momentum={momentum!r}: there are {', '.join(_KINDS)}")
    if rate is None:
        return
    if momentum == "off":
        raise UsageError(f"momentum_rate={rate!r} beside momentum='off': one of them")
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 < float(rate) < 1:
        raise UsageError(f"momentum_rate={rate!r}: more than 0 and less than 1")


def kind_of(momentum: str) -> str:
    """Where it is taken over: Nesterov's, which few bits bear best, unless one is named."""
    return "nesterov" if momentum == "auto" else momentum


def lead_of(kind: str) -> str:
    """In a sentence."""
    return "with Nesterov's lead" if kind == "nesterov" else "without a lead"


def taken_over(momentum: str, rate: Optional[float], own: float, codecs: Iterable[str],
               of: str, can: bool = True) -> Tuple[str, float, bool]:
    """Its kind and rate in front of the codec ("off", 0), and whether the optimizer then has
    none.

    Args:
        momentum, rate: a caller's, which `check_given` has seen.
        own: the optimizer's.
        of: who that is, in an error.
        can: whether workers can take it over.

    Raises:
        telegrad.UsageError: momentum in two places, or in none.
    """
    if momentum == "off":
        return "off", 0.0, False
    if rate is not None:
        if own:
            raise UsageError(f"momentum in two places: {of} has {own:g}, and workers keep "
                             f"{rate:g} in front of the codec; leave momentum_rate out")
        return kind_of(momentum), float(rate), False
    if can and own and (momentum != "auto" or wants_momentum(codecs)):
        return kind_of(momentum), own, True
    if momentum == "auto":
        return "off", 0.0, False
    raise UsageError(f"momentum={momentum!r} without any: {of} has {own:g}, and it is taken over "
                     "from an SGD or NAG that has some, or momentum_rate says it")


class MomentumOfStore:
    """Whether the workers of a `KVStore` keep the momentum of the optimizer that it runs;
    decided before its first key, since compression and optimizer come in any order."""

    def __init__(self) -> None:
        self._momentum, self._rate = "off", None
        self._setting: Dict[str, Any] = {}
        self._kept = 0.0  # of the optimizer's

    def take(self, params: Dict[str, Any], kind: str) -> None:
        """Out of those of ``set_gradient_compression``.

        Raises:
            telegrad.UsageError: what cannot be.
        """
        is_mxnets = kind.partition(":")[0] in _MXNETS
        momentum = params.pop("momentum", "off" if is_mxnets else "auto")
        rate = params.pop("momentum_rate", None)
        check_given(momentum, rate)
        self._momentum, self._rate = momentum, rate

    def compress(self, store: Any, setting: Mapping[str, Any]) -> None:
        """What the store was told, but for momentum."""
        store.set_compression(**setting)
        self._setting = dict(setting)

    def begin_again(self, store: Any, optimizer: Optional[RunByStore]) -> None:
        """Of a store in the place of that which was told."""
        self._kept = 0.0
        if self._setting:
            store.set_compression(**self._setting)
        if optimizer is not None:
            store.set_optimizer(optimizer)

    def settle(self, store: Any, optimizer: Optional[RunByStore], has_rows: bool) -> str:
        """Before the first key: tells the store, where workers keep it; what is to be said.

        Raises:
            telegrad.UsageError: momentum in two places, or in none.
        """
        if not self._setting:
            return ""
        own = optimizer.momentum if isinstance(optimizer, SGD) else 0.0
        codecs = [self._setting["type"], *codecs_of_rules(self._setting.get("rules", ""))]
        kind, rate, is_own = taken_over(
            self._momentum, self._rate, own, codecs, "the optimizer",
            can=not has_rows or self._momentum != "auto")
        if not rate:
            return ""
        if is_own:
            assert optimizer is not None
            self._kept = own
            store.set_optimizer(self.stepped_by(optimizer))
        store.set_compression(**self._setting, momentum=kind, momentum_rate=rate)
        if not is_own:
            return ""
        return (f"momentum {own:g}: workers keep it in front of {self._setting['type']}, "
                f"{lead_of(kind)}, and servers apply none; 'momentum': 'off' in "
                "set_gradient_compression leaves it to them")

    def stepped_by(self, optimizer: RunByStore) -> RunByStore:
        """What the store runs in its place. The decay, which no momentum sees then, weighs
        what one would have made of it in the long run.

        Raises:
            telegrad.UsageError: later, another momentum than workers keep.
        """
        if not self._kept:
            return optimizer
        own = optimizer.momentum if isinstance(optimizer, SGD) else 0.0
        if own != self._kept or not isinstance(optimizer, SGD):
            raise UsageError(f"an optimizer with momentum {own:g}: workers keep "
                             f"{self._kept:g} in front of the codec, which stays")
        return replace(optimizer, momentum=0.0, wd=optimizer.wd / (1 - self._kept))
