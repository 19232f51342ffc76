"""TELEGRAD_DISABLE=1: what a script has of `compress`, where DDP is as without it."""
from __future__ import annotations

import weakref
from typing import Any, Dict, List, Optional

from .._log import LOGGER
from ._hook import State
from ._meeting import is_first_of
from ._states import remember


class Disabled(State):
    """A state without a job: it reports nothing and keeps nothing."""

    def __init__(self, model: Any) -> None:
        self.model = weakref.ref(model)
        self._pid = 0
        self.steps, self.waited_s = 0, 0.0
        remember(self)
        if is_first_of(getattr(model, "process_group", None)):
            LOGGER.info("TELEGRAD_DISABLE=1: nothing is compressed")

    def report(self) -> Dict[str, Any]:
        sides = {f"{side}_{kind}_bytes": 0 for side in ("push", "pull")
                 for kind in ("raw", "wire")}
        return {"decisions": [], "steps": 0, "waited_s": 0.0, "workers": 0, "push_ratio": 1.0,
                "pull_ratio": 1.0, "auto": [], "plan": {}, **sides}

    def timeline(self, on: bool = True) -> List[Dict[str, Any]]:
        return []

    def state_dict(self) -> Dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any, reshard: Optional[str] = None) -> None:
        pass

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return "<telegrad.torch.State, disabled by TELEGRAD_DISABLE=1>"
