"""For Hugging Face Accelerate::

    accelerator = Accelerator(kwargs_handlers=[telegrad.accelerate.handler(gc_type="int8")])
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from accelerate.utils import DistributedDataParallelKwargs  # type: ignore[import,unused-ignore]

from .torch import compress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .torch._options import StateOptions

__all__ = ["handler"]


def handler(gc_type: Optional[str] = None, *, ddp: Any = None,
            **options: "Unpack[StateOptions]") -> Any:
    """Compresses each model that the accelerator prepares.

    Args:
        gc_type, options: of `telegrad.torch.compress`; with ``optimizer=``, the one that the
            accelerator prepares, too, its momentum may be taken over.
        ddp: a DistributedDataParallelKwargs without a hook, for the other arguments of
            DistributedDataParallel.
    """
    given = ddp or DistributedDataParallelKwargs()
    # Accelerate takes no derived class, and asks these two alone.
    made = DistributedDataParallelKwargs()
    setattr(made, "to_kwargs", given.to_kwargs)
    setattr(made, "register_comm_hook", lambda model: compress(model, gc_type, **options))
    return made
