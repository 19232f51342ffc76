#!/usr/bin/env python3
"""Wrong arguments of Python's public names: each raises an error of Telegrad's that names
the argument, or what can be; and docstrings that name all of them."""
import inspect
import re
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad
from telegrad import Codec, Job, RowSparse, Store, kvstore, optimizer

PUBLIC = [getattr(telegrad, name) for name in telegrad.__all__]
PUBLIC += [kvstore.create, kvstore.KVStore]
PUBLIC += [kind for kind in vars(optimizer).values()
           if inspect.isclass(kind) and issubclass(kind, optimizer.RunByStore)]
try:
    import telegrad.torch
    PUBLIC += [getattr(telegrad.torch, name) for name in telegrad.torch.__all__]
except ImportError:
    pass
# Their arguments are those of what makes them, or are explained with what they extend.
MADE_BY_OTHERS = {"KVStore", "NAG", "SGD", "Adam", "AdamW", "Adagrad", "RMSProp", "Error"}


def full(n=6, value=0.0):
    return np.full(n, value, np.float32)


class WrongArguments(unittest.TestCase):
    def refuses(self, cases, kind=telegrad.UsageError):
        for work, pattern in cases:
            with self.subTest(pattern), self.assertRaisesRegex(kind, pattern):
                work()

    def test_of_a_job(self):
        self.refuses((
            (lambda: Job(rank="0"), "rank='0': an integer"),
            (lambda: Job(num_workers=0), "num_workers=0"),
            (lambda: Job(num_workers=2**32 + 1), "num_workers=4294967297: more than 32"),
            (lambda: Job(rank=2**32), "rank=4294967296: more"),
            (lambda: Job(29500), "scheduler=29500: a text"),
            (lambda: Job(secret="x" * 40), "secret of str: bytes"),
            (lambda: Job(join_timeout="1"), "join_timeout='1': a number"),
            (lambda: Job(dead_timeout=0), "dead_timeout=0"),
            (lambda: Job(transport="rdma"), "'rdma'|\"rdma\".*tcp"),
            (lambda: Job(num_workers=2), "scheduler's address")))
        with Job(operation_timeout=20) as job:
            self.refuses(((job.plan, "before the worker joins"),), telegrad.WrongOrder)
            job.join()
            plan = job.plan()
            self.assertEqual((plan["transport"], plan["network"]), ("tcp", "local"))
            self.assertEqual(plan["decisions"][0]["what"], "network")
            self.assertIn("one machine", plan["decisions"][0]["why"])

    def test_a_timeout_without_end(self):
        for timeout in (float("inf"), 1e300):
            Job(operation_timeout=20).join().close(timeout)

    def test_an_exit_code_that_no_process_has_is_70(self):
        for code, given in ((0, 70), (256, 70), (-1, 70), (255, 255)):
            job = Job(operation_timeout=20).join()
            job.fail("bye", exit_code=code)
            with self.assertRaisesRegex(telegrad.Error, "bye") as caught:
                job.barrier()
            self.assertEqual(caught.exception.exit_code, given)
            with self.assertRaises(telegrad.Error):
                job.close(3)

    def test_of_a_store(self):
        with Job(operation_timeout=20) as job:
            job.join()
            self.refuses((
                (lambda: Store("job"), "job='job': a telegrad.Job"),
                (lambda: Store(job, 5), "type=5: a text"),
                (lambda: Store(job, "distx"), "no kvstore type 'distx'; there are"),
                (lambda: Store(job, "dist_async", max_staleness="3"), "max_staleness='3'"),
                (lambda: Store(job, drop_slowest=1.5), "drop_slowest=1.5")))
            store = Store(job)
            options = (("type", 2), ("rules", {"w": "2bit"}), ("reply", True), ("packing", 1),
                       ("nonfinite", 7), ("min_bytes", "1k"), ("warmup_steps", 1.5),
                       ("batch_size", "a"), ("guard", "on"), ("min_bytes", 2**64), ("allow", ["2bit"]))
            self.refuses([(lambda name=name, value=value: store.set_compression(
                **{name: value}), re.escape(f"{name}={value!r}: ")) for name, value in options])
            store.set_compression(type="2bit", threshold=np.float32(0.25))
            self.refuses((
                (lambda: store.set_optimizer("sgd"), "optimizer='sgd'"),
                (lambda: store.set_optimizer(optimizer.Rescale("a")), "rescale_grad='a'"),
                (lambda: store.set_optimizer(optimizer.SGD(wd="a")), "wd='a'"),
                (lambda: store.init("w", [full()]), "names='w': a list"),
                (lambda: store.init([3], [full()]), "name=3: a text"),
                (lambda: store.init(["w"], [full()], rates=[1]), r"rates=\[1\]: pairs")))
            keys = store.init(["w"], [full()])
            value = full()
            self.refuses((
                (lambda: store.push_pull(["w"], [value], [value]), r"keys=\['w'\]"),
                (lambda: store.push_pull(keys, [value], [value], ["a"]), "priorities="),
                (lambda: store.push_pull(keys, [value], [value], [1, 2]), "priorities="),
                (lambda: store.push_pull([2**32], [value], [value]), "keys=.*of 32 bits"),
                (lambda: store.push_pull(keys, [value], [value], [2**31]), "priorities="),
                (lambda: store.start("foo", keys, [value]), "'foo'.*push_pull"),
                (lambda: store.load_states("xx"), "states of str: bytes"),
                (lambda: store.load_codec(0, "xx"), "state of str: bytes")))
            store.push_pull(keys, [full(6, 0.25)], [value])
            self.assertEqual(value.tolist(), [0.25] * 6)

    def test_of_a_codec(self):
        codec = Codec("2bit:0.5", np.int64(6))
        self.refuses((
            (lambda: Codec("2bit", "4"), "num_elems='4'"),
            (lambda: Codec(2, 4), "spec=2"),
            (lambda: codec.decode("abcd", 0.5, full()), "payload of str"),
            (lambda: codec.decode(b"abcd", "x", full()), "threshold='x'"),
            (lambda: telegrad.set_log_level("x"), "level='x'")))
        self.assertEqual(codec.decode(bytearray(4), np.float32(0.5), full()).tolist(), [0] * 6)

    def test_of_a_kvstore(self):
        kv = kvstore.create("local")
        kv.init("w", full())
        self.refuses((
            (lambda: kvstore.create("foo"), "no kvstore type 'foo'; there are"),
            (lambda: kvstore.create("dist_sync", job="x"), "job='x'"),
            (lambda: kv.init("x", None), "key 'x': NoneType is no array"),
            (lambda: kv.pull("w"), "key 'w': NoneType is no array"),
            (lambda: kv.pull("w", out=[]), "key 'w' without an array"),
            (lambda: kv.push("w", full(), priority="a"), "priorities"),
            (lambda: kv.set_updater(None), "updater=None"),
            (lambda: kv.is_capable(1), "there is 'optimizer'"),
            (lambda: RowSparse(np.zeros((2, 3), np.float32), [-1, 1]), "rows -1 to 1 of 2"),
            (lambda: RowSparse(np.zeros((2, 3), np.float32), [0, 9], (4, 3)), "0 to 9 of 4")))
        kv.close()
        with Job(operation_timeout=20).join() as job:
            kv = kvstore.create("dist_sync", job=job)
            self.refuses((
                (lambda: kv.set_gradient_compression("2bit"), "'2bit': a dictionary"),
                (lambda: kv.set_gradient_compression({"type": "2bit", "min_bytes": "a"}),
                 "min_bytes='a'")))
            kv.close()


class Docstrings(unittest.TestCase):
    def check(self, name, thing, arguments):
        text = inspect.getdoc(thing) or ""
        self.assertTrue(text, f"{name} has no docstring")
        missing = [each for each in arguments if not re.search(rf"\b{each}\b", text)]
        self.assertEqual(missing, [], f"{name} does not explain")
        return text

    def test_all_arguments_are_explained(self):
        for thing in PUBLIC:
            if not inspect.isclass(thing) and not inspect.isfunction(thing):
                continue  # a module
            name = thing.__name__
            arguments = [] if name in MADE_BY_OTHERS or issubclass_of_error(thing) else [
                each for each in inspect.signature(thing).parameters if each != "job_options"]
            text = self.check(name, thing, arguments)
            if not inspect.isclass(thing):
                continue
            if name not in MADE_BY_OTHERS - {"KVStore"} and not issubclass_of_error(thing):
                self.assertIn("::", text, f"{name} has no example")
            for part, function in vars(thing).items():
                if part.startswith("_") or not (inspect.isfunction(function)
                                                or isinstance(function, property)):
                    continue
                own = [] if isinstance(function, property) else list(
                    inspect.signature(function).parameters)[1:]
                # What all operations of a KVStore have is explained with the class.
                common = {"key", "priority"} if name == "KVStore" else set()
                self.check(f"{name}.{part}", function, [each for each in own
                                                        if each not in common])


def issubclass_of_error(thing):
    return inspect.isclass(thing) and issubclass(thing, telegrad.Error)


if __name__ == "__main__":
    unittest.main()
