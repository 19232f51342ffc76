#!/usr/bin/env python3
"""Asynchronous operations over the workers of a job: values, what differs, who dies."""
import ctypes
import json
import os
import signal
import sys
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad

RANK = int(os.environ.get("RANK", -1))


def job():
    return telegrad.Job(from_launcher=True, dead_timeout=4).join()


def array_of(operations, handle, dtype=np.float32):
    """What the library keeps."""
    operations.wait(handle)
    address, num = operations.result(handle)
    size = num * np.dtype(dtype).itemsize
    raw = (ctypes.c_char * size).from_address(address) if size else b""
    array = np.frombuffer(raw, dtype).copy()
    operations.release(handle)
    return array.tolist()


# ---- what a rank does ----

def values(path):
    """Each kind once, then what this worker can see to be wrong."""
    got = {}
    with job() as mine, telegrad.Operations(mine, timeline=path) as ops:
        grads = [np.full(i + 1, RANK + i, np.float32) for i in range(5)]
        order = range(5) if RANK == 0 else reversed(range(5))
        handles = {i: ops.submit("allreduce", grads[i], name=f"g{i}", out=grads[i],
                                 op="average") for i in order}
        for i, handle in handles.items():
            ops.wait(handle, timeout=30)
            assert ops.poll(handle)
            ops.release(handle)
        got["average"] = [grad[0].item() for grad in grads]
        handle = ops.submit("allgather", np.full((RANK + 1, 2), RANK, np.int64), name="a")
        ops.wait(handle)
        got["rows"] = ops.rows(handle)
        got["allgather"] = array_of(ops, handle, np.int64)
        got["broadcast"] = array_of(ops, ops.submit(
            "broadcast", np.array([RANK], np.float64), name="b", root=1), np.float64)
        got["reducescatter"] = array_of(ops, ops.submit(
            "reducescatter", np.arange(3, dtype=np.float32), name="r"))
        got["alltoall"] = array_of(ops, ops.submit(
            "alltoall", np.array([10 * RANK, 10 * RANK + 1, 10 * RANK + 2], np.uint8),
            name="t", splits=[1, 2]), np.uint8)
        last = ops.add_process_set([1])
        array = np.ones(2, np.float32)
        if RANK == 1:
            got["set"] = array_of(ops, ops.submit("allreduce", array, name="s",
                                                  process_set=last))
        else:
            got["set"] = workers.refused(telegrad.UsageError, lambda: ops.submit(
                "allreduce", array, name="s", process_set=last))
        ops.remove_process_set(last)
        handle = ops.submit("join", name="j")
        ops.wait(handle)
        got["join"] = ops.number(handle) in (0, 1)
        ops.wait(ops.submit("barrier", name="z"))
        got["refused"] = [workers.refused(telegrad.UsageError, wrong) for wrong in (
            lambda: ops.submit("reduce", array, name="x"),
            lambda: ops.submit("allreduce", array, name="x", op="mean"),
            lambda: ops.submit("alltoall", array, name="x", splits=[2, 2]),
            lambda: ops.submit("allreduce", array, name="x", shape=[3]),
            lambda: ops.submit("allreduce", array, name="x", out=np.ones(3, np.float32)),
            lambda: ops.submit("allreduce", name="x"),
            lambda: ops.wait(handle + 99))]
        ops.release(handle)
        got["refused"].append(workers.refused(telegrad.UsageError, lambda: ops.wait(handle)))
    got["refused"].append(workers.refused(
        telegrad.WrongOrder, lambda: ops.submit("allreduce", array, name="x")))
    return got


def coded(_):
    """Allreduces with codecs, by the store that comes with the first one."""
    with telegrad.Job(from_launcher=True, hosts_part=True).join() as mine:
        ops = telegrad.Operations(mine)
        ops.store.set_compression(type="2bit:0.5", rules="bias=none")
        got = {}
        for name, codec in (("weight", "store"), ("bias", "store"), ("own", "2bit:0.25"),
                            ("floats", "none")):
            array = np.full(1000, .375, np.float32)
            handle = ops.submit("allreduce", array, name=name, out=array, codec=codec)
            ops.wait(handle, timeout=30)
            ops.release(handle)
            got[name] = array[0].item()
        got["codecs"] = {each["name"]: each["codec"] for each in ops.store.report()}
        got["refused"] = [workers.refused(telegrad.UsageError, wrong) for wrong in (
            lambda: ops.submit("allreduce", array, name="x", op="max", codec="int8"),
            lambda: ops.submit("broadcast", array, name="x", codec="int8"),
            lambda: ops.submit("allreduce", array, name="x", codec="3bit"),
            lambda: ops.wait(ops.submit("allreduce", array[:9], name="own",
                                        codec="2bit:0.25")))]
        got["differs"] = workers.refused(telegrad.Mismatch, lambda: ops.wait(ops.submit(
            "allreduce", array, name="x", codec=("int4", "int8")[RANK])))
        ops.close()
        got["closed"] = workers.refused(telegrad.WrongOrder, ops.store.report)
    return got


def differs(_):
    """One rank has another shape, then lacks what another one submits, then ends."""
    texts = []
    with job() as mine, telegrad.Operations(mine, stall_deadline=.5) as ops:
        texts.append(workers.refused(telegrad.Mismatch, lambda: ops.wait(ops.submit(
            "allreduce", np.ones(4 + RANK, np.float32), name="x"))))
        if RANK == 0:
            texts.append(workers.refused(telegrad.Timeout, lambda: ops.wait(ops.submit(
                "allreduce", np.ones(4, np.float32), name="y"))))
            handle = ops.submit("barrier", name="c")
            ops.cancel(handle)
            texts.append(workers.refused(telegrad.Cancelled, lambda: ops.wait(handle)))
            handle = ops.submit("barrier", name="z")
        mine.barrier()
        if RANK == 0:
            texts.append(workers.refused(telegrad.Error, lambda: ops.wait(handle)))
    return texts


def dies(_):
    mine = job()
    ops = telegrad.Operations(mine)
    array = np.ones(4, np.float32)
    try:
        for i in range(1000):
            ops.wait(ops.submit("allreduce", array, name=f"x{i}"))
            if RANK == 2 and i == 3:
                os.kill(os.getpid(), signal.SIGKILL)
    except telegrad.Error as why:
        print(json.dumps([type(why).__name__, list(why.dead)]), flush=True)
        raise


# ---- the tests ----

class Operations(unittest.TestCase):
    def ranks(self, function, num, argument=None):
        return workers.Ranks(os.path.abspath(__file__), function.__name__, num, argument)

    def test_values_and_refusals(self):
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"timeline-{os.getpid()}.json")
        try:
            for rank, got in enumerate(self.ranks(values, 2, path).results()):
                self.assertEqual(got["average"], [.5, 1.5, 2.5, 3.5, 4.5])
                self.assertEqual(got["rows"], [1, 2])
                self.assertEqual(got["allgather"], [0, 0, 1, 1, 1, 1])
                self.assertEqual(got["broadcast"], [1])
                self.assertEqual(got["reducescatter"], [[0, 2], [4]][rank])
                self.assertEqual(got["alltoall"], [[0, 10], [1, 2, 11, 12]][rank])
                self.assertTrue(got["join"])
                self.assertEqual(got["set"], [
                    "process set 1 of rank 1 is without this rank", [1, 1]][rank])
                for text, pattern in zip(got["refused"], (
                        "'reduce'.*allreduce", "'mean'.*average", r"splits \[2, 2\] of 2 rows",
                        "shape of 3 elements", "out of 3 elements", "without an array",
                        "never given", "was waited for", "closed")):
                    self.assertRegex(text, pattern)
            for name in (path, path + ".1"):
                with open(name, encoding="utf-8") as file:
                    spans = {event["name"] for event in json.load(file)}
                self.assertTrue({"NEGOTIATE", "QUEUE", "ALLREDUCE"} <= spans, spans)
        finally:
            for name in (path, path + ".1"):
                if os.path.exists(name):
                    os.remove(name)

    def test_codecs_go_by_the_store(self):
        for got in self.ranks(coded, 2).results():
            self.assertEqual([got[name] for name in ("weight", "bias", "own", "floats")],
                             [0, .75, .5, .75])
            self.assertEqual(got["codecs"], {"weight": "2bit", "bias": "none", "own": "2bit"})
            for text, pattern in zip(got["refused"], (
                    "int8 .*op max", "int8 for broadcast", "3bit",
                    r'"own" of 9 elements .*residuals are of 1000 elements')):
                self.assertRegex(text, pattern)
            self.assertRegex(got["differs"], "rank 0 has codec int4, rank 1 has codec int8")
            self.assertIn("closed", got["closed"])

    def test_what_differs_is_named_and_what_is_missing(self):
        first, second = self.ranks(differs, 2).results()
        for texts in (first, second):
            self.assertRegex(texts[0], r'"x": rank 0 has shape \[4\], rank 1 has shape \[5\]')
        self.assertRegex(first[1], '"y" was given up .*ranks? 0 submitted it, ranks? 1 did not')
        self.assertRegex(first[2], '"c" was cancelled by rank 0')
        self.assertRegex(first[3], "rank 1 has ended the operations")

    def test_who_dies_is_named(self):
        ended = self.ranks(dies, 3).wait()
        for code, out, err in ended[:2]:
            kind, dead = json.loads(out)
            self.assertIn(kind, ("PeerDied", "ServerLost"), err)
            self.assertRegex(" ".join(dead), "(worker|server)/2@")
            self.assertIn(code, (20, 23), err)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (values, coded, differs, dies)})
