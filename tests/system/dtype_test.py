"""--dtype float16 and bfloat16, and the loss scale, in real jobs: docs/laboratory.md."""

import shutil
import unittest

from harness import SystemTest

FLOAT16 = ["--network", "mlp", "--num-epochs", "1", "--dtype", "float16"]
ONE_SAMPLE = ["--network", "mlp", "--dtype", "float16", "--benchmark", "1", "--num-examples", "1",
              "--batch-size", "1", "--emulate-workers", "1", "--gc-min-bytes", "0",
              "--disp-batches", "1000"]


class Precision(SystemTest):
    def codecs(self):
        text = self.run_to_end(["--help"]).stdout()
        part = text.split("Codecs:\n")[1].split("KVStores:\n")[0]
        names = [line.split()[0] for line in part.splitlines() if line.strip()]
        self.assertGreaterEqual(len(names), 18)
        return names

    def weights(self, flags, **more):
        self.run_to_end([*flags], seconds=400, **more)
        return {one["setting"]: one["weights_sha256"]
                for one in self.summary()}

    # Equal weights on all workers are the program's own condition for exit 0.
    def test_every_codec_leaves_out_what_overflows_at_one_worker(self):
        names = self.codecs()
        run = self.run_to_end(
            [*FLOAT16, "--emulate-workers", "2", "--num-batches", "4",
             "--gc-min-bytes", "0", "--compare", ",".join(names),
             "--inject", "nan:1:fc1.weight:123:1"], seconds=400)
        self.assertEqual([one["setting"] for one in self.summary()], names)
        for words in ("loss scale 32768 from step 2 on", " steps were skipped",
                      "a CPU computes in float32"):
            lines = [line for line in run.stdout().splitlines()
                     if words in line]
            self.assertEqual(len(lines), len(names), (words, run.stdout()))

    def test_a_step_that_is_left_out_leaves_nothing_behind(self):
        # One sample and one rate: each step is the same but for what was kept.
        flags = [*ONE_SAMPLE, "--loss-scale", "1024", "--gc-nonfinite", "skip"]
        every = ["--compare", ",".join(self.codecs())]
        whole = self.weights([*flags, *every, "--num-epochs", "4"])
        run = self.run_to_end([*flags, *every, "--num-epochs", "5", "--inject",
                               "nan:0:fc1.weight:123:2"], seconds=400)
        self.assertEqual(run.stdout().count(" 1 steps were skipped"),
                         len(whole), run.stdout())
        self.assertEqual({one["setting"]: one["weights_sha256"]
                          for one in self.summary()}, whole)
        more = self.weights([*flags, "--num-epochs", "5", "--compare",
                             "none,2bit"])
        for setting, weights in more.items():
            self.assertNotEqual(weights, whole[setting])

    def test_types_differ_and_learn_alike(self):
        weights = self.weights(["--network", "mlp", "--num-epochs", "1",
                                "--num-batches", "80", "--compare",
                                "2bit,2bit+dtype=bfloat16,2bit+dtype=float16"])
        self.assertEqual(len(set(weights.values())), 3)
        for one in self.summary():
            self.assertGreater(one["accuracy"], 0.6, one["setting"])

    def test_without_a_scale_an_overflow_is_an_error_by_name(self):
        for flags, words in (
                # 2^30 times the loss is beyond float16 at once.
                (["--loss-scale", "1073741824"], "with --loss-scale 1.07374e+09"),
                (["--loss-scale", "1", "--lr", "1e30"], "with --loss-scale 1:"),
                (["--lr", "1e30"], "without a loss scale, either")):
            with self.subTest(words):
                run = self.run_to_end([*FLOAT16, *flags, "--num-batches",
                                       "30"], code=42)
                for line in run.fatal_lines():
                    self.assertEqual(line["reason"], "numeric_fault", line)
                    self.assertIn("gradients are not finite in --dtype float16 "
                                  + words, line["message"])

    def test_a_scale_is_in_a_checkpoint(self):
        flags = [*FLOAT16, "--gc-type", "2bit", "--checkpoint-every", "6",
                 "--checkpoint"]
        first = ["--inject", "nan:1:fc1.weight:123:3"]
        flags[-1:-1] = ["--num-batches", "12"]
        whole = self.weights([*flags, "parts", *first])
        shutil.rmtree(self.path("parts", "step-000000000012"))
        shutil.copytree(self.path("parts"), self.path("halves"))
        self.assertEqual(self.weights([*flags, "parts", "--resume"]), whole)
        # Halved before, and again.
        run = self.run_to_end([*flags, "halves", "--resume", "--inject",
                               "nan:0:fc1.weight:123:8"])
        self.assertIn("loss scale 16384 from step 9 on", run.stdout())
        self.assertIn("2 steps were skipped", run.stdout())
        flags = ["bfloat16" if one == "float16" else one for one in flags]
        run = self.run_to_end([*flags, "halves", "--resume"], code=31)
        self.assertIn("dtype 'float16', this run 'bfloat16'",
                      run.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
