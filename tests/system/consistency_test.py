"""Who steps the weights, when, and who waits: docs/concept_consistency.md."""

import os
import re
import shlex
import unittest

from harness import SHORT, SystemTest

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "../../docs/concept_consistency.md")
OPTIMIZERS = {
    "sgd": ["--lr-mult", "bias=0.5", "--wd-mult", "bias=0"],
    "nag": ["--lr", "0.02"],
    "adam": ["--lr", "0.001", "--beta2", "0.99"],
    "adamw": ["--lr", "0.001", "--wd", "0.01"],
    "adagrad": ["--lr", "0.01", "--epsilon", "1e-10"],
    "rmsprop": ["--lr", "0.001", "--beta2", "0.99"],
}
ASYNC = ["--kv-store", "dist_async", "--update-on", "server"]
TWO_EPOCHS = ["--network", "mlp", "--num-epochs", "2", "--num-batches", "5",
              "--lr-step-epochs", "1"]


class Consistency(SystemTest):
    def weights(self, flags):
        self.run_to_end([*flags, "--workers", "2", "--servers", "2"])
        return self.summary()[0]["weights_sha256"]

    def test_servers_and_workers_step_alike(self):
        hashes = set()
        for name, flags in OPTIMIZERS.items():
            with self.subTest(name):
                self.run_to_end([*TWO_EPOCHS, "--workers", "2", "--servers",
                                 "2", "--optimizer", name, *flags, "--compare",
                                 "none,none+update-on=server"])
                on_workers, on_servers = [run["weights_sha256"]
                                          for run in self.summary()]
                self.assertEqual(on_workers, on_servers)
                hashes.add(on_workers)
        self.assertEqual(len(hashes), len(OPTIMIZERS))

    def test_the_new_rate_counts(self):
        flags = [*TWO_EPOCHS, "--update-on", "server"]
        self.assertNotEqual(self.weights(flags),
                            self.weights([*flags, "--lr-factor", "0.5"]))

    def test_asynchronous_with_one_worker_is_synchronous(self):
        for devices in ("1", "2"):
            flags = [*SHORT, "--workers", "1", "--gc-type", "2bit", "--devices",
                     devices]
            self.run_to_end([*flags, *ASYNC])
            asynchronous = self.summary()[0]
            self.run_to_end([*flags, "--update-on", "server"])
            self.assertEqual(asynchronous["weights_sha256"],
                             self.summary()[0]["weights_sha256"])
            self.assertEqual(asynchronous["staleness"],
                             ["worker/0: largest 0, mean 0.00"])

    def test_staleness_is_told_and_bounded(self):
        run = self.run_to_end([*SHORT, *ASYNC, "--workers", "3",
                               "--max-staleness", "1"])
        told = self.summary()[0]["staleness"]
        self.assertEqual(len(told), 3)
        for rank, line in enumerate(told):
            self.assertRegex(line, rf"^worker/{rank}: largest [01], mean \d")
            self.assertIn(line, run.stdout())

    def test_a_slow_worker_is_not_waited_for(self):
        # Weights that differ at the end would end the run.
        run = self.run_to_end(
            ["--network", "mlp", "--num-epochs", "2", "--num-batches", "40",
             "--workers", "3", "--servers", "2", "--update-on", "server",
             "--gc-type", "2bit", "--drop-slowest", "1", "--inject",
             "slow:2:300"])
        summary = self.summary()[0]
        self.assertEqual(summary["steps"], 80)
        self.assertEqual(len(summary["staleness"]), 3)
        left_out = []
        for rank, line in enumerate(summary["staleness"]):
            self.assertIn(line, run.stdout())
            late, steps = re.fullmatch(
                rf"worker/{rank}: largest \d+, mean [\d.]+, late (\d+) pushes "
                r"of chunks, (\d+) steps left out", line).groups()
            left_out.append(int(steps))
        self.assertGreater(int(late), 0)
        self.assertGreater(left_out[2], 10, summary["staleness"])

    def test_local_steps_send_less(self):
        flags = ["--network", "mlp", "--num-epochs", "1", "--num-batches", "8"]
        self.run_to_end(flags)
        each = self.summary()[0]
        self.run_to_end([*flags, "--local-steps", "4"])
        some = self.summary()[0]
        self.assertEqual(some["push_wire_bytes"] * 4, each["push_wire_bytes"])
        # An epoch ends with an exchange: after 3, 6 and 8 steps.
        self.run_to_end([*flags, "--local-steps", "3"])
        self.assertEqual(self.summary()[0]["push_wire_bytes"] * 8,
                         each["push_wire_bytes"] * 3)

    def test_tensors_take_turns(self):
        flags = ["--network", "mlp", "--num-epochs", "1", "--num-batches", "8",
                 "--gc-min-bytes", "0"]
        turns = ["--local-steps", "4", "--local-fragments", "2"]
        self.run_to_end([*flags, "--local-steps", "4"])
        whole = self.summary()[0]
        # fc1 comes after 2, 6 and 8 steps, the rest after 4 and 8, or the other
        # way round; workers whose weights differ at the end fail.
        self.run_to_end([*flags, *turns])
        parts = self.summary()[0]
        self.assertLess(whole["push_wire_bytes"], parts["push_wire_bytes"])
        self.assertLess(parts["push_wire_bytes"], 1.5 * whole["push_wire_bytes"])
        self.assertNotEqual(parts["weights_sha256"], whole["weights_sha256"])
        # Nothing that a step has changed meanwhile is lost: one worker steps as
        # without exchanges, but for rounding.
        alone = ["--workers", "1", "--servers", "1"]
        self.run_to_end([*flags, *alone])
        plain = self.summary()[0]["loss"]
        self.run_to_end([*flags, *alone, *turns])
        self.assertAlmostEqual(self.summary()[0]["loss"], plain, delta=1e-4)
        self.run_to_end([*flags, *alone, *turns, "--gc-type", "2bit"])
        self.assertGreater(abs(self.summary()[0]["loss"] - plain), 1e-4)

    def test_few_bits_before_adam_are_told_and_cured(self):
        flags = ["--network", "mlp", "--num-epochs", "1", "--num-batches",
                 "100", "--optimizer", "adamw", "--lr", "0.001",
                 "--gc-min-bytes", "0"]
        harmful = self.run_to_end([*flags, "--gc-type", "2bit"])
        told = "2bit sends 2.00 bits of an element in each step"
        self.assertIn(told, harmful.stdout())
        loss = self.summary()[0]["loss"]
        for cure in (["--gc-type", "2bit", "--adam-freeze-after", "20"],
                     ["--gc-type", "2bit", "--local-steps", "5"],
                     ["--gc-type", "int4"], ["--gc-type", "int2"]):
            run = self.run_to_end([*flags, *cure])
            self.assertNotIn("bits of an element", run.stdout())
            self.assertLess(self.summary()[0]["loss"], loss, cure)
            self.assertNotIn("steps go dense", run.stdout())
        run = self.run_to_end([*SHORT, "--optimizer", "adam",
                               "--adam-freeze-after", "10"])
        self.assertIn("warning: all 10 steps go dense: --adam-freeze-after 10",
                      run.stdout())
        run = self.run_to_end([*SHORT, "--optimizer", "adam", "--lr", "0.001",
                               "--gc-type", "auto"])
        self.assertIn("divided by the root of the mean of squares of adam, ",
                      " ".join(self.summary()[0]["decisions"]))

    def test_few_bits_before_rmsprop_are_told_and_before_adagrad_not(self):
        flags = [*SHORT, "--lr", "0.001", "--gc-type", "2bit"]
        run = self.run_to_end([*flags, "--optimizer", "rmsprop"])
        self.assertIn("the mean of squares of rmsprop takes", run.stdout())
        self.assertNotIn("--adam-freeze-after", run.stdout())
        run = self.run_to_end([*flags, "--optimizer", "adagrad"])
        self.assertNotIn("bits of an element", run.stdout())

    def test_muon_learns_and_all_workers_step_alike(self):
        flags = ["--num-epochs", "1", "--num-batches", "60", "--optimizer",
                 "muon", "--lr", "0.003"]
        self.run_to_end([*flags, "--workers", "2"])
        run = self.summary()[0]
        self.assertGreater(run["accuracy"], 0.9)
        # Workers are devices of one process, too.
        for others in (["--kv-store", "local", "--devices", "2"],
                       ["--mom", "0.95", "--kv-store", "allreduce"]):
            self.run_to_end([*flags, *others])
            self.assertEqual(self.summary()[0]["weights_sha256"],
                             run["weights_sha256"])
        run = self.run_to_end([*SHORT, "--optimizer", "muon", "--lr", "0.001",
                               "--gc-type", "2bit"])
        self.assertIn("2bit beside momentum 0.95 costs accuracy: try "
                      "--local-steps H, or int4", run.stdout())

    def test_what_the_page_shows_works(self):
        with open(PAGE, encoding="utf-8") as page:
            text = page.read().replace("\\\n", " ")
        commands = re.findall(r"^    telegrad-train (.*)$", text, re.M)
        self.assertGreater(len(commands), 5)
        for command in commands:
            with self.subTest(command):
                self.run_to_end(shlex.split(command))


if __name__ == "__main__":
    unittest.main()
