#!/usr/bin/env python3
"""Ranks of a host that sum first (tier1): on two emulated hosts, and told so on one."""
import hashlib
import io
import math
import os
import sys
import time
import unittest

import workers

try:
    import numpy as np
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.kvstore
import telegrad.torch
from torch.nn.parallel import DistributedDataParallel as DDP

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "testing"))
import two_hosts  # noqa: E402

RANK = int(os.environ.get("RANK", -1))
WORLD = int(os.environ.get("WORLD_SIZE", 0))
FILE = os.path.abspath(__file__)
LOCAL = "127.0.0.1 localhost\n"
# topk and int2 look at a chunk, which goes by the number of servers.
CODECS = [{"gc_type": "2bit"}, {"gc_type": "2bit", "reply": "reencode"},
          {"gc_type": "topk:0.05", "servers": 1}, {"gc_type": "none"},
          {"gc_type": "2bit", "momentum": "nesterov", "momentum_rate": .5},
          {"gc_type": "int2", "momentum": "heavyball", "momentum_rate": .5, "servers": 1}]


class Weights(torch.nn.Module):
    """Its gradients are its inputs."""

    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.zeros(400, 400))
        self.bias = torch.nn.Parameter(torch.zeros(7))

    def forward(self, matrix, bias):
        return (self.matrix * matrix).sum() + (self.bias * bias).sum()


def own_inputs(host, process, step):
    generator = torch.Generator().manual_seed(1000 * step + 10 * host + process)
    return [torch.randint(-8, 9, size, generator=generator) / 4.0
            for size in ((400, 400), (7,))]


def inputs(per_host, step):
    """Those of a host's ranks sum to the same, however many they are."""
    host, process = divmod(RANK, per_host)
    mine = own_inputs(host, process, step)
    for other in range(1, per_host if process == 0 else 0):
        mine = [a - b for a, b in zip(mine, own_inputs(host, other, step))]
    return mine


def start():
    if os.environ["MASTER_ADDR"] != "127.0.0.1":
        os.environ["GLOO_SOCKET_IFNAME"] = f"v{RANK // (WORLD // 2)}"
    dist.init_process_group("gloo")


def made(options, **more):
    model = DDP(Weights())
    return model, telegrad.torch.compress(model, **{"gc_type": "2bit", **options, **more})


def step_of(model, given):
    """The sums over all ranks."""
    model.zero_grad()
    model(*given).backward()
    return [parameter.grad * WORLD for parameter in model.parameters()]


def digest(tensors):
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in tensors)).hexdigest()


# ---- what a rank does ----

def bits_with(per_host):
    start()
    found = []
    for options in CODECS:
        model, state = made(options, verbose=options == CODECS[0])
        sums = [digest(step_of(model, inputs(per_host, step))) for step in range(4)]
        report = state.report()
        state.close()
        found.append([sums, report["push_wire_bytes"], report["pull_wire_bytes"],
                      report["host_bytes"], len(report["decisions"]),
                      report["plan"]["pushers"]])
    return found


def endless(options):
    start()
    model, _ = made(options)
    print("begun", flush=True)
    try:
        while True:
            step_of(model, inputs(1, 0))
            time.sleep(.01)
    except telegrad.PeerDied as why:
        print(why, flush=True)
        raise


def nonfinite_with(options):
    """Of each step whether all gradients are NaN, or none."""
    start()
    model, _ = made(options, tier1="on")
    found = []
    for step in range(5):
        given = inputs(1, step)
        if (RANK, step) in ((1, 1), (2, 3)):  # neither pushes
            given[0][3, 4] = math.nan if step == 1 else math.inf
        where = [torch.isnan(each) for each in step_of(model, given)]
        found.append(bool(all(each.all() for each in where)))
        assert found[-1] or not any(each.any() for each in where), where
    return found


def chosen_with(_):
    start()
    model, state = made({}, gc_type="auto", allow="fp16,2bit", tier1="on")
    for step in range(30):
        step_of(model, inputs(1, step))
    auto = state.report()["auto"]
    state.close()
    return auto


def resumed_with(_):
    """Bits of six steps; of three, which a new job goes on from; what others say."""
    start()
    model, state = made({}, tier1="on")
    whole = []
    for step in range(6):
        whole.append(digest(step_of(model, inputs(1, step))))
        if step == 2:
            file = io.BytesIO()
            torch.save(state.state_dict(), file)
    state.close()
    saved = torch.load(io.BytesIO(file.getvalue()))
    model, state = made({}, tier1="on")
    state.load_state_dict(saved)
    rest = [digest(step_of(model, inputs(1, step))) for step in range(3, 6)]
    state.close()
    model, state = made({}, tier1="off")
    why = workers.refused(telegrad.UsageError, lambda: state.load_state_dict(saved))
    state.load_state_dict([saved], reshard="sum")
    zero = [torch.zeros(400, 400), torch.zeros(7)]
    carried = float(sum(step_of(model, zero)[0].abs().sum() for _ in range(3)))
    state.close()
    return [whole[3:], rest, why, carried, [len(each) for each in saved["codecs"].values()]]


def refused_with(_):
    start()
    differ = workers.refused(telegrad.Mismatch, lambda: made(
        {}, tier1="on" if RANK == 0 else "off"))
    wrong = workers.refused(telegrad.UsageError, lambda: made({}, tier1="2"))
    asynchronous = workers.refused(telegrad.UsageError, lambda: telegrad.kvstore.create(
        "dist_async", tier1="on"))
    on_gpus = workers.refused(telegrad.Mismatch, lambda: made({}, tier1="on", gdr="auto"))
    return [differ, wrong, asynchronous, on_gpus]


def others_with(_):
    """The weights of DiLoCo, and sums of a KVStore of two types."""
    start()
    torch.manual_seed(1 + RANK)
    model = torch.nn.Linear(30, 40)
    diloco = telegrad.torch.DiLoCo(model, torch.optim.SGD(model.parameters(), lr=.1),
                                   sync_every=2, tier1="on")
    for _ in range(4):
        model(torch.randn(3, 30)).square().sum().backward()
        diloco.step()
    diloco.close()
    sums = []
    for name in ("dist_sync", "allreduce"):
        store = telegrad.kvstore.create(name, tier1="on")
        store.init("w", np.zeros(5, np.float32))
        out = np.zeros(5, np.float32)
        store.push("w", np.full(5, 1 + store.rank, np.float32))
        store.pull("w", out)
        sums.append(out.tolist())
        store.close()
    return [digest([p.detach() for p in model.parameters()]), sums]


def closes_before_others(_):
    start()
    model, state = made({}, tier1="on", operation_timeout=3)
    step_of(model, inputs(1, 0))
    begin = time.monotonic()
    if RANK == 0:
        try:
            state.close()
        except telegrad.Error:
            pass
    took = time.monotonic() - begin
    dist.barrier()
    return took


FUNCTIONS = {each.__name__: each for each in (
    bits_with, endless, nonfinite_with, chosen_with, resumed_with, refused_with, others_with,
    closes_before_others)}


class OnTwoHosts(unittest.TestCase):
    def setUp(self):
        if two_hosts.why_not():
            self.skipTest(two_hosts.why_not())
        self.both = two_hosts.TwoHosts((LOCAL, LOCAL))
        self.addCleanup(self.both.close)

    def ranks(self, function, num, argument):
        return workers.Ranks(
            FILE, function, num, argument, MASTER_ADDR="10.77.0.1",
            on=lambda rank, command: self.both.on(rank // (num // 2), command))

    def test_bits_and_bytes_are_those_of_one_rank_a_host(self):
        ranks = self.ranks("bits_with", 4, 2)
        ended = ranks.wait()
        for code, out, err in ended:
            self.assertEqual(code, 0, out + err)
        self.assertRegex(
            ended[0][2], r"hosts sum first: 4 workers on 2 hosts; one of each host pushes; "
                         r"0\.\d+ MB a step leave this host\n")
        self.assertNotIn("hosts sum first", ended[1][2] + ended[2][2] + ended[3][2])
        four = [workers.json.loads(out.splitlines()[-1]) for _, out, _ in ended]
        two = self.ranks("bits_with", 2, 1).results()
        for i, options in enumerate(CODECS):
            for rank in range(4):
                self.assertEqual(four[rank][i][0], two[0][i][0], (rank, options))
                self.assertEqual(four[rank][i][5], [0, 0, 2, 2])
                self.assertEqual(four[rank][i][4], 2)
                self.assertEqual(four[rank][i][3] is None, rank % 2 > 0)
            for field in (1, 2):  # bytes of pushes and of replies
                once = sum(each[i][field] for each in two)
                self.assertGreater(once, 0)
                self.assertLess(sum(each[i][field] for each in four), 1.02 * once, options)

    def test_a_dead_rank_ends_all_with_its_name(self):
        ranks = self.ranks("endless", 4, {})
        for rank in range(4):
            self.assertEqual(ranks.line(rank), "begun")
        ranks.kill(3)
        begin = time.monotonic()
        for rank, (code, out, _) in list(enumerate(ranks.wait()))[:3]:
            self.assertEqual(code, telegrad.PeerDied("").exit_code, (rank, out))
            self.assertIn("worker/3", out)
        self.assertLess(time.monotonic() - begin, 15)


class OnOneHost(unittest.TestCase):
    def test_nonfinite_gradients_reach_all_ranks(self):
        for options in ({}, {"momentum": "nesterov", "momentum_rate": .9}):
            for found in workers.Ranks(FILE, "nonfinite_with", 3, options).results():
                self.assertEqual(found, [False, True, False, True, False], options)

    def test_all_ranks_know_what_auto_chose(self):
        first, *others = workers.Ranks(FILE, "chosen_with", 2).results()
        self.assertEqual(others, [first])
        self.assertGreater(len(first), 0)

    def test_a_state_goes_on_with_the_same_bits(self):
        for rank, (whole, rest, why, carried, sizes) in enumerate(
                workers.Ranks(FILE, "resumed_with", 2).results()):
            self.assertEqual(rest, whole)
            self.assertIn("(0, 2, 2, [0, 0])", why)
            self.assertIn("reshard='sum'", why)
            self.assertGreater(carried, 0)
            self.assertEqual(sum(sizes) > 0, rank == 0)

    def test_a_dead_rank_is_named(self):
        for lost in (0, 1):
            ranks = workers.Ranks(FILE, "endless", 3, {"tier1": "on"})
            for rank in range(3):
                self.assertEqual(ranks.line(rank), "begun")
            ranks.kill(lost)
            for rank, (code, out, err) in enumerate(ranks.wait()):
                if rank != lost:
                    self.assertNotEqual(code, 0)
                    if lost > 0:  # rank 0 has the scheduler
                        self.assertIn(f"worker/{lost}", out + err)

    def test_what_cannot_be_is_refused_by_name(self):
        for differ, wrong, asynchronous, on_gpus in workers.Ranks(
                FILE, "refused_with", 2).results():
            self.assertEqual(differ,
                             "tier1: rank 0 has on, rank 1 has off; give all the same")
            self.assertIn("tier1 '2': choose one of auto, off, on", wrong)
            self.assertIn("join with tier1 off", asynchronous)
            self.assertIn("tensors of worker/0 are on a GPU", on_gpus)

    def test_other_surfaces_sum_as_well(self):
        first, second = workers.Ranks(FILE, "others_with", 2).results()
        self.assertEqual(first, second)
        self.assertEqual(first[1], [[3.0] * 5] * 2)

    def test_closing_does_not_wait_for_ever(self):
        took, _ = workers.Ranks(FILE, "closes_before_others", 2).results()
        self.assertLess(took, 15)


if __name__ == "__main__":
    workers.main(FUNCTIONS)
