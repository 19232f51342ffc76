"""Gradients of a DistributedOptimizer through a codec: a store of the type "allreduce"."""
from __future__ import annotations

import re
from typing import Any, Dict, List, Tuple

import torch

from ..._hosts import hosts_of
from ..._log import LOGGER
from ...errors import Error, Unsupported, WrongOrder
from ...optimizer import Rescale
from ...store import Store
from ...torch._auto import OptimizerCheck
from ...torch._model import takes
from ...torch._bucket import pattern_of
from ...torch._normal import multiply
from ..common import world
from ..common.exceptions import HorovodInternalError
from ..common.submission import Average, Sum
from .compression import Codec


class Coded:
    """The parameters' keys in a store of this job, which has one such store.

    Args:
        optimizer: the one within.
        names: of all its parameters.
        op: Sum or Average.

    Raises:
        telegrad.Unsupported: another `op`, or a second optimizer with a codec.
        telegrad.UsageError: an option that cannot be, and what can.
    """

    def __init__(self, codec: Codec, optimizer: Any, names: Dict[Any, str], op: int) -> None:
        here = world.running()
        if op not in (Sum, Average):
            raise Unsupported(f"op={op} with compression {codec.type}: Sum or Average")
        if here.parts:
            raise Unsupported("a second DistributedOptimizer with a codec: a job has one; "
                              "give both models' parameters to one optimizer, or the second "
                              "compression=Compression.none")
        trained = {p: self._key_name(name) for p, name in names.items() if p.requires_grad}
        check = OptimizerCheck(codec.type, None, codec.rules, optimizer, trained,
                               here.rank == 0, codec.momentum, codec.momentum_rate,
                               codec.normalize)
        self._check = check
        flat = [name for p, name in trained.items() if p.dim() <= 1 and codec.dense_1d]
        rules = [codec.rules] if codec.rules else []
        if flat:
            rules.append(pattern_of(flat, trained.values()) + "=none")
        self._setting = {"type": codec.type, "rules": ";".join(rules),
                         **check.momentum.settings, **codec.setting}
        self._op, self._names = op, trained
        self._buffers = {p: torch.zeros(p.numel(), dtype=p.dtype) for p in trained if takes(p)}
        self._open(here)
        check.momentum.apply()
        check.normal.apply()
        if here.rank == 0:
            hosts_of(here.job).say()
            for note in (check.momentum.note, check.normal.note):
                if note:
                    LOGGER.info("%s", note)

    def _open(self, here: world.World) -> None:
        self._here, self._store = here, Store(here.job, "allreduce")
        here.parts.append(self)
        self._store.set_compression(**self._setting)
        if self._op == Average:
            self._store.set_optimizer(Rescale(1 / here.size))
        keys = self._store.init([self._names[p] for p in self._buffers],
                                list(self._buffers.values()))
        self._keys: Dict[Any, Tuple[int, int]] = {
            p: (key, -place) for place, (p, key) in enumerate(zip(self._buffers, keys))}
        self._sizes: Dict[Any, List[Any]] = {}

    def begin_again(self) -> None:
        """In the next epoch of an elastic job, with nothing held back."""
        self._open(world.running())

    @staticmethod
    def _key_name(name: str) -> str:
        return re.sub(r"[^A-Za-z0-9_.:/-]", "_", name)

    def has(self, p: Any) -> bool:
        """Whether the store takes it; others go by allreduce."""
        return p in self._keys

    def start(self, p: Any) -> int:
        """Sends the gradient; gives what `finish` takes."""
        if self._here is not world.running():
            raise WrongOrder("hvd.shutdown has ended this DistributedOptimizer's store: make "
                             "it anew after hvd.init")
        buffer, gradient = self._buffers[p], p.grad.detach()
        if self._check.normal.is_on:
            gradient = gradient.clone()
        self._sizes[p] = self._check.normal.divide([p], [gradient])
        buffer.copy_(gradient.reshape(-1))
        key, priority = self._keys[p]
        return int(self._run(lambda: self._store.start("push_pull", [key], [buffer], [buffer],
                                                   priorities=[priority])))

    def finish(self, p: Any, tag: int) -> None:
        """The gradient is the ranks' sum or mean from now on."""
        self._run(lambda: self._store.queue.wait(tag))
        with torch.no_grad():
            p.grad.copy_(self._buffers[p].view(p.shape))
            multiply([p.grad], self._sizes.pop(p))

    def after_step(self) -> None:
        """Of the optimizer."""
        note = self._check.after_step()
        if note and self._here.rank == 0:
            LOGGER.info("%s", note)

    def report(self) -> Dict[str, Any]:
        """``decisions`` of each parameter, and bytes as of `telegrad.Store.stats`."""
        return {"decisions": self._store.report(), **self._store.stats()}

    @staticmethod
    def _run(work: Any) -> Any:
        try:
            return work()
        except Error as why:
            raise HorovodInternalError.of(why) from why

    def close(self) -> None:
        self._check.momentum.release()
        self._check.normal.release()
        self._store.close()
