"""An optimizer whose ranks' steps are combined by Adasum."""
from __future__ import annotations

from typing import Any, Dict

import torch

from ..common.exceptions import HorovodInternalError
from ..common.submission import Adasum, synchronize
from .allreduce import allreduce_async_
from .hooks import after_gradient


_Inner: Any = object  # an optimizer's class comes behind it


class AdasumOptimizer(_Inner):  # type: ignore[misc]
    """In front of an optimizer's class: when backward has a parameter's gradient this rank
    steps it alone, and sends by what it changed; `step` adds what Adasum makes of all
    ranks' changes to what the parameter was."""

    def _set_up(self, names: Dict[Any, str], compression: Any, passes: int) -> None:
        self._parameter_names, self._compression = names, compression
        self.backward_passes_per_step = passes
        self._delays = {p: passes for p in names}
        self._before = {p: torch.zeros_like(p, requires_grad=False) for p in names}
        self._handles: Dict[Any, Any] = {}
        self._trained = [p for group in self.param_groups for p in group["params"]
                         if p.requires_grad]
        for p in self._trained:
            p.grad = torch.zeros_like(p)
        self._removes = [after_gradient(p, self._on_gradient) for p in self._trained]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on."""
        self.backward_passes_per_step = passes
        self._delays = {p: passes for p in self._delays}

    def _on_gradient(self, p: Any) -> None:
        if self._delays[p] <= 0:
            raise AssertionError("Gradients were computed more than backward_passes_per_step "
                                 "times before call to step().")
        self._delays[p] -= 1
        if self._delays[p] == 0:
            self._handles[p] = self._start(p)

    def _start(self, p: Any) -> Any:
        listed = [group["params"] for group in self.param_groups]
        for group in self.param_groups:
            group["params"] = [p] if any(each is p for each in group["params"]) else []
        self._before[p].copy_(p.detach())
        try:
            super().step()
        finally:
            for group, params in zip(self.param_groups, listed):
                group["params"] = params
        sent, context = self._compression.compress((p.detach() - self._before[p]).contiguous())
        return allreduce_async_(sent, name=self._parameter_names[p], op=Adasum), context

    def synchronize(self) -> None:
        """Nothing: `step` waits."""

    def skip_synchronize(self) -> Any:
        """Is refused."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum "
                             "optimizer.")

    def step(self, closure: Any = None) -> Any:
        """Waits for what all ranks' steps come to."""
        loss = None if closure is None else closure()
        for p in self._trained:
            if p not in self._handles:
                self._handles[p] = self._start(p)
        handles, self._handles = self._handles, {}
        self._delays = {p: self.backward_passes_per_step for p in self._delays}
        for p, (handle, context) in handles.items():
            change = self._compression.decompress(synchronize(handle), context)
            with torch.no_grad():
                p.copy_(self._before[p] + change)
        return loss

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Forgets steps that are under way."""
        handles, self._handles = self._handles, {}
        for handle, _ in handles.values():
            try:
                synchronize(handle)
            except HorovodInternalError:
                pass  # they are forgotten
        self._delays = {p: self.backward_passes_per_step for p in self._delays}
        super().load_state_dict(*args, **kwargs)

    def step_alone(self) -> None:
        """By this rank's gradients."""
        super().step()

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        """
        Raises:
            AssertionError: steps are under way.
        """
        if self._handles:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but "
                                 "before optimizer.step().")
        return super().zero_grad(*args, **kwargs)
