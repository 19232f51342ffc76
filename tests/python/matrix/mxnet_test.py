#!/usr/bin/env python3
"""MXNet itself on Telegrad: `mx.kv.create('telegrad')` by itself and under Gluon's
Trainer; MXNet's own dist_sync as the control. Needs MXNet 1.9.1 with numpy 1.23."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import workers

try:
    import numpy as np
    if os.environ.get("STORE") == "dist_sync":
        import mxnet as mx  # in the processes of a server it never returns
    else:
        import telegrad.mxnet
        import mxnet as mx
except ImportError as why:
    workers.skip(f"no MXNet: {why}")

import telegrad

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
N = 1003


def gradient(step, rank):
    return np.random.default_rng(10 * step + rank).normal(0, .4, N).astype(np.float32)


# ---- what a rank does ----

def sequence(_):
    """Pushes and pulls whose values do not depend on the store: of the type STORE."""
    kv = mx.kv.create(os.environ["STORE"])
    got = [kv.num_workers]
    rank = kv.rank
    for codec in (None, "2bit"):
        key = "w" + str(codec)
        if codec:
            kv.set_gradient_compression({"type": codec, "threshold": .5})
        kv.init(key, mx.nd.ones((17, 59)))
        out = mx.nd.zeros((17, 59))
        kv.pull(key, out=out)
        got.append(float(out.asnumpy().sum()))
        for step in range(6):
            grad = mx.nd.array(gradient(step, rank).reshape(17, 59))
            kv.push(key, [grad, grad * 0] if step == 2 else grad)
            kv.pull(key, out=out)
            got.append(out.asnumpy().astype("<f4").tobytes().hex())
        if os.environ["STORE"] == "telegrad":
            kv.close()  # ours has its codec from the beginning
            kv = mx.kv.create("telegrad")
    return got


def rows(step, rank):
    """Rows out of 20, of three; none of rank 1 in step 1."""
    whole = np.zeros((20, 3), np.float32)
    if (rank, step) != (1, 1):
        whole[[step, 7 + rank, 19]] = 1 + rank + step
    return mx.nd.array(whole).tostype("row_sparse")


def rows_sequence(_):
    """Pushes and pulls of rows, of the type STORE."""
    kv = mx.kv.create(os.environ["STORE"])
    rank, got = kv.rank, []
    start = mx.nd.array(np.arange(60, dtype=np.float32).reshape(20, 3))
    kv.init("table", start.tostype("row_sparse"))
    kv.init("other", mx.nd.ones((20, 3)).tostype("row_sparse"))
    outs = [mx.nd.sparse.zeros("row_sparse", (20, 3)) for _ in range(2)]

    def pull(ids):
        kv.row_sparse_pull("table", out=outs[0], row_ids=mx.nd.array(ids, dtype="int64"))
        got.append([outs[0].indices.asnumpy().tolist(), outs[0].data.asnumpy().tolist()])

    pull([19, 3, 7, 3])
    for step in range(3):
        grad = rows(step, rank)
        kv.push("table", [grad, grad] if step == 2 else grad)
        pull([19, 0, 7, 8, step])
    kv.row_sparse_pull(["table", "other"], out=outs, row_ids=[
        mx.nd.array([8, 2], dtype="int64"), mx.nd.array([4], dtype="int64")])
    got += [each.asnumpy().tolist() for each in outs]
    kv.pull("table", out=outs[1])  # which MXNet leaves alone
    got.append(outs[1].asnumpy().tolist())
    if os.environ["STORE"] == "telegrad":
        kv.close()
    return got


def embeds(_):
    """Gluon's Trainer of an Embedding whose weight and gradient are rows; the weight."""
    net = mx.gluon.nn.Embedding(30, 4, sparse_grad=True)
    net.weight._stype = "row_sparse"
    net.initialize(mx.init.Constant(.5), ctx=mx.cpu())
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": .25},
                               kvstore=os.environ["STORE"])
    weight = net.weight
    for step in range(3):
        ids = mx.nd.array([RANK, 7, 7 + step], dtype="int64")
        got = weight.row_sparse_data(ids)
        with mx.autograd.record():
            loss = (mx.nd.Embedding(ids, got, input_dim=30, output_dim=4,
                                    sparse_grad=True) ** 2).sum()
        loss.backward()
        trainer.step(1)
    whole = mx.nd.sparse.zeros("row_sparse", (30, 4))
    trainer._row_sparse_pull(weight, whole, mx.nd.arange(30, dtype="int64"), True)
    kv = trainer._kvstore
    if os.environ["STORE"] != "dist_sync":
        kv.close()
    return whole.asnumpy().tolist()


def train(on_store):
    """Three steps of a linear model on each rank's own data; the weights."""
    mx.random.seed(3)
    net = mx.gluon.nn.Dense(3, in_units=20)
    net.initialize(mx.init.Uniform(.5), ctx=mx.cpu())
    store = mx.kv.create("telegrad")
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {
        "learning_rate": .25, "momentum": .5, "wd": .125}, kvstore=store,
        update_on_kvstore=on_store)
    for step in range(3):
        data = mx.nd.array(np.random.default_rng(10 * step + RANK).normal(0, 1, (4, 20)))
        with mx.autograd.record():
            loss = (net(data) ** 2).sum()
        loss.backward()
        trainer.step(8)
    assert trainer._kvstore is store and trainer._update_on_kvstore == on_store
    weights = {"wb"[name.endswith("bias")]: parameter.data().asnumpy().tolist()
               for name, parameter in net.collect_params().items()}
    stats = store.stats()
    store.close()
    return [weights, stats["push_raw_bytes"]]


def reference():
    """The same of both ranks' data in one process, without a store."""
    mx.random.seed(3)
    net = mx.gluon.nn.Dense(3, in_units=20)
    net.initialize(mx.init.Uniform(.5), ctx=mx.cpu())
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {
        "learning_rate": .25, "momentum": .5, "wd": .125}, kvstore=None)
    for step in range(3):
        data = np.concatenate([np.random.default_rng(10 * step + rank).normal(0, 1, (4, 20))
                               for rank in range(2)])
        with mx.autograd.record():
            loss = (net(mx.nd.array(data)) ** 2).sum()
        loss.backward()
        trainer.step(8)
    return {"wb"[name.endswith("bias")]: parameter.data().asnumpy()
            for name, parameter in net.collect_params().items()}


def refuses(_):
    """What the store lacks, by name."""
    store = mx.kv.create("telegrad")
    store.init("t", rows(0, 0))
    texts = [workers.refused(telegrad.Error, work) for work in (
        lambda: store.set_optimizer(mx.optimizer.Ftrl()),
        lambda: store.set_optimizer(mx.optimizer.SGD(clip_gradient=1)),
        lambda: store.init("x", mx.nd.zeros(4, dtype="float64")),
        lambda: store.init("x", mx.nd.zeros((4, 2)).tostype("csr")),
        lambda: store.row_sparse_pull("t", out=rows(0, 0)),
        lambda: store.row_sparse_pull("t", out=rows(0, 0), row_ids=mx.nd.ones(2) / 2),
        lambda: store.row_sparse_pull("t", out=mx.nd.ones((2, 3)), row_ids=mx.nd.ones(2)),
        lambda: store.pushpull("t", rows(0, 0)))]
    store.close()
    return texts


# ---- the tests ----

class Mxnet(unittest.TestCase):
    def ranks(self, function, argument=None, **environment):
        return workers.Ranks(FILE, function.__name__, 2, argument, **environment).results()

    def theirs(self, function):
        """What MXNet's own dist_sync gives."""
        port = workers.free_port()
        processes = []
        for role, count in (("scheduler", 1), ("server", 1), ("worker", 2)):
            for index in range(count):
                processes.append(subprocess.Popen(
                    [sys.executable, "-B", FILE, "--rank", function.__name__],
                    env=dict(os.environ, STORE="dist_sync", DMLC_ROLE=role,
                             DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(port),
                             DMLC_NODE_HOST="127.0.0.1", DMLC_NUM_WORKER="2",
                             DMLC_NUM_SERVER="1", RANK=str(index), ARGUMENT="null"),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        try:
            texts = [p.communicate(timeout=workers.TIMEOUT_S) for p in processes]
        finally:
            for process in processes:
                process.kill()
        for process, (_, err) in zip(processes[2:], texts[2:]):
            self.assertEqual(process.returncode, 0, err)
        return [json.loads(out.strip().splitlines()[-1]) for out, _ in texts[2:]]

    def test_the_same_values_as_mxnets_own_dist_sync(self):
        ours = self.ranks(sequence, STORE="telegrad")
        self.assertEqual(len(ours[0]), 15)
        self.assertEqual(ours, self.theirs(sequence))

    def test_rows_are_pulled_as_they_were_summed(self):
        sums = [np.arange(60, dtype=np.float32).reshape(20, 3)] + [
            (rows(step, 0) + rows(step, 1)).asnumpy() * (2 if step == 2 else 1)
            for step in range(3)]
        ids = [[3, 7, 19]] + [sorted({19, 0, 7, 8, step}) for step in range(3)]
        want = [[each, whole[each].tolist()] for each, whole in zip(ids, sums)]
        some, other = np.zeros((2, 20, 3))
        some[[2, 8]], other[4] = sums[3][[2, 8]], 1
        want += [some.tolist(), other.tolist(), other.tolist()]
        self.assertEqual(self.ranks(rows_sequence, STORE="telegrad"), [want] * 2)

    def test_trainer_steps_rows_of_an_embedding(self):
        ours = self.ranks(embeds, STORE="telegrad")
        self.assertEqual(ours, self.theirs(embeds))
        self.assertGreater(len({row[0] for row in ours[0]}), 2)

    def test_trainer_steps_as_one_process_with_both_batches(self):
        want = reference()
        for on_store in (True, False):
            for weights, raw in self.ranks(train, on_store):
                self.assertEqual(raw, 3 * 4 * 63)
                for name, values in weights.items():
                    # Sums in another order: some 2^-24 of values below 8.
                    np.testing.assert_allclose(np.array(values), want[name], atol=1e-5)

    def test_an_updater_gets_ndarrays(self):
        """As in MXNet's tutorial of its KVStore."""
        kv = mx.kv.create("telegrad")
        kv.init([3, 4], [mx.nd.ones((2, 3)), mx.nd.ones((4, 2)).tostype("row_sparse")])
        kinds = []

        def update(key, gradient, weight):
            kinds.append((key, type(gradient).__name__, type(weight).__name__))
            weight += 2 * mx.nd.cast_storage(gradient, "default")

        kv._set_updater(update)
        kv.push(3, [mx.nd.ones((2, 3))] * 4)
        out = mx.nd.zeros((2, 3))
        kv.pull(3, out=out)
        self.assertEqual(out.asnumpy().tolist(), [[9] * 3] * 2)
        rows = np.zeros((4, 2), np.float32)
        rows[2] = 3
        kv.push(4, mx.nd.array(rows).tostype("row_sparse"))
        whole = mx.nd.sparse.zeros("row_sparse", (4, 2))
        kv.row_sparse_pull(4, out=whole, row_ids=mx.nd.arange(4, dtype="int64"))
        self.assertEqual(whole.asnumpy().tolist(), (1 + 2 * rows).tolist())
        self.assertEqual(kinds, [(3, "NDArray", "NDArray"), (4, "RowSparseNDArray", "NDArray")])
        kv.close()

    def test_a_trainer_of_one_process_changes_its_settings(self):
        """Rate, batch size, multipliers, a schedule, an optimizer that servers lack: as
        with MXNet's own store; and its states are saved."""
        def steps(store, name, on_store, **options):
            x = mx.gluon.Parameter("x", shape=(4,))
            x.initialize(ctx=[mx.cpu(0), mx.cpu(1)], init="ones")
            trainer = mx.gluon.Trainer([x], name, dict(options), kvstore=store,
                                       update_on_kvstore=on_store)
            found = []
            for step, batch in enumerate((1, 1, 10, 4, 4)):
                if step == 1 and "lr_scheduler" not in options:
                    trainer.set_learning_rate(.125)
                if step == 3:
                    x.lr_mult, x.wd_mult = .5, 2
                if step == 4:
                    with tempfile.TemporaryDirectory() as folder:
                        trainer.save_states(folder + "/states")
                        trainer.load_states(folder + "/states")
                with mx.autograd.record():
                    losses = [(weight * weight).sum() for weight in x.list_data()]
                for loss in losses:
                    loss.backward()
                trainer.step(batch)
                found.append(x.data(mx.cpu(1)).asnumpy().tolist())
            return found

        for name, options in (("sgd", {"momentum": .5, "wd": .25}), ("nadam", {}),
                              ("ftrl", {}), ("lamb", {}), ("sgd", {"lr_scheduler": None})):
            both = []
            for store in ("local", mx.kv.create("telegrad")):
                if "lr_scheduler" in options:
                    options["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(2, .5)
                both.append(steps(store, name, True, **options))
            self.assertEqual(*both, name)

    def test_errors_are_mxnets_too(self):
        kv = mx.kv.create("telegrad")
        self.assertIsInstance(kv, mx.kvstore.KVStore)
        with self.assertRaises(mx.MXNetError):
            kv.push("absent", mx.nd.ones(2))

    def test_rows_are_pulled_while_a_graph_is_recorded(self):
        kv = mx.kv.create("telegrad")
        kv.init("t", mx.nd.ones((4, 2), dtype="float16").tostype("row_sparse"))
        out = mx.nd.sparse.zeros("row_sparse", (4, 2), dtype="float16")
        out.attach_grad()
        with mx.autograd.record():
            kv.row_sparse_pull("t", out=out, row_ids=mx.nd.array([3, 1]))
        self.assertEqual(out.asnumpy()[:, 0].tolist(), [0, 1, 0, 1])

    def test_what_is_lacking_is_refused_by_name(self):
        for texts in self.ranks(refuses):
            for text, pattern in zip(texts, ("Ftrl", "clip_gradient", "float64",
                                             "csr", "row_ids", "float32.*integers",
                                             r"tostype\('row_sparse'\)",
                                             "row_sparse_pull")):
                self.assertRegex(text, pattern)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        sequence, rows_sequence, embeds, train, refuses)})
