"""A NaN in one gradient of one worker, under each policy."""

import unittest

from harness import SHORT, SystemTest

NAN = "nan:1:fc1.weight:123:5"


class NonFinite(SystemTest):
    def run_with(self, codecs, policy, code=0):
        run = self.run_to_end([*SHORT, "--compare", codecs, "--gc-nonfinite",
                               policy, "--inject", NAN], code=code)
        if code == 0:
            self.assertEqual([one["steps"] for one in self.summary()],
                             [10] * len(codecs.split(",")))
            self.assertEqual(run.fatal_lines(), [])
        return run

    def check_error(self, codec):
        run = self.run_with(codec, "error", code=42)
        line, = run.fatal_lines()
        self.assertEqual(line["self"], "launcher", line)
        self.assertEqual(line["code"], 42, line)
        self.assertEqual(line["reason"], "numeric_fault", line)
        for word in ("worker/1", "fc1.weight", "123", "--lr"):
            self.assertIn(word, line["message"], line)
        self.assertEqual(line.get("tensor"), "fc1.weight", line)
        self.assertEqual(line.get("index"), 123, line)
        self.assertEqual(line.get("count"), 1, line)
        self.assertIn(line.get("worker"), (1, "worker/1"), line)

    def test_error_names_worker_tensor_index_count(self):
        self.check_error("2bit")

    def test_error_without_compression_names_them_too(self):
        self.check_error("none")

    # Equal weights on all workers are the program's own condition for exit 0.
    def test_skip_leaves_the_step_out_and_says_so(self):
        run = self.run_with("none,2bit", "skip")
        self.assertEqual(run.stdout().count(" 1 steps were skipped"), 2)

    def test_zero_goes_on(self):
        self.run_with("none,2bit", "zero")

    def test_propagate_goes_on_with_2bit(self):
        self.run_with("2bit", "propagate")

    def test_a_loss_that_is_not_finite_is_no_error(self):
        self.run_to_end([*SHORT, "--lr", "1e30", "--gc-nonfinite", "propagate"])
        self.assertIsNone(self.summary()[0]["loss"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
