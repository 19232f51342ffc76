#!/usr/bin/env python3
"""telegrad.torch gives codecs gradients of one size beside Adam: as the rule says, with and
without a codec, and refused or told where it cannot be."""
import os
import unittest
import warnings

import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.torch
from telegrad._momentum import wants_normal
from telegrad.torch._auto import OptimizerCheck, check_optimizer, standard_codec
from telegrad.torch._normal import settle_normal
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
LR, EPS, B1, B2, WD = .01, 1e-8, .9, .99, .1
STEPS, ELEMS = 4, 300


class Net(torch.nn.Module):
    """One tensor, whose gradient is the input: of sizes far apart."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(ELEMS, 1))

    def forward(self, x):
        return (x * self.weight.reshape(-1)).sum()


def gradient(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(ELEMS, generator=generator) * 10. ** -(torch.arange(ELEMS) % 4)


def adam(parameters, kind=torch.optim.AdamW, **options):
    return kind(parameters, **{"lr": LR, "betas": (B1, B2), "eps": EPS, "weight_decay": WD,
                               **options})


class Rule:
    """In double, of both ranks' gradients, with a codec for each of them."""

    def __init__(self, codec):
        self.w = torch.ones(ELEMS, dtype=torch.float64)
        self.m, self.v = torch.zeros_like(self.w), torch.zeros_like(self.w)
        self.codecs = [telegrad.Codec(codec, ELEMS) for _ in range(2)]
        self.t = 0

    def size(self):
        if self.t == 0:
            return torch.ones_like(self.w)
        means = torch.cat([part.mean().expand(len(part)) for part in self.v.split(256)])
        return (self.v / means + max(.02, 1 / (self.t + 1))).sqrt()

    def sent(self, rank, size):
        codec, out = self.codecs[rank], torch.zeros(ELEMS)
        payload, threshold = codec.encode((gradient(self.t, rank) / size).float().numpy())
        return torch.as_tensor(codec.decode(payload, threshold, out.numpy())).double()

    def step(self, is_decoupled=True):
        size = self.size()
        g = (self.sent(0, size) + self.sent(1, size)) / 2 * size
        self.t += 1
        if is_decoupled:
            self.w *= 1 - LR * WD
        else:
            g = g + WD * self.w
        self.m = B1 * self.m + (1 - B1) * g
        self.v = B2 * self.v + (1 - B2) * g * g
        ahead = (B1 * self.m + (1 - B1) * g) / (1 - B1 ** (self.t + 1))
        self.w -= LR * ahead / ((self.v / (1 - B2 ** self.t)).sqrt() + EPS)


def stepped(optimizer, model, first, last):
    for step in range(first, last):
        optimizer.zero_grad()
        model(gradient(step, RANK)).backward()
        optimizer.step()
    return model.module.weight.detach().reshape(-1).clone()


def as_the_rule(_):
    """How far weights are from it, by codec and optimizer; and without the rule."""
    dist.init_process_group("gloo")
    apart = {}
    for codec, kind, normalize in (("none", torch.optim.AdamW, "on"),
                                   ("none", torch.optim.Adam, "on"),
                                   ("int2", torch.optim.AdamW, "auto"),
                                   ("int3", torch.optim.Adam, "auto"),
                                   ("int2", torch.optim.AdamW, "off")):
        model, rule = DDP(Net()), Rule(codec)
        optimizer = adam(model.parameters(), kind)
        state = telegrad.torch.compress(model, codec, optimizer=optimizer, guard=False,
                                        reply="dense", normalize=normalize, verbose=False,
                                        dense_1d=False)
        weight = stepped(optimizer, model, 0, STEPS)
        for _ in range(STEPS):
            rule.step(kind is torch.optim.AdamW)
        key = f"{codec} {kind.__name__} {normalize}"
        apart[key] = float((weight - rule.w).abs().max())
        state.close()
    return [apart, resumes()]


def resumes():
    """How far a run is from one that was cut in two, whose optimizer and state were saved; and
    what a state of another rule says."""
    ends = []
    for cut in (None, 2):
        model = DDP(Net())
        optimizer = adam(model.parameters())
        options = {"optimizer": optimizer, "guard": False, "verbose": False,
                   "dense_1d": False}
        state = telegrad.torch.compress(model, "int2", **options)
        if cut:
            stepped(optimizer, model, 0, cut)
            saved = [each.state_dict() for each in (model.module, optimizer, state)]
            state.close()
            model = DDP(Net())
            options["optimizer"] = optimizer = adam(model.parameters())
            state = telegrad.torch.compress(model, "int2", **options)
            for each, own in zip((model.module, optimizer, state), saved):
                each.load_state_dict(own)
        ends.append(stepped(optimizer, model, cut or 0, STEPS))
        state.close()
    model = DDP(Net())
    state = telegrad.torch.compress(model, "int2", guard=False, verbose=False, dense_1d=False)
    text = workers.refused(telegrad.UsageError, lambda: state.load_state_dict(saved[2]))
    state.close()
    return [float((ends[0] - ends[1]).abs().max()), text]


def says(_):
    """What the first rank logs where an optimizer is given, and where one is made later."""
    dist.init_process_group("gloo")
    lines = workers.logged()
    model = DDP(Net())
    state = telegrad.torch.compress(model, "int2", optimizer=adam(model.parameters()))
    state.close()
    model = DDP(Net())
    state = telegrad.torch.compress(model, "int2", dense_1d=False, guard=False)
    optimizer = adam(model.parameters())
    state.take_over(optimizer)
    weight = stepped(optimizer, model, 0, 2)
    kept = state.state_dict()["settings"]["normalize"]
    state.close()
    return [[line for line in lines if "one size" in line or "divided" in line], kept,
            bool(weight.isfinite().all())]


class Normal(unittest.TestCase):
    def test_weights_are_the_rules(self):
        for apart, (cut, text) in workers.Ranks(FILE, "as_the_rule").results():
            without = apart.pop("int2 AdamW off")
            for key, each in apart.items():
                self.assertLess(each, 2e-5, key)
            self.assertGreater(without, 1e-3)
            self.assertEqual(cut, 0)
            self.assertIn("normalize True then, False now", text)

    def test_it_is_said_and_taken_later(self):
        (lines, kept, is_finite), (others, _, _) = workers.Ranks(FILE, "says").results()
        self.assertEqual((len(lines), others, kept, is_finite), (2, [], True, True), lines)
        for line in lines:
            self.assertRegex(line, "AdamW, whose steps get Nesterov's lead; normalize='off'")

    def test_codecs_want_it_as_in_the_library(self):
        for codec in ("int2", "int3:block=64", "int2shared", "int3shared"):
            self.assertTrue(wants_normal(["none", codec]), codec)
        self.assertFalse(wants_normal(["none", "2bit", "int4", "topk:0.01", "no codec"]))

    def test_few_bits_go_with_adam_and_are_warned_of_where_they_do_not(self):
        model = Net()
        parameters = list(model.parameters())
        for kind in (torch.optim.AdamW, torch.optim.Adam, torch.optim.NAdam):
            optimizer = adam(parameters, kind)
            self.assertEqual(standard_codec(optimizer), "int3")
            self.assertEqual(standard_codec(optimizer, "off"), "int4")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                check = OptimizerCheck("int2", None, "", optimizer, parameters, True)
                self.assertTrue(check.normal.is_on)
                chosen = OptimizerCheck("auto", None, "", optimizer, parameters, True)
            self.assertEqual((chosen.allow, chosen.normal.is_on), ("int3", True))
        for optimizer, why in (
                (torch.optim.RMSprop(parameters), "RMSprop is none of torch's Adam"),
                (adam(parameters, amsgrad=True), "group 0 of AdamW has amsgrad"),
                (adam(parameters, maximize=True), "group 0 of AdamW has maximize")):
            self.assertEqual(standard_codec(optimizer), "int4")
            with self.assertWarnsRegex(UserWarning, f"int2 with .*{why}"):
                OptimizerCheck("int2", None, "", optimizer, parameters, True)
            self.assertIn(why, workers.refused(
                telegrad.UsageError, lambda: settle_normal(optimizer, "on", True)))
        with self.assertWarnsRegex(UserWarning, "2bit with AdamW"):
            check_optimizer(adam(parameters), "2bit", None,
                            normal=settle_normal(adam(parameters), "on", False))

    def test_what_cannot_be_is_refused(self):
        for normalize, text in (("much", "normalize='much': there are auto, off, on"),
                                ("on", "by which mean of squares")):
            self.assertIn(text, workers.refused(
                telegrad.UsageError, lambda: settle_normal(None, normalize, True)))
        with self.assertRaisesRegex(telegrad.UsageError, "shards of replicas="):
            settle_normal(adam(Net().parameters()), "on", True, "shards of replicas=")
        self.assertFalse(settle_normal(adam(Net().parameters()), "off", True).is_on)
        sharded = type("ZeroRedundancyOptimizer", (), {})()
        sharded.param_groups, sharded.optim = [], adam(Net().parameters())
        self.assertIn("on one rank", settle_normal(sharded, "auto", True).why)
        self.assertEqual(ZeroRedundancyOptimizer.__name__, type(sharded).__name__)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (as_the_rule, says)})
