"""The backend of torch.distributed: its options, and how torch finds it."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, Optional

import torch
import torch.distributed as dist

from ..codec import Codec
from ..errors import UsageError
from ._meeting import check_names
from ._options import JobOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


class BackendOptions:
    """Of a process group, as `pg_options` of `init_process_group` and `new_group`; all
    ranks give the same.

    Example::

        options = telegrad.torch.BackendOptions("int4", min_bytes=1024)
        group = torch.distributed.new_group(pg_options=options)

    Args:
        codec: of sums (and means) of float32, docs/codecs.md, with error feedback; None:
            $TELEGRAD_BACKEND_CODEC, else "none".
        min_bytes: tensors with fewer go as they are.
        nonfinite: "error", "zero" or "propagate" (MXNet's), where a codec gets them.
        job_options: of `telegrad.Job`: transport, bind, timeouts, secret_file; and gpu,
            which is the GPU of ``torch.cuda.set_device``, if that was called before.

    Raises:
        telegrad.UsageError: an option that cannot be, and what can.
    """

    def __init__(self, codec: "str | None" = None, *, min_bytes: int = 1 << 16,
                 nonfinite: str = "error", **job_options: "Unpack[JobOptions]") -> None:
        check_names(job_options, BackendOptions, JobOptions)
        self.codec = codec or os.environ.get("TELEGRAD_BACKEND_CODEC") or "none"
        if self.codec != "none":
            Codec(self.codec, 1)  # refuses by name
        if min_bytes < 0:
            raise UsageError(f"min_bytes={min_bytes}: 0 or more")
        self.min_bytes, self.nonfinite = min_bytes, nonfinite
        self.job_options: Dict[str, Any] = dict(job_options)

    def is_compressed(self) -> bool:
        """Whether sums go through a codec."""
        return self.codec != "none"

    def is_sealed(self) -> bool:
        """Whether `encryption` or $TELEGRAD_ENCRYPTION asks for it, on all ways."""
        wish = self.job_options.get("encryption") or os.environ.get("TELEGRAD_ENCRYPTION")
        return wish in ("auth", "on")

    def settings(self) -> Dict[str, Any]:
        """What ranks must have alike."""
        return {"codec": self.codec, "min_bytes": self.min_bytes,
                "nonfinite": self.nonfinite}


def chosen_gpu() -> Optional[int]:
    """The one that this process has chosen so far; None: it is not known. Who has chosen none is
    on the first, too."""
    if not torch.cuda.is_initialized():
        return None
    gpu = torch.cuda.current_device()
    may_be_another = torch.cuda.device_count() > 1 and os.environ.get("LOCAL_RANK", "0") != "0"
    return None if gpu == 0 and may_be_another else gpu


def _create(torchs: Any, options: Any) -> Any:
    """What torch calls on each rank of a group."""
    from ._process_group import ProcessGroupTelegrad
    if options is None:
        options = BackendOptions()
    if not isinstance(options, BackendOptions):
        raise UsageError(f"pg_options={options!r}: telegrad.torch.BackendOptions is wanted")
    return ProcessGroupTelegrad(torchs.store, torchs.group_rank, torchs.group_size,
                                torchs.timeout, options)


def register() -> None:
    """Once; torch knows the name "telegrad" from then on."""
    if not dist.is_available() or hasattr(dist.Backend, "TELEGRAD"):
        return
    named: Any = {"devices": ["cpu", "cuda"]} if hasattr(dist.Backend, "backend_list") else {}
    dist.Backend.register_backend("telegrad", _create, extended_api=True, **named)
