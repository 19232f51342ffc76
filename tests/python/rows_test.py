#!/usr/bin/env python3
"""Rows of telegrad.kvstore: sums, weights and errors, against arrays of NumPy."""
import os
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad
from telegrad import RowSparse

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)
SHAPE = (5000, 3, 2)
F = np.float32


def table(rank):
    return (np.arange(np.prod(SHAPE)) % 1000 + rank).astype(F).reshape(SHAPE)


def gradient(rank, step):
    """Rows out of order, one of them twice; none of rank 1 in step 1."""
    ids = [] if (rank, step) == (1, 1) else [4999, 7 + rank, 0, 7 + rank, 100 * step]
    data = np.arange(6 * len(ids)).reshape(-1, 3, 2) + 10 * rank + step
    return RowSparse(data.astype(F), ids, SHAPE)


def sum_of(step):
    return gradient(0, step).to_dense() + gradient(1, step).to_dense()


def expect(kv, key, whole):
    """Pulls into rows, into arrays, and all of it."""
    ids = [9, 4999, 7, 0, 9]
    rows, array = RowSparse(np.empty((0, 3, 2), F), [], SHAPE), np.empty((5, 3, 2), F)
    kv.row_sparse_pull(key, out=[rows, array], row_ids=np.array(ids))
    assert rows.indices.tolist() == [0, 7, 9, 4999], rows.indices
    assert np.array_equal(rows.data, whole[rows.indices])
    assert np.array_equal(array, whole[ids])
    other = np.empty((1, 3, 2), F)
    kv.row_sparse_pull([key], out=[[rows, other]], row_ids=[[8], np.array([200])])
    assert np.array_equal(rows.to_dense()[8], whole[8]) and rows.indices.tolist() == [8]
    assert np.array_equal(other[0], whole[200])
    got = np.empty(SHAPE, F)
    kv.pull(key, out=got)
    assert np.array_equal(got, whole)


# ---- what a rank does ----

def sums(type):
    kv = telegrad.kvstore.create(type)
    kv.init(["table", "dense"], [RowSparse(table(RANK)), np.zeros(4, F)])
    expect(kv, "table", table(0))
    for step in range(3):
        kv.push("table", gradient(RANK, step))
        kv.push("dense", np.ones(4, F))
        expect(kv, "table", sum_of(step))
    kv.push("table", [gradient(RANK, 0), gradient(RANK, 2)])  # of two devices
    expect(kv, "table", sum_of(0) + sum_of(2))
    kv.push("table", table(RANK))  # the whole of it
    expect(kv, "table", table(0) + table(1))
    stats = kv.stats()
    kv.close()
    return stats["push_wire_bytes"]


def weights(type):
    """Momentum moves rows that nobody pushed, too."""
    kv = telegrad.kvstore.create(type)
    kv.set_optimizer(telegrad.optimizer.SGD(learning_rate=.5, momentum=.5))
    kv.init("table", RowSparse(table(0)))
    weight, momentum = table(0), np.zeros(SHAPE, F)
    for step in range(3):
        kv.push("table", gradient(RANK, step))
        momentum = F(.5) * momentum - F(.5) * sum_of(step)
        weight = weight + momentum
        expect(kv, "table", weight)
    kv.close()
    return True


def halves(type):
    """Rows and arrays of float16: kept as float32, rounded once."""
    kv = telegrad.kvstore.create(type)
    half = np.float16
    kv.init("table", RowSparse(np.full((4, 2), 2048, half)))
    kv.set_optimizer(telegrad.optimizer.SGD(learning_rate=-1))
    whole, rows = np.empty((4, 2), half), RowSparse(np.empty((0, 2), half), [], (4, 2))
    some = np.empty((2, 2), half)
    kv.push("table", RowSparse(np.ones((2, 2), half), [1, 3], (4, 2)))
    kv.push("table", np.ones((4, 2), half) * RANK)
    kv.row_sparse_pull("table", out=[rows, some], row_ids=[3, 0])
    kv.pull("table", out=whole)
    kv.close()
    assert rows.data.dtype == half and rows.indices.tolist() == [0, 3]
    assert rows.data[:, 0].tolist() == some[::-1, 0].tolist() == whole[[0, 3], 0].tolist()
    return whole[:, 0].tolist()


def embedding(_):
    """torch's sparse gradients."""
    import torch
    kv = telegrad.kvstore.create("dist_sync")
    layer = torch.nn.Embedding(40, 3, sparse=True)
    kv.init("embedding", RowSparse(layer.weight.detach()))
    layer(torch.tensor([5, 1 + RANK, 5])).sum().backward()
    kv.push("embedding", layer.weight.grad)
    out = torch.empty(4, 3)
    kv.row_sparse_pull("embedding", out=out, row_ids=torch.tensor([5, 1, 2, 3]))
    kv.close()
    return out[:, 0].tolist()


# ---- the tests ----

class Rows(unittest.TestCase):
    def ranks(self, function, argument=None):
        return workers.Ranks(FILE, function.__name__, 2, argument).results()

    def test_sums_are_those_of_whole_arrays_and_only_rows_travel(self):
        for type in ("dist_sync", "allreduce"):
            with self.subTest(type):
                for wire in self.ranks(sums, type):
                    self.assertLess(wire, 1.1 * 4 * np.prod(SHAPE))  # one whole push

    def test_the_store_steps_all_rows(self):
        self.assertEqual(self.ranks(weights, "dist_sync"), [True] * 2)

    def test_rows_of_float16(self):
        """2048 + 2 + 1 is none of float16's numbers, and lies between two of them."""
        for type in ("dist_sync", "allreduce"):
            self.assertEqual(self.ranks(halves, type), [[2048, 2052, 2048, 2052]] * 2)

    def test_rows_for_a_key_of_arrays(self):
        """MXNet adds them as well."""
        kv = telegrad.kvstore.create("local")
        kv.init("dense", np.ones(SHAPE, F))
        kv.push("dense", [gradient(0, 0), gradient(1, 0)])
        got = np.empty(SHAPE, F)
        kv.pull("dense", out=got)
        self.assertTrue(np.array_equal(got, sum_of(0)))
        kv.close()

    def test_gradients_of_an_embedding(self):
        try:
            import torch  # noqa: F401
        except ImportError as why:
            self.skipTest(str(why))
        self.assertEqual(self.ranks(embedding), [[4, 1, 1, 0]] * 2)

    def test_a_store_of_one_process(self):
        kv = telegrad.kvstore.create("local")
        kv.init(3, RowSparse(table(0)))
        kv.push(3, [gradient(0, 1), gradient(1, 0)])
        expect(kv, 3, gradient(0, 1).to_dense() + gradient(1, 0).to_dense())
        kv.close()

    def test_what_cannot_be_is_refused_by_name(self):
        kv = telegrad.kvstore.create("local")
        kv.init(["table", "dense"], [RowSparse(table(0)), table(0)])
        rows, usage = gradient(0, 0), telegrad.UsageError
        out = np.empty((1, 3, 2), F)
        for kind, pattern, work in (
                (usage, "dense has no rows",
                 lambda: kv.row_sparse_pull("dense", out=out, row_ids=[1])),
                (usage, "row 5000", lambda: kv.row_sparse_pull(
                    "table", out=out, row_ids=[5000])),
                (usage, "2 rows of 6.*24 bytes", lambda: kv.row_sparse_pull(
                    "table", out=out, row_ids=[1, 2])),
                (usage, "row_ids", lambda: kv.row_sparse_pull("table", out=out)),
                (usage, "float64", lambda: kv.row_sparse_pull(
                    "table", out=out, row_ids=np.zeros(1))),
                (telegrad.Unsupported, "pushpull", lambda: kv.pushpull("table", rows)),
                (telegrad.Unsupported, "beside", lambda: kv.push(
                    "table", [rows, table(0)])),
                (usage, "alike", lambda: kv.push("table", [rows, RowSparse(out)])),
                (usage, "float64", lambda: kv.push("table", RowSparse(
                    np.zeros((1, 3, 2)), [0], SHAPE))),
                (usage, "2 rows of", lambda: RowSparse(out, [1, 2], SHAPE))):
            self.assertRegex(workers.refused(kind, work), pattern)
        expect(kv, "table", table(0))
        store = telegrad.Store(None, "local")
        for wrong in (-1, 7):
            with self.assertRaisesRegex(usage, f"rows of {wrong}"):
                store.init(["w"], [out], row_elems=[wrong])


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (
        sums, weights, halves, embedding)})
