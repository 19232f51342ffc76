#!/usr/bin/env python3
"""Ranks of a host that sum first (tier1): on two emulated hosts, and told so on one."""
import contextlib
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
from telegrad.torch import _parts
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
PARTS = [{"gc_type": "2bit", "servers": 1}, {"gc_type": "2bit", "reply": "reencode"},
         *CODECS[2:5]]


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

def bits_with(argument):
    per_host, more, codecs = argument
    start()
    found = []
    for options in codecs:
        model, state = made(options, verbose=options == codecs[0], **more)
        sums = [digest(step_of(model, inputs(per_host, step))) for step in range(4)]
        report = state.report()
        state.close()
        found.append([sums, report["push_wire_bytes"], report["pull_wire_bytes"],
                      report["host_bytes"], len(report["decisions"]),
                      report["plan"]["pushers"]])
    return found


def local_steps_with(argument):
    """Weights, times the ranks, of changes that are exact."""
    per_host, more = argument
    start()
    found = []
    for options in ({"threshold": .5}, {"gc_type": "none"}, {"threshold": .5, "fragments": 2}):
        model = Weights()
        with torch.no_grad():
            model.bias.fill_(RANK)  # all begin with rank 0's
        diloco = telegrad.torch.DiLoCo(model, torch.optim.SGD(model.parameters(), lr=1.),
                                       sync_every=2, **options, **more)
        for step in range(6):
            model.zero_grad()
            model(*inputs(per_host, step)).backward()
            diloco.step()
            if step == 3:
                saved = diloco.state_dict()
                diloco.load_state_dict(saved)
        diloco.exchange()
        found.append([digest([each.detach() * WORLD for each in model.parameters()]),
                      diloco.report()["push_wire_bytes"], len(saved["parts"])])
        diloco.close()
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
    model, _ = made(options)
    found = []
    for step in range(5):
        given = inputs(1, step)
        if (RANK, step) in ((1, 1), (2, 3)):  # neither pushes
            given[0][3, 4] = math.nan if step == 1 else math.inf
        where = [torch.isnan(each) for each in step_of(model, given)]
        found.append(bool(all(each.all() for each in where)))
        assert found[-1] or not any(each.any() for each in where), where
    return found


def chosen_with(tier1):
    start()
    model, state = made({}, gc_type="auto", allow="fp16,2bit", tier1=tier1)
    for step in range(30):
        step_of(model, inputs(1, step))
    auto = state.report()["auto"]
    state.close()
    return auto


def resumed_with(tier1):
    """Bits of six steps; of three, which a new job goes on from; what others say."""
    start()
    model, state = made({}, tier1=tier1)
    whole = []
    for step in range(6):
        whole.append(digest(step_of(model, inputs(1, step))))
        if step == 2:
            file = io.BytesIO()
            torch.save(state.state_dict(), file)
    state.close()
    saved = torch.load(io.BytesIO(file.getvalue()))
    model, state = made({}, tier1=tier1)
    state.load_state_dict(saved)
    rest = [digest(step_of(model, inputs(1, step))) for step in range(3, 6)]
    state.close()
    model, state = made({}, tier1="off")
    why = workers.refused(telegrad.UsageError, lambda: state.load_state_dict(saved))
    state.load_state_dict([saved], reshard="sum")
    zero = [torch.zeros(400, 400), torch.zeros(7)]
    carried = float(sum(step_of(model, zero)[0].abs().sum() for _ in range(3)))
    back = state.state_dict()
    state.close()
    model, state = made({}, tier1=tier1)
    state.load_state_dict([back], reshard="sum")
    step_of(model, zero)
    assert len(state.state_dict()["parts"]) == (2 if tier1 == "group" else 0)
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
    by_group = [workers.refused(telegrad.UsageError, work) for work in (
        lambda: telegrad.kvstore.create("dist_sync", tier1="group"),
        lambda: telegrad.Job(tier1="group"))]
    elastic = workers.refused(telegrad.UsageError, lambda: made({}, tier1="group", elastic=True))
    return [differ, wrong, asynchronous, on_gpus, by_group, elastic]


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


class Several(torch.nn.Module):
    """Parameters that are cut and that are not, of several buckets."""

    def __init__(self, dtype):
        super().__init__()
        self.large = torch.nn.Parameter(torch.zeros(300, 500, dtype=dtype))
        self.small = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(each, dtype=dtype)) for each in ((7,), (1,), (40, 41)))
        self.image = torch.nn.Parameter(torch.zeros(8, 3, 5, 5, dtype=dtype).to(
            memory_format=torch.channels_last))
        self.last = torch.nn.Parameter(torch.zeros(700, 800, dtype=dtype))  # a bucket: 1 MB

    def forward(self, inputs):
        return sum((a * b).sum() for a, b in zip(self.parameters(), inputs))


def parts_with(_):
    """Of each type whether sums by parts are those of DDP, over an accumulation, too."""
    start()
    found = []
    for dtype in (torch.float32, torch.float16):  # gloo of torch 1.13 has no bfloat16 for DDP
        sums = []
        for compressed in (False, True):
            generator = torch.Generator().manual_seed(RANK)
            model = DDP(Several(dtype), bucket_cap_mb=.1)
            if compressed:
                state = telegrad.torch.compress(model, "none", tier1="group", verbose=False)
            for step in range(4):
                with model.no_sync() if step == 2 else contextlib.nullcontext():
                    model([torch.randint(-4, 5, p.shape, generator=generator).to(dtype)
                           for p in model.parameters()]).backward()
                if step != 2:
                    sums.append(digest([p.grad.float() for p in model.parameters()]))
                    model.zero_grad()
            if compressed:
                assert len(state._buckets) > 1
                assert set(state._residuals.save()["own"]) != set(state._residuals._sizes)
                state.close()
        found.append(sums[:3] == sums[3:])
    return found


def closes_before_others(tier1):
    start()
    model, state = made({}, tier1=tier1, operation_timeout=3)
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
    bits_with, parts_with, local_steps_with, endless, nonfinite_with, chosen_with, resumed_with, refused_with,
    others_with, closes_before_others)}


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
        ranks = self.ranks("bits_with", 4, [2, {}, CODECS])
        ended = ranks.wait()
        for code, out, err in ended:
            self.assertEqual(code, 0, out + err)
        self.assertRegex(
            ended[0][2], r"hosts sum first: 4 workers on 2 hosts; one of each host pushes; "
                         r"0\.\d+ MB a step leave this host\n")
        self.assertNotIn("hosts sum first", ended[1][2] + ended[2][2] + ended[3][2])
        four = [workers.json.loads(out.splitlines()[-1]) for _, out, _ in ended]
        two = self.ranks("bits_with", 2, [1, {}, CODECS]).results()
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

    def test_bits_and_bytes_of_parts_are_those_of_one_rank_a_host(self):
        ranks = self.ranks("bits_with", 4, [2, {"tier1": "group"}, PARTS])
        ended = ranks.wait()
        for code, out, err in ended:
            self.assertEqual(code, 0, out + err)
        four = [workers.json.loads(out.splitlines()[-1]) for _, out, _ in ended]
        self.assertRegex(
            ended[0][2], r"hosts sum first: 4 workers on 2 hosts, by gloo; each of a host's 2 "
                         r"pushes a part; 0\.0\d+ MB a step leave this host\n")
        self.assertNotIn("hosts sum first", ended[1][2] + ended[2][2] + ended[3][2])
        two = self.ranks("bits_with", 2, [1, {}, [
            {**each, "servers": 2} for each in PARTS]]).results()
        for i, options in enumerate(PARTS):
            for rank in range(4):
                self.assertEqual(four[rank][i][0], two[0][i][0], (rank, options))
                self.assertEqual(four[rank][i][4], 2 - rank % 2)  # the bias is in one part
                self.assertGreater(four[rank][i][3], 0)
            for field in (1, 2):
                once = sum(each[i][field] for each in two)
                self.assertLess(sum(each[i][field] for each in four), 1.02 * once, options)

    def test_local_steps_of_parts_are_those_of_one_rank_a_host(self):
        four = self.ranks("local_steps_with", 4, [2, {"tier1": "group", "servers": 1}]).results()
        two = self.ranks("local_steps_with", 2, [1, {"servers": 2}]).results()
        for found in four:
            self.assertEqual([each[0] for each in found], [each[0] for each in two[0]])
            self.assertEqual([each[2] for each in found], [4] * 3)
        for each, once in zip(zip(*four), zip(*two)):
            self.assertLess(sum(found[1] for found in each),
                            1.02 * sum(found[1] for found in once))

    def test_a_dead_rank_ends_all_with_its_name(self):
        self.dies_with({})

    def test_a_dead_rank_ends_all_parts_with_its_name(self):
        self.dies_with({"tier1": "group"})

    def dies_with(self, options):
        ranks = self.ranks("endless", 4, options)
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
        for options in ({"tier1": "on"}, {"tier1": "group"},
                        {"tier1": "on", "momentum": "nesterov", "momentum_rate": .9}):
            for found in workers.Ranks(FILE, "nonfinite_with", 3, options).results():
                self.assertEqual(found, [False, True, False, True, False], options)

    def test_all_ranks_know_what_auto_chose(self):
        first, *others = workers.Ranks(FILE, "chosen_with", 2, "on").results()
        self.assertEqual(others, [first])
        self.assertGreater(len(first), 0)

    def test_each_part_chooses(self):
        for found in workers.Ranks(FILE, "chosen_with", 2, "group").results():
            self.assertGreater(len(found), 0)

    def test_parts_have_the_sums_of_ddp(self):
        self.assertEqual(workers.Ranks(FILE, "parts_with", 2).results(), [[True] * 2] * 2)

    def test_where_ranks_sum_by_their_process_group(self):
        def settled(tier1, hosts, devices=("cuda",), backend="nccl", alone=False):
            found = _parts.HostRanks.__new__(_parts.HostRanks)
            found.ranks, found.why = [], ""
            try:
                found.settle(tier1, [
                    {"host": host, "device": devices[rank % len(devices)], "backend": backend,
                     "alone": alone} for rank, host in enumerate(hosts)])
            except telegrad.UsageError as why:
                return str(why)
            return found.why or found.ranks

        two = [[0, 1], [2, 3]]
        self.assertEqual([settled(each, "aabb") for each in ("auto", "on", "group", "off")],
                         [two, two, two, []])
        self.assertEqual(settled("auto", "abab"), [[0, 2], [1, 3]])
        self.assertEqual([settled("auto", each) for each in ("aaaa", "abcd")], [[], []])
        self.assertEqual(settled("on", "aa"), [[0, 1]])
        self.assertEqual([settled(each, "aabb", ("cpu",), "gloo") for each in ("auto", "on")],
                         [[], []])
        self.assertEqual(settled("group", "aabb", ("cpu",), "gloo"), two)
        self.assertEqual(settled("group", "ab"), [])
        self.assertIn("the process group is gloo", settled("auto", "aabb", backend="gloo"))
        uneven = "the host of rank 0 has 2 of the ranks, that of rank 2 1"
        for tier1 in ("auto", "on", "group"):
            self.assertIn(uneven, settled(tier1, "aab"))
        self.assertIn("tier1='group': tensors of rank 0 are on cuda, those of rank 1 on cpu",
                      settled("group", "aabb", ("cuda", "cpu")))
        self.assertIn("takes torch 2", settled("group", "aabb", alone=True))

    def test_pieces_are_as_large_as_a_codec_wants(self):
        sizes = {"large": 400000, "bias": 7, "none": 0, "two": 70000, "last": 5}
        found = _parts.pieces_of(sizes, 4, 0)
        self.assertEqual([owner for *_, owner in found["large"]], [0, 1, 2, 3])
        self.assertEqual(found["none"], [])
        self.assertEqual([owner for *_, owner in found["two"]], [1, 2])
        for name, size in sizes.items():
            self.assertEqual(sum(end - begin for begin, end, _ in found[name]), size)
        self.assertEqual(len(_parts.pieces_of(sizes, 4, 600000)["large"]), 2)

    def test_a_state_goes_on_with_the_same_bits(self):
        for tier1, of in (("on", "(0, 2, 2, [0, 0])"), ("group", "(0, 2, 1, [], 'parts [0, 1]')")):
            for rank, (whole, rest, why, carried, sizes) in enumerate(
                    workers.Ranks(FILE, "resumed_with", 2, tier1).results()):
                self.assertEqual(rest, whole)
                self.assertIn(of, why)
                self.assertIn("reshard='sum'", why)
                self.assertGreater(carried, 0)
                self.assertEqual(sum(sizes) > 0, tier1 == "group" or rank == 0)

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
        for differ, wrong, asynchronous, on_gpus, by_group, elastic in workers.Ranks(
                FILE, "refused_with", 2).results():
            for why in by_group:
                self.assertIn("tier1 'group'", why)
                self.assertIn("DiLoCo; here there are auto, on and off", why)
            self.assertIn("elastic=True with tier1='group'", elastic)
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
        for tier1 in ("on", "group"):
            took, _ = workers.Ranks(FILE, "closes_before_others", 2, tier1).results()
            self.assertLess(took, 15)


if __name__ == "__main__":
    workers.main(FUNCTIONS)
