"""What `telegrad.run` was told of the job and of codecs, for scripts that say neither."""
from __future__ import annotations

from typing import Any, Dict, Optional

from ..._environment import codec as _codec_of_environment

JOB_OPTIONS = ("transport", "bind", "link", "tier1")
# By their names in `telegrad.horovod.common.coded.Codec`.
CODEC_OPTIONS = {name: name for name in (
    "rules", "threshold", "dense_1d", "reply", "packing", "min_bytes", "warmup_steps", "guard",
    "momentum", "momentum_rate", "normalize")}
CODEC_OPTIONS["gc_type"] = "type"
job: Dict[str, Any] = {}
codec: Dict[str, Any] = {}


def standard_codec() -> Optional[Dict[str, Any]]:
    """Arguments of `Codec` for optimizers without compression, by telegrad.run or
    $TELEGRAD_CODEC; None: none."""
    name = codec.get("type") or _codec_of_environment()
    return {**codec, "type": name} if name and name != "none" else None
