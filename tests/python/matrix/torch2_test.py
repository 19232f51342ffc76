#!/usr/bin/env python3
"""telegrad.torch with what only newer versions of torch have: torch.compile, GradScaler
and autocast on a CPU."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import workers

try:
    import torch
    import torch.distributed as dist
    torch.amp.GradScaler  # noqa: B018
except (ImportError, AttributeError) as why:
    workers.skip(f"needs torch 2.3 or newer: {why}")

import telegrad
import telegrad.torch
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)


class Net(torch.nn.Module):
    """Integer weights: with integer inputs all gradients are integers."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(24, 50)
        self.last = torch.nn.Linear(50, 3)
        torch.manual_seed(7)
        for parameter in self.parameters():
            parameter.data = torch.randint(-2, 3, parameter.shape).float()

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def inputs(step):
    generator = torch.Generator().manual_seed(100 * step + RANK)
    return torch.randint(-1, 2, (2, 24), generator=generator).float()


def gradients(model):
    """By place: torch.compile changes names."""
    return [parameter.grad.clone() for parameter in model.parameters()]


# ---- what a rank does ----

def compiles(_):
    """Compiled outside DDP and within: DDP's gradients, bit for bit, in every step."""
    dist.init_process_group("gloo")
    for wrap in (lambda net: torch.compile(DDP(net), backend="aot_eager"),
                 lambda net: DDP(torch.compile(net, backend="aot_eager"))):
        plain, ours = wrap(Net()), wrap(Net())
        telegrad.torch.compress(ours, gc_type="none", verbose=False)
        for step in range(4):
            for model in (plain, ours):
                model.zero_grad()
                model(inputs(step)).sum().backward()
            for want, got in zip(gradients(plain), gradients(ours)):
                assert torch.equal(want, got), step
        assert telegrad.torch.report(ours)["steps"] == 4
        text = workers.refused(telegrad.WrongOrder, lambda: telegrad.torch.compress(ours))
        assert "already" in text
    return float(gradients(ours)[0].abs().sum())


def scales(codec):
    """An infinity on rank 1 alone: GradScaler skips the step on both ranks."""
    dist.init_process_group("gloo")
    model = DDP(Net())
    telegrad.torch.compress(model, gc_type=codec, verbose=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=2 ** -6)
    scaler = torch.amp.GradScaler("cpu", init_scale=16, growth_interval=1000)
    found = []
    for step in range(4):
        optimizer.zero_grad()
        before = [p.detach().clone() for p in model.parameters()]
        x = inputs(step)
        if step == 1 and RANK == 1:
            x[0, 0] = float("inf")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step == 3):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        is_same = all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
        found.append([is_same, scaler.get_scale()])
    return found + [float(sum(p.double().sum() for p in model.parameters()))]


class Complex(torch.nn.Module):
    """Parameters of types that the store does not have beside one that it has."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(3, 4, dtype=dtype))
            for dtype in (torch.float32, torch.float64, torch.complex64))

    def forward(self, x):
        return sum((part * x).real.sum() for part in self.parts)


def other_types(_):
    """Complex ones are torch's; its reducer in Python is refused."""
    dist.init_process_group("gloo")
    model = DDP(Complex())
    telegrad.torch.compress(model, gc_type="none", verbose=False)
    for step in range(3):
        model.zero_grad()
        model(float(step + RANK)).backward()
        assert all(bool((grad == step + 0.5).all()) for grad in gradients(model)), step
    torch._dynamo.config.optimize_ddp = "python_reducer"
    return workers.refused(telegrad.Unsupported,
                           lambda: telegrad.torch.compress(DDP(torch.nn.Linear(3, 4))))


# ---- the tests ----

class Torch2(unittest.TestCase):
    def ranks(self, function, argument=None):
        return workers.Ranks(FILE, function.__name__, 2, argument).results()

    def test_compiled_models_have_ddps_gradients(self):
        one, other = self.ranks(compiles)
        self.assertEqual(one, other)
        self.assertGreater(one, 0)

    def test_other_types_are_summed_by_torch_and_its_python_reducer_is_refused(self):
        for text in self.ranks(other_types):
            self.assertIn("'python_reducer'", text)
            self.assertIn("'ddp_optimizer'", text)

    def test_an_infinity_reaches_the_scaler_on_all_ranks(self):
        for codec in ("none", "2bit"):
            one, other = self.ranks(scales, codec)
            self.assertEqual(one, other)
            self.assertEqual([is_same for is_same, _ in one[:4]],
                             [False, True, False, False])
            self.assertEqual([scale for _, scale in one[:4]], [16, 8, 8, 8])


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (compiles, other_types, scales)})
