"""What trains on a device gives the bits of the CPU.

The emulated device stands for a GPU: a process that reads its memory from the
host dies of SIGSEGV."""

import unittest

from harness import SystemTest

DEVICE = ["--gpus", "emulated"]
DIGITS = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
          "--gc-min-bytes", "0"]
TWO_BIT = [*DIGITS, "--num-batches", "12", "--gc-type", "2bit"]
# With statistics of batch normalisation.
IMAGES = ["--network", "resnet20", "--benchmark", "1", "--image-shape", "3,8,8",
          "--batch-size", "4", "--num-examples", "80"]


class OnADevice(SystemTest):
    def final(self, flags):
        run = self.run_to_end(flags)
        end = self.summary()[0]
        told = [one["value"] for one in end["environment"] if one["what"] == "GPU"]
        devices = flags[flags.index("--devices") + 1] if "--devices" in flags else 1
        self.assertEqual(told, ["the emulated device"] * int(devices)
                         if "--gpus" in flags else [])
        return (end["weights_sha256"], end["steps"]), run.stdout()

    def check_same_bits(self, flags):
        """What the run with these flags ended with, here and there."""
        here, _ = self.final(flags)
        there, text = self.final([*flags, *DEVICE])
        self.assertEqual(there, here)
        return there[0], text

    def test_gradients_are_clipped_there(self):
        plain, _ = self.check_same_bits(TWO_BIT)
        clipped, _ = self.check_same_bits([*TWO_BIT, "--clip-norm", "0.5"])
        self.assertNotEqual(clipped, plain)

    def test_a_step_that_is_not_finite_is_left_out(self):
        plain, _ = self.final(TWO_BIT)
        nan = ["--inject", "nan:1:fc1.weight:123:5"]
        for policy in ("skip", "zero"):
            skipped, text = self.check_same_bits(
                [*TWO_BIT, *nan, "--gc-nonfinite", policy])
            self.assertNotEqual(skipped, plain[0])
            self.assertEqual(policy == "skip", "1 steps were skipped" in text,
                             text)

    def test_adam_is_frozen_there(self):
        adam = [*DIGITS, "--num-batches", "12", "--gc-type", "onebit",
                "--optimizer", "adam", "--lr", "0.001"]
        plain, _ = self.final(adam)
        frozen, _ = self.check_same_bits([*adam, "--adam-freeze-after", "6"])
        self.assertNotEqual(frozen, plain[0])

    def test_a_worker_has_several(self):
        for store in ("local", "device"):
            self.check_same_bits([*TWO_BIT, "--kv-store", store, "--devices",
                                  "2", "--work-load-list", "3,1"])

    def test_ready_made_gradients_lie_there(self):
        self.check_same_bits(["--benchmark", "1", "--network",
                              "profile:resnet50", "--gc-type", "2bit",
                              "--num-batches", "2"])

    # Statistics of batch normalisation, residuals of workers and servers, and
    # what Adam keeps.
    def test_a_run_goes_on_here_and_there(self):
        flags = [*IMAGES, "--gc-type", "2bit", "--gc-min-bytes", "0",
                 "--gc-reply", "reencode", "--optimizer", "adam", "--lr",
                 "0.01"]
        whole, _ = self.final([*flags, "--num-epochs", "2"])
        for name, before, after in (("there", DEVICE, DEVICE),
                                    ("up", [], DEVICE), ("down", DEVICE, [])):
            with self.subTest(name):
                saving = [*flags, "--checkpoint", name, "--checkpoint-every",
                          "7"]
                self.final([*saving, "--num-epochs", "1", *before])
                end, text = self.final(
                    [*saving, "--num-epochs", "2", "--resume", *after])
                self.assertIn("resumed from step 7", text)
                self.assertEqual(end, whole)

    def test_workers_step_alone_there(self):
        alone = [*TWO_BIT, "--local-steps", "4"]
        plain, _ = self.check_same_bits(alone)
        alone += ["--local-fragments", "2", "--outer-mom", "0.5"]
        streamed, _ = self.check_same_bits(alone)
        self.assertNotEqual(streamed, plain)
        # A checkpoint ends the exchange that runs beside the steps.
        alone += ["--checkpoint-every", "7", "--checkpoint"]
        whole, _ = self.final([*alone, "here"])
        self.assertEqual(self.final([*alone, "there", *DEVICE])[0], whole)
        end, text = self.final([*alone, "there", *DEVICE, "--resume"])
        self.assertIn("resumed from step 7", text)
        self.assertEqual(end, whole)


if __name__ == "__main__":
    unittest.main(verbosity=2)
