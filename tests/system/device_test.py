"""What trains on a device gives the bits of the CPU.

The emulated device stands for a GPU: a process that reads its memory from the
host dies of SIGSEGV."""

import unittest

from harness import SystemTest

DEVICE = ["--gpus", "emulated"]
DIGITS = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
          "--num-batches", "12", "--gc-type", "2bit", "--gc-min-bytes", "0"]
# With statistics of batch normalisation.
IMAGES = ["--network", "resnet20", "--benchmark", "1", "--image-shape", "3,8,8",
          "--batch-size", "4", "--num-examples", "80", "--num-epochs", "2"]


class OnADevice(SystemTest):
    def final(self, flags):
        run = self.run_to_end(flags)
        end = self.summary()[0]
        return (end["weights_sha256"], end["steps"]), run.stdout()

    def check_same_bits(self, flags):
        """What the run with these flags ended with, here and there."""
        here, _ = self.final(flags)
        there, text = self.final([*flags, *DEVICE])
        self.assertEqual(there, here)
        return there[0], text

    def test_gradients_are_clipped_there(self):
        plain, _ = self.check_same_bits(DIGITS)
        clipped, _ = self.check_same_bits([*DIGITS, "--clip-norm", "0.5"])
        self.assertNotEqual(clipped, plain)

    def test_a_step_that_is_not_finite_is_left_out(self):
        plain, _ = self.final(DIGITS)
        nan = ["--inject", "nan:1:fc1.weight:123:5"]
        for policy in ("skip", "zero"):
            skipped, text = self.check_same_bits(
                [*DIGITS, *nan, "--gc-nonfinite", policy])
            self.assertNotEqual(skipped, plain[0])
            self.assertEqual(policy == "skip", "1 steps were skipped" in text,
                             text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
