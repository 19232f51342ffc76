"""What the package says: the logger "telegrad" of `logging`."""
from __future__ import annotations

import logging
import os
import sys
from typing import Union

from ._library import LIBRARY
from .errors import UsageError

LOGGER = logging.getLogger("telegrad")
# Python's level, and the library's for its own lines.
_LEVELS = {"debug": (logging.DEBUG, 0), "info": (logging.INFO, 1),
           "warning": (logging.WARNING, 1), "error": (logging.ERROR, 2),
           "off": (logging.CRITICAL + 1, 2)}
_NUMBERS = {0: "debug", 1: "info", 2: "error"}


class _StandardError(logging.Handler):
    """Lines on standard error, as long as nobody has handlers for them."""

    def emit(self, record: logging.LogRecord) -> None:
        if len(LOGGER.handlers) > 1 or logging.getLogger().handlers:
            return
        try:
            print(f"telegrad: {record.getMessage()}", file=sys.stderr, flush=True)
        except (OSError, ValueError):  # closed
            self.handleError(record)


def set_level(level: Union[str, int], name: str = "level") -> None:
    """
    Raises:
        UsageError: none of the levels.
    """
    known = _NUMBERS.get(level) if isinstance(level, int) else str(level).lower()
    if known not in _LEVELS:
        raise UsageError(f"{name}={level!r}: one of {', '.join(_LEVELS)}")
    own, of_library = _LEVELS[known]
    LOGGER.setLevel(own)
    LIBRARY.telegrad_set_log_level(of_library)


if not LOGGER.handlers:
    LOGGER.addHandler(_StandardError())
set_level(os.environ.get("TELEGRAD_LOG_LEVEL") or "info", "TELEGRAD_LOG_LEVEL")
