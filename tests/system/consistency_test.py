"""Who steps the weights, when, and who waits: docs/concept_consistency.md."""

import os
import re
import shlex
import unittest

from harness import SHORT, SystemTest

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "../../docs/concept_consistency.md")
# Settings, and flags for all of a line.
OPTIMIZERS = [
    (["none", "none+optimizer=nag+lr=0.02"],
     ["--lr-mult", "bias=0.5", "--wd-mult", "bias=0"]),
    (["none+lr=0.001", "none+optimizer=adamw+lr=0.001+wd=0.01",
      "none+optimizer=rmsprop+lr=0.001"],
     ["--optimizer", "adam", "--beta2", "0.99"]),
    (["none+lr=0.01"], ["--optimizer", "adagrad", "--epsilon", "1e-10"]),
]
ASYNC = ["--kv-store", "dist_async", "--update-on", "server"]
TWO_EPOCHS = ["--network", "mlp", "--num-epochs", "2", "--num-batches", "5",
              "--lr-step-epochs", "1"]


class Consistency(SystemTest):
    def weights(self, flags):
        self.run_to_end([*flags, "--workers", "2", "--servers", "2"])
        return self.summary()[0]["weights_sha256"]

    def test_servers_and_workers_step_alike(self):
        hashes = []
        for settings, flags in OPTIMIZERS:
            with self.subTest(flags):
                both = [*settings, *(f"{one}+update-on=server"
                                     for one in settings)]
                self.run_to_end([*TWO_EPOCHS, "--workers", "2", "--servers",
                                 "2", *flags, "--compare", ",".join(both)])
                weights = [run["weights_sha256"] for run in self.summary()]
                self.assertEqual(weights[:len(settings)],
                                 weights[len(settings):])
                hashes += weights[:len(settings)]
        self.assertEqual(len(set(hashes)), 6)

    def test_the_new_rate_counts(self):
        flags = [*TWO_EPOCHS, "--update-on", "server"]
        self.assertNotEqual(self.weights(flags),
                            self.weights([*flags, "--lr-factor", "0.5"]))

    def test_asynchronous_with_one_worker_is_synchronous(self):
        for devices in ("1", "2"):
            self.run_to_end([*SHORT, "--workers", "1", "--devices", devices,
                             "--update-on", "server", "--compare",
                             "2bit,2bit+kv-store=dist_async"])
            synchronous, asynchronous = self.summary()
            self.assertEqual(asynchronous["weights_sha256"],
                             synchronous["weights_sha256"])
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
        self.run_to_end(["--network", "mlp", "--num-epochs", "1",
                         "--num-batches", "8", "--compare",
                         "none,none+local-steps=4,none+local-steps=3"])
        each, some, more = (run["push_wire_bytes"] for run in self.summary())
        self.assertEqual(some * 4, each)
        # An epoch ends with an exchange: after 3, 6 and 8 steps.
        self.assertEqual(more * 8, each * 3)

    def test_tensors_take_turns(self):
        flags = ["--network", "mlp", "--num-epochs", "1", "--num-batches", "8",
                 "--gc-min-bytes", "0"]
        turns = "+local-steps=4+local-fragments=2"
        # fc1 comes after 2, 6 and 8 steps, the rest after 4 and 8, or the other
        # way round; workers whose weights differ at the end fail.
        self.run_to_end([*flags, "--compare", f"none+local-steps=4,none{turns}"])
        whole, parts = self.summary()
        self.assertLess(whole["push_wire_bytes"], parts["push_wire_bytes"])
        self.assertLess(parts["push_wire_bytes"], 1.5 * whole["push_wire_bytes"])
        self.assertNotEqual(parts["weights_sha256"], whole["weights_sha256"])
        # Nothing that a step has changed meanwhile is lost: one worker steps as
        # without exchanges, but for rounding.
        self.run_to_end([*flags, "--workers", "1", "--servers", "1",
                         "--compare", f"none,none{turns},2bit{turns}"])
        plain, exact, coded = (run["loss"] for run in self.summary())
        self.assertAlmostEqual(exact, plain, delta=1e-4)
        self.assertGreater(abs(coded - plain), 1e-4)

    def test_few_bits_before_adam_are_told_and_cured(self):
        flags = ["--network", "mlp", "--num-epochs", "1", "--num-batches",
                 "100", "--optimizer", "adamw", "--lr", "0.001",
                 "--gc-min-bytes", "0"]
        settings = ["2bit", "2bit+adam-freeze-after=20", "2bit+local-steps=5",
                    "int4", "int2"]
        said = self.run_to_end(
            [*flags, "--compare", ",".join(settings)]).stdout()
        told = re.findall(r"^(\S+) .*2bit sends 2.00 bits of an element in each "
                          "step", said, re.M)
        self.assertEqual(told, ["2bit"], said)
        self.assertEqual(said.count("bits of an element"), 1, said)
        self.assertNotIn("steps go dense", said)
        harmful, *cured = (run["loss"] for run in self.summary())
        self.assertLess(max(cured), harmful, cured)
        run = self.run_to_end([*SHORT, "--optimizer", "adam",
                               "--adam-freeze-after", "10"])
        self.assertIn("warning: all 10 steps go dense: --adam-freeze-after 10",
                      run.stdout())
        run = self.run_to_end([*SHORT, "--optimizer", "adam", "--lr", "0.001",
                               "--gc-type", "auto"])
        self.assertIn("divided by the root of the mean of squares of adam, ",
                      " ".join(self.summary()[0]["decisions"]))

    def test_few_bits_before_rmsprop_are_told_and_before_adagrad_not(self):
        said = self.run_to_end(
            [*SHORT, "--compare", "2bit+optimizer=rmsprop+lr=0.001,"
             "2bit+optimizer=adagrad+lr=0.001"]).stdout()
        self.assertIn("the mean of squares of rmsprop takes", said)
        self.assertNotIn("--adam-freeze-after", said)
        self.assertEqual(said.count("bits of an element"), 1, said)

    def test_muon_learns_and_all_workers_step_alike(self):
        for network, batches in (["mlp"], "60"), (["lenet", "--benchmark", "1"], "2"):
            flags = ["--network", *network, "--num-epochs", "1",
                     "--num-batches", batches, "--optimizer", "muon", "--lr",
                     "0.003"]
            self.run_to_end([*flags, "--workers", "2", "--compare",
                             "none,none+mom=0.95+kv-store=allreduce"])
            run, other = self.summary()
            self.assertEqual(other["weights_sha256"], run["weights_sha256"])
            if network == ["mlp"]:
                self.assertGreater(run["accuracy"], 0.85)
            # Workers are devices of one process, too.
            self.run_to_end([*flags, "--kv-store", "local", "--devices", "2"])
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
