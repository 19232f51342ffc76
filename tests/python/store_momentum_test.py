#!/usr/bin/env python3
"""Momentum in front of the codec, of stores: what codecs want, what workers push, and what
`telegrad.kvstore` takes over from the optimizer that servers run."""
import os
import unittest

import workers

try:
    import numpy as np
except ImportError as why:
    workers.skip(f"python3-numpy is not installed: {why}")

import telegrad
from telegrad import _momentum, optimizer

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
N = 70
F = np.float32
RATE, WD, LR = .5, .125, .25


def create(**options):
    return telegrad.kvstore.create("dist_sync", **options)


def gradient(step, rank):
    return np.random.default_rng(10 * step + rank).normal(0, 1, N).astype(F)


class Torch:
    """SGD of torch with momentum, on the sums of two workers."""

    def __init__(self, is_nesterov, decay):
        self.weight, self.m = np.ones(N, F), np.zeros(N, F)
        self.is_nesterov, self.decay = is_nesterov, F(decay)

    def step(self, total):
        self.m = F(RATE) * self.m + total
        push = total + F(RATE) * self.m if self.is_nesterov else self.m
        self.weight = self.weight - F(LR) * (push + self.decay * self.weight)


# ---- what a rank does ----

def pushes(_):
    """Of a store, by hand."""
    found = []
    job = telegrad.Job("127.0.0.1:" + os.environ["MASTER_PORT"], rank=RANK, num_workers=2,
                       has_scheduler=RANK == 0, servers_here=int(RANK == 0))
    with job.join(), telegrad.Store(job) as store:
        store.set_compression(momentum="nesterov", momentum_rate=RATE)
        value = np.full(3, RANK + 1, F)
        keys = store.init(["w", "flag"], [value, value], without_momentum=["flag"])
        for _ in range(3):
            outs = [np.empty(3, F), np.empty(3, F)]
            store.push_pull(keys, [value, value], outs)
            found.append([float(out[0]) for out in outs])
    return found


def steps(cases):
    """By servers: how far each case's weights are from torch's rule, what was said, what
    the store runs."""
    lines = workers.logged()
    far = []
    for case in cases:
        kv = create()
        params = {"nonfinite": "error", **case["params"]}
        own = getattr(optimizer, case["kind"])(
            learning_rate=LR, momentum=RATE, wd=WD * (1 - RATE))
        works = [lambda: kv.set_gradient_compression(params), lambda: kv.set_optimizer(own)]
        for work in works if case["is_early"] else reversed(works):
            work()
        model, out = Torch(case["is_nesterov"], WD), np.empty(N, F)
        kv.init("w", np.ones(N, F))
        worst = 0.0
        for step in range(6):
            kv.push("w", gradient(step, RANK))
            kv.pull("w", out=out)
            model.step(gradient(step, 0) + gradient(step, 1))
            worst = max(worst, float(np.abs(out - model.weight).max()))
            if step == 3:  # another rate, as a schedule has it
                kv.set_optimizer(own)
        far.append(worst)
        kv.close()
    return [far, lines]


def left_alone(_):
    """What is taken over of codecs and keys, and what is refused."""
    own = optimizer.SGD(learning_rate=LR, momentum=RATE)
    found = []
    for params, rows in (({"type": "2bit", "threshold": .5}, False), ({"type": "int2"}, False),
                         ({"type": "int4"}, False), ({"type": "int2"}, True),
                         ({"type": "int2", "momentum": "off"}, False),
                         ({"type": "int8", "rules": "w=onebit"}, False)):
        kv = create()
        kv.set_optimizer(own)
        kv.set_gradient_compression(params)
        kv.init("w", telegrad.RowSparse(np.zeros((4, 5), F)) if rows else np.zeros(N, F))
        kv.barrier()
        found.append(kv._steps.momentum._kept)
        if params == {"type": "int2"} and not rows:
            texts = [workers.refused(telegrad.UsageError, lambda: kv.set_optimizer(other))
                     for other in (optimizer.SGD(momentum=.25), optimizer.SGD())]
        kv.close()
    kv = create()
    kv.set_gradient_compression({"type": "int2", "momentum": "heavyball"})
    kv.init("w", np.zeros(N, F))
    texts.append(workers.refused(telegrad.UsageError, kv.barrier))
    kv.set_optimizer(own)
    kv.set_gradient_compression({"type": "int2", "momentum_rate": .75})
    texts.append(workers.refused(telegrad.UsageError, kv.barrier))
    for params in ({"momentum": "much"}, {"momentum": "off", "momentum_rate": .5},
                   {"momentum_rate": 1}):
        texts.append(workers.refused(telegrad.UsageError, lambda: kv.set_gradient_compression(
            {"type": "int2", **params})))
    kv.close()
    return [found, texts]


# ---- the tests ----

class StoreMomentum(unittest.TestCase):
    def ranks(self, function, argument=None):
        return workers.Ranks(FILE, function.__name__, 2, argument).results()

    def test_codecs_want_it_as_in_the_library(self):
        for codec, harms, wants, late in (
                ("2bit", True, True, True), ("2bit:0.5", True, True, True),
                ("topk:0.01", True, True, True), ("int2", True, True, True),
                ("int3", False, True, False), ("terngrad", True, True, False),
                ("int4", False, False, False), ("none", False, False, False),
                ("dgc", True, False, False), ("powersgd", True, False, True),
                ("no codec", False, False, False)):
            self.assertEqual(_momentum.few_bits(codec), (harms, wants), codec)
            for momentum, much in ((.5, late), (.9, late), (.4, False)):
                self.assertEqual(_momentum.comes_late(codec, momentum), much, codec)

    def test_a_store_pushes_it(self):
        """Sums 3 of both: m is 3, 4.5, 5.25, and the push 3 + m / 2; of what is to be
        without, 3."""
        self.assertEqual(self.ranks(pushes), [[[4.5, 3], [5.25, 3], [5.625, 3]]] * 2)

    def test_a_store_refuses_what_cannot_be(self):
        store = telegrad.Store(None, "local")
        with self.assertRaisesRegex(telegrad.UsageError, "momentum of pushes 'much'"):
            store.set_compression(momentum="much")
        with self.assertRaisesRegex(telegrad.UsageError, "momentum_rate.*number is wanted"):
            store.set_compression(momentum="nesterov", momentum_rate="much")
        store.close()

    def test_servers_step_without_what_workers_keep(self):
        """Decay weighs 1 / (1 - rate): WD in the end. Without a codec the weights are
        torch's but for rounding, whatever is called first."""
        cases = [{"params": {"type": "none", "momentum": momentum}, "kind": kind,
                  "is_nesterov": momentum == "nesterov", "is_early": is_early}
                 for momentum, kind, is_early in (
                     ("nesterov", "NAG", True), ("nesterov", "SGD", False),
                     ("heavyball", "SGD", True))]
        (far, lines), (_, others) = self.ranks(steps, cases)
        self.assertLess(max(far), 1e-5)
        said = [line for line in lines if "momentum" in line]
        self.assertEqual(len(said), 3)
        self.assertRegex(said[0], "momentum 0.5: workers keep it in front of none, with "
                         "Nesterov's lead, and servers apply none")
        self.assertRegex(said[2], "without a lead")
        self.assertEqual([line for line in others if "momentum" in line], [])

    def test_it_is_taken_over_where_few_bits_want_it(self):
        for found, texts in self.ranks(left_alone):
            self.assertEqual(found, [0, RATE, 0, 0, 0, RATE])
            for text, pattern in zip(texts, (
                    "momentum 0.25: workers keep 0.5", "momentum 0: workers keep 0.5",
                    "'heavyball' without any: .*momentum_rate", "two places: the optimizer has "
                    "0.5, and workers keep 0.75", "'much': there are auto, off",
                    "beside momentum='off'", "=1: more than 0 and less than 1")):
                self.assertRegex(text, pattern)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (pushes, steps, left_alone)})
