#!/usr/bin/env python3
"""telegrad.kvstore within this process: arrays, lists, updaters, and what is refused."""
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad


def full(value, n=6):
    return np.full(n, value, np.float32)


class LocalKVStore(unittest.TestCase):
    def test_types_that_python_lacks_are_refused_by_name(self):
        with self.assertRaisesRegex(telegrad.Unsupported, "nccl"):
            telegrad.kvstore.create("nccl")

    def test_local_needs_no_job(self):
        kv = telegrad.kvstore.create("local")
        kv.init("w", full(2))
        out = np.zeros((2, 3), np.float32)
        kv.push("w", [full(1), full(2)])
        kv.pull("w", out=out)
        self.assertEqual(out.tolist(), [[3] * 3] * 2)
        with self.assertRaisesRegex(telegrad.UsageError, "dist_sync"):
            kv.set_gradient_compression({"type": "2bit"})
        kv.close()

    def test_arrays_of_a_key_are_alike(self):
        """NumPy and torch would stretch the smaller one."""
        kv = telegrad.kvstore.create("local")
        kv.init(["w", "one"], [full(2), full(5, 1)])
        for wrong in (lambda: kv.push("w", [full(1), full(1, 1)]),
                      lambda: kv.push(["w", "w"], [full(1), full(1, 12)]),
                      lambda: kv.pushpull("w", [full(1), full(1, 1)], out=full(0)),
                      lambda: kv.pull("one", out=[full(0, 1), full(0)]),
                      lambda: kv.push("w", [1, 2])):
            with self.assertRaisesRegex(telegrad.UsageError, "alike|no array"):
                wrong()
        out = np.zeros((3, 2), np.float32)
        kv.pull("w", out=[full(0), out])
        self.assertEqual(out.tolist(), [[2, 2]] * 3)
        kv.close()

    def test_arrays_that_have_dlpack_alone(self):
        class Array:
            """Neither of NumPy nor of torch."""
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        kv = telegrad.kvstore.create("local")
        out = full(0)
        kv.init("w", Array(full(3)))
        kv.pull("w", out=Array(out))
        self.assertEqual(out.tolist(), [3] * 6)
        kv.push("w", [Array(full(1)), full(2)])
        kv.pull("w", out=[Array(out), full(0)])
        self.assertEqual(out.tolist(), [3] * 6)
        value = full(4)
        kv.pushpull("w", Array(value))
        self.assertEqual(value.tolist(), [4] * 6)
        transposed = Array(np.zeros((3, 2), np.float32).T)
        kv.init("t", np.arange(6, dtype=np.float32).reshape(2, 3))
        for wrong in (lambda: kv.pull("t", out=transposed),
                      lambda: kv.pushpull("t", transposed, out=full(0)),
                      lambda: telegrad.Codec("none", 6).encode(transposed)):
            with self.assertRaisesRegex(telegrad.UsageError, "transposed: take a copy"):
                wrong()
        kv.close()

    def test_transposed_tensors_keep_their_elements(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        kv = telegrad.kvstore.create("local")
        want = torch.arange(6.).reshape(2, 3).t()
        kv.init("w", want)
        flat, out, array = torch.zeros(3, 2), torch.zeros(2, 3).t(), np.zeros((3, 2), "f")
        kv.pull("w", out=[out, flat, array])
        for got in (out, flat, torch.from_numpy(array)):
            self.assertTrue(torch.equal(got, want))
        for value in (want.clone(memory_format=torch.preserve_format), want.contiguous()):
            kv.pushpull("w", value, out=out)
            self.assertTrue(torch.equal(out, want))
            kv.pushpull("w", value)
            self.assertTrue(torch.equal(value, want))
        with telegrad.Job(operation_timeout=20).join() as job, telegrad.Group(job) as group:
            with self.assertRaisesRegex(telegrad.UsageError, "contiguous"):
                group.allreduce(out)
        with self.assertRaisesRegex(telegrad.UsageError, "contiguous"):
            telegrad.Codec("none", 6).encode(out)
        kv.close()

    def test_arrays_without_dimensions_and_without_elements(self):
        kv = telegrad.kvstore.create("local")
        kv.init("s", np.array(5, np.float32))
        kv.push("s", [np.array(1, np.float32), np.float32(2)])
        out = np.array(0, np.float32)
        kv.pull("s", out=out)
        self.assertEqual(out, 3)
        for name, shape in (("e", (0, 4)), ("f", (4, 0)), ("g", 0)):
            nothing = np.zeros(shape, np.float32)
            kv.init(name, nothing)
            kv.push(name, [nothing, nothing])
            kv.pull(name, out=nothing)
            kv.pushpull(name, nothing, out=nothing)
            with self.assertRaisesRegex(telegrad.Error, f"tensor {name} has 0 bytes"):
                kv.pull(name, out=out)
        # Its address is that of a copy that is gone.
        with self.assertRaisesRegex(telegrad.UsageError, "no array: take numpy.array"):
            kv.pull("s", out=np.float32(0))
        kv.close()

    def test_an_init_that_is_refused_changes_nothing(self):
        """Values go to the store with the first operation, all together."""
        kv = telegrad.kvstore.create("local")
        kv.init("w", full(1))
        for keys, values, text in ((["a", "b"], [full(2), np.zeros(6)], "float64.*cast"),
                                   (["a", "b"], [full(2), np.zeros(6, np.int32)], "integers"),
                                   (["a", "b c"], [full(2), full(2)], "'b c'.*letters"),
                                   (["a", "w"], [full(2), full(2)], "'w'.*once")):
            with self.assertRaisesRegex(telegrad.UsageError, text):
                kv.init(keys, values)
        kv.init(["a", "b"], [full(3), full(4)])
        outs = [full(0), full(0), full(0)]
        kv.pull(["w", "a", "b"], out=outs)
        self.assertEqual([out.tolist()[0] for out in outs], [1, 3, 4])
        kv.close()

    def test_lists_of_16_bits_are_added_as_32(self):
        """2049 is no float16: added one by one the ones would be lost."""
        kinds = [lambda x: np.full(6, x, np.float16)]
        try:
            import torch
            kinds += [lambda x: torch.full((6,), x, dtype=torch.float16)]
        except ImportError:
            pass
        for of in kinds:
            kv = telegrad.kvstore.create("local")
            kv.init("w", of(0))
            out = of(0)
            kv.pushpull("w", [of(2048), of(1), of(1), of(1)], out=out)
            self.assertEqual(out.tolist(), [2052] * 6)  # 2051, which is between two
            kv.close()

    def test_an_updater_gets_rows_once(self):
        """Of several devices, or listed twice, they are added: `weight[indices] -= data`
        would take one of them."""
        kv = telegrad.kvstore.create("local")
        seen = []

        def step(key, grad, weight):
            seen.append(grad.indices.tolist())
            weight.reshape(4, 2)[grad.indices] -= grad.data

        kv.set_updater(step)
        rows = telegrad.RowSparse(np.ones((3, 2), np.float32), [2, 1, 2], (4, 2))
        kv.init(["w", "table"], [np.zeros((4, 2), np.float32),
                                 telegrad.RowSparse(np.zeros((4, 2), np.float32))])
        for key in ("w", "table"):
            out = np.empty((4, 2), np.float32)
            kv.push(key, [rows, rows])
            kv.pull(key, out=out)
            self.assertEqual(out[:, 0].tolist(), [0, -2, -4, 0])
        self.assertEqual(seen, [[1, 2]] * 2)
        kv.close()

    def test_an_updater_runs_in_this_process(self):
        kv = telegrad.kvstore.create("local")
        kv.init(["w", "table"], [full(1), telegrad.RowSparse(np.ones((4, 2), np.float32))])
        seen = []

        def updater(key, gradient, weight):
            seen.append(key)
            if key == "table":
                weight[gradient.indices] -= gradient.data
            else:
                weight -= np.float32(.5) * gradient

        kv.set_updater(updater)
        out = full(0)
        kv.push("w", [full(1), full(2)])
        kv.push("w", full(1))
        kv.pull("w", out=out)
        self.assertEqual(out.tolist(), [-1] * 6)
        kv.pushpull("w", full(2), out=out)
        self.assertEqual(out.tolist(), [-2] * 6)
        kv.push("table", telegrad.RowSparse(full(3, 2).reshape(1, 2), [1], (4, 2)))
        table = np.zeros((4, 2), np.float32)
        kv.pull("table", out=table)
        self.assertEqual(table.tolist(), [[1, 1], [-2, -2], [1, 1], [1, 1]])
        self.assertEqual(seen, ["w", "w", "w", "table"])
        with self.assertRaisesRegex(telegrad.WrongOrder, "one of them"):
            kv.set_optimizer(telegrad.optimizer.SGD())
        kv.close()

    def test_a_stream_waits_for_an_operation_that_the_queue_still_gives(self):
        store = telegrad.Store(None, "local")
        keys = store.init(["w"], [full(2)])
        out = full(0)
        tag = store.start("push_pull", keys, [full(3)], [out])
        for _ in range(2):
            store.queue.wait_on(tag)
            self.assertEqual(out.tolist(), [3] * 6)
        store.queue.wait(tag)
        with self.assertRaisesRegex(telegrad.UsageError, f"no operation with tag {tag} is in "
                                                         "flight"):
            store.queue.wait_on(tag)
        store.close()
        with self.assertRaisesRegex(telegrad.WrongOrder, "closed"):
            store.queue.wait_on(tag)

    def test_a_negative_staleness_is_refused(self):
        with telegrad.Job().join() as job:
            with self.assertRaisesRegex(telegrad.UsageError, "max_staleness=-1"):
                telegrad.kvstore.create("dist_async", job=job, max_staleness=-1)
            with self.assertRaisesRegex(telegrad.Error, "no staleness to bound.*dist_async"):
                telegrad.kvstore.create("dist_sync", job=job, max_staleness=1)


if __name__ == "__main__":
    unittest.main()
