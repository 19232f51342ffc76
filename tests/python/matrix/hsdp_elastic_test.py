#!/usr/bin/env python3
"""Replicas of FSDP2 of which one is lost: the others do that step again, all shards of it or
none. Needs torch 2.6 or newer with gloo."""
import os
import signal
import sys
import unittest
from datetime import timedelta

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import workers

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    FSDPModule.set_all_reduce_hook
except (ImportError, AttributeError) as why:
    workers.skip(f"no fully_shard with hooks: {why}")

import telegrad
import telegrad.torch

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
STEPS, LOST = 6, 3
REPLICAS, SHARDS, VICTIM = 3, 2, 5


class Net(torch.nn.Module):
    """Integer weights: with integer inputs all gradients are integers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(24, 50), torch.nn.Linear(50, 8)
        torch.manual_seed(7)
        for parameter in self.parameters():
            parameter.data = torch.randint(-2, 3, parameter.shape).float()

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def loss(model, step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randint(-1, 2, (2, 24), generator=generator).float()).sum()


def wanted(step, ranks):
    """The mean gradient of those ranks, in one process."""
    net = Net()
    for rank in ranks:
        (loss(net, step, rank) / len(ranks)).backward()
    return {name: p.grad for name, p in net.named_parameters()}


def train(codec):
    """The last rank dies within step LOST, and the other one of its replica with it."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    mesh = init_device_mesh("cpu", (REPLICAS, SHARDS), mesh_dim_names=("replicate", "shard"))
    replica = mesh["replicate"].get_local_rank()
    model = Net()
    fully_shard(model.first, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    state = telegrad.torch.compress(model, codec, replicas=mesh["replicate"], guard=False,
                                    elastic=True, dead_timeout=4)
    store = dist.TCPStore("127.0.0.1", int(os.environ["STORE"]), is_master=False,
                          timeout=timedelta(seconds=20))
    if RANK == VICTIM:
        exchange = state._store.start

        def dies(*given, **more):
            if state._steps == LOST:
                os.kill(os.getpid(), signal.SIGKILL)
            return exchange(*given, **more)

        state._store.start = dies
    step, errors, off = 0, [], []
    while step < STEPS:
        before = {name: held.clone() for name, held in state._residuals.held().items()}
        state._residuals._before = None
        model.zero_grad()
        try:
            loss(model, step, RANK).backward()
        except Exception as why:  # of gloo, in the replica that has lost a rank
            if replica == 2:
                return "its replica is lost"
            assert isinstance(why, telegrad.Error) and why.retryable, why
            errors.append(type(why).__name__)
            state.reconfigure(dist.PrefixStore("attempt1", store), replica, 2, timeout=20)
            held = state._residuals.held()
            state._residuals._before = None
            assert sorted(held) == sorted(before)
            assert all(torch.equal(held[name], before[name]) for name in held)
            continue
        if codec == "none":
            want = wanted(step, range(SHARDS * (REPLICAS if step < LOST else 2)))
            got = {name: p.grad.full_tensor() for name, p in model.named_parameters()}
            off += [name for name in want if not torch.allclose(want[name], got[name], 0, 1e-3)]
        step += 1
    grads = [p.grad.to_local().tolist() for p in model.parameters()]
    return {"errors": errors, "off": off, "workers": state.num_workers, "grads": grads}


def refused(_):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))

    def made(**options):
        model = Net()
        fully_shard(model, mesh=mesh["shard"])
        return model, telegrad.torch.compress(model, replicas=mesh["replicate"], **options)

    _, state = made(gc_type="2bit")
    return [workers.refused(telegrad.UsageError, lambda: made(gc_type="auto", elastic=True)),
            workers.refused(telegrad.UsageError,
                            lambda: made(gc_type="2bit", elastic=True, tier1="on")),
            workers.refused(telegrad.WrongOrder, lambda: state.reconfigure(None, 0, 1))]


class Elastic(unittest.TestCase):
    def test_replicas_that_are_left_do_the_step_again_with_all_shards(self):
        for codec in ("none", "2bit:0.25"):
            with self.subTest(codec=codec):
                store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
                ranks = workers.Ranks(FILE, "train", REPLICAS * SHARDS, codec,
                                      STORE=str(store.port))
                ended = ranks.wait()
                self.assertEqual(ended[VICTIM][0], -signal.SIGKILL, ended[VICTIM])
                found = []
                for rank in range(4):
                    code, out, err = ended[rank]
                    self.assertEqual(code, 0, f"rank {rank}:\n{out}\n{err}")
                    found.append(workers.json.loads(out.strip().splitlines()[-1]))
                for each in found:
                    self.assertEqual((each["workers"], each["off"], len(each["errors"])),
                                     (2, [], 1))
                self.assertEqual(found[0]["grads"], found[2]["grads"])
                self.assertEqual(found[1]["grads"], found[3]["grads"])

    def test_what_cannot_be(self):
        (texts,) = workers.Ranks(FILE, "refused", 1).results()
        for text, part in zip(texts, ("'auto'", "tier1='on'", "without elastic=True")):
            self.assertIn(part, text)


if __name__ == "__main__":
    workers.main({"train": train, "refused": refused})
