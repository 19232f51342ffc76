#!/usr/bin/env python3
"""The backend of torch.distributed: collectives beside gloo's, DDP, codecs, who dies."""
import datetime
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import workers

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
except ImportError as why:
    workers.skip(f"PyTorch is not there: {why}")

import telegrad
import telegrad.torch
from telegrad.torch import _process_group
from telegrad.torch._ordered import Order

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
NEW = not torch.__version__.startswith("1.")
into = dist.all_gather_into_tensor if NEW else dist._all_gather_base
scatter_from = dist.reduce_scatter_tensor if NEW else dist._reduce_scatter_base


def own(*shape, dtype=torch.float32, of=None):
    """Small integers of that rank."""
    rank = dist.get_rank() if of is None else of
    return ((torch.arange(torch.Size(shape).numel()) + 7 * rank) % 5 + rank + 1).to(
        dtype).reshape(shape)


def reduced(op, dtype):
    def run(group):
        tensor = own(3, 5, dtype=dtype)
        dist.all_reduce(tensor, op, group=group)
        other = own(4, 6, dtype=dtype).t()  # not in order in memory
        dist.all_reduce(other, op, group=group)
        return [tensor, other]
    return run


def reduce_to(group):
    tensor = own(5)
    dist.reduce(tensor, 1, group=group)
    return [tensor] if RANK == 1 else []


def broadcast(group):
    tensors = [own(4, dtype=each) for each in (torch.float32, torch.int64, torch.uint8)]
    for tensor in tensors:
        dist.broadcast(tensor, 2, group=group)
    return tensors


def all_gather(group):
    outs = [torch.empty(2, 2) for _ in range(3)]
    dist.all_gather(outs, own(2, 2), group=group)
    return outs


def gather(group):
    outs = [torch.empty(3, dtype=torch.int8) for _ in range(3)] if RANK == 1 else None
    dist.gather(own(3, dtype=torch.int8), outs, 1, group=group)
    return outs or []


def scatter(group):
    out = torch.empty(3)
    dist.scatter(out, [own(3) + i for i in range(3)] if RANK == 2 else None, 2, group=group)
    return [out]


def objects(group):
    """A dictionary by all_gather_object, which has unequal sizes."""
    outs = [None] * 3
    dist.all_gather_object(outs, {"rank": "x" * RANK}, group=group)
    return [torch.tensor([len(each["rank"]) for each in outs])]


def sparse(group):
    tensor = torch.sparse_coo_tensor([[RANK, 1]], own(2, 3), (4, 3))
    dist.all_reduce(tensor, group=group)
    return [tensor.to_dense()]


LIKE_GLOO = {
    **{f"{op} {dtype}": reduced(getattr(dist.ReduceOp, op), dtype)
       for op in ("SUM", "MIN", "MAX", "PRODUCT")
       for dtype in (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64,
                     torch.uint8, torch.int8)},
    **{f"{op} int": reduced(getattr(dist.ReduceOp, op), torch.int64)
       for op in ("BAND", "BOR", "BXOR")},
    **{each.__name__: each for each in (reduce_to, broadcast, all_gather, gather, scatter,
                                        objects, sparse)}}


# ---- what a rank does ----

def collectives(_):
    """What gloo has is compared with gloo, the rest with what it must be."""
    dist.init_process_group("telegrad")
    assert dist.get_backend() == "telegrad"
    in_order()
    gloo = dist.new_group(backend="gloo")
    for name, run in LIKE_GLOO.items():
        for want, got in zip(run(gloo), run(None)):
            assert torch.equal(want, got), (name, want, got)
    total = sum(own(6, of=rank) for rank in range(3))
    mean = own(6)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert torch.allclose(mean, total / 3)
    wave = own(4, dtype=torch.complex64) * 1j
    dist.all_reduce(wave)
    assert torch.equal(wave, sum(own(4, of=rank) for rank in range(3)) * 1j)
    short = own(4, dtype=torch.int16)
    dist.all_reduce(short)
    assert torch.equal(short, sum(own(4, dtype=torch.int16, of=rank) for rank in range(3)))
    flags = torch.tensor([RANK == 1, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MIN)
    assert flags.tolist() == [False, True, False]
    out = torch.empty(3, 2, 2)
    into(out, own(2, 2))
    assert torch.equal(out, torch.stack([own(2, 2, of=rank) for rank in range(3)]))
    part = torch.empty(2)
    scatter_from(part, own(6))
    assert torch.equal(part, total[2 * RANK:2 * RANK + 2])
    sizes = [1, 2, 3]
    part = torch.empty(sizes[RANK])
    dist.reduce_scatter(part, list(own(6).split(sizes)))
    assert torch.equal(part, total.split(sizes)[RANK])
    outs = [torch.empty(size) for size in sizes]
    dist.all_gather(outs, own(sizes[RANK]))
    assert all(torch.equal(each, own(each.numel(), of=i)) for i, each in enumerate(outs))
    outs = [torch.empty(RANK + 1) for _ in range(3)]
    dist.all_to_all(outs, [own(each + 1) for each in range(3)])
    assert all(torch.equal(each, own(RANK + 1, of=i)) for i, each in enumerate(outs))
    # Rank r gives i rows to rank i.
    out = torch.empty(3 * RANK, 2)
    dist.all_to_all_single(out, own(3, 2), [RANK] * 3, [0, 1, 2])
    want = [own(3, 2, of=i).split([0, 1, 2])[RANK] for i in range(3)]
    assert torch.equal(out, torch.cat(want))
    several = [own(2), own(3)]
    dist.all_reduce_coalesced(several)
    assert torch.equal(several[1], sum(own(3, of=rank) for rank in range(3)))
    return messages() + refusals()


def in_order():
    """Operations of the group's own thread and those that need Python take turns."""
    def in_python():
        return [each.name for each in threading.enumerate() if each.name.startswith("telegrad-")]

    tensor, gathered, out = own(1000), [torch.empty(1000) for _ in range(3)], torch.empty(3000)
    works = [dist.all_reduce(tensor, async_op=True), dist.broadcast(tensor[:9], 1, async_op=True)]
    dist.barrier()
    assert all(each.is_completed() and each.is_success() for each in works)
    assert not in_python(), in_python()
    total = sum(own(1000, of=rank) for rank in range(3))
    for _ in range(5):
        tensor.copy_(own(1000))
        works = [dist.all_reduce(tensor, async_op=True),
                 dist.all_gather(gathered, tensor, async_op=True),
                 dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True),
                 dist.all_reduce(gathered[1], async_op=True), into(out, tensor, async_op=True),
                 dist.all_reduce(tensor, async_op=True)]
        futures = [works[at].get_future() for at in (5, 0)]
        works[-1].wait()
        assert all(each.is_completed() for each in works)
        assert torch.equal(gathered[1], 3 * total) and torch.equal(out, torch.cat([total] * 3))
        assert all(each.wait()[0] is tensor for each in futures)
        assert torch.equal(tensor, 3 * total)
    assert in_python(), "those that need Python have a thread"


def messages():
    """Sends and receives beside collectives, in any order, and in a part of the ranks."""
    got, half = torch.empty(3), torch.empty(2)
    receives = [dist.irecv(half, (RANK - 1) % 3, tag=2), dist.irecv(got, (RANK - 1) % 3, tag=1)]
    total = torch.ones(1)
    work = dist.all_reduce(total, async_op=True)
    sends = [dist.isend(own(3), (RANK + 1) % 3, tag=1),
             dist.isend(own(2), (RANK + 1) % 3, tag=2)]
    for each in [*receives, *sends, work]:
        each.wait()
    assert torch.equal(got, own(3, of=(RANK - 1) % 3)) and torch.equal(half, got[:2])
    assert total.item() == 3 and work.is_completed() and work.is_success()
    assert torch.equal(work.get_future().value()[0], total)
    if RANK == 0:
        senders = sorted(dist.recv(got) for _ in range(2))
        assert senders == [1, 2], senders
    else:
        dist.send(own(3), 0)
    two = dist.new_group([1, 2])
    if RANK > 0:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=two)
        dist.barrier(group=two)
        assert tensor.item() == 2 and two.size() == 2 and two.rank() == RANK - 1
    return []


def refusals():
    group = dist.distributed_c10d._get_default_group()
    group.monitored_barrier(datetime.timedelta(seconds=30))
    short, found = datetime.timedelta(seconds=0.2), []
    if RANK != 1:
        found.append(workers.refused(telegrad.Timeout, lambda: group.monitored_barrier(
            datetime.timedelta(seconds=20) if RANK else short)))
    dist.barrier()
    for wrong in (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int64), dist.ReduceOp.AVG),
                  lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3), [3, 1, 1],
                                                 [1, 1, 1])):
        found.append(workers.refused(telegrad.UsageError, wrong))
    dist.barrier()
    dist.destroy_process_group()
    return found


def trains(_):
    """Weights after eight steps of DDP by the backend, by gloo, and with a codec; whose
    gradients are exact sums."""
    dist.init_process_group("telegrad")
    options = telegrad.torch.BackendOptions("int4", min_bytes=1024)
    coded = dist.new_group(pg_options=options)
    found = []
    for group in (None, dist.new_group(backend="gloo"), coded):
        torch.manual_seed(RANK)  # DDP sends rank 0's parameters
        net = torch.nn.Linear(32, 16)
        model = DDP(net, process_group=group)
        for step in range(8):
            model.zero_grad()
            model(own(4, 32, of=RANK + step)).sum().backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 2 ** -9 * parameter.grad
        found.append(float(sum(each.double().sum() for each in net.parameters())))
    stats = coded._ordered.stats()
    dist.destroy_process_group()
    return found + [stats["push_raw_bytes"] / stats["push_wire_bytes"]]


def dies(_):
    dist.init_process_group("telegrad", timeout=datetime.timedelta(seconds=40))
    tensor = torch.ones(1000)
    try:
        for step in range(1000):
            dist.all_reduce(tensor)
            if RANK == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
    except telegrad.Error as why:
        print("dead:", *why.dead, flush=True)
        raise


def waits(_):
    dist.init_process_group("telegrad")
    print("ready", flush=True)
    if RANK == 1:
        dist.all_reduce(torch.ones(1))
    else:
        dist.recv(torch.ones(1), 1)


def ends_at_once(_):
    """A future of the backend is being set when the interpreter ends."""
    dist.init_process_group("telegrad")
    sys.ends_slowly = workers.EndsSlowly()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    begun = threading.Event()
    work.get_future().then(lambda _, sleep=time.sleep: (begun.set(), sleep(0.5)))
    begun.wait(30)


def ends_within_torch(_):
    """The thread of an operation is within a product of matrices when the interpreter ends."""
    dist.init_process_group("telegrad")
    sys.ends_slowly = workers.EndsSlowly()
    large, begun = torch.ones(1000, 1000), threading.Event()

    def multiplies():
        begun.set()
        for _ in range(10):
            torch.mm(large, large)

    group = dist.distributed_c10d._get_default_group()
    group._collectives.multiplies = multiplies
    group._put("multiplies", [])
    begun.wait(30)


def differs(_):
    os.environ["TELEGRAD_BACKEND_CODEC"] = "int4" if RANK else "2bit"
    return workers.refused(telegrad.Mismatch, lambda: dist.init_process_group("telegrad"))


# ---- the tests ----

class C10d(unittest.TestCase):
    def ranks(self, function, num=2, argument=None):
        return workers.Ranks(FILE, function.__name__, num, argument)

    def test_collectives_are_gloos(self):
        zero, one, two = self.ranks(collectives, 3).results()
        self.assertIn("Rank 1 failed to pass monitoredBarrier", zero[0])
        self.assertIn("Rank 2 successfully reached monitoredBarrier", two[0])
        for text, pattern in zip(one, ("AVG of torch.int64", r"3 rows by \[3, 1, 1\]")):
            self.assertRegex(text, pattern)

    def test_ddp_has_gloos_weights_and_by_a_codec_sends_less(self):
        one, other = self.ranks(trains).results()
        self.assertEqual(one, other)
        ours, gloos, coded, ratio = one
        self.assertEqual(ours, gloos)
        self.assertAlmostEqual(coded, gloos, delta=0.05 * abs(gloos))
        self.assertGreater(ratio, 6)

    def test_who_dies_is_named(self):
        (code, out, err), *_ = self.ranks(dies).wait()
        self.assertEqual(code, 20, err)
        self.assertRegex(out, "dead: .*worker/1@")

    def test_ctrl_c_ends_all(self):
        ranks = self.ranks(waits)
        for rank in range(2):
            self.assertEqual(ranks.line(rank), "ready")
        ranks.kill(1, signal.SIGINT)
        (code, _, other), (_, _, err) = ranks.wait()
        self.assertIn("KeyboardInterrupt", err)
        self.assertEqual(code, 33, other)
        self.assertIn("worker 1: Ctrl-C", other)

    def test_a_future_that_is_set_at_the_end_aborts_nobody(self):
        for code, _, err in self.ranks(ends_at_once).wait():
            self.assertEqual(code, 0, err)

    def test_an_operation_within_torch_at_the_end_aborts_nobody(self):
        for code, _, err in self.ranks(ends_within_torch).wait():
            self.assertEqual(code, 0, err)

    def test_other_options_are_named(self):
        for text in self.ranks(differs).results():
            self.assertRegex(text, "codec: rank 0 has 2bit, rank 1 has int4")
        with self.assertRaisesRegex(telegrad.UsageError, "int99"):
            telegrad.torch.BackendOptions("int99")
        with self.assertRaisesRegex(telegrad.UsageError, "no argument .secret"):
            telegrad.torch.BackendOptions(secret="x")

    def test_it_names_the_gpu_that_was_chosen(self):
        def named(current, local_rank="0", count=4, **options):
            told = {}

            def job(*_, **settings):
                told.update(settings)
                raise telegrad.UsageError("that is all")
            with mock.patch.multiple(torch.cuda, is_initialized=lambda: current is not None,
                                     current_device=lambda: current,
                                     device_count=lambda: count), \
                    mock.patch.dict(os.environ, LOCAL_RANK=local_rank), \
                    mock.patch.object(_process_group, "job_of_store", job), \
                    self.assertRaisesRegex(telegrad.UsageError, "that is all"):
                _process_group.ProcessGroupTelegrad(None, 0, 1, datetime.timedelta(seconds=1),
                                                    telegrad.torch.BackendOptions(**options))
            return told["gpu"]

        self.assertEqual([named(None), named(0), named(3, "3"), named(3, "3", gpu=1)],
                         [None, 0, 3, 1])
        self.assertIsNone(named(0, "3"))  # that of who has not chosen
        self.assertEqual(named(0, "3", count=1), 0)

    def test_torch_knows_it_and_nothing_else_is_loaded(self):
        code = ("import sys, telegrad.torch, torch.distributed as dist; "
                "assert dist.Backend.TELEGRAD; "
                "assert 'telegrad.torch._process_group' not in sys.modules")
        subprocess.run([sys.executable, "-B", "-c", code], check=True, timeout=60)

    def test_a_call_is_known_by_its_place_where_calls_repeat(self):
        order, step = Order(), [5, 5, 7, 5]
        found = [order.next(size) for size in step * 2]
        self.assertEqual(found, [None] * 5 + [((5,), 0)] + [None] * 2)  # not known better
        for size, place in zip(step * 2, [*range(4)] * 2):
            self.assertEqual(order.next(size), ((5, 5, 7, 5), place))
        self.assertIsNone(order.next(9))


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        collectives, trains, dies, waits, ends_at_once, ends_within_torch, differs)})
