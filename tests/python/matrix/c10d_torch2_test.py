#!/usr/bin/env python3
"""The backend of torch.distributed below what only newer versions of torch have: functional
collectives, DTensor, FSDP and FSDP2, batches of messages."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import workers

try:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
except ImportError as why:
    workers.skip(f"needs torch 2.6 or newer: {why}")

RANK = int(os.environ.get("RANK", -1))


# ---- what a rank does ----

def of_cpp(_):
    """Collectives that torch's C++ calls; torch imports the backend by an entry point of
    the installed package, here by this line."""
    import telegrad.torch  # noqa: F401
    dist.init_process_group("telegrad")
    own, world = torch.arange(4.) + RANK, dist.group.WORLD
    found = [functional.all_reduce(own, "sum", world),
             functional.all_gather_tensor(own, 0, world),
             functional.reduce_scatter_tensor(own, "sum", 0, world),
             functional.all_to_all_single(own, [2, 2], [2, 2], world),
             functional.broadcast(own, 1, world),
             *functional.all_reduce_coalesced([own, own[:2]], "avg", world),
             *functional.all_gather_into_tensor_coalesced([own[:1]], world),
             *functional.reduce_scatter_tensor_coalesced([own], "sum", [0], world)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in (own, own[:0].clone()):
            dist.all_reduce(tensor)
    manager.wait()
    got = torch.empty(4)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, own + RANK, 1 - RANK),
                                        dist.P2POp(dist.irecv, got, 1 - RANK)]):
        work.wait()
    dist.monitored_barrier()
    return [each.tolist() for each in [*found, own, got]]


def sharded(backend):
    """Weights after three steps of FSDP2 and of FSDP, and DTensors of other placements."""
    import telegrad.torch  # noqa: F401
    dist.init_process_group(backend)
    mesh = init_device_mesh("cpu", (2,))
    found = []
    for wrap in (lambda net: fully_shard(net, mesh=mesh),
                 lambda net: FullyShardedDataParallel(net, device_id=torch.device("cpu"),
                                                      use_orig_params=True)):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(),
                                    torch.nn.Linear(8, 2))
        model = wrap(model) or model
        optimizer = torch.optim.SGD(model.parameters(), lr=2 ** -5)
        for step in range(3):
            torch.manual_seed(10 * step + RANK)
            model(torch.randn(4, 6)).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.manual_seed(99)
        found.append(model(torch.randn(4, 6)).flatten().tolist())
    whole = torch.arange(24.).view(6, 4)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
    found.append((rows @ rows.t()).full_tensor().flatten().tolist())
    dist.destroy_process_group()
    return found


# ---- the tests ----

class Torch2(unittest.TestCase):
    def ranks(self, function, argument=None):
        return workers.Ranks(os.path.abspath(__file__), function.__name__, 2,
                             argument).results()

    def test_collectives_of_cpp(self):
        zero, one = self.ranks(of_cpp)
        total = [1, 3, 5, 7]
        both = [total, [0, 1, 2, 3, 1, 2, 3, 4]]
        self.assertEqual(zero[:2], both)
        self.assertEqual(one[:2], both)
        self.assertEqual([zero[2], one[2]], [[1, 3], [5, 7]])
        self.assertEqual([zero[3], one[3]], [[0, 1, 1, 2], [2, 3, 3, 4]])
        self.assertEqual(zero[4], [1, 2, 3, 4])
        self.assertEqual(zero[5:8], [[.5, 1.5, 2.5, 3.5], [.5, 1.5], [0, 1]])
        self.assertEqual([zero[8], one[8]], [[1, 3], [5, 7]])
        self.assertEqual(zero[9:], [total, [2, 4, 6, 8]])
        self.assertEqual(one[9:], [total, total])

    def test_sharded_models_have_gloos_weights(self):
        ours, gloos = self.ranks(sharded, "telegrad"), self.ranks(sharded, "gloo")
        self.assertEqual(ours, gloos)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (of_cpp, sharded)})
