#!/usr/bin/env python3
"""What codecs keep is saved and loaded: a run that goes on has the bits of one that was
never ended, and other bits without; other numbers of workers; what does not fit."""
import copy
import os
import tempfile
import unittest

import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.torch
from telegrad.torch import _residuals
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
WORLD = int(os.environ.get("WORLD_SIZE", 0))
FILE = os.path.abspath(__file__)
THRESHOLD = 2 ** -9
FIXED = f"2bit:{THRESHOLD}"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(24, 50)
        # More than a chunk of 524,288, and parts of two servers.
        self.large = torch.nn.Linear(700, 800)

    def forward(self, x):
        return torch.relu(self.first(x)).sum() + self.large(x.repeat(1, 30)[:, :700]).sum()


def steps(model, first, last):
    """Of SGD on this rank's own data; the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=2 ** -6)
    for step in range(first, last):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(100 * step + RANK)
        (model(torch.randn(2, 24, generator=generator)) / 100).backward()
        optimizer.step()
    return {name: p.detach().clone() for name, p in model.module.named_parameters()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def compressed(weights=None, gc_type="2bit", **options):
    net = Net()
    if weights is not None:
        net.load_state_dict(weights)
    model = DDP(net)
    return model, telegrad.torch.compress(model, gc_type=gc_type, verbose=False,
                                          guard=False, **options)


# ---- what a rank does ----

def resumes(folder):
    """With fixed and agreed thresholds, and with a residual on the servers."""
    dist.init_process_group("gloo")
    found = []
    for i, (codec, options) in enumerate((
            ("2bit:0.0078125", {}), ("2bit", {}), ("2bit", {"reply": "reencode"}),
            ("topk:0.1", {}), ("int8", {}))):
        model, state = compressed(gc_type=codec, **options)
        half = steps(model, 0, 3)
        path = os.path.join(folder, f"{i}-{RANK}.pt")
        torch.save(state.state_dict(), path)
        whole = steps(model, 3, 6)
        state.close()
        again, loads = compressed(half, codec, **options)
        loads.load_state_dict(torch.load(path))
        forgot, forgets = compressed(half, codec, **options)
        found.append([equal(steps(again, 3, 6), whole), equal(steps(forgot, 3, 6), whole)])
        loads.close()
        forgets.close()
    return found


def resumes_auto(folder):
    """With what was chosen, which stays for 64 steps; with a state of before, anew."""
    dist.init_process_group("gloo")
    options = {"gc_type": "auto", "allow": "topk:0.01,2bit", "link": "100mbit"}
    model, state = compressed(**options)
    steps(model, 0, 3)
    early = copy.deepcopy(state.state_dict())
    half = steps(model, 3, 40)
    found = state.report()["auto"]
    path = os.path.join(folder, f"auto-{RANK}.pt")
    torch.save(state.state_dict(), path)
    whole = steps(model, 40, 45)
    state.close()
    again, loads = compressed(half, **options)
    loads.load_state_dict(torch.load(path))
    same = equal(steps(again, 40, 45), whole)
    resumed = loads.report()["auto"]
    texts = [workers.refused(telegrad.WrongOrder,
                             lambda: loads.load_state_dict(torch.load(path)))]
    loads.close()
    forgot, forgets = compressed(half, **options)
    mixed = early if RANK == 0 else torch.load(path)
    texts.append(workers.refused(telegrad.UsageError,
                                 lambda: forgets.load_state_dict(mixed)))
    forgets.load_state_dict(early)
    other = equal(steps(forgot, 40, 45), whole)
    texts += [made["choice"] for each in (found, resumed, forgets.report()["auto"])
              for made in each]
    forgets.close()
    return [same, other, texts]


def saves(folder):
    """Two steps; the residuals and their mean."""
    dist.init_process_group("gloo")
    model, state = compressed(gc_type=FIXED)
    weights = steps(model, 0, 2)
    saved = state.state_dict()
    torch.save(saved, os.path.join(folder, f"of-{WORLD}-{RANK}.pt"))
    sums = {}
    for name, size in saved["sizes"].items():
        residual = _residuals.residual_of(saved["codecs"][name].numpy().tobytes(), size,
                                          saved["servers"])
        dist.all_reduce(residual)
        sums[name] = residual / WORLD
    if RANK == 0:
        torch.save((weights, sums), os.path.join(folder, "sums.pt"))
    state.close()
    return {name: float(residual.abs().max()) for name, residual in sums.items()}


def reshards(folder):
    """Three workers go on with what two kept: with gradients of 0 the sum of all that is
    sent, until nothing is left, is what was held back; and what does not fit."""
    dist.init_process_group("gloo")
    files = [os.path.join(folder, f"of-2-{rank}.pt") for rank in range(2)]
    mine = [torch.load(path) for path in files[RANK::WORLD]]
    weights, sums = torch.load(os.path.join(folder, "sums.pt"))
    model, state = compressed(weights, FIXED)
    texts = [workers.refused(telegrad.UsageError, work) for work in (
        lambda: state.load_state_dict(mine),
        lambda: state.load_state_dict(mine[:0], reshard="sum"),
        lambda: state.load_state_dict(mine, reshard="mean"),
        lambda: state.load_state_dict({"format": 7}))]
    state.load_state_dict(mine, reshard="sum")
    early = workers.refused(telegrad.WrongOrder, state.state_dict)
    got = {name: torch.zeros_like(p) for name, p in weights.items()}
    for _ in range(120):  # where one rank pushes for all, so many times a threshold
        model.zero_grad()
        (model(torch.zeros(2, 24)) * 0).backward()
        for name, p in model.module.named_parameters():
            got[name] += p.grad
    far = {name: float((got[name].flatten() - sums[name]).abs().max()) for name in sums}
    assert state.state_dict()["workers"] == WORLD
    state.close()
    other, differs = compressed(weights, FIXED, min_bytes=9)
    texts.append(workers.refused(
        telegrad.UsageError, lambda: differs.load_state_dict(mine, reshard="drop")))
    differs.close()
    plain, drops = compressed(weights, FIXED)
    drops.load_state_dict(mine, reshard="drop")
    (plain(torch.zeros(2, 24)) * 0).backward()
    dropped = max(float(p.grad.abs().max()) for p in plain.parameters())
    drops.close()
    return [far, dropped, texts + [early]]


def local(net, inner_lr=2 ** -4, **options):
    inner = torch.optim.SGD(net.parameters(), lr=inner_lr)
    return telegrad.torch.DiLoCo(net, inner, **options), inner


def local_steps(net, first, last, diloco, inner):
    for step in range(first, last):
        inner.zero_grad()
        generator = torch.Generator().manual_seed(100 * step + RANK)
        (net(torch.randn(2, 24, generator=generator)) / 100).backward()
        diloco.step()
    return copy.deepcopy(net)


def resumes_locally(folder):
    """After an exchange, and between two: with momentum in the outer optimizer, and with
    an exchange under way."""
    dist.init_process_group("gloo")
    found = []

    def with_momentum(anchors):
        return torch.optim.SGD(anchors, lr=.5, momentum=.5)

    for i, (saved_at, outer, fragments) in enumerate((
            (3, None, 1), (5, with_momentum, 1), (5, with_momentum, 3))):
        options = {"sync_every": 3, "gc_type": FIXED, "outer": outer,
                   "fragments": fragments}
        net = Net()
        diloco, inner = local(net, **options)
        local_steps(net, 0, saved_at, diloco, inner)
        path = os.path.join(folder, f"local-{i}-{RANK}.pt")
        torch.save(diloco.state_dict(), path)
        half = copy.deepcopy(net)
        whole = local_steps(net, saved_at, 12, diloco, inner).state_dict()
        diloco.close()
        again, forgot = copy.deepcopy(half), copy.deepcopy(half)
        loads, inner = local(again, **options)
        again.load_state_dict(half.state_dict())
        loads.load_state_dict(torch.load(path))
        same = equal(local_steps(again, saved_at, 12, loads, inner).state_dict(), whole)
        loads.close()
        forgets, inner = local(forgot, **options)
        forgets.steps = saved_at
        other = equal(local_steps(forgot, saved_at, 12, forgets, inner).state_dict(), whole)
        text = workers.refused(telegrad.UsageError, lambda: forgets.load_state_dict(
            dict(torch.load(path), settings={})))
        forgets.close()
        found.append([same, other, text])
    return found


def saves_locally(folder):
    dist.init_process_group("gloo")
    net = Net()
    diloco, inner = local(net, inner_lr=1, sync_every=1, gc_type=FIXED)
    local_steps(net, 0, 2, diloco, inner)
    saved = diloco.state_dict()
    torch.save(saved, os.path.join(folder, f"local-{RANK}.pt"))
    for name, size in saved["sizes"].items():
        residual = _residuals.residual_of(saved["codecs"][name].numpy().tobytes(), size,
                                          saved["servers"])
        dist.all_reduce(residual)
        weight = net.get_parameter(name).detach()
        weight -= residual.reshape(weight.shape) / WORLD
    if RANK == 0:
        torch.save(net.state_dict(), os.path.join(folder, "local.pt"))
    diloco.close()
    return True


def reshards_locally(folder):
    """On three workers: without inner steps the weights become what they were, less the
    mean of what was held back; with "drop" they stay."""
    dist.init_process_group("gloo")
    files = [os.path.join(folder, f"local-{rank}.pt") for rank in range(2)]
    mine = [torch.load(path) for path in files[RANK::WORLD]]
    far = []
    for way in ("sum", "drop"):
        net = Net()
        diloco, inner = local(net, inner_lr=0, sync_every=1, gc_type=FIXED)
        with torch.no_grad():
            net.first.weight += RANK + 1
        diloco.load_state_dict(mine, reshard=way)
        local_steps(net, 0, 120, diloco, inner)
        want = torch.load(os.path.join(folder, "local.pt"))
        far.append(max(float((p - want[name]).abs().max())
                       for name, p in net.state_dict().items()))
        text = workers.refused(telegrad.UsageError,
                               lambda: diloco.load_state_dict([], reshard="drop"))
        diloco.close()
    return far + [text]


# ---- the tests ----

class Resume(unittest.TestCase):
    def ranks(self, function, argument, num):
        return workers.Ranks(FILE, function.__name__, num, argument).results()

    def test_a_run_that_goes_on_has_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            for found in self.ranks(resumes, folder, 2):
                self.assertEqual([same for same, _ in found], [True] * 5)
                # The test fails where residuals are lost.
                self.assertEqual([same for _, same in found], [False] * 5)

    def test_auto_goes_on_with_what_it_has_chosen(self):
        with tempfile.TemporaryDirectory() as folder:
            for same, other, texts in self.ranks(resumes_auto, folder, 2):
                self.assertTrue(same, texts)
                self.assertFalse(other, texts)
                for text, pattern in zip(texts, (
                        "before the first step", "different steps", "off for 9 steps",
                        "^(topk:0.01|2bit) for 2 of 5", "^(topk:0.01|2bit) for 2 tensors",
                        "off for 9 steps")):
                    self.assertRegex(text, pattern)

    def test_another_number_of_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            largest = self.ranks(saves, folder, 2)[0]
            self.assertGreater(largest["large.weight"], 4 * THRESHOLD)
            for far, dropped, texts in self.ranks(reshards, folder, 3):
                # Each of three workers keeps less than a threshold, /3 in the mean.
                self.assertLess(max(far.values()), THRESHOLD)
                self.assertEqual(dropped, 0)
                for text, pattern in zip(texts, (
                        "reshard='sum'.*reshard='drop'", "each old rank", "reshard='sum'",
                        "no state of telegrad", "min_bytes 0 then, 9 now",
                        "take the step first")):
                    self.assertRegex(text, pattern)


    def test_local_steps_go_on_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            for found in self.ranks(resumes_locally, folder, 2):
                for same, other, text in found:
                    self.assertTrue(same)
                    self.assertFalse(other)
                    self.assertRegex(text, "gc_type None then, '2bit")

    def test_local_steps_of_another_number_of_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            self.ranks(saves_locally, folder, 2)
            for of_sum, of_drop, text in self.ranks(reshards_locally, folder, 3):
                self.assertLess(of_sum, THRESHOLD)
                self.assertGreater(of_drop, 4 * THRESHOLD)
                self.assertIn("no state on rank 0", text)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        resumes, resumes_auto, saves, reshards, resumes_locally, saves_locally, reshards_locally)})
