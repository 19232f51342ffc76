"""What a training consists of, committed and restored in memory."""
from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List

import torch

from ...common import world
from ..functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .sampler import ElasticSampler


def _sync(value: Any) -> None:
    root = world.elder()
    if isinstance(value, torch.nn.Module):
        broadcast_parameters(value.state_dict(), root_rank=root)
    elif isinstance(value, torch.optim.Optimizer):
        broadcast_optimizer_state(value, root_rank=root)
    else:
        value.load_state_dict(broadcast_object(value.state_dict(), root, "sampler"))


class TorchState:
    """Model, optimizer and other attributes::

        state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0)
        state.epoch += 1
        state.commit()

    Args:
        model, optimizer: of torch; None: none.
        values: other attributes by name; modules, optimizers and `ElasticSampler` are kept
            by their state_dict, others as they are.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **values: Any) -> None:
        self._callbacks: List[Callable[[], None]] = []
        given = {**values, "model": model, "optimizer": optimizer}
        kinds = (torch.nn.Module, torch.optim.Optimizer, ElasticSampler)
        self._stateful = [name for name, value in given.items() if isinstance(value, kinds)]
        self._plain = [name for name in given if name not in self._stateful]
        for name, value in given.items():
            setattr(self, name, value)
        self.save()

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Called by `on_reset`."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Ranks have come or gone."""
        for callback in self._callbacks:
            callback()

    def commit(self) -> None:
        """`save`, and `check_host_updates`. All ranks call it."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Lets those in who wait to come into an elastic job; all ranks call it, between
        operations.

        Raises:
            HostsUpdatedInterrupt: somebody does, which `run` takes.
            HorovodInternalError: somebody has died.
        """
        world.let_in()

    def save(self) -> None:
        """Keeps what is there now, in memory."""
        self._saved: Dict[str, Any] = {
            name: copy.deepcopy(getattr(self, name).state_dict()) for name in self._stateful}
        self._saved.update({name: getattr(self, name) for name in self._plain})

    def restore(self) -> None:
        """What was saved last is there again."""
        for name, value in self._saved.items():
            if name in self._stateful:
                getattr(self, name).load_state_dict(copy.deepcopy(value))
            else:
                setattr(self, name, value)

    def sync(self) -> None:
        """All ranks get the elder's, rank 0's unless a rank came in its place; all call it."""
        for name in self._stateful:
            _sync(getattr(self, name))
        values = broadcast_object({name: getattr(self, name) for name in self._plain},
                                  world.elder(), "elastic_state")
        for name, value in values.items():
            setattr(self, name, value)
        self.save()
