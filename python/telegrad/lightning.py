"""For Lightning::

    trainer = lightning.Trainer(strategy="ddp", callbacks=[telegrad.lightning.Compress()])
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

try:
    from lightning.pytorch import Callback  # type: ignore[import,unused-ignore]
except ImportError:
    from pytorch_lightning import Callback  # type: ignore[import,assignment,unused-ignore]

from . import kubeflow
from .torch import State, compress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .torch._options import StateOptions

__all__ = ["Compress"]


class Compress(Callback):  # type: ignore[misc,unused-ignore]
    """Compresses the gradients of `fit`; its ``state`` has ``report()``.

    Args:
        gc_type, options: of `telegrad.torch.compress`; the optimizer is the trainer's where
            that has one and none is given.
    """

    def __init__(self, gc_type: Optional[str] = None,
                 **options: "Unpack[StateOptions]") -> None:
        super().__init__()
        self.state: Optional[State] = None
        self._gc_type, self._options = gc_type, options

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        options = self._options.copy()
        if len(trainer.optimizers) == 1:
            options.setdefault("optimizer", trainer.optimizers[0])
        self.state = compress(trainer.strategy.model, self._gc_type, **options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        if kubeflow.is_wanted():
            steps = trainer.estimated_stepping_batches  # infinite where nobody says an end
            known = {"loss": outputs["loss"]} if isinstance(outputs, dict) else {}
            kubeflow.report(trainer.global_step, steps, **known)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.state is not None:
            self.state.close()
