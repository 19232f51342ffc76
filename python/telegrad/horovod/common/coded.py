"""Gradients through a codec: operations by the job's store of the type "allreduce"."""
from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence

from ..._hosts import hosts_of
from ..._log import LOGGER
from ..._texts import bytes_text, codecs_text
from ...errors import Unsupported, UsageError, WrongOrder
from . import settings, world
from .submission import Average, Sum


class Codec:
    """One of Telegrad's codecs, for `DistributedOptimizer`: each rank sums a part of every
    gradient for the others, from codes, with residuals on both ways.

    Args:
        type: "int2", "2bit:0.5", "topk:0.01" or what else docs/codecs.md has.
        rules: codecs of some parameters, by name: "PATTERN=CODEC;...".
        dense_1d: parameters of one dimension (biases, norms) go dense unless a rule says
            otherwise.
        momentum, momentum_rate, normalize: as of `telegrad.torch.State`; MXNet's have no
            `normalize`.
        setting: of `telegrad.Store.set_compression`: threshold, reply, packing, nonfinite,
            min_bytes, warmup_steps, guard.
    """

    def __init__(self, type: str, *, rules: str = "", dense_1d: bool = True,
                 momentum: str = "auto", momentum_rate: Optional[float] = None,
                 normalize: str = "auto", **setting: Any) -> None:
        if type.partition(":")[0] == "auto":
            raise UsageError("compression 'auto': name the codec; telegrad.torch.compress of "
                             "DistributedDataParallel has auto")
        self.type, self.rules, self.dense_1d = type, rules, dense_1d
        self.momentum, self.momentum_rate = momentum, momentum_rate
        self.normalize, self.setting = normalize, setting

    def compress(self, tensor: Any) -> Any:
        """Is refused: a codec keeps what it holds back, of each parameter."""
        raise Unsupported(f"compression {self.type} in an operation of its own: give it to "
                          "hvd.DistributedOptimizer, which knows the parameters")


class Codecs(type):
    """Of a framework's `Compression`, whose other attributes are codecs' names."""

    def __getattr__(cls, name: str) -> Codec:
        import telegrad
        if name.partition(":")[0] not in [each["name"] for each in telegrad.codecs()]:
            own = ", ".join(each for each in vars(cls) if not each.startswith("_"))
            raise AttributeError(f"Compression.{name}: there are {own}, of which codec takes "
                                 "options: Compression.codec('2bit:0.5'), and codecs as "
                                 "Compression.int2")
        return Codec(name)


def compression_of(kinds: Any, given: Any, takes_codec: bool) -> Any:
    """A compressor of a framework's `kinds`, of the name of a codec, too; where none is given
    and one can be, the codec of `telegrad.run` or $TELEGRAD_CODEC."""
    standard = settings.standard_codec()
    if given in (None, kinds.none) and takes_codec and standard:
        return Codec(**standard)
    if given is None:
        return kinds.none
    if isinstance(given, str):
        return vars(kinds)[given] if given in vars(kinds) and given != "codec" else Codec(given)
    return given


class CodedSums:
    """The store of this job's operations, which one optimizer uses.

    Args:
        op: Sum or Average.
        momentum: of `telegrad.Store.set_compression`.

    Raises:
        telegrad.Unsupported: another `op`, or a second optimizer with a codec.
        telegrad.UsageError: an option that cannot be, and what can.
    """

    def __init__(self, codec: Codec, op: int, momentum: Dict[str, Any]) -> None:
        here = world.running()
        if op not in (Sum, Average):
            raise Unsupported(f"op={op} with compression {codec.type}: Sum or Average")
        if here.parts:
            raise Unsupported("a second DistributedOptimizer with a codec: a job has one; "
                              "give both models' parameters to one optimizer, or the second "
                              "compression=Compression.none")
        self._codec, self._momentum = codec, momentum
        self.begin_again()
        if here.rank == 0:
            hosts_of(here.job).say()

    def begin_again(self) -> None:
        """Also in the next epoch of an elastic job, with nothing held back."""
        codec, self._here = self._codec, world.running()
        self._store = self._here.operations.store
        self._here.parts.append(self)
        self._store.set_compression(type=codec.type, rules=codec.rules, **self._momentum,
                                    **codec.setting)

    def codec_of(self, name: str, shape: Sequence[int]) -> str:
        """For `codec` of an operation: floats of what has one dimension, unless a rule finds
        its name."""
        if self._here is not world.running():
            raise WrongOrder("hvd.shutdown has ended this optimizer's store: make it anew "
                             "after hvd.init")
        if len(shape) > 1 or not self._codec.dense_1d:
            return "store"
        patterns = [rule.rpartition("=")[0] for rule in self._codec.rules.split(";")]
        has_rule = any(pattern == "*" or pattern and re.search(pattern, name)
                       for pattern in patterns)
        return "store" if has_rule else "none"

    def report(self) -> Dict[str, Any]:
        """``decisions`` of each parameter that does not go as floats by its dimension, and
        bytes as of `telegrad.Store.stats`."""
        decisions: List[Dict[str, Any]] = self._store.report()
        return {"decisions": decisions, **self._store.stats()}

    def sum_up(self) -> None:
        """Rank 0 says what was saved, while the store is open."""
        found = self.report() if self._here.rank == 0 else {}
        if found and found["push_wire_bytes"]:
            LOGGER.info("%s; rank 0 %s", codecs_text(found["decisions"]), bytes_text(found))

    def close(self) -> None:
        """Of `shutdown`."""
