#!/usr/bin/env python3
"""telegrad.torch with gloo and two processes: bit for bit DDP's gradients with `none`,
a ten-line model's with `2bit`, whatever DDP does with its buckets; and what goes wrong."""
import copy
import io
import json
import math
import os
import signal
import unittest
from unittest import mock

import workers

try:
    import numpy as np
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

import telegrad
import telegrad.torch
from telegrad.launch.exposition import samples_of
from telegrad.torch import _meeting
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from nets import Net, inputs
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)


def start():
    dist.init_process_group("gloo")


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()
            if parameter.grad is not None}


def local_gradients(net, step, rank, scale):
    """Of one rank's batch, without DDP."""
    net = copy.deepcopy(net)
    (net(inputs(step, rank)).sum() * scale).backward()
    return {name: grad.numpy() for name, grad in gradients(net).items()}


# ---- what a rank does ----

def exact_with(options):
    """Steps of plain DDP and of ours, on the same data, with accumulation between."""
    has_unused = options.pop("has_unused", False)
    plain = DDP(Net(has_unused), bucket_cap_mb=0.002, **options)
    ours = DDP(Net(has_unused), bucket_cap_mb=0.002, **options)
    telegrad.torch.compress(ours, gc_type="none", dead_timeout=4)
    accumulates = not options.get("static_graph", False)
    for step in range(4):
        for model in (plain, ours):
            model.zero_grad()
            if accumulates and step % 2 == 1:
                with model.no_sync():
                    model(inputs(step + 50, RANK)).sum().backward()
            model(inputs(step, RANK)).sum().backward()
        want, got = gradients(plain), gradients(ours)
        assert want.keys() == got.keys()
        for name, grad in want.items():
            assert torch.equal(grad, got[name]), (step, name)
    assert sum(float(grad.abs().sum()) for grad in want.values()) > 0
    return telegrad.torch.report(ours)["steps"]


def exact(cases):
    start()
    return [exact_with(options) for options in cases]


def two_bits_with(options):
    """Sums of codes, residuals and bytes on every step; DDP makes other buckets after
    the first."""
    threshold, scale = np.float32(0.25), 0.0625
    net = Net()
    model = DDP(copy.deepcopy(net), bucket_cap_mb=0.002, **options)
    seen = []
    state = telegrad.torch.State(model, "2bit:0.25", nonfinite="error", guard=False)

    def watching_hook(state, bucket):
        seen.append((state.steps, tuple(p.numel() for p in bucket.parameters())))
        return telegrad.torch.hook(state, bucket)

    model.register_comm_hook(state, watching_hook)
    residuals = [{name: np.zeros(p.shape, np.float32)
                  for name, p in net.named_parameters()} for _ in workers.encoders()]
    for step in range(6):
        model.zero_grad()
        (model(inputs(step, RANK)).sum() * scale).backward()
        got = {name[len("module."):]: grad.numpy()
               for name, grad in gradients(model).items()}
        for name in got:
            sums = np.float32(0)
            for ranks, residual in zip(workers.encoders(), residuals):
                gradient = sum(local_gradients(net, step, rank, scale)[name]
                               for rank in ranks)
                if gradient.ndim == 1:  # dense
                    sums = sums + gradient
                    continue
                r = residual[name]
                r += gradient
                sent = np.where(r >= threshold, threshold,
                                np.where(r <= -threshold, -threshold, 0))
                r -= sent
                sums = sums + sent
            assert np.array_equal(got[name], sums / 2), (step, name)
    report = state.report()
    words = sum(-(-p.numel() // 16) * 4 if p.dim() > 1 else p.numel() * 4
                for p in net.parameters())
    headers = 64 * len(list(net.parameters()))
    assert report["push_wire_bytes"] == workers.pushes(RANK) * 6 * (words + headers), report
    check_seconds(state)
    # As it is by now, not as it was decided.
    if workers.pushes(RANK):
        assert 0 <= report["decisions"][0]["zero_share"] < 1, report["decisions"][0]
    first = {sizes for step, sizes in seen if step == 0}
    later = {sizes for step, sizes in seen if step > 0}
    assert first != later, "DDP did not rebuild its buckets"
    codecs = {line["name"]: line["codec"] for line in report["decisions"]}
    return [codecs["first.weight"], codecs["first.bias"]]


def check_seconds(state):
    """In the job's metrics: of all steps but the first."""
    found = samples_of(state._job.metrics_text())
    wait_s, step_s = (sum(value for _, value in found[f"telegrad_{name}_seconds_total"])
                      for name in ("wait", "step"))
    assert 0 < wait_s <= min(step_s, state.waited_s), (wait_s, step_s, state.waited_s)


def two_bits(cases):
    start()
    return [two_bits_with(options) for options in cases]


def not_finite():
    """An infinity on rank 1 alone reaches all; the next step is as always."""
    model = DDP(Net())
    telegrad.torch.compress(model, gc_type="2bit:0.25")
    found = []
    for step in range(3):
        model.zero_grad()
        x = inputs(step, RANK)
        if step == 1 and RANK == 1:
            x[0, 0] = float("inf")
        model(x).sum().backward()
        found.append(all(bool(torch.isfinite(grad).all())
                         for grad in gradients(model).values()))
    return found


class Factors(torch.nn.Module):
    """A parameter of 16 bits whose gradient is the input."""

    def __init__(self, dtype):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.zeros(40, 50, dtype=dtype))

    def forward(self, x):
        return (self.factor.float() * x).sum()


def gradient_of(model, values):
    """Of a model of `Factors` where each rank has its value; all are alike."""
    model.zero_grad()
    model(torch.full((40, 50), float(values[RANK]))).backward()
    (grad,) = (parameter.grad for parameter in model.parameters())
    assert grad.dtype == next(model.parameters()).dtype
    assert bool((grad == grad[0, 0]).all()) or bool(torch.isnan(grad).all())
    return float(grad[0, 0])


def half_precision():
    """Gradients of 16 bits whose sums, over the bucket or the ranks, are too large for
    their type are finite and averaged; codes of them follow the rule in float32."""
    kinds = [torch.float16]
    try:
        dist.broadcast(torch.zeros(1, dtype=torch.bfloat16), 0)
        kinds.append(torch.bfloat16)
    except RuntimeError:
        pass  # torch 1.13's gloo, so that DDP takes none, either
    for dtype in kinds:
        dense = DDP(Factors(dtype))
        telegrad.torch.compress(dense, gc_type="none")
        for values, mean in (((100, 300), 200), ((40960, 49152), 45056),
                             ((1, float("inf")), None), ((2, 4), 3)):
            got = gradient_of(dense, values)
            assert got == mean or mean is None and not math.isfinite(got), (dtype, values, got)
        coded = DDP(Factors(dtype))
        telegrad.torch.compress(coded, gc_type="2bit:0.25")
        residuals, given = [0, 0], (0.375, -0.125)
        for step in range(5):
            total = 0
            for i, ranks in enumerate(workers.encoders()):
                residuals[i] += sum(given[rank] for rank in ranks)
                sent = 0.25 * ((residuals[i] >= 0.25) - (residuals[i] <= -0.25))
                residuals[i] -= sent
                total += sent
            assert gradient_of(coded, given) == total / 2, (dtype, step)
    return True


class FullyShardedDataParallel(torch.nn.Linear):
    """Called as FSDP1's class, which needs a GPU."""


class DeepSpeedEngine(torch.nn.Linear):
    """Called as DeepSpeed's."""


def refusals():
    def refused(kind, model, **options):
        return workers.refused(kind, lambda: telegrad.torch.compress(model, **options))

    texts = [refused(telegrad.Unsupported, Net()),
             refused(telegrad.Unsupported, DDP(Net().double())),
             refused(telegrad.UsageError, DDP(Net()), gc_type="3bit"),
             refused(telegrad.UsageError, DDP(Net()), gctype="2bit"),
             refused(telegrad.UsageError, DDP(Net()), group=None),
             refused(telegrad.UsageError, DDP(Net()), replicas=dist.group.WORLD),
             refused(telegrad.Unsupported, FullyShardedDataParallel(2, 2)),
             refused(telegrad.Unsupported, DeepSpeedEngine(2, 2)),
             refused(telegrad.UsageError, DDP(Net()), optimizer="adam"),
             refused(telegrad.Unsupported, DDP(torch.nn.Embedding(9, 4, sparse=True)))]
    model = DDP(Net())
    texts.append(refused(telegrad.UsageError, model, servers=9))
    state = telegrad.torch.compress(model, optimizer=torch.optim.SGD(
        model.parameters(), lr=1), servers=1)
    texts.append(refused(telegrad.WrongOrder, model))
    texts.append(workers.refused(telegrad.Unsupported, model.join))
    with model.join(enable=False):
        model(inputs(0, RANK)).sum().backward()
    half = DDP(Net())
    half_state = telegrad.torch.State(half)
    half.register_comm_hook(half_state, default_hooks.fp16_compress_wrapper(
        telegrad.torch.hook))
    texts.append(workers.refused(telegrad.Unsupported,
                                 lambda: half(inputs(0, RANK)).sum().backward()))
    state.close()
    return texts


def copies():
    """Of a compressed model: they send as torch does, and may be compressed."""
    model = DDP(Net())
    state = telegrad.torch.compress(model, gc_type="2bit:0.25")
    averaged = torch.optim.swa_utils.AveragedModel(model)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    load = {} if torch.__version__.startswith("1.") else {"weights_only": False}
    plain = DDP(Net())
    plain(inputs(0, RANK)).sum().backward()
    for copied in (copy.deepcopy(model), averaged.module, torch.load(saved, **load)):
        copied(inputs(0, RANK)).sum().backward()
        for name, grad in gradients(plain).items():
            assert torch.equal(grad, gradients(copied)[name]), name
    assert state.steps == 0
    return telegrad.torch.compress(copied, gc_type="int8").steps


class Mixed(torch.nn.Module):
    """Parameters of two types, whose gradients are the input."""

    def __init__(self):
        super().__init__()
        self.narrow = torch.nn.Parameter(torch.zeros(3, 4))
        self.wide = torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.float64))

    def forward(self, x):
        return (self.narrow * x).sum() + (self.wide * x).sum()


def mixed():
    """Parameters that the store does not have are torch's."""
    model = DDP(Mixed())
    state = telegrad.torch.compress(model, gc_type="none")
    for step in range(3):
        model.zero_grad()
        model(float(step + RANK)).backward()
        for grad in gradients(model).values():
            assert bool((grad == step + 0.5).all()), (step, grad)
    return len(state.report()["decisions"])


def changes_of(anchor, exchange, rank):
    """A rank's weights, less those after its three steps."""
    copied = copy.deepcopy(anchor)
    optimizer = torch.optim.SGD(copied.parameters(), lr=0.125)
    for step in range(3):
        optimizer.zero_grad()
        copied(inputs(3 * exchange + step, rank)).mean().backward()
        optimizer.step()
    return [(a - p).detach().numpy() for a, p in zip(anchor.parameters(), copied.parameters())]


def diloco():
    """Weights after each exchange equal those of a simulation of both ranks, with
    `none` and with the two-bit rule."""
    ratios = []
    for codec, threshold in (("none", None), ("2bit:0.015625", np.float32(0.015625))):
        torch.manual_seed(5 + RANK)  # rank 0's weights count
        model = torch.nn.Linear(24, 40)
        inner = torch.optim.SGD(model.parameters(), lr=0.125)
        ours = telegrad.torch.DiLoCo(model, inner, sync_every=3, gc_type=codec, servers=1)
        torch.manual_seed(5)
        anchor = torch.nn.Linear(24, 40)
        residuals = [[np.zeros(p.shape, np.float32) for p in anchor.parameters()]
                     for _ in workers.encoders()]
        for exchange in range(4):
            sums = [np.float32(0) for _ in anchor.parameters()]
            for ranks, own in zip(workers.encoders(), residuals):
                all_changes = [changes_of(anchor, exchange, rank) for rank in ranks]
                for i, change in enumerate(map(sum, zip(*all_changes))):
                    if threshold is not None:
                        r = own[i]
                        r += change
                        change = np.where(r >= threshold, threshold, np.where(
                            r <= -threshold, -threshold, 0)).astype(np.float32)
                        r -= change
                    sums[i] = sums[i] + change
            with torch.no_grad():
                for a, change in zip(anchor.parameters(), sums):
                    a.sub_(torch.from_numpy(change / 2))
            for step in range(3):
                inner.zero_grad()
                model(inputs(3 * exchange + step, RANK)).mean().backward()
                assert ours.step() == (step == 2)
            for a, p in zip(anchor.parameters(), model.parameters()):
                assert torch.equal(a, p), (codec, exchange)
        ratios.append(ours.report()["push_ratio"] if workers.pushes(RANK) else math.inf)
        ours.close()
    return ratios


def streams():
    """In two fragments, weights as in a simulation of both ranks: what runs beside two
    steps is added behind them."""
    torch.manual_seed(5 + RANK)
    model = torch.nn.Linear(24, 40)
    inner = torch.optim.SGD(model.parameters(), lr=0.125)
    ours = telegrad.torch.DiLoCo(model, inner, sync_every=4, fragments=2, gc_type="none",
                                 servers=1)
    torch.manual_seed(5)
    anchors = [p.detach().clone() for p in torch.nn.Linear(24, 40).parameters()]
    models = [torch.nn.Linear(24, 40) for _ in range(2)]
    weights = [list(each.parameters()) for each in models]
    sent = {}  # by fragment, here a parameter: the weights of both ranks

    def begin(part):
        sent[part] = [each[part].detach().clone() for each in weights]

    def finish():
        for part, both in sent.items():
            changes = sum(anchors[part] - each for each in both)
            anchors[part] -= changes / 2
            for each, before in zip(weights, both):
                each[part].sub_(before).add_(anchors[part])
        sent.clear()

    with torch.no_grad():
        for each in weights:
            for parameter, anchor in zip(each, anchors):
                parameter.copy_(anchor)
    for step in range(11):
        for rank, each in enumerate(models):
            each.zero_grad()
            each(inputs(step, rank)).mean().backward()
            torch.optim.SGD(each.parameters(), lr=0.125).step()
        inner.zero_grad()
        model(inputs(step, RANK)).mean().backward()
        with torch.no_grad():
            if (step + 1) % 2 == 0:
                finish()
                begin((step + 1) % 4 // 2)
        assert ours.step() == ((step + 1) % 2 == 0)
        for mine, wanted in zip(model.parameters(), weights[RANK]):
            assert torch.equal(mine, wanted), step
    with torch.no_grad():
        finish()
        begin(0)
        begin(1)
        finish()
    ours.exchange()
    for mine, wanted in zip(model.parameters(), weights[RANK]):
        assert torch.equal(mine, wanted), step
    assert torch.equal(weights[0][0], weights[1][0])
    ours.close()
    return workers.refused(telegrad.UsageError, lambda: telegrad.torch.DiLoCo(
        model, inner, sync_every=4, fragments=5))


def special(_):
    start()
    return [not_finite(), refusals(), diloco(), streams(), half_precision(), copies(), mixed()]


def over_some(_):
    """A model of ranks 1 and 2 of three, whose gradients are DDP's."""
    start()
    group = dist.new_group([1, 2])
    if RANK > 0:
        plain, ours = (DDP(Net(), process_group=group) for _ in range(2))
        telegrad.torch.compress(ours, gc_type="none")
        for step in range(2):
            for model in (plain, ours):
                model.zero_grad()
                model(inputs(step, RANK)).sum().backward()
            for name, grad in gradients(plain).items():
                assert torch.equal(grad, gradients(ours)[name]), (step, name)
    dist.barrier()
    return RANK == 0 or telegrad.torch.report()["workers"]


def wrong(_):
    start()
    telegrad.torch.compress(DDP(Net()), servers=9)


def dies(rank):
    """A rank kills itself; the other's backward raises who it was. In the step before
    gloo has to make new buckets of DDP, too."""
    start()
    model = DDP(Net())
    telegrad.torch.compress(model, dead_timeout=4)
    for step in range(3):
        if RANK == rank and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            model(inputs(step, RANK)).sum().backward()
        except telegrad.Error as why:
            print(json.dumps(why.dead), flush=True)
            raise


# ---- the tests ----

class Torch(unittest.TestCase):
    def ranks(self, function, argument=None, num=2):
        return workers.Ranks(FILE, function.__name__, num, argument)

    def test_none_equals_ddp_bit_for_bit(self):
        cases = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True},
                 {"find_unused_parameters": True, "has_unused": True}]
        self.assertEqual(self.ranks(exact, cases).results(), [[4] * 4] * 2)

    def test_two_bits_equal_the_model_before_and_after_the_rebuilding(self):
        cases = [{}, {"gradient_as_bucket_view": True}]
        self.assertEqual(self.ranks(two_bits, cases).results(),
                         [[["2bit", "none"]] * 2] * 2)

    def test_infinities_reach_all_and_what_cannot_be_is_refused(self):
        for finite, texts, ratios, too_many, _, *steps in self.ranks(special).results():
            self.assertIn("fragments=5: 1 to sync_every=4", too_many)
            self.assertGreater(ratios[0], 2.5)  # of 3 steps
            self.assertGreater(ratios[1], 20)

            self.assertEqual(finite, [True, False, True])
            self.assertEqual(steps, [0, 1])
            self.assertEqual(len(texts), 14)
            for text, pattern in zip(texts, (
                    "DistributedDataParallel", "float64.*bfloat16", "3bit.*2bit",
                    "'gctype'; there is 'gc_type'", "no argument 'group'", "fully_shard",
                    "between replicas.*fully_shard of FSDP2.*replicas=",
                    "no hook.*DistributedDataParallel", "optimizer=str.*an optimizer",
                    r"Embedding\(sparse=True\).*sparse=False", "servers=9: 1 to 2", "already",
                    "drop_last", "float16 .*wrapper.*gc_type='fp16'")):
                self.assertRegex(text, pattern)

    def test_a_wrong_argument_ends_all_ranks_with_the_line_of_the_caller(self):
        for code, _, err in self.ranks(wrong).wait():
            self.assertEqual(code, 2, err)
            self.assertNotIn(os.path.dirname(telegrad.__file__) + os.sep, err)
            self.assertIn("UsageError: servers=9", err)

    def test_backward_names_the_rank_that_died(self):
        (code, out, err), (killed, _, _) = self.ranks(dies, 1).wait()
        # Its server may be missed first.
        self.assertIn(code, (20, 23), err)
        self.assertEqual(killed, -signal.SIGKILL)
        self.assertRegex(out, "(worker|server)/1@")

    def test_backward_names_rank_0_that_died_with_its_scheduler(self):
        (killed, _, _), (code, out, err) = self.ranks(dies, 0).wait()
        self.assertEqual(killed, -signal.SIGKILL)
        self.assertEqual(code, 24, err)
        self.assertIn("worker/0@", out)

    def test_a_store_that_is_lost_is_named(self):
        """When rank 0 is gone it fails at once, each time."""
        store = mock.Mock(**{"check.side_effect": RuntimeError("Connection reset\nby")})
        with mock.patch.object(dist.distributed_c10d, "_get_default_store", lambda: store):
            board = _meeting._Board(0.5, [0, 1])
            with self.assertRaisesRegex(telegrad.JoinTimeout, r"nobody.*\(Connection reset\)"):
                board.get("host/1")
        self.assertLessEqual(store.check.call_count, 20)

    def test_without_an_address_for_others_bind_is_named(self):
        with (mock.patch.object(_meeting, "_towards", lambda _: "127.0.0.1"),
              self.assertRaisesRegex(telegrad.UsageError, "say bind=ADDRESS")):
            _meeting._scheduler_bind([{"host": "elsewhere", "address": ""}])

    def test_a_model_of_some_ranks(self):
        self.assertEqual(self.ranks(over_some, num=3).results(), [True, 2, 2])

    def test_an_attempt_of_torchrun_sees_no_names_of_the_one_before(self):
        """The store outlives an attempt."""
        store, boards = dist.HashStore(), []
        for attempt in "01":
            with mock.patch.object(dist.distributed_c10d, "_get_default_store", lambda: store), \
                    mock.patch.object(_meeting, "_num_meetings", {}), \
                    mock.patch.dict(os.environ, TORCHELASTIC_RESTART_COUNT=attempt,
                                    TORCHELASTIC_RUN_ID="run"):
                boards.append(_meeting._Board(0.2, [0, 1]))
        boards[0].put("scheduler", "old")
        self.assertEqual(boards[0].get("scheduler"), "old")
        with self.assertRaises(telegrad.JoinTimeout):
            boards[1].get("scheduler")



if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        exact, two_bits, special, over_some, wrong, dies)})
