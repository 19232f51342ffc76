"""Gradients of a DistributedOptimizer of torch through a codec."""
from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from ..._log import LOGGER
from ...torch._auto import OptimizerCheck
from ...torch._model import takes
from ...torch._normal import multiply
from ..common import world
from ..common.coded import Codec, CodedSums
from ..common.submission import start, synchronize
from .wire import wires


class Coded(CodedSums):
    """The parameters' names in the operations' store.

    Args:
        optimizer: the one within.
        names: of all its parameters.

    Raises:
        telegrad.Error: as `CodedSums`.
    """

    def __init__(self, codec: Codec, optimizer: Any, names: Dict[Any, str], op: int) -> None:
        trained = {p: name for p, name in names.items() if p.requires_grad}
        self._check = check = OptimizerCheck(
            codec.type, None, codec.rules, optimizer, trained, world.rank() == 0,
            codec.momentum, codec.momentum_rate, codec.normalize)
        super().__init__(codec, op, check.momentum.settings)
        self._op, self._names = op, {p: name for p, name in trained.items() if takes(p)}
        check.momentum.apply()
        check.normal.apply()
        for note in (check.momentum.note, check.normal.note):
            self._say(note)

    def _say(self, note: str) -> None:
        if note and self._here.rank == 0:
            LOGGER.info("%s", note)

    def has(self, p: Any) -> bool:
        """Whether the store takes it; others go by allreduce."""
        return p in self._names

    def start(self, p: Any) -> Callable[[], None]:
        """Sends the gradient; gives a function that waits until it is the ranks' sum or
        mean."""
        sent = p.grad.detach().contiguous()
        sizes = self._check.normal.divide([p], [sent])
        name = self._names[p]
        handle = start("allreduce", wires("allreduce", [sent], [sent]), name,
                       op=self._op, codec=self.codec_of(name, p.shape))

        def finish() -> None:
            found = synchronize(handle)
            with torch.no_grad():
                if found.data_ptr() != p.grad.data_ptr():
                    p.grad.copy_(found)
                multiply([p.grad], sizes)

        return finish

    def after_step(self) -> None:
        """Of the optimizer."""
        self._say(self._check.after_step())

    def close(self) -> None:
        self._check.momentum.release()
        self._check.normal.release()
