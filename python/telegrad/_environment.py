"""Settings that the environment has where a call does not say them: docs/pytorch.md."""
from __future__ import annotations

import os
from typing import Optional

from .errors import UsageError


def codec() -> Optional[str]:
    """Of $TELEGRAD_CODEC, if that is set."""
    return os.environ.get("TELEGRAD_CODEC") or None


def is_disabled() -> bool:
    """By $TELEGRAD_DISABLE.

    Raises:
        UsageError: another value than 0 and 1.
    """
    text = os.environ.get("TELEGRAD_DISABLE") or "0"
    if text not in ("0", "1"):
        raise UsageError(f"TELEGRAD_DISABLE={text!r}: 1 or 0")
    return text == "1"


def seconds(given: Optional[float], name: str, standard: float) -> float:
    """What is `given`, else of $TELEGRAD_`name`.

    Raises:
        UsageError: a variable that is no number of seconds.
    """
    if given is not None:
        return given
    variable = f"TELEGRAD_{name}"
    text = os.environ.get(variable)
    try:
        found = float(text) if text else standard
        if 0 < found < 1e9:
            return found
    except ValueError:
        pass
    raise UsageError(f"{variable}={text!r}: seconds are wanted, such as {standard:g}")
