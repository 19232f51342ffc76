"""Horovod's variables as options of `telegrad.Operations`."""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, Tuple

from ..._log import LOGGER, set_level
from ...errors import UsageError


def _is_on(text: str) -> bool:
    return text.lower() in ("1", "true", "yes", "on")


def _milliseconds(text: str) -> float:
    return float(text) / 1000


# What each is, of text; docs/from_horovod.md.
_OPTIONS: Dict[str, Tuple[str, Callable[[str], Any]]] = {
    "HOROVOD_FUSION_THRESHOLD": ("fusion_bytes", int),
    "HOROVOD_CYCLE_TIME": ("cycle", _milliseconds),
    "HOROVOD_CACHE_CAPACITY": ("cache_capacity", int),
    "HOROVOD_STALL_CHECK_TIME_SECONDS": ("stall_warning", float),
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": ("stall_deadline", float),
    "HOROVOD_AUTOTUNE_LOG": ("autotune_log", str),
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": ("autotune_warmup", int),
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": ("autotune_steps", int),
}
_SWITCHES = {"HOROVOD_AUTOTUNE": "autotune", "HOROVOD_TIMELINE_MARK_CYCLES": "marks_cycles"}
_LEVELS = {"trace": "debug", "fatal": "error"}
# What else is heard; all others have no effect.
_HEARD = ("HOROVOD_TIMELINE", "HOROVOD_STALL_CHECK_DISABLE", "HOROVOD_LOG_LEVEL",
          "HOROVOD_DYNAMIC_PROCESS_SETS", "HOROVOD_ELASTIC", "HOROVOD_RANK", "HOROVOD_SIZE")


def options() -> Dict[str, Any]:
    """
    Raises:
        telegrad.UsageError: a variable that is no such number.
    """
    found: Dict[str, Any] = {}
    for name, (option, kind) in _OPTIONS.items():
        text = os.environ.get(name)
        if not text:
            continue
        try:
            found[option] = kind(text)
        except ValueError:
            raise UsageError(f"{name}={text!r}: a number is wanted") from None
    for name, option in _SWITCHES.items():
        found[option] = _is_on(os.environ.get(name, ""))
    if _is_on(os.environ.get("HOROVOD_STALL_CHECK_DISABLE", "")):
        found["stall_warning"] = 0.0
    timeline = os.environ.get("HOROVOD_TIMELINE")
    if timeline and timeline != "DYNAMIC":
        found["timeline"] = timeline
    return found


def apply_log_level() -> None:
    """Of $HOROVOD_LOG_LEVEL, unless Telegrad's own variable says it."""
    text = os.environ.get("HOROVOD_LOG_LEVEL", "").lower()
    if text and "TELEGRAD_LOG_LEVEL" not in os.environ:
        set_level(_LEVELS.get(text, text), "HOROVOD_LOG_LEVEL")


def say_ignored() -> None:
    """Of rank 0, in one line: variables that change nothing here."""
    heard = {*_OPTIONS, *_SWITCHES, *_HEARD}
    found = sorted(name for name, value in os.environ.items()
                   if name.startswith("HOROVOD_") and value and name not in heard)
    if found:
        LOGGER.info("%s: without effect; docs/from_horovod.md says what has its place",
                    ", ".join(found))
