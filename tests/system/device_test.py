"""What trains on a device gives the bits of the CPU.

The emulated device stands for a GPU: a process that reads its memory from the
host dies of SIGSEGV."""

import unittest

from harness import SystemTest

DEVICE = ["--gpus", "emulated"]
DIGITS = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
          "--gc-min-bytes", "0"]
TWELVE = [*DIGITS, "--num-batches", "12"]
TWO_BIT = [*TWELVE, "--gc-type", "2bit"]
# With statistics of batch normalisation.
IMAGES = ["--network", "resnet20", "--benchmark", "1", "--image-shape", "3,8,8",
          "--batch-size", "4", "--num-examples", "80"]


class OnADevice(SystemTest):
    def ends(self, flags):
        """(weights, steps) by setting, and what was printed."""
        run = self.run_to_end(flags)
        devices = flags[flags.index("--devices") + 1] if "--devices" in flags else 1
        for end in self.summary():
            told = [one["value"] for one in end["environment"]
                    if one["what"] == "GPU"]
            self.assertEqual(told, ["the emulated device"] * int(devices)
                             if "--gpus" in flags else [])
        return {end["setting"]: (end["weights_sha256"], end["steps"])
                for end in self.summary()}, run.stdout()

    def final(self, flags):
        ends, text = self.ends(flags)
        (end,) = ends.values()
        return end, text

    def check_same_bits(self, flags):
        """What the runs with these flags ended with, here and there."""
        here, _ = self.ends(flags)
        there, text = self.ends([*flags, *DEVICE])
        self.assertEqual(there, here)
        return there, text

    # Gradients are clipped there, Adam is frozen, and workers step alone.
    def test_whatever_is_done_with_gradients_is_done_there(self):
        adam = "onebit+optimizer=adam+lr=0.001"
        alone = "2bit+local-steps=4"
        settings = ["2bit", "2bit+clip-norm=0.5", adam,
                    adam + "+adam-freeze-after=6", alone,
                    alone + "+local-fragments=2+outer-mom=0.5"]
        ends, _ = self.check_same_bits(
            [*TWELVE, "--compare", ",".join(settings)])
        self.assertEqual(len({weights for weights, _ in ends.values()}),
                         len(settings))

    def test_a_step_that_is_not_finite_is_left_out(self):
        nan = [*TWO_BIT, "--inject", "nan:1:fc1.weight:123:5"]
        weights = set()
        for policy in ("skip", "zero"):
            end, text = self.check_same_bits([*nan, "--gc-nonfinite", policy])
            weights.add(end["2bit"][0])
            self.assertEqual(policy == "skip", "1 steps were skipped" in text,
                             text)
        self.assertEqual(len(weights), 2)

    def test_a_worker_has_several(self):
        self.check_same_bits([*TWELVE, "--kv-store", "local", "--compare",
                              "2bit,2bit+kv-store=device", "--devices", "2",
                              "--work-load-list", "3,1"])

    def test_ready_made_gradients_lie_there(self):
        self.check_same_bits([*self.gradients(786432, 1021, 65537),
                              "--gc-type", "2bit"])

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

    def test_a_checkpoint_there_ends_the_exchange_beside_the_steps(self):
        alone = [*TWO_BIT, "--local-steps", "4", "--local-fragments", "2",
                 "--outer-mom", "0.5", "--checkpoint-every", "7",
                 "--checkpoint"]
        whole, _ = self.final([*alone, "here"])
        self.assertEqual(self.final([*alone, "there", *DEVICE])[0], whole)
        end, text = self.final([*alone, "there", *DEVICE, "--resume"])
        self.assertIn("resumed from step 7", text)
        self.assertEqual(end, whole)


if __name__ == "__main__":
    unittest.main(verbosity=2)
