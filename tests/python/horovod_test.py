#!/usr/bin/env python3
"""telegrad.horovod.torch as Horovod's users call it: values, optimizers, what is wrong, a
rank that dies, and a script that imports horovod."""
import json
import os
import signal
import subprocess
import sys
import unittest
import warnings

import workers

try:
    import torch
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.horovod.torch as hvd

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
EXAMPLE = os.path.join(os.path.dirname(FILE), "..", "..", "examples", "horovod_mnist.py")


# ---- what a rank does ----

def values(_):
    """All operations, of three ranks."""
    hvd.init(process_sets=[hvd.ProcessSet([0, 2])])
    hvd.init()  # does nothing
    size = hvd.size()
    own = torch.arange(6.).reshape(3, 2) + RANK
    got = {"where": [hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]}
    want = torch.arange(6.).reshape(3, 2)
    assert torch.equal(hvd.allreduce(own), want + 1)
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum, prescale_factor=2, postscale_factor=.5),
                       want * 3 + 3)
    for op, expected in ((hvd.Min, want), (hvd.Max, want + 2),
                         (hvd.Product, want * (want + 1) * (want + 2))):
        assert torch.equal(hvd.allreduce(own, op=op), expected), op
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int64, torch.bfloat16,
                  torch.float64):
        assert torch.equal(hvd.allreduce(own.to(dtype), op=hvd.Sum),
                           (want * 3 + 3).to(dtype)), dtype
        assert hvd.broadcast(own.to(dtype), 2).tolist() == (want + 2).tolist(), dtype
    # In other orders on each rank, and some together.
    names = [f"t{i}" for i in range(7)]
    tensors = {name: own + i for i, name in enumerate(names)}
    handles = {name: hvd.allreduce_async_(tensors[name], name=name, op=hvd.Sum)
               for name in (names, names[::-1], names[3:] + names[:3])[RANK]}
    for i, name in enumerate(names):
        assert hvd.synchronize(handles[name]) is tensors[name]
        assert torch.equal(tensors[name], want * 3 + 3 + 3 * i)
    both = hvd.grouped_allreduce([own, own.double()], name="both", op=hvd.Sum)
    assert [each.dtype for each in both] == [torch.float32, torch.float64]
    assert torch.equal(both[1], both[0].double())
    rows = hvd.allgather(torch.full((RANK, 2), RANK, dtype=torch.int16))  # none of rank 0
    got["rows"] = rows.tolist()
    got["scattered"] = hvd.reducescatter(torch.arange(4.) * (RANK + 1), op=hvd.Sum).tolist()
    found, received = hvd.alltoall(torch.arange(6.) + 10 * RANK, splits=[1, 2, 3])
    got["exchanged"] = [found.tolist(), received.tolist()]
    got["objects"] = [hvd.allgather_object({"rank": RANK}), hvd.broadcast_object([RANK], 1)]
    some = hvd.add_process_set([1, 2])
    if RANK in (1, 2):
        assert hvd.allreduce(torch.tensor(RANK), op=hvd.Sum, process_set=some) == 3
        assert some.rank() == RANK - 1 and some.size() == 2
    assert hvd.remove_process_set(some) and some.size() is None
    for i in range(RANK):  # batches that the others do not have
        hvd.allreduce(own, name=f"batch{i}", op=hvd.Sum)
    got["last"] = hvd.join()
    leaf = own.clone().requires_grad_()
    hvd.barrier()
    (hvd.allgather(leaf, name="leaf")[2 * size:].sum() * (RANK + 1)).backward()
    got["gradient"] = leaf.grad.tolist()
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [3, 3]
    return got


def wrong(_):
    """What is refused at once, and what on all ranks, by name."""
    hvd.init()
    got = [workers.refused(ValueError, work) for work in (
        lambda: hvd.alltoall(torch.zeros(4), splits=[3, 3]),
        lambda: hvd.alltoall(torch.zeros(3)),
        lambda: hvd.allreduce(torch.zeros(4, 4).t()),
        lambda: hvd.allreduce(torch.zeros(2), op=17),
        lambda: hvd.allgather(torch.tensor(1)),
        lambda: hvd.ProcessSet(["a"]))]
    alone = hvd.add_process_set([1])
    if RANK == 0:
        got.append(workers.refused(ValueError, lambda: hvd.barrier(alone)))
    for name, work in (
            ("shape", lambda: hvd.allreduce(torch.zeros(2 + RANK), name="shape")),
            ("type", lambda: hvd.allreduce(torch.zeros(2).to(
                (torch.float32, torch.int32)[RANK]), name="type")),
            ("op", lambda: hvd.allreduce(torch.zeros(2), name="op",
                                         op=(hvd.Sum, hvd.Min)[RANK])),
            ("root", lambda: hvd.broadcast(torch.zeros(2), RANK, name="root"))):
        text = workers.refused(hvd.HorovodInternalError, work)
        assert f".{name}" in text, text
        got.append(text)
    assert hvd.allreduce(torch.tensor([float("nan"), 1])).isnan().tolist() == [True, False]
    handle = hvd.allreduce_async(torch.ones(2))
    hvd.synchronize(handle)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert hvd.synchronize(handle) is None
    got.append(str(said[0].message))
    hvd.barrier()
    hvd.shutdown()
    got.append(workers.refused(hvd.HorovodInternalError, lambda: hvd.barrier()))
    got.append(workers.refused(ValueError, hvd.rank))
    return got


def lacks(_):
    """A tensor that the other rank never submits."""
    hvd.init()
    return workers.refused(hvd.HorovodInternalError,
                           lambda: hvd.allreduce(torch.ones(2), name=f"only_on_{RANK}"))


def dies(_):
    """Rank 1, while rank 0 waits for it."""
    hvd.init()
    hvd.barrier()
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        hvd.allreduce(torch.ones(2), name="left_alone")
    except hvd.HorovodInternalError as why:
        return [str(why), why.exit_code, list(why.dead)]
    return None


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.ReLU(),
                               torch.nn.Linear(40, 4))


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(8, 20, generator=generator)
    return x, x[:, :4].relu()


def trained(ways, net, optimizer, steps=5):
    """Weights after steps by `ways` of this rank; of None by both ranks' batches."""
    for step in range(steps):
        optimizer.zero_grad()
        for rank in [RANK] if ways is not None else [0, 1]:
            x, y = batch(rank, step)
            loss = ((net(x) - y) ** 2).mean()
            (loss if ways is not None else loss / 2).backward()
        if ways == "skip":
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def optimizers(_):
    """Each way of exchanging gradients makes the steps of one process with both batches."""
    hvd.init()
    net = network()
    alone = trained(None, net, torch.optim.SGD(net.parameters(), lr=.05, momentum=.9))
    errors = {}
    codec = hvd.Compression.codec("int2", rules="2.weight=int8")
    for name, options in (
            ("plain", {}), ("predivide", {"gradient_predivide_factor": 2.}),
            ("groups", {"groups": 2}), ("fp16", {"compression": hvd.Compression.fp16}),
            ("bf16", {"compression": hvd.Compression.bf16}), ("skip", {}),
            ("codec", {"compression": codec}),):
        net = network(RANK)
        hvd.broadcast_parameters(dict(network().state_dict()), 0)
        net.load_state_dict(hvd.broadcast_object(net.state_dict(), 0))
        inner = torch.optim.SGD(net.parameters(), lr=.05, momentum=.9)
        optimizer = hvd.DistributedOptimizer(inner, net.named_parameters(), **options)
        assert isinstance(optimizer, torch.optim.SGD)
        weights = trained(name, net, optimizer)
        both = hvd.allgather(weights.reshape(1, -1))
        assert torch.equal(both[0], both[1]), name
        errors[name] = float((weights - alone).norm() / alone.norm())
        report = optimizer.compression_report()
    codecs = {each["name"]: each["codec"] for each in report["decisions"]}
    second = workers.refused(telegrad.Unsupported, lambda: hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=1), compression="int4"))
    joined = hvd.join()  # beside a codec, too
    net = network()
    passes = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=.1),
                                      backward_passes_per_step=2)
    for _ in range(2):
        net(batch(RANK, 0)[0]).sum().backward()
    passes.step()
    net(batch(RANK, 0)[0]).sum().backward()
    net(batch(RANK, 0)[0]).sum().backward()
    early = workers.refused(AssertionError, passes.zero_grad)
    passes.step()
    table = torch.nn.Embedding(6, 2, sparse=True)
    torch.nn.init.zeros_(table.weight)
    rows = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1), op=hvd.Sum)
    table(torch.tensor([RANK, 5])).sum().backward()
    rows.step()
    model, state = network(RANK), torch.optim.Adam
    optimizer = state(model.parameters(), lr=.1 + RANK)
    hvd.broadcast_optimizer_state(optimizer, 0)
    rate = optimizer.param_groups[0]["lr"]
    hvd.shutdown()
    hvd.init()
    net = network()  # whose mean of squares is divided by in front of the codec
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(net.parameters(), lr=.01),
                                         net.named_parameters(), compression="int2")
    weights = trained("codec", net, optimizer)
    both = hvd.allgather(weights.reshape(1, -1))
    assert torch.equal(both[0], both[1])
    (net(batch(RANK, 0)[0]) * float("nan")).sum().backward()
    infinite = workers.refused(hvd.HorovodInternalError, optimizer.step)
    return {"errors": errors, "codecs": codecs, "second": second, "joined": joined,
            "infinite": infinite, "early": early, "rows": table.weight.detach()[:, 0].tolist(),
            "rate": rate}


def normalizes(_):
    """The batch of both ranks, in two halves."""
    hvd.init()
    whole = torch.randn(6, 3, 5, generator=torch.Generator().manual_seed(3)) + 100
    theirs, ours = torch.nn.BatchNorm1d(3), hvd.SyncBatchNorm(3)
    full, half = whole.clone().requires_grad_(), whole[3 * RANK:3 * RANK + 3].clone()
    half.requires_grad_()
    (theirs(full) ** 3).sum().backward()
    (ours(half) ** 3).sum().backward()
    assert torch.allclose(ours.running_var, theirs.running_var, 1e-4)
    assert torch.allclose(half.grad, full.grad[3 * RANK:3 * RANK + 3], 1e-3, 1e-3)
    state = hvd.elastic.TorchState(theirs, epoch=RANK)
    state.sync()
    assert state.epoch == 0
    state.epoch = 7
    state.restore()
    assert state.epoch == 0
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    first = sampler.get_indices(0, 2)
    sampler.record_batch(0, 2)
    sampler.reset()
    return [first, list(sampler)]


# ---- the tests ----

class Horovod(unittest.TestCase):
    def results(self, function, num=2, **environment):
        return workers.Ranks(FILE, function.__name__, num, **environment).results()

    def test_operations_of_three_ranks(self):
        ranks = self.results(values, 3)
        for rank, got in enumerate(ranks):
            self.assertEqual(got["where"], [rank, 3, 0, 1])
            self.assertEqual(got["rows"], [[1, 1], [2, 2], [2, 2]])
            self.assertEqual(got["objects"], [[{"rank": i} for i in range(3)], [1]])
            self.assertEqual(got["last"], ranks[0]["last"])
            # The mean of ranks' factors 1, 2, 3 for the rows of rank 2.
            self.assertEqual(got["gradient"], [[2.0 * (rank == 2)] * 2] * 3)
        self.assertEqual([got["scattered"] for got in ranks], [[0, 6], [12], [18]])
        self.assertEqual([got["exchanged"] for got in ranks],
                         [[[0, 10, 20], [1, 1, 1]], [[1, 2, 11, 12, 21, 22], [2, 2, 2]],
                          [[3, 4, 5, 13, 14, 15, 23, 24, 25], [3, 3, 3]]])

    def test_what_is_wrong_is_named_and_hangs_nobody(self):
        first, second = self.results(wrong)
        self.assertIn("splits=[3, 3] of a tensor of 4 rows", first[0])
        self.assertIn("rank 0 is not in ProcessSet", first[6])
        self.assertEqual(len(first), len(second) + 1)
        self.assertIn("was synchronized before", first[-3])
        self.assertIn("has been shut down", first[-2])

    def test_a_tensor_that_a_rank_lacks_ends_with_its_name(self):
        texts = self.results(lacks, HOROVOD_STALL_CHECK_TIME_SECONDS="0.3",
                             HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="1")
        for rank, text in enumerate(texts):
            self.assertIn(f"allreduce.only_on_{rank}", text)
            self.assertRegex(text, f"ranks? {rank} submitted it, ranks? {1 - rank} did not")

    def test_a_rank_that_dies_is_named(self):
        (_, out, err), (code, _, _) = workers.Ranks(FILE, "dies", 2).wait()
        self.assertEqual(code, -signal.SIGKILL)
        text, exit_code, dead = json.loads((out.strip().splitlines() or [err])[-1])
        self.assertEqual(exit_code, 20, text)
        self.assertRegex(" ".join(dead), "(worker|server)/1@")

    def test_optimizers_step_as_one_process_does(self):
        for got in self.results(optimizers):
            for name, most in (("plain", 1e-6), ("predivide", 1e-6), ("groups", 1e-6),
                               ("skip", 1e-6), ("fp16", 1e-3), ("bf16", 1e-2), ("codec", .2)):
                self.assertLess(got["errors"][name], most, name)
            self.assertEqual(got["codecs"], {"0.weight": "int2", "2.weight": "int8"})
            self.assertIn("second DistributedOptimizer with a codec", got["second"])
            self.assertIn(got["joined"], (0, 1))
            self.assertIn("zero_grad", got["early"])
            self.assertRegex(got["infinite"], r"gradient of [02].(weight|bias) holds \d+ NaN")
            self.assertEqual(got["rows"], [-1, -1, 0, 0, 0, -2])
            self.assertEqual(got["rate"], .1)

    def test_batch_norm_and_elastic_state(self):
        self.assertEqual(self.results(normalizes),
                         [[[0, 2], [4, 6, 8]], [[1, 3], [5, 7, 9]]])

    def test_a_script_of_horovods_runs_unchanged(self):
        environment = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(workers.free_port()), OMP_NUM_THREADS="1")
        (_, out, err), _ = workers.run_all(
            [["-m", "telegrad.run", "--horovod", "--gc-type", "int2", EXAMPLE, "--steps",
              "4"]] * 2, environment)
        self.assertRegex(out, r"2 ranks, 4 steps, loss \d+\.\d+")
        self.assertIn("horovod, horovod.torch and horovod.mxnet are telegrad.horovod", err)
        self.assertRegex(err, r"telegrad: int2 for 2 tensors of 79,400 elements \(type int2\); "
                         r"rank 0 pushed [\d.]+ MB as [\d.]+ \(15\.\d\dx\), pulled")

    def test_alone_without_a_launcher(self):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("RANK", "WORLD_SIZE")}
        found = subprocess.run(
            [sys.executable, "-B", "-c", "import torch, telegrad.horovod.torch as hvd; "
             "hvd.init(); print(hvd.size(), hvd.allreduce(torch.ones(2)).tolist())"],
            env={**environment, "HOROVOD_CYCLE_TIME": "2", "HOROVOD_ELASTIC_TIMEOUT": "600",
                 "HOROVOD_CPU_OPERATIONS": "gloo"}, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(found.stdout, "1 [1.0, 1.0]\n", found.stderr)
        self.assertIn(" HOROVOD_CPU_OPERATIONS, HOROVOD_ELASTIC_TIMEOUT: without effect",
                      found.stderr)


if __name__ == "__main__":
    workers.main({each.__name__: each for each in (
        values, wrong, lacks, dies, optimizers, normalizes)})
