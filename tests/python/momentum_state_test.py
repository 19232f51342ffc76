#!/usr/bin/env python3
"""Momentum that telegrad.torch has taken over, in time: a run that goes on has its bits,
another number of workers what it would still have done, and NaN is of one step."""
import os
import tempfile
import unittest
import warnings

import workers
from momentum_test import DDP, KEY, Net, compressed, dist, far, loss_of, sgd, torch, train

import telegrad
import telegrad.torch

RANK = int(os.environ.get("RANK", -1))
WORLD = int(os.environ.get("WORLD_SIZE", 0))
FILE = os.path.abspath(__file__)


# ---- what a rank does ----

def resumes(folder):
    """The bits of a run that was never ended, others without the codec's state; and a
    state of a run whose momentum was the optimizer's."""
    dist.init_process_group("gloo")
    model, state, optimizer = compressed("int2")
    train(model, optimizer, 0, 3)
    path = os.path.join(folder, f"{RANK}.pt")
    torch.save([state.state_dict(), optimizer.state_dict(), model.module.state_dict()], path)
    whole = train(model, optimizer, 3, 6)
    state.close()
    found = []
    for is_early, forgets in ((True, False), (False, False), (True, True)):
        of_codec, of_optimizer, weights = torch.load(path)
        net = Net()
        net.load_state_dict(weights)
        model = DDP(net)
        optimizer = sgd(model.parameters())
        if is_early:
            optimizer.load_state_dict(of_optimizer)
        state = telegrad.torch.compress(model, "int2", optimizer=optimizer, guard=False,
                                        verbose=False)
        if not is_early:
            optimizer.load_state_dict(of_optimizer)
        if not forgets:
            state.load_state_dict(of_codec)
        found.append(far(train(model, optimizer, 3, 6), whole))
        state.close()
    optimizer = sgd(model.parameters())
    optimizer.load_state_dict(of_optimizer)
    texts = [workers.refused(telegrad.UsageError, lambda: telegrad.torch.State(
        DDP(Net()), "int4", optimizer=optimizer, momentum="off"))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, state, optimizer = compressed("int2", momentum="off")
    texts.append(workers.refused(telegrad.UsageError, lambda: state.load_state_dict(of_codec)))
    state.close()
    return [found, texts]


def to_come(model, optimizer):
    """What momenta still do to the weights where gradients are 0."""
    before = [p.detach().clone() for p in model.parameters()]
    for step in range(200):
        optimizer.zero_grad()
        (loss_of(model, step) * 0).backward()
        optimizer.step()
    return [a - b for a, b in zip(model.parameters(), before)]


def saves(folder):
    """Of two workers without a codec: momenta, by kind."""
    dist.init_process_group("gloo")
    for kind in ("nesterov", "heavyball"):
        model, state, optimizer = compressed("none", momentum=kind)
        train(model, optimizer, 0, 4)
        torch.save(state.state_dict(), os.path.join(folder, f"{kind}-{RANK}.pt"))
        torch.save(to_come(model, optimizer), os.path.join(folder, f"{kind}.pt"))
        state.close()
    return True


def reshards(folder):
    """On three: what two workers' momenta would still do to the weights is done."""
    dist.init_process_group("gloo")
    found = []
    for kind in ("nesterov", "heavyball"):
        model, state, optimizer = compressed("none", momentum=kind)
        files = [os.path.join(folder, f"{kind}-{rank}.pt") for rank in range(2)]
        state.load_state_dict([torch.load(path) for path in files[RANK::WORLD]], reshard="sum")
        want = torch.load(os.path.join(folder, f"{kind}.pt"))
        found.append([far(to_come(model, optimizer), want),
                      far(want, [torch.zeros(())] * len(want))])
        state.close()
    return found


def not_finite(_):
    """A flag of one step is none of the next; how many gradients are NaN in each."""
    dist.init_process_group("gloo")
    found = []
    for kind in ("nesterov", "heavyball"):
        model, state, optimizer = compressed("int2", momentum=kind)
        counts = []
        for step in range(12):
            optimizer.zero_grad()
            scale = float("nan") if step in (2, 3, 7) and RANK == 1 else 1
            (loss_of(model, step) * scale).backward()
            counts.append(all(bool(p.grad.isnan().all()) for p in model.parameters())
                          - all(bool(p.grad.isfinite().all()) for p in model.parameters()))
        found.append(counts)
        state.close()
    return found


# ---- the tests ----

class MomentumInTime(unittest.TestCase):
    def ranks(self, function, argument=None, num=2):
        return workers.Ranks(FILE, function.__name__, num, argument).results()

    def test_a_run_that_goes_on_has_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            for (early, late, forgot), texts in self.ranks(resumes, folder):
                self.assertEqual((early, late), (0, 0))
                self.assertGreater(forgot, 0)
                for text, pattern in zip(texts, (
                        f"to nobody: .*{KEY} 0.9", "momentum 'nesterov' then, 'off' now")):
                    self.assertRegex(text, pattern)

    def test_another_number_of_workers_keeps_it(self):
        with tempfile.TemporaryDirectory() as folder:
            self.ranks(saves, folder)
            for found in self.ranks(reshards, folder, 3):
                for apart, size in found:
                    self.assertGreater(size, .01)
                    self.assertLess(apart, size / 1000)

    def test_what_is_not_finite_is_of_one_step(self):
        want = [1 if step in (2, 3, 7) else -1 for step in range(12)]
        self.assertEqual(self.ranks(not_finite), [[want, want]] * 2)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        resumes, saves, reshards, not_finite)})
