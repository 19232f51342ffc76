#!/usr/bin/env python3
"""TELEGRAD_TIMELINE: traces of Python's jobs, also of those that end badly."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad

LAUNCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "python", "telegrad-launch")
STEPS = """
import os, sys
import numpy as np
import telegrad
job = telegrad.Job(job_id="run/7").join()
store = telegrad.Store(job)
values = [np.ones(100, np.float32), np.ones(50, np.float32)]
keys = store.init(["fc.weight", "fc.bias"], values)
for step in range(12):
    store.push_pull(keys, values, [np.empty_like(value) for value in values])
"""


class Trace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "traces")

    def run_steps(self, end):
        """The exit code, and the names of the files that are left."""
        done = subprocess.run([sys.executable, "-B", "-c", STEPS + end], stderr=subprocess.PIPE,
                              env={**os.environ, "TELEGRAD_TIMELINE": self.folder}, check=False)
        return done.returncode, sorted(os.listdir(self.folder)), done.stderr.decode()

    def events(self, name):
        with open(os.path.join(self.folder, name)) as file:
            found = json.load(file)
        rows = {each["tid"]: each["args"]["name"] for each in found
                if each["name"] == "thread_name"}
        return [(rows[each["tid"]], each["name"]) for each in found if each["ph"] == "X"]

    def merge(self):
        done = subprocess.run([sys.executable, "-B", LAUNCH, "--merge-timelines", self.folder],
                              stdout=subprocess.PIPE, check=True, text=True)
        return done.stdout

    def test_a_good_end_leaves_three_steps(self):
        code, files, said = self.run_steps("job.close()")
        self.assertEqual((code, files), (0, ["run_7-server0.json", "run_7-worker0.json"]), said)
        spans = self.events("run_7-worker0.json")
        for row in ("fc.weight, chunk 0", "fc.bias, chunk 0"):
            self.assertEqual(spans.count((row, "network and server")), 3, spans)
            self.assertEqual(self.events("run_7-server0.json").count((row, "sum")), 3)
        self.assertNotIn("had no good end", self.merge())

    def test_killed_or_failed_it_leaves_the_last_steps(self):
        for end, code in (("os.kill(os.getpid(), 9)", -signal.SIGKILL), ("raise ValueError", 1)):
            with self.subTest(end):
                found, files, said = self.run_steps(end)
                self.assertEqual((found, files), (
                    code, ["run_7-server0.last", "run_7-worker0.last"]), said)
                self.assertIn("the last steps of worker0, server0", self.merge())
                spans = self.events("run_7-all.json")
                self.assertEqual(spans.count(("fc.bias, chunk 0", "network and server")), 12)
                self.assertEqual(spans.count(("fc.bias, chunk 0", "sum")), 12)
                os.remove(os.path.join(self.folder, "run_7-all.json"))

    def test_a_folder_that_cannot_be_is_named(self):
        os.environ["TELEGRAD_TIMELINE"] = "/proc/none"
        self.addCleanup(os.environ.pop, "TELEGRAD_TIMELINE")
        self.assertIn("TELEGRAD_TIMELINE", workers.refused(telegrad.Error, telegrad.Job))


if __name__ == "__main__":
    unittest.main(verbosity=2)
