#!/usr/bin/env python3
"""Numbers by the names of docs/numbers.md, handed to writers as they take them."""
import os
import re
import time
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "docs", "numbers.md")


class TensorBoard:
    def __init__(self):
        self.seen = {}

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None,
                   new_style=False, double_precision=False):
        self.seen[tag] = (scalar_value, global_step)


class MLflow:
    def log_metrics(self, metrics, step=None, synchronous=None):
        self.seen = {name: (value, step) for name, value in metrics.items()}

    def log(self):
        raise AssertionError("log_metrics comes first")


class WandB:
    def log(self, data, step=None, commit=None):
        self.seen = {name: (value, step) for name, value in data.items()}


class Numbers(unittest.TestCase):
    def setUp(self):
        job = telegrad.Job().join()
        self.addCleanup(job.close)
        self.store = telegrad.Store(job)
        self.store.set_compression(type="2bit:0.5")
        value = np.ones(1000, np.float32)
        self.keys, self.value = self.store.init(["w"], [value]), value
        for _ in range(3):
            self.exchange()

    def exchange(self):
        self.store.push_pull(self.keys, [self.value], [np.empty_like(self.value)])

    def test_names_and_values(self):
        found = telegrad.numbers_of(self.store)
        self.assertEqual(found["push_raw_bytes"], 3 * 4000)
        self.assertEqual(found["push_wire_bytes"], 3 * (252 + 64))  # 63 words, a header
        self.assertEqual(found["push_ratio"], 4000 / 316)
        self.assertEqual(found["ratio"], 24000 / (
            found["push_wire_bytes"] + found["pull_wire_bytes"]))
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        for name in found:
            self.assertRegex(page, rf"`{re.escape(name)}`")

    def test_of_reports(self):
        report = {"steps": 7, "waited_s": 0.25, "workers": 2, "decisions": [],
                  **self.store.stats()}
        found = telegrad.numbers_of(report)
        self.assertEqual([found[name] for name in ("steps", "comm_wait_s", "workers")],
                         [7, 0.25, 2])
        self.assertEqual(telegrad.numbers_of({"steps": 1}), {"steps": 1})
        with self.assertRaisesRegex(telegrad.UsageError, "list has no numbers"):
            telegrad.numbers_of([])

    def test_writers(self):
        want = telegrad.numbers_of(self.store)
        for writer in (TensorBoard(), MLflow(), WandB()):
            telegrad.log_numbers(self.store, writer, 5)
            self.assertEqual(writer.seen, {
                "telegrad/" + name: (value, 5) for name, value in want.items()})
        calls = []
        telegrad.log_numbers(self.store, lambda *given: calls.append(given), prefix="")
        telegrad.log_numbers(self.store, lambda *given: calls.append(given), 5, prefix="")
        self.assertEqual(calls, [(want,), (want, 5)])
        with self.assertRaisesRegex(telegrad.UsageError, "add_scalar"):
            telegrad.log_numbers(self.store, 7)


    def test_a_timeline(self):
        self.assertEqual(self.store.timeline(), [])
        self.exchange()
        self.store.queue.wait(self.store.start("pull", self.keys, [self.value]))
        rows, spans, stages = {}, [], set()
        while len(spans) < 2:  # ends are noted by another thread
            for event in self.store.timeline():
                if event["name"] == "process_name":
                    self.assertEqual(event["args"]["name"], "worker0")
                elif event["ph"] == "M":
                    rows[event["tid"]] = event["args"]["name"]
                elif event["tid"] == 0:
                    spans.append(event)
                else:
                    stages.add((rows[event["tid"]], event["name"]))
        self.assertEqual(rows[0], "w")
        self.assertEqual(stages, {("w, chunk 0", stage) for stage in
                                  ("queued", "encode", "send", "network and server",
                                   "decode")})
        self.assertEqual([(span["ph"], span["name"], span["pid"], span["tid"])
                          for span in spans], [("X", "push_pull", 0, 0), ("X", "pull", 0, 0)])
        first, second = spans
        self.assertGreater(first["dur"], 0)
        self.assertLess(first["ts"], second["ts"])
        self.assertLess(abs(first["ts"] / 1e6 - time.time()), 600)  # the unit, and 1970
        self.store.timeline(on=False)
        self.exchange()
        self.assertEqual(self.store.timeline(), [])
        kv = telegrad.kvstore.create("local")
        kv.timeline()
        kv.init("a", self.value)
        kv.push("a", self.value)
        kv.pull("a", out=self.value)
        self.assertTrue(kv.timeline(on=False))
        kv.close()


if __name__ == "__main__":
    unittest.main()
