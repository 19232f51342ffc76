"""The states of compressed models that live in this process."""
from __future__ import annotations

import weakref
from typing import Any, List

_states: List["weakref.ref[Any]"] = []


def remember(state: Any) -> None:
    """For `states`; has ``model()`` and ``report()``."""
    _states[:] = [each for each in _states if each() is not None]
    _states.append(weakref.ref(state))


def forget(state: Any) -> None:
    """Of one that no model takes."""
    _states[:] = [each for each in _states if each() is not state]


def any_made() -> bool:
    """Whether this process has compressed a model."""
    return bool(_states)


def states() -> List[Any]:
    """Those that live, in the order in which they were made."""
    alive = [reference() for reference in _states]
    return [state for state in alive if state is not None]
