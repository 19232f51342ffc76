"""For the Trainer of Hugging Face's Transformers::

    trainer = Trainer(..., callbacks=[telegrad.transformers.Compress(gc_type="int8")])
"""
from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Optional

from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback  # type: ignore[import,unused-ignore]

from . import kubeflow
from .torch import State, compress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .torch._options import StateOptions

__all__ = ["Compress"]


def _wrapper_of(model: Any) -> Any:
    """The DistributedDataParallel around it, which the trainer hands to no callback."""
    for each in gc.get_objects():
        if issubclass(type(each), DistributedDataParallel) and each.module is model:
            return each
    return model


class Compress(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Compresses the gradients of `train`; its ``state`` has ``report()``.

    Args:
        gc_type, options: of `telegrad.torch.compress`; the optimizer is the trainer's where
            none is given.
    """

    def __init__(self, gc_type: Optional[str] = None,
                 **options: "Unpack[StateOptions]") -> None:
        self.state: Optional[State] = None
        self._gc_type, self._options = gc_type, options

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        model = _wrapper_of(others["model"])
        options = self._options.copy()
        options.setdefault("optimizer", others.get("optimizer"))
        self.state = compress(model, self._gc_type, **options)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        told = [each["loss"] for each in state.log_history[-1:] if "loss" in each]
        kubeflow.report(state.global_step, state.max_steps, **dict(zip(["loss"], told)))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.state is not None:
            self.state.close()
