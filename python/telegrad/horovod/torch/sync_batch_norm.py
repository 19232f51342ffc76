"""Batch normalization by the mean and variance of all ranks' batches."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from torch.nn.modules.batchnorm import _BatchNorm

from ..common import world
from ..common.submission import Sum
from .allreduce import allreduce


class SyncBatchNorm(_BatchNorm):
    """Arguments are those of torch.nn.BatchNorm2d; on CPUs, too."""

    num_batches_tracked: Any
    running_mean: Any
    running_var: Any

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Any) -> Any:
        self._check_input_dim(input)
        is_tracking = self.training and self.track_running_stats
        if is_tracking:
            self.num_batches_tracked.add_(1)
        if world.size() == 1 or not (self.training or not self.track_running_stats):
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias,
                self.training or not self.track_running_stats, self._rate(), self.eps)
        dims = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        wide = input.float() if input.element_size() < 4 else input
        sums = self._summed(torch.cat([wide.sum(dims), wide.new_tensor(
            [wide.numel() / wide.shape[1]])]), "sums")
        num, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
        apart = wide - mean.view(shape)
        variance = self._summed((apart * apart).sum(dims), "squares") / num
        if is_tracking:
            with torch.no_grad():
                rate = self._rate()
                self.running_mean.lerp_(mean.to(self.running_mean), rate)
                self.running_var.lerp_((variance * num / (num - 1).clamp(min=1)).to(
                    self.running_var), rate)
        out = apart * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(input.dtype)

    @staticmethod
    def _summed(numbers: Any, name: str) -> Any:
        return allreduce(numbers, name=f"sync_batch_norm.{name}", op=Sum)

    def _rate(self) -> float:
        """Of the running means."""
        if self.momentum is None:
            return 1 / float(self.num_batches_tracked) if self.num_batches_tracked else 0.0
        return float(self.momentum)
