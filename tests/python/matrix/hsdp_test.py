#!/usr/bin/env python3
"""FSDP2 with two shards and two replicas between which Telegrad sums: with `none` the
gradients of torch's own HSDP bit for bit, with `2bit` those of a model. Needs torch 2.6
or newer with gloo."""
import math
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import workers

try:
    import numpy as np
    import torch
    import torch.distributed as dist
    import reads
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
    FSDPModule.set_all_reduce_hook
except (ImportError, AttributeError) as why:
    workers.skip(f"no fully_shard with hooks: {why}")

import telegrad
import telegrad.torch
from telegrad.torch import _residuals

THRESHOLD = np.float32(0.25)


class Net(torch.nn.Module):
    """Integer weights: with integer inputs all gradients are integers."""

    def __init__(self, seed):
        super().__init__()
        self.first, self.second = torch.nn.Linear(24, 50), torch.nn.Linear(50, 8)
        torch.manual_seed(seed)
        for parameter in self.parameters():
            parameter.data = torch.randint(-2, 3, parameter.shape).float()

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def sharded(mesh, seed, **options):
    net = Net(seed)
    fully_shard(net.first, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)


def inputs(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(-1, 2, (2, 24), generator=generator).float()


def shards(model):
    return {name: parameter.grad.to_local().clone().numpy()
            for name, parameter in model.named_parameters()}


def backward(model, step, scale=1.0):
    model.zero_grad()
    (model(inputs(step, dist.get_rank())).sum() * scale).backward()
    return shards(model)


def two_bits(mesh, replica):
    """Of each shard's gradients, as FSDP alone gives them, on both replicas."""
    plain = sharded(mesh["shard"], 7)
    ours = sharded(mesh["shard"], 7)
    state = telegrad.torch.compress(ours, "2bit:0.25", replicas=mesh["replicate"],
                                    guard=False)
    residuals = [{} for _ in workers.encoders()]
    for step in range(4):
        own = backward(plain, step, 0.0625)
        got = backward(ours, step, 0.0625)
        for name, gradient in own.items():
            both = [torch.empty(gradient.shape) for _ in range(2)]
            dist.all_gather(both, torch.from_numpy(gradient),
                            group=mesh["replicate"].get_group())
            total = np.float32(0)
            for replicas, own in zip(workers.encoders(), residuals):
                r = own.setdefault(name, np.zeros(gradient.shape, np.float32))
                r += sum(both[each].numpy() for each in replicas)
                sent = np.where(r >= THRESHOLD, THRESHOLD,
                                np.where(r <= -THRESHOLD, -THRESHOLD, 0))
                r -= sent
                total = total + sent.astype(np.float32)
            assert np.array_equal(got[name], total / 2), (step, name)
    report = telegrad.torch.report(ours)
    assert report["push_ratio"] > 8 or not workers.pushes(replica), report
    state.close()
    return [line["name"] for line in report["decisions"]]


def train(model, first, last):
    """Its shards after steps of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=2 ** -6)
    for step in range(first, last):
        backward(model, step, 0.0625)
        optimizer.step()
    return {name: parameter.to_local().detach().clone()
            for name, parameter in model.named_parameters()}


def resumed(mesh, weights, **options):
    """A new model with these shards."""
    model = sharded(mesh["shard"], 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.to_local().copy_(weights[name])
    return model, telegrad.torch.compress(model, replicas=mesh["replicate"], guard=False,
                                          **options)


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def resumes(folder):
    """The same bits as of a run that was never ended, and others without the state."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    found = []
    for options in ({"gc_type": "2bit:0.25"}, {"gc_type": "2bit"},
                    {"gc_type": "topk:0.1", "reply": "reencode"}):
        model, state = resumed(mesh, shards_of(mesh), **options)
        half = train(model, 0, 3)
        path = os.path.join(folder, f"{dist.get_rank()}.pt")
        torch.save(state.state_dict(), path)
        whole = train(model, 3, 7)
        state.close()
        again, loads = resumed(mesh, half, **options)
        loads.load_state_dict(torch.load(path))
        same = equal(train(again, 3, 7), whole)
        forgot, forgets = resumed(mesh, half, **options)
        found.append([same, equal(train(forgot, 3, 7), whole)])
        loads.close()
        forgets.close()
    return [found, does_not_fit(mesh, half, folder), reshards(mesh, half)]


def shards_of(mesh):
    return {name: parameter.to_local().detach().clone()
            for name, parameter in sharded(mesh["shard"], 7).named_parameters()}


def reshards(mesh, weights):
    """With other servers "sum" adds what was held back: how far what is sent until
    nothing is left is from it, and how large that was."""
    group = mesh["replicate"].get_group()
    model, state = resumed(mesh, weights, gc_type="2bit:0.25", servers=1)
    for step in range(2):
        backward(model, step)
    saved = state.state_dict()
    state.close()
    model, state = resumed(mesh, weights, gc_type="2bit:0.25")
    state.load_state_dict([saved], reshard="sum")
    early = workers.refused(telegrad.WrongOrder, state.state_dict)
    sent = {name: 0 for name in saved["sizes"]}
    for step in range(100):
        gradients = backward(model, step, 0)
        for name in sent:
            sent[name] += np.concatenate([
                gradient.flatten() for key, gradient in gradients.items()
                if name == ("first" if key.startswith("first") else "model")])
    state.state_dict()
    state.close()
    far = held = 0.0
    for name, size in saved["sizes"].items():
        residual = _residuals.residual_of(saved["codecs"][name].numpy().tobytes(), size, 1)
        dist.all_reduce(residual, group=group)
        far = max(far, float(np.abs(residual.numpy() / 2 - sent[name]).max()))
        held = max(held, float(residual.abs().max()) / 2)
    return [far, held, early]


def keeps_momentum(mesh):
    """How far weights are from FSDP2's with torch's momentum, and from the decay of the
    first step; what the optimizer has then."""
    def made(shard_mesh, **options):
        model = sharded(shard_mesh, 7)
        return model, torch.optim.SGD(model.parameters(), lr=2 ** -9, momentum=.5,
                                      nesterov=True, **options)

    def stepped(model, optimizer, num):
        for step in range(num):
            backward(model, step, 0.0625)
            optimizer.step()
        return {name: p.to_local().detach().clone() for name, p in model.named_parameters()}

    def far(one, other):
        return max(float((one[name] - other[name]).abs().max()) for name in one)

    apart = []
    for num, decay in ((5, 0), (1, .125)):
        ours, optimizer = made(mesh["shard"], weight_decay=decay)
        state = telegrad.torch.compress(ours, "none", replicas=mesh["replicate"],
                                        optimizer=optimizer, momentum="nesterov")
        # Decay counts 2 times, and Nesterov's first step has 1.5 of it.
        native, own = made(mesh, weight_decay=decay / .75)
        apart.append(far(stepped(ours, optimizer, num), stepped(native, own, num)))
        state.close()
    ours, optimizer = made(mesh["shard"])
    telegrad.torch.compress(ours, "int2", replicas=mesh["replicate"],
                            optimizer=optimizer).close()
    return [apart, optimizer.param_groups[0]["telegrad_momentum"]]


def does_not_fit(mesh, weights, folder):
    """What is refused."""
    _, state = resumed(mesh, weights, gc_type="2bit:0.25")
    own = torch.load(os.path.join(folder, f"{dist.get_rank()}.pt"))
    other = torch.load(os.path.join(folder, f"{dist.get_rank() ^ 1}.pt"))
    texts = [workers.refused(telegrad.UsageError, work) for work in (
        lambda: state.load_state_dict(own),
        lambda: state.load_state_dict(dict(state.state_dict(), settings=dict(
            state.state_dict()["settings"], shard=other["settings"]["shard"]))),
        lambda: state.load_state_dict(dict(state.state_dict(), workers=3)))]
    state.close()
    return texts


def wide(mesh):
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(3)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def chooses(_):
    """Over an emulated link of 20 Mbit/s; what a new run begins with."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    options = {"gc_type": "auto", "allow": "2bit", "replicas": mesh["replicate"]}
    model = wide(mesh["shard"])
    state = telegrad.torch.compress(model, link="20mbit", **options)
    for _ in range(45):
        model(torch.ones(1, 256)).sum().backward()
    found = state.report()
    kept = state.state_dict()
    state.close()
    model = wide(mesh["shard"])
    state = telegrad.torch.compress(model, **options)
    state.load_state_dict(kept)
    model(torch.ones(1, 256)).sum().backward()
    later = state.report()
    state.close()
    pushes = workers.pushes(mesh["replicate"].get_local_rank())
    return ["; ".join(f"{made['choice']}: {made['why']}" for made in found["auto"]),
            later["auto"][0]["choice"], later["push_ratio"] if pushes else math.inf]


def close_to_native(mesh, policy):
    """In the types of that policy: each sum is rounded to 8 bits or more."""
    native = sharded(mesh, 7, mp_policy=policy)
    ours = sharded(mesh["shard"], 7, mp_policy=policy)
    state = telegrad.torch.compress(ours, "none", replicas=mesh["replicate"])
    want, got = backward(native, 0), backward(ours, 0)
    for name, gradient in want.items():
        assert np.allclose(gradient, got[name], rtol=2 ** -6), (policy, name)
    state.close()


def accumulates(mesh, replica):
    """In three micro-steps, of which the last one is exchanged, as FSDP2 itself: frames
    that went then and before, and whether a hook of parameters saw the means."""
    native, ours = sharded(mesh, 7), sharded(mesh["shard"], 7 + replica)
    state = telegrad.torch.compress(ours, "none", replicas=mesh["replicate"])
    sent, seen = [], []
    for way in ("set_requires_gradient_sync", "set_requires_all_reduce"):
        for model in (native, ours):
            model.zero_grad()
            for step in range(3):
                getattr(model, way)(step == 2)
                model(inputs(step, dist.get_rank())).sum().backward()
                sent.append(state.report()["num_frames"])
        want, got = shards(native), shards(ours)
        assert all(np.array_equal(want[name], got[name]) for name in want), way
    backward(native, 5)
    native(inputs(6, dist.get_rank())).sum().backward()  # to what there is
    backward(ours, 5)
    for parameter in ours.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda each: seen.append(each.grad.to_local().clone()))
    ours(inputs(6, dist.get_rank())).sum().backward()
    wanted = [each.tobytes() for each in shards(native).values()]
    assert all(each.numpy().tobytes() in wanted for each in seen) and len(seen) == 4
    state.close()
    if not workers.pushes(replica):  # its host's first one does
        return [sent[-1], 1]
    return [sent[4] - sent[3], sent[5] - sent[4], sent[10] - sent[9], sent[11] - sent[10]]


def goes_beside(mesh, replica):
    """Calls of the store in a step, and what a hook gives that no backward calls, as in
    schedules of pipelines."""
    ours = sharded(mesh["shard"], 7)
    state = telegrad.torch.compress(ours, "none", replicas=mesh["replicate"])
    store, calls = state._store, []
    start, wait_on = store.start, store.queue.wait_on
    store.start = lambda *given, **more: (calls.append("start"), start(*given, **more))[1]
    store.queue.wait_on = lambda *given: (calls.append("wait"), wait_on(*given))[1]
    backward(ours, 0)
    gradient = torch.full((state._sizes["first"],), 1. + replica)
    ours.first._get_fsdp_state()._fsdp_param_group._all_reduce_hook(gradient)
    state.close()
    return [calls[:4], gradient.unique().tolist()]


def reads_nothing(mesh):
    """What the host reads of gradients in steps 3 to 20, where it would wait for a GPU; the
    last one is a read of the test's own."""
    ours, seen = sharded(mesh["shard"], 7), reads.Reads()
    state = telegrad.torch.compress(ours, "2bit:0.25", replicas=mesh["replicate"],
                                    guard=False)
    for module in (ours, ours.first):
        parts = module._get_fsdp_state()._fsdp_param_group
        hook = parts._all_reduce_hook
        module.set_all_reduce_hook(
            lambda gradient, hook=hook: (seen.add(gradient), hook(gradient))[1])
    with seen.mode():
        for step in range(21):
            if step == 3:
                seen.count()
            ours.zero_grad()
            (ours(inputs(step, dist.get_rank())).sum() * 0.0625).backward()
        own = len(seen.found)
        bool(state._sums["first"]._memory.isfinite().all())
    seen.close()
    state.close()
    return [seen.found[:own], seen.found[own:]]


def all_cases(_):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    replica = mesh["replicate"].get_local_rank()
    native = sharded(mesh, 7)
    ours = sharded(mesh["shard"], 7 + replica)  # the first replica's weights count
    telegrad.torch.compress(ours, "none", replicas=mesh["replicate"])
    for step in range(3):
        want, got = backward(native, step), backward(ours, step)
        for name, gradient in want.items():
            assert np.array_equal(gradient, got[name]), (step, name)
        assert sum(np.abs(gradient).sum() for gradient in want.values()) > 0
    half = torch.bfloat16
    for policy in (MixedPrecisionPolicy(half), MixedPrecisionPolicy(half, torch.float32),
                   MixedPrecisionPolicy(reduce_dtype=half)):
        close_to_native(mesh, policy)
    texts = [workers.refused(telegrad.Unsupported, work) for work in (
        lambda: telegrad.torch.compress(sharded(mesh["shard"], 7)),
        lambda: telegrad.torch.compress(sharded(mesh, 7), replicas=mesh["replicate"]))]
    ours = sharded(mesh["shard"], 7)
    optimizer = torch.optim.SGD(ours.parameters(), lr=1 + replica)
    texts.append(workers.refused(telegrad.Mismatch, lambda: telegrad.torch.compress(
        ours, "none", replicas=mesh["replicate"], min_bytes=8 * replica, optimizer=optimizer)))
    return [two_bits(mesh, replica), texts, keeps_momentum(mesh),
            [accumulates(mesh, replica), goes_beside(mesh, replica), reads_nothing(mesh)]]


class Hsdp(unittest.TestCase):
    def test_sums_between_replicas(self):
        for names, texts, (apart, kept), (frames, beside, read) in workers.Ranks(
                os.path.abspath(__file__), "all_cases", 4).results():
            self.assertEqual(read, [[], ["_local_scalar_dense"]])
            self.assertEqual(set(frames[::2]), {0})
            self.assertGreater(min(frames[1::2]), 0)
            self.assertEqual(beside, [["start", "start", "wait", "wait"], [1.5]])
            self.assertEqual(sorted(names), ["first", "model"])
            self.assertLess(max(apart), 1e-5)
            self.assertEqual(kept, .5)
            for text, pattern in zip(texts, (r"replicas=mesh\['replicate'\]",
                                             r"mesh=mesh\['shard'\]", "^min_bytes: rank [01] "
                                             "has 0, rank [23] has 8; optimizer lr: rank")):
                self.assertRegex(text, pattern)

    def test_auto_compresses_over_a_slow_link_and_goes_on_with_that(self):
        for text, again, ratio in workers.Ranks(os.path.abspath(__file__), "chooses",
                                                4).results():
            self.assertRegex(text, "off for .* steps.*2bit for 3 of 3 .*link")
            self.assertEqual(again, "2bit for 3 tensors")
            self.assertGreater(ratio, 8)

    def test_a_run_that_goes_on_has_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            for found, texts, (far, held, early) in workers.Ranks(
                    os.path.abspath(__file__), "resumes", 4, folder).results():
                self.assertEqual(found, [[True, False]] * 3)
                self.assertLess(far, THRESHOLD)  # less than one is left on each
                self.assertGreater(held, 4 * THRESHOLD)
                self.assertIn("take the step first", early)
                for text, pattern in zip(texts, (
                        "gc_type 'topk:0.1' then, '2bit:0.25' now",
                        "shard '[01] of 2' then", "say reshard='sum'")):
                    self.assertRegex(text, pattern)


if __name__ == "__main__":
    workers.main({"all_cases": all_cases, "chooses": chooses, "resumes": resumes})
