#!/usr/bin/env python3
"""telegrad.torch takes momentum over from an optimizer of torch: as torch's without a
codec, where few bits want it by itself, and refused in two places."""
import copy
import gc
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
from telegrad.torch import _auto, _momentum, _replicas
from telegrad.torch._auto import OptimizerCheck
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
RATE, LR = .9, .01
KEY = "telegrad_momentum"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = torch.nn.Linear(24, 50), torch.nn.Linear(50, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def sgd(parameters, **options):
    return torch.optim.SGD(parameters, **{"lr": LR, "momentum": RATE, **options})


def loss_of(model, step):
    generator = torch.Generator().manual_seed(100 * step + RANK)
    return model(torch.randn(4, 24, generator=generator)).pow(2).mean()


def train(model, optimizer, first, last):
    """The weights after these steps."""
    for step in range(first, last):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def far(one, other):
    return max(float((a - b).abs().max()) for a, b in zip(one, other))


def compressed(gc_type, net=None, options={}, **others):
    """A model, its state, its optimizer."""
    model = DDP(net or Net())
    optimizer = sgd(model.parameters(), **options)
    state = telegrad.torch.compress(model, gc_type, optimizer=optimizer, guard=False,
                                    verbose=others.pop("verbose", False), **others)
    return model, state, optimizer


# ---- what a rank does ----

def as_torch(_):
    """How far weights are from torch's own, and what the optimizer has then."""
    dist.init_process_group("gloo")
    found = []
    for kind in ("nesterov", "heavyball"):
        options = {"nesterov": kind == "nesterov"}
        model, state, optimizer = compressed("none", None, options, momentum=kind)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4)
        plain = DDP(Net())
        own = sgd(plain.parameters(), **options)
        apart = far(train(model, optimizer, 0, 6), train(plain, own, 0, 6))
        schedule.step()
        group = optimizer.param_groups[0]
        found.append([apart, group["momentum"], group["nesterov"], group[KEY],
                      optimizer.state_dict()["param_groups"][0][KEY]])
        state.close()
    return found + [decays()]


def decays():
    """In the first step, by itself and by a closure, which makes the gradients."""
    apart = []
    for has_closure in (False, True):
        decay = .125
        model, state, optimizer = compressed(
            "none", None, {"weight_decay": decay}, momentum="nesterov")
        plain = DDP(Net())
        loss_of(plain, 0).backward()
        want = [p - LR * (p.grad * (1 + RATE) + decay / (1 - RATE) * p)
                for p in plain.parameters()]

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, 0)
            loss.backward()
            return loss

        if has_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        apart.append(far(want, list(model.parameters())))
        state.close()
    return apart


def takes(_):
    """Where few bits want it: what is said, warned of, and had."""
    dist.init_process_group("gloo")
    lines = workers.logged()
    plain = DDP(Net())
    want = train(plain, sgd(plain.parameters()), 0, 40)
    without = DDP(Net())
    other = train(without, sgd(without.parameters(), momentum=0), 0, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, state, optimizer = compressed("int2", None, {"weight_decay": 1e-9}, verbose=True)
        got = train(model, optimizer, 0, 40)
    kept = [group[KEY] for group in optimizer.param_groups]
    state.close()
    for gc_type, options in (("int4", {}), ("int2", {"momentum": "off"})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, state, optimizer = compressed(gc_type, **options)
        kept.append(optimizer.param_groups[0].get(KEY))
        state.close()
    model, state, optimizer = compressed("auto")
    kept.append([optimizer.param_groups[0][KEY], state._check.allow])
    state.close()
    return [far(got, want), far(got, other), kept,
            [line for line in lines if "workers keep" in line]]


def goes_wrong(_):
    """Of a rank's optimizer after it was taken over; and of ranks that differ."""
    dist.init_process_group("gloo")
    texts = []
    model, state, optimizer = compressed("int2")
    loss_of(model, 0).backward()
    for change in ({"momentum": .5}, {KEY: .5}, {"maximize": True}):
        before = copy.copy(optimizer.param_groups[0])
        optimizer.param_groups[0].update(change)
        texts.append(workers.refused(telegrad.UsageError, optimizer.step))
        optimizer.param_groups[0].update(before)
    optimizer.step()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
    optimizer.step()
    texts.append(workers.refused(telegrad.WrongOrder, lambda: telegrad.torch.compress(model)))
    state.close()
    optimizer.param_groups[0]["momentum"] = .5
    optimizer.step()  # nobody looks any more
    hooked = DDP(Net())
    hooked.register_comm_hook(None, lambda _, bucket: None)
    theirs = sgd(hooked.parameters(), nesterov=True)
    texts.append(workers.refused(telegrad.UsageError, lambda: telegrad.torch.compress(
        hooked, "int2", optimizer=theirs)))
    group = theirs.param_groups[0]
    texts.append(str([group["momentum"], group["nesterov"], KEY in group,
                      theirs.defaults["momentum"]]))
    model = DDP(Net())
    texts.append(workers.refused(telegrad.Mismatch, lambda: telegrad.torch.compress(
        model, "none", momentum_rate=.5 + RANK / 4)))
    return texts


def by_hand(_):
    """Of an optimizer that nobody has named: it may have none itself."""
    dist.init_process_group("gloo")
    model = DDP(Net())
    optimizer = sgd(model.parameters(), momentum=0)
    state = telegrad.torch.compress(model, "none", momentum_rate=RATE, verbose=False)
    plain = DDP(Net())
    apart = far(train(model, optimizer, 0, 5),
                train(plain, sgd(plain.parameters(), nesterov=True), 0, 5))
    state.close()
    model = DDP(Net())
    optimizer = sgd(model.parameters())
    state = telegrad.torch.compress(model, "none", momentum_rate=RATE, verbose=False)
    text = ""
    if RANK == 0:  # which looks for it
        text = workers.refused(telegrad.UsageError, lambda: train(model, optimizer, 0, 1))
        state._job.fail(text)
    else:
        workers.refused(telegrad.Error, lambda: train(model, optimizer, 0, 2))
    return [apart, text]


def locally(_):
    """The outer optimizer's: how far from its own, whole and in fragments; what few bits
    have."""
    dist.init_process_group("gloo")
    found = []
    for fragments in (1, 2):
        weights = []
        for momentum in ("nesterov", "off"):
            net = Net()
            inner = torch.optim.SGD(net.parameters(), lr=.05)
            diloco = telegrad.torch.DiLoCo(
                net, inner, sync_every=2, fragments=fragments, gc_type="none",
                momentum=momentum, outer=lambda anchors: sgd(anchors, lr=.5, nesterov=True))
            for step in range(8):
                inner.zero_grad()
                loss_of(net, step).backward()
                diloco.step()
            diloco.exchange()
            weights.append([p.detach().clone() for p in net.parameters()])
            diloco.close()
        found.append(far(*weights))
    net = Net()
    diloco = telegrad.torch.DiLoCo(net, torch.optim.SGD(net.parameters(), lr=.05),
                                   sync_every=2, gc_type="2bit", outer=sgd)
    found.append(diloco.outer.param_groups[0][KEY])
    diloco.close()
    return found


def in_shards(_):
    """Of ZeroRedundancyOptimizer, whose steps are those of an inner SGD."""
    dist.init_process_group("gloo")
    model, plain = DDP(Net()), DDP(Net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD,
                                        lr=LR, momentum=RATE, nesterov=True)
    state = telegrad.torch.compress(model, "none", optimizer=optimizer, momentum="nesterov",
                                    verbose=False)
    apart = far(train(model, optimizer, 0, 6),
                train(plain, sgd(plain.parameters(), nesterov=True), 0, 6))
    optimizer.param_groups[0]["momentum"] = .5
    text = workers.refused(telegrad.UsageError, optimizer.step)
    state.close()
    return [apart, optimizer.optim.param_groups[0][KEY], text]


def of_a_script(_):
    """That knows nothing of Telegrad: `telegrad.run` takes over an optimizer of before and
    one of after."""
    dist.init_process_group("gloo")
    found = []
    for is_early in (True, False):
        net = Net()
        optimizer = sgd(net.parameters(), nesterov=True) if is_early else None
        model = DDP(net)
        optimizer = optimizer or sgd(net.parameters(), nesterov=True)
        got = train(model, optimizer, 0, 4)
        found.append([optimizer.param_groups[0][KEY], optimizer.param_groups[0]["momentum"],
                      [float(p.sum()) for p in got]])
        for state in telegrad.torch._hook.states():
            state.close()
        del model, optimizer
        gc.collect()
    return found


# ---- the tests ----

class Inner:
    """As Accelerate's: around the optimizer."""
    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)


class Momentum(unittest.TestCase):
    def ranks(self, function, argument=None, num=2, runner=()):
        return workers.Ranks(FILE, function.__name__, num, argument, runner).results()

    def test_without_a_codec_weights_are_torchs(self):
        for *kinds, decays in self.ranks(as_torch):
            for apart, *group in kinds:
                self.assertLess(apart, 1e-6)
                self.assertEqual(group, [0, False, RATE, RATE])
            self.assertLess(max(decays), 1e-6)

    def test_it_is_taken_over_where_few_bits_want_it(self):
        (near, other, kept, lines), (_, _, _, others) = self.ranks(takes)
        self.assertLess(2 * near, other)
        self.assertEqual(kept, [RATE, None, None, [RATE, "int2"]])
        self.assertEqual((len(lines), others), (1, []))
        self.assertRegex(lines[0], "momentum 0.9 of SGD: workers keep it in front of the codec, "
                         "with Nesterov's lead, and steps apply none; momentum='heavyball' .*'off'"
                         ".*weight decay counts 10 times")

    def test_two_places_and_ranks_that_differ_are_refused(self):
        for texts in self.ranks(goes_wrong):
            for text, pattern in zip(texts, (
                    "two places: group 0 of SGD has momentum 0.5, and workers keep 0.9 .*"
                    "cycle_momentum", f"has {KEY} 0.5, and workers keep 0.9", "has maximize",
                    "compressed already", "hook already", r"\[0.9, True, False, 0.9\]",
                    "momentum_rate: rank 0 has 0.5, rank 1 has 0.75")):
                self.assertRegex(text, pattern)

    def test_by_hand(self):
        (apart, text), _ = self.ranks(by_hand)
        self.assertLess(apart, 1e-6)
        self.assertRegex(text, "two places: group 0 of SGD has momentum 0.9")

    def test_an_optimizer_in_shards(self):
        for apart, kept, text in self.ranks(in_shards):
            self.assertLess(apart, 1e-6)
            self.assertEqual(kept, RATE)
            self.assertIn("two places: group 0 of SGD has momentum 0.5", text)

    def test_local_steps(self):
        for whole, parts, kept in self.ranks(locally):
            self.assertLess(max(whole, parts), 1e-6)
            self.assertEqual(kept, RATE)

    def test_a_script_that_knows_nothing_of_it(self):
        found = self.ranks(of_a_script, runner=(
            "-m", "telegrad.run", "--gc-type", "none", "--gc-momentum-rate", "0.9"))
        for early, late in found:
            self.assertEqual(early[:2], [RATE, 0])
            self.assertEqual(early, late)

    def settle(self, optimizer, momentum="auto", rate=None, is_wanted=True, parameters=()):
        return _momentum.settle(optimizer, momentum, rate, is_wanted, set(map(id, parameters)))

    def test_what_cannot_be_is_refused_or_left_alone(self):
        one, two = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
        differ = sgd([{"params": [one]}, {"params": [two], "momentum": .5}])
        for optimizer, why in (
                (differ, "group 0 has momentum 0.9, and group 1 0.5"),
                (sgd([one], dampening=.5), "group 0 has dampening"),
                (sgd([one], maximize=True), "group 0 has maximize"),
                (sgd([one]), "it steps 1 of 2 parameters"),
                (torch.optim.RMSprop([one, two], momentum=.5), "RMSprop is no torch.optim.SGD"),
                (sgd([one, two], momentum=0), "")):
            left = self.settle(optimizer, parameters=[one, two])
            self.assertEqual((left.kind, left.why), ("off", why))
            with self.assertRaisesRegex(telegrad.UsageError, why or "it has none"):
                self.settle(optimizer, "nesterov", parameters=[one, two])
        for arguments, pattern in (
                ((None, "much"), "'much': there are auto"), ((None, "off", .5), "beside"),
                ((None, "auto", 1), "less than 1"), ((None, "heavyball"), "of what.*optimizer="),
                ((sgd([one]), "auto", .9), "two places: group 0 of SGD has momentum 0.9")):
            with self.assertRaisesRegex(telegrad.UsageError, pattern):
                self.settle(*arguments)
        self.assertEqual(self.settle(sgd([one]), is_wanted=False).kind, "off")
        self.assertEqual(self.settle(sgd([one]), "heavyball", None, False).kind, "heavyball")

    def test_wrapped_optimizers_and_buffers(self):
        one = torch.nn.Parameter(torch.ones(3))
        optimizer = sgd([one], nesterov=True)
        one.grad = torch.ones(3)
        optimizer.step()
        found = self.settle(Inner(optimizer), parameters=[one])
        found.apply()
        self.assertRegex(found.note, "of SGD: .*what SGD had gathered is dropped")
        self.assertNotIn("momentum_buffer", optimizer.state[one])
        optimizer.param_groups[0]["momentum"] = .5
        with self.assertRaisesRegex(telegrad.UsageError, "two places"):
            optimizer.step()
        found.release(gives_back=True)
        optimizer.step()
        self.assertEqual(optimizer.param_groups[0]["momentum"], RATE)
        # It goes on where it was taken over before.
        found = self.settle(optimizer, parameters=[one])
        found.apply()
        found.release()
        again = self.settle(optimizer, is_wanted=False, parameters=[one])
        self.assertEqual((again.kind, again.rate), ("nesterov", RATE))
        # A step of GradScaler's, whose gradients have its factor.
        optimizer.param_groups[0]["weight_decay"] = .5
        optimizer.grad_scale = torch.tensor(8.)
        again._add_decay(optimizer)
        self.assertTrue(torch.allclose(one.grad, 1 + 8 * .5 * 9 * one))

    def test_replicas_refuse_a_second_momentum(self):
        """Of an optimizer that was not given, with the first gradients, on all ranks."""
        model = Net()
        optimizer = sgd(model.parameters())
        for is_first in (True, False):
            replicas = _replicas.Replicas.__new__(_replicas.Replicas)
            replicas._check = OptimizerCheck("int2", None, "", None, model.parameters(),
                                             is_first, momentum_rate=RATE)
            with self.assertRaisesRegex(telegrad.UsageError, "two places: group 0 of SGD"):
                replicas._exchange("model", None, None)
        del optimizer

    def test_why_it_was_left_is_in_the_warning(self):
        parameters = list(Net().parameters())
        optimizer = sgd(parameters, dampening=.5)
        with self.assertWarnsRegex(UserWarning, "since group 0 has dampening"):
            OptimizerCheck("2bit", None, "", optimizer, parameters, True)
        with self.assertWarnsRegex(UserWarning, r"compress\(..., optimizer=\).*--gc-momentum-rate "
                                   "0.9"):
            _auto.check_optimizer(optimizer, "2bit", None)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        as_torch, takes, goes_wrong, by_hand, locally, of_a_script, in_shards)})
