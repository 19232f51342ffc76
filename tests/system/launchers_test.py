"""Roles from DMLC_* and torchrun's variables give what embedded runs give."""

import os
import signal
import socket
import unittest

from harness import ENDLESS, SHORT, wait_until
from placed import PlacedTest

TABLE = "bytes of all workers, headers in"  # above the closing table
COMPARE = [*SHORT, "--compare", "none,2bit"]


class Dmlc(PlacedTest):
    def test_comparison_equals_the_embedded_one(self):
        runs = self.start_dmlc(COMPARE, workers=2, servers=2)
        self.wait_all(runs.values())
        self.assertEqual(self.hashes("out-worker-0"),
                         self.embedded_hashes(COMPARE))
        self.assertIn(TABLE, runs["worker 0"].stdout())
        for name, run in runs.items():
            if name != "worker 0":
                self.assertFalse(os.path.exists(self.path(self.out_of(name))))
                self.assertEqual(run.stdout(), "")

    def test_a_killed_worker_ends_all_with_20(self):
        runs = self.start_dmlc([*ENDLESS])
        self.wait_for_training(runs["worker 0"])
        pid = self.member("worker 1")
        self.assertEqual(pid, runs["worker 1"].pid)
        os.kill(pid, signal.SIGKILL)
        runs.pop("worker 1").process.wait()
        self.wait_all(runs.values(), code=20, seconds=10)
        for run in runs.values():
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            self.assertIn("worker/1", lines[0]["dead"][0])

    def test_different_thresholds_give_31_and_both_values(self):
        runs = self.start_dmlc(
            [*SHORT, "--gc-type", "2bit"],
            extra={"worker 0": ["--gc-threshold", "0.5"],
                   "worker 1": ["--gc-threshold", "0.25"]})
        self.wait_all(runs.values(), code=31)
        for run in runs.values():
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            self.assertIn("0.5", lines[0]["message"])
            self.assertIn("0.25", lines[0]["message"])

    def test_different_networks_give_31_and_both_values(self):
        for name, first, second in (("tls", "tcp", "shm"),
                                    ("UCX_TLS", "tcp", "unset")):
            with self.subTest(name):
                env, flags = {}, {}
                if name == "tls":
                    flags = {"worker 0": ["--tls", first],
                             "worker 1": ["--tls", second]}
                else:
                    env = {"worker 0": {name: first}}
                runs = self.start_dmlc([*SHORT, "--transport", "ucx"],
                                       extra=flags, env=env)
                self.wait_all(runs.values(), code=31)
                for run in runs.values():
                    lines = run.fatal_lines()
                    self.assertEqual(len(lines), 1, run.output())
                    self.assertIn(f"{name}: worker/0 has {first}, worker/1 has "
                                  f"{second}", lines[0]["message"])

    def test_a_missing_worker_gives_25_and_its_name(self):
        runs = self.start_dmlc([*SHORT, "--join-timeout", "4"],
                               skip=["worker 1"])
        self.wait_all(runs.values(), code=25, seconds=30)
        for run in runs.values():
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            self.assertIn("worker/1", lines[0]["message"])


class Torchrun(PlacedTest):
    def test_comparison_equals_the_embedded_one(self):
        runs, _ = self.start_torchrun(COMPARE)
        self.wait_all(runs)
        self.assertEqual(self.hashes("out-worker-0"),
                         self.embedded_hashes(COMPARE))

    def test_the_store_of_torchrun_keeps_its_port(self):
        with socket.socket() as store:
            runs, port = self.start_torchrun(SHORT, elastic=True)
            store.bind(("127.0.0.1", port))
            store.listen()
            self.wait_all(runs)
        self.assertTrue(wait_until(
            lambda: os.path.exists(self.path("out-worker-0")), 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
