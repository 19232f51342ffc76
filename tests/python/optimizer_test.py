#!/usr/bin/env python3
"""Optimizers that a store runs, what they keep as a file, and the types of stores that
Python can make: dist_sync, dist_async, allreduce, local."""
import os
import tempfile
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad
from telegrad import optimizer

RANK = int(os.environ.get("RANK", -1))
N = 1003  # not a multiple of what kernels take at once
F = np.float32
RATES = {"learning_rate": .125, "wd": .0625, "rescale_grad": .5}
OURS = {"SGD": optimizer.SGD(momentum=.75, **RATES),
        "NAG": optimizer.NAG(momentum=.75, **RATES),
        "Adam": optimizer.Adam(beta1=.75, beta2=.96875, epsilon=1e-5, **RATES),
        "AdamW": optimizer.AdamW(beta1=.75, beta2=.96875, epsilon=1e-5, **RATES),
        "Adagrad": optimizer.Adagrad(epsilon=1e-5, **RATES),
        "RMSProp": optimizer.RMSProp(beta2=.96875, epsilon=1e-5, **RATES)}


def gradient(step, rank):
    return np.random.default_rng(10 * step + rank).normal(0, 1, N).astype(F)


class Model:
    """The rules of docs/c.md in NumPy, in float32."""

    def __init__(self, ours, key="w"):
        self.ours, self.t = ours, 0
        self.lr, self.wd = (F(F(a) * F(b)) for a, b in zip(
            (ours.learning_rate, ours.wd), ours.rates_of(key)))
        self.weight = np.ones(N, F)
        self.m, self.v = np.zeros(N, F), np.zeros(N, F)

    def step(self, grads):
        ours, w = self.ours, self.weight
        self.t += 1
        if isinstance(ours, optimizer.AdamW):
            w = F(1 - float(self.lr) * float(self.wd)) * w
        g = F(ours.rescale_grad) * grads
        if not isinstance(ours, optimizer.AdamW):
            g = g + self.wd * w
        if isinstance(ours, optimizer.Adam):
            b1, b2 = ours.beta1, ours.beta2
            self.m = F(b1) * self.m + F(1 - b1) * g
            self.v = F(b2) * self.v + F(1 - b2) * (g * g)
            size = F(float(self.lr) / (1 - b1 ** self.t))
            root = F(np.sqrt(1 - b2 ** self.t))
            self.weight = w - size * (self.m / (np.sqrt(self.v) / root + F(ours.epsilon)))
            return
        if isinstance(ours, (optimizer.Adagrad, optimizer.RMSProp)):
            b2 = getattr(ours, "beta2", None)
            keep, rest = (F(1), F(1)) if b2 is None else (F(b2), F(1 - b2))
            self.v = keep * self.v + rest * (g * g)
            self.weight = w - self.lr * (g / (np.sqrt(self.v) + F(ours.epsilon)))
            return
        self.m = F(ours.momentum) * self.m - self.lr * g
        nag = isinstance(ours, optimizer.NAG)
        self.weight = w + (F(ours.momentum) * self.m - self.lr * g if nag else self.m)


def stepped(kv, key, first, last):
    """The weights after these steps."""
    out = np.empty(N, F)
    for step in range(first, last):
        kv.push(key, gradient(step, RANK))
        kv.pull(key, out=out)
    return out


# ---- what a rank does ----

def all_kinds(_):
    """Three steps of each optimizer; then another rate."""
    for name, ours in OURS.items():
        kv = telegrad.kvstore.create("dist_sync")
        ours.lr_mult, ours.wd_mult = {"slow": .5}, {"slow": 0}
        kv.set_optimizer(ours)
        kv.init(["w", "slow"], [np.ones(N, F)] * 2)
        models = {key: Model(ours, key) for key in ("w", "slow")}
        for step in range(4):
            if step == 3:
                ours.learning_rate = .25
                kv.set_optimizer(ours)
            for key, model in models.items():
                model.lr = F(F(ours.learning_rate) * F(ours.rates_of(key)[0]))
                model.step(gradient(step, 0) + gradient(step, 1))
                got = stepped(kv, key, step, step + 1)
                assert np.array_equal(got, model.weight), (name, key, step)
        ours.learning_rate = .125
        ours.lr_mult = {}
        assert "lr_mult" in workers.refused(telegrad.UsageError,
                                            lambda: kv.set_optimizer(ours))
        kv.close()
    return sorted(OURS)


def resumes(folder):
    """Six steps, and three, a file, three more with other servers: the same bits. With
    nothing loaded they are others."""
    path = os.path.join(folder, "states")
    for name in ("SGD", "AdamW"):
        kv = telegrad.kvstore.create("dist_sync")
        kv.set_optimizer(OURS[name])
        kv.init("w", np.ones(N, F))
        half = stepped(kv, "w", 0, 3)
        kv.save_optimizer_states(path)
        whole = stepped(kv, "w", 3, 6)
        kv.close()
        for type, loads in (("allreduce", True), ("dist_sync", False)):
            kv = telegrad.kvstore.create(type, **({} if loads else {"num_threads": 2}))
            kv.set_optimizer(OURS[name])
            kv.init("w", half)
            if loads:
                kv.load_optimizer_states(path)
            again = stepped(kv, "w", 3, 6)
            assert np.array_equal(again, whole) == loads, (name, type, loads)
            kv.close()
    kv = telegrad.kvstore.create("dist_sync")
    kv.set_optimizer(OURS["SGD"])
    kv.init("w", np.ones(N, F))
    stepped(kv, "w", 0, 1)
    texts = [workers.refused((telegrad.Error, OSError), lambda: kv.load_optimizer_states(p))
             for p in (path, path + ".absent")]  # AdamW's; none
    with open(path, "rb") as file:
        whole = file.read()
    kv.barrier()
    if RANK == 0:
        with open(path, "wb") as file:
            file.write(whole[:100] + b"x" + whole[101:])
    texts.append(workers.refused(telegrad.Error, lambda: kv.load_optimizer_states(path)))
    texts.append(workers.refused(telegrad.Unsupported,
                                 lambda: kv.save_optimizer_states(path, dump_optimizer=True)))
    kv.close()
    return texts


def changes(_):
    """Servers keep an optimizer's numbers, so that another rate is told, not ignored."""
    ours = optimizer.SGD(learning_rate=.5)
    kv = telegrad.kvstore.create("dist_sync")
    kv.set_optimizer(ours)
    kv.init("w", np.ones(N, F))
    weight = stepped(kv, "w", 0, 1)
    ours.learning_rate = .25
    text = workers.refused(telegrad.UsageError, lambda: kv.push("w", gradient(1, RANK)))
    kv.set_optimizer(ours)
    want = weight - F(.25) * (gradient(1, 0) + gradient(1, 1))
    assert np.array_equal(stepped(kv, "w", 1, 2), want)
    kv.close()
    return text


def asynchronous(_):
    """Each push is a step: in the end both workers' pushes are in the weights."""
    kv = telegrad.kvstore.create("dist_async", max_staleness=2)
    kv.set_optimizer(optimizer.SGD(learning_rate=.5))
    kv.init("w", np.zeros(N, F))
    for _ in range(20):
        kv.push("w", np.ones(N, F))
    kv._settle(["w"])
    kv.barrier()
    out = np.empty(N, F)
    kv.pull("w", out=out)
    stats = kv.stats()
    kv.barrier()
    kv.close()
    return [float(out[0]), float(out[-1]), stats["max_staleness"]]


def without_the_slowest(_):
    """Rank 0 makes ten steps before rank 1 has pushed anything; each push counts once."""
    kv = telegrad.kvstore.create("dist_sync", drop_slowest=1)
    kv.set_optimizer(optimizer.SGD(learning_rate=.5))
    kv.init("w", np.zeros(N, F))
    if RANK == 1:
        kv.barrier()
    for _ in range(10 if RANK == 0 else 1):
        kv.push("w", np.ones(N, F))
    missed = kv.catch_up()
    out = np.empty(N, F)
    kv.pull("w", out=out)
    seen = float(out[0])
    if RANK == 0:
        kv.barrier()
    kv.barrier()
    kv.take_all()
    kv.push("w", np.ones(N, F))
    kv.pull("w", out=out)
    late, num_late = (kv.stats()[what] for what in ("max_staleness", "num_late"))
    kv.take_all(False)
    kv.barrier()
    kv.close()
    return [missed, late, num_late, seen, float(out[0]), float(out[-1])]


def workers_sum(_):
    """allreduce, dense and with codes, from the same launcher as dist_sync."""
    found = []
    for codec in ("none", "2bit"):
        kv = telegrad.kvstore.create("allreduce")
        kv.set_gradient_compression({"type": codec, "threshold": 2})
        kv.init("w", np.zeros(N, F))
        value = np.full(N, 3 + RANK, F)
        kv.pushpull("w", value)
        found.append([float(value[0]), float(value[-1])])
        kv.close()
    return found


def local(_):
    """The same optimizer and the same file, without a job."""
    kv = telegrad.kvstore.create("local")
    kv.set_optimizer(OURS["NAG"])
    kv.init("w", np.ones(N, F))
    model = Model(OURS["NAG"])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "states")
        for step in range(4):
            kv.push("w", [gradient(step, rank) for rank in range(2)])
            out = np.empty(N, F)
            kv.pull("w", out=out)
            model.step(gradient(step, 0) + gradient(step, 1))
            assert np.array_equal(out, model.weight), step
            if step == 1:
                kv.save_optimizer_states(path)
                kv.load_optimizer_states(path)
    kv.close()


# ---- the tests ----

class Optimizers(unittest.TestCase):
    def ranks(self, function, argument=None):
        return workers.Ranks(os.path.abspath(__file__), function.__name__, 2, argument)

    def test_all_kinds_follow_their_rules_bit_for_bit(self):
        self.assertEqual(self.ranks(all_kinds).results(), [sorted(OURS)] * 2)

    def test_what_they_keep_is_saved_and_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            texts, other = self.ranks(resumes, folder).results()
        self.assertRegex(texts[0], "adamw.*sgd|sgd.*adamw")
        self.assertRegex(texts[1], "No such file")
        self.assertRegex(other[1], "worker/0 could not read it")
        self.assertRegex(texts[2], "(?i)crc|damage|check")
        self.assertRegex(texts[3], "dump_optimizer")
        for text, mine in zip(other[:3], texts[:3]):
            self.assertIn("worker/0", text)

    def test_servers_keep_their_rates_and_say_so(self):
        for text in self.ranks(changes).results():
            self.assertRegex(text, "learning_rate is 0.25, and was 0.5.*set_optimizer")

    def test_a_store_of_one_process_follows_the_object_that_it_was_given(self):
        """Whose rates change between rounds, as schedules and Trainers do it."""
        class Parameter:
            lr_mult = wd_mult = 1
        mine = Parameter()
        theirs = Given("mxnet.optimizer.optimizer", "SGD", lr=.5, wd=0, rescale_grad=1,
                       momentum=0, clip_gradient=None, lr_scheduler=None, lr_mult={},
                       wd_mult={}, param_dict={1: mine})
        for given, name in ((optimizer.SGD(learning_rate=.5), "learning_rate"),
                            (theirs, "lr")):
            kv = telegrad.kvstore.create("local")
            kv.set_optimizer(given)
            kv.init([1, 2], [np.zeros(N, F)] * 2)
            outs = np.zeros(N, F), np.zeros(N, F)
            ones = np.ones(N, F)
            for rate, rescale, want in ((.5, 1, -.5), (.25, 1, -.75), (.25, .5, -.875)):
                setattr(given, name, rate)
                given.rescale_grad = rescale
                kv.push(2, ones)
                kv.pushpull(1, ones, out=outs[0])
                kv.pull(2, out=outs[1])
                self.assertEqual([float(out[0]) for out in outs], [want] * 2)
            if given is theirs:
                mine.lr_mult = .5
                with self.assertRaisesRegex(telegrad.UsageError, "lr_mult.*key 1"):
                    kv.push(1, ones)
            kv.close()

    def test_asynchronous_pushes_all_count(self):
        for first, last, staleness in self.ranks(asynchronous).results():
            self.assertEqual([first, last], [-.5 * 40] * 2)
            self.assertLessEqual(staleness, 2)

    def test_nobody_waits_for_the_slowest(self):
        self.assertEqual(self.ranks(without_the_slowest).results(),
                         [[0, 0, 0, -5, -6.5, -6.5], [9, 10, 1, -5, -6.5, -6.5]])

    def test_rounds_without_some_are_asked_for(self):
        with telegrad.Job().join() as job:
            for wrong, why in ((1, "drop_slowest 1: 0 to 0"), (-1, "0 to 0"),
                               ("1", "drop_slowest='1'")):
                with self.assertRaisesRegex(telegrad.UsageError, why):
                    telegrad.kvstore.create("dist_sync", job=job, drop_slowest=wrong)
            with self.assertRaisesRegex(telegrad.UsageError, "take dist_sync"):
                telegrad.kvstore.create("dist_async", job=job, drop_slowest=1)
            kv = telegrad.kvstore.create("dist_sync", job=job)
            for call in (kv.catch_up, kv.take_all):
                with self.assertRaisesRegex(telegrad.WrongOrder, "without drop_slowest"):
                    call()
            kv.close()

    def test_workers_sum_for_each_other(self):
        self.assertEqual(self.ranks(workers_sum).results(), [[[7, 7], [4, 4]]] * 2)

    def test_a_job_without_parts_is_told_how(self):
        with telegrad.Job().join() as job:
            with self.assertRaisesRegex(telegrad.Error, "hosts_part"):
                telegrad.kvstore.create("allreduce", job=job)

    def test_a_part_alone(self):
        with telegrad.Job(hosts_part=True).join() as job:
            store = telegrad.Store(job, "allreduce")
            value = np.ones(N, F)
            store.push_pull(store.init(["w"], [value]), [value], [value])
            self.assertEqual(float(value.sum()), N)
        with self.assertRaisesRegex(telegrad.UsageError, "servers_here 1"):
            telegrad.Job(hosts_part=True, servers_here=1)

    def test_the_planner_chooses_the_transport(self):
        for gdr in (None, "auto", "off"):
            with telegrad.Job(transport="auto", gdr=gdr).join() as job:
                store = telegrad.Store(job)
                value = np.ones(N, F)
                store.push_pull(store.init(["w"], [value]), [value], [value])
                self.assertEqual(float(value.sum()), N)
        telegrad.Job(transport="auto", gpu=7).join().close()  # there is none
        for wrong, text in (({"transport": "pigeon"}, "pigeon"),
                            ({"gpu": -2}, "gpu -2: it takes -1 to 1023"),
                            ({"gdr": "perhaps"}, 'gdr "perhaps" is none of auto, on, off')):
            with self.assertRaisesRegex(telegrad.UsageError, text):
                telegrad.Job(**wrong)

    def test_local(self):
        local(None)


class Given:
    """An object of another package, as far as it is looked at."""

    def __new__(cls, module, name, **fields):
        given = object.__new__(type(name, (), {"__module__": module}))
        given.__dict__.update(fields)
        return given


class Translation(unittest.TestCase):
    def mxnet(self, name, **fields):
        common = {"lr": .5, "wd": .25, "rescale_grad": 2, "clip_gradient": None,
                  "lr_scheduler": None, "lr_mult": {}, "wd_mult": {}}
        return Given("mxnet.optimizer.optimizer", name, **{**common, **fields})

    def test_of_mxnet(self):
        self.assertEqual(
            optimizer.translate(self.mxnet(
                "SGD", momentum=.5, wd_mult={"fc_bias": 0, 7: .5},
                idx2name={0: "fc_weight", 1: "fc_bias"},
                param_dict={2: Given("x", "P", lr_mult=3, wd_mult=1)})),
            optimizer.SGD(.5, .25, 2, {2: 3}, {"fc_bias": 0, 7: .5, 1: 0, 2: 1},
                          momentum=.5))
        self.assertEqual(
            optimizer.translate(self.mxnet("Adam", beta1=.5, beta2=.75, epsilon=1)),
            optimizer.Adam(.5, .25, 2, beta1=.5, beta2=.75, epsilon=1))

    def test_mxnets_test_adds_gradients(self):
        kv = telegrad.kvstore.create("local")
        kv.set_optimizer(self.mxnet("Test"))
        kv.init("w", np.full(N, 3, F))
        out = np.empty(N, F)
        kv.pushpull("w", gradient(0, 0), out=out)
        self.assertTrue(np.array_equal(out, F(3) + F(2) * gradient(0, 0)))
        kv.close()

    def test_others_are_refused_by_name(self):
        for given, name in (
                (self.mxnet("SGD", momentum=0, clip_gradient=1), "clip_gradient"),
                (self.mxnet("SGD", momentum=0, lr_scheduler=print), "lr_scheduler"),
                (self.mxnet("Ftrl"), "mxnet.optimizer.optimizer.Ftrl"),
                (Given("elsewhere", "SGD"), "elsewhere.SGD")):
            with self.assertRaisesRegex(telegrad.Unsupported, name):
                optimizer.translate(given)

    def test_of_torch_steps_as_torch_does(self):
        """Within what a float32 can differ after other orders of operations."""
        try:
            import torch
        except ImportError:
            self.skipTest("python3-torch is not installed")
        optim = torch.optim
        for make, kind in (
                (lambda p: optim.SGD(p, .125, .5, weight_decay=.25), optimizer.SGD),
                (lambda p: optim.SGD(p, .125, .5, nesterov=True), optimizer.NAG),
                (lambda p: optim.Adam(p, .125, weight_decay=.25), optimizer.Adam),
                (lambda p: optim.AdamW(p, .125, weight_decay=.25), optimizer.AdamW),
                (lambda p: optim.Adagrad(p, .125, weight_decay=.25), optimizer.Adagrad),
                (lambda p: optim.RMSprop(p, .03125, .875, weight_decay=.25),
                 optimizer.RMSProp)):
            weight = torch.ones(N)
            theirs = make([weight])
            ours = optimizer.translate(theirs)
            self.assertIs(type(ours), kind)
            kv = telegrad.kvstore.create("local")
            kv.set_optimizer(theirs)
            kv.init("w", weight.clone())
            out = torch.empty(N)
            for step in range(5):
                weight.grad = torch.from_numpy(gradient(step, 0))
                theirs.step()
                kv.push("w", weight.grad)
                kv.pull("w", out=out)
                # A few operations a step, each within 2^-24 of values up to 2.
                self.assertLess(float((out - weight).abs().max()), 40 * 2. ** -23, step)
        for wrong, name in (
                (optim.SGD([weight], .1, .5, dampening=.1), "dampening"),
                (optim.Adam([weight], .1, amsgrad=True), "amsgrad"),
                (optim.SGD([{"params": [weight]}, {"params": [torch.ones(1)]}], .1),
                 "2 groups.*lr_mult"),
                (optim.Adagrad([weight], .1, lr_decay=.1), "lr_decay"),
                (optim.RMSprop([weight], .1, momentum=.5), "momentum"),
                (optim.RMSprop([weight], .1, centered=True), "centered"),
                (optim.Rprop([weight]), "Rprop")):
            with self.assertRaisesRegex(telegrad.Unsupported, name):
                optimizer.translate(wrong)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        all_kinds, resumes, changes, asynchronous, without_the_slowest,
        workers_sum)})
