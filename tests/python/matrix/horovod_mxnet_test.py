#!/usr/bin/env python3
"""telegrad.horovod.mxnet with MXNet 1.9.1: operations, and a trainer whose ranks step by the
mean of their gradients, as one process with all batches does."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import workers  # noqa: E402

try:
    import mxnet as mx
    import numpy as np
except ImportError as why:
    workers.skip(f"MXNet is not installed: {why}")

import telegrad.errors as hvd_errors  # noqa: E402
import telegrad.horovod.mxnet as hvd  # noqa: E402

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)


def operations(_):
    """Of two ranks."""
    hvd.init()
    nd = mx.nd
    own = nd.arange(4) + RANK
    got = {"mean": hvd.allreduce(own), "sum": hvd.allreduce(own, average=False),
           "max": hvd.allreduce(own, op=hvd.Max),
           "rows": hvd.allgather(nd.full((RANK + 1, 2), RANK, dtype="int64")),
           "root": hvd.broadcast(own, 1), "scattered": hvd.reducescatter(nd.arange(3))}
    got.update(zip(("swapped", "received"),
                   hvd.alltoall(own, nd.array([1, 3], dtype="int32"))))
    for dtype in ("float16", "float64", "uint8", "int8", "int32", "int64"):
        array = own.astype(dtype)
        assert hvd.allreduce_(array, average=False) is array
        assert array.dtype == np.dtype(dtype) and array.asnumpy().tolist() == [1, 3, 5, 7]
    both = hvd.grouped_allreduce([own, own * 2])
    assert (both[1] == both[0] * 2).asnumpy().all()
    for wrong in (lambda: hvd.alltoall(own, [3, 3]),
                  lambda: hvd.allreduce(nd.zeros((2, 2)).tostype("row_sparse"))):
        workers.refused(ValueError, wrong)
    workers.refused(hvd.HorovodInternalError, lambda: hvd.allreduce(nd.zeros(2 + RANK)))
    found = {name: array.asnumpy().tolist() for name, array in got.items()}
    found["objects"] = [hvd.allgather_object([RANK]), hvd.broadcast_object({"r": RANK}, 1)]
    return found


def network():
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(16, activation="relu"), mx.gluon.nn.Dense(3))
    return net


def weights_of(net):
    return np.concatenate([each.data().asnumpy().reshape(-1)
                           for _, each in sorted(net._collect_params_with_prefix().items())])


def trained(net, trainer, ranks, batch_size):
    loss_of = mx.gluon.loss.L2Loss()
    for step in range(4):
        values = np.random.RandomState(step).standard_normal((2, 8, 5)).astype("float32")
        x = mx.nd.array(np.concatenate([values[rank] for rank in ranks]))
        with mx.autograd.record():
            loss = loss_of(net(x), x[:, :3])
        loss.backward()
        trainer.step(batch_size)
    return weights_of(net)


def trainers(_):
    """Parameters whose shapes are not known when they are broadcast, and three trainers."""
    hvd.init()
    errors = {}
    for name, options in (("plain", {}), ("groups", {"num_groups": 2}),
                          ("fp16", {"compression": hvd.Compression.fp16}),
                          ("codec", {"compression": hvd.Compression.codec(
                              "int2", rules="dense[0-9]+_weight=int8", momentum="off")})):
        mx.random.seed(5 + RANK)
        np.random.seed(5 + RANK)
        net = network()
        net.initialize(mx.init.Xavier())
        hvd.broadcast_parameters(net.collect_params(), root_rank=0)
        net(mx.nd.zeros((1, 5)))
        first = weights_of(net)
        assert (hvd.broadcast(mx.nd.array(first), 0).asnumpy() == first).all()
        alone = network()
        alone.initialize()
        alone(mx.nd.zeros((1, 5)))
        for (_, to), (_, of) in zip(sorted(alone._collect_params_with_prefix().items()),
                                    sorted(net._collect_params_with_prefix().items())):
            to.set_data(of.data())
        setting = {"learning_rate": .1, "momentum": .9}
        want = trained(alone, mx.gluon.Trainer(alone.collect_params(), "sgd", setting),
                       [0, 1], 16)
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", setting, **options)
        got = trained(net, trainer, [RANK], 8)
        errors[name] = float(np.abs(got - want).max())
    codecs = sorted(each["codec"] for each in trainer.compression_report()["decisions"])
    second = workers.refused(hvd_errors.Unsupported, lambda: hvd.DistributedTrainer(
        net.collect_params(), "sgd", compression="int4"))
    hvd.shutdown()
    hvd.init()  # momentum in front of the codec, by the optimizer of a module
    sgd = mx.optimizer.SGD(learning_rate=.1, momentum=.9, wd=.01)
    ours = hvd.DistributedOptimizer(sgd, compression="int2")
    weight, grad = mx.nd.zeros((64, 64)), mx.nd.full((64, 64), 1 + RANK)
    state = ours.create_state(0, weight)
    ours.update(0, weight, grad, state)
    weights = hvd.allgather(weight.reshape((1, -1))).asnumpy()
    return {"errors": errors, "codecs": codecs, "second": second,
            "momentum": [sgd.momentum, round(sgd.wd, 6), state is None],
            "alike": bool((weights[0] == weights[1]).all()), "step": float(weights[0][0]),
            "moved": [each["codec"] for each in ours.compression_report()["decisions"]]}


class Horovod(unittest.TestCase):
    def test_operations(self):
        for rank, got in enumerate(workers.Ranks(FILE, "operations").results()):
            self.assertEqual(got, {
                "mean": [.5, 1.5, 2.5, 3.5], "sum": [1, 3, 5, 7], "max": [1, 2, 3, 4],
                "rows": [[0, 0], [1, 1], [1, 1]], "root": [1, 2, 3, 4],
                "scattered": [[0, 1], [2]][rank], "received": [[1, 1], [3, 3]][rank],
                "swapped": [[0, 1], [1, 2, 3, 2, 3, 4]][rank],
                "objects": [[[0], [1]], {"r": 1}]})

    def test_ranks_step_as_one_process_does(self):
        for got in workers.Ranks(FILE, "trainers").results():
            for name, most in (("plain", 1e-6), ("groups", 1e-6), ("fp16", 1e-3),
                               ("codec", .01)):
                self.assertLess(got["errors"][name], most, name)
            self.assertGreater(got["errors"]["codec"], 0)
            self.assertEqual(got["codecs"], ["int8", "int8"])
            self.assertIn("second DistributedOptimizer with a codec", got["second"])
            self.assertEqual(got["momentum"], [0, .1, True])
            self.assertTrue(got["alike"])
            self.assertLess(got["step"], -.1)
            self.assertEqual(got["moved"], ["int2"])


if __name__ == "__main__":
    workers.main({"operations": operations, "trainers": trainers})
