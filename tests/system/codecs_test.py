"""Codecs by name, by rule, and in a warm-up, in real jobs."""

import json
import unittest

from harness import SystemTest

TINY = ["-v", "--network", "mlp", "--data", "digits", "--num-epochs", "1",
        "--batch-size", "16", "--disp-batches", "10"]


class Codecs(SystemTest):
    def test_every_kind_of_codec_trains_and_sends_less_both_ways(self):
        settings = ["none", "fp16", "threshold", "topk:0.01", "powersgd",
                    "int8shared", "2bit+packing=radix"]
        self.run_to_end(["--compare", ",".join(settings), "--num-batches", "20",
                         *TINY], seconds=240)
        results = self.summary()
        self.assertEqual([one["setting"] for one in results], settings)
        none = results[0]
        for one in results[1:]:
            for way in ("push", "pull"):
                self.assertGreater(
                    none[f"{way}_wire_bytes"], 1.7 * one[f"{way}_wire_bytes"],
                    one["setting"])
            self.assertNotEqual(one["weights_sha256"], none["weights_sha256"])

    def test_rules_choose_and_the_plan_says_why(self):
        run = self.run_to_end(
            ["--gc-type", "2bit", "--gc-rule", "fc1=int8:block=256;bias=none",
             "--gc-min-bytes", "1KiB", "--num-batches", "20", *TINY],
            seconds=120)
        for words in (("fc1.weight", "int8", "rule fc1=int8:block=256"),
                      ("fc2.weight", "2bit", "type 2bit"),
                      ("fc2.bias", "none", "rule bias=none")):
            lines = [line for line in run.stdout().splitlines()
                     if all(word in line for word in words)]
            self.assertEqual(len(lines), 1, (words, run.stdout()))
        with open(self.path("telegrad-out", "metrics.jsonl")) as file:
            last = [json.loads(line) for line in file][-1]
        tensors = {one["tensor"]: one for one in last["tensors"]}
        self.assertEqual(tensors["fc1.weight"]["codec"], "int8")
        self.assertEqual(tensors["fc2.weight"]["codec"], "2bit")
        self.assertNotIn("fc2.bias", tensors)
        self.assertGreater(tensors["fc1.weight"]["cosine"], 0.9)

    def test_what_is_probably_not_meant_is_said(self):
        run = self.run_to_end(
            ["--compare", "dgc,2bit", "--gc-rule", "nosuch=int8; bias=none",
             "--num-batches", "3", *TINY], seconds=120)
        warnings = [line.split("warning: ") for line in
                    run.stdout().splitlines() if "warning: " in line]
        self.assertEqual([(who.strip(), what.split()[0]) for who, what in
                          warnings],
                         [("dgc", "--gc-rule"), ("dgc", "dgc"),
                          ("2bit", "--gc-rule")])
        self.assertIn("nosuch=int8", warnings[0][1])
        hints = [line.split("hint: ") for line in run.stdout().splitlines()
                 if "hint: " in line]
        self.assertEqual(hints, [])
        self.assertRegex(run.stdout(), "2bit +momentum 0.9 is before the codec, "
                         "with Nesterov's lead")
        for codec in ("dgc", "2bit"):
            run = self.run_to_end(["--gc-type", codec, "--mom", "0",
                                   "--num-batches", "3", *TINY], seconds=120)
            self.assertNotIn("warning: ", run.stdout())
            self.assertNotIn("hint: ", run.stdout())

    def test_codecs_without_a_residual_have_their_numbers(self):
        self.run_to_end(["--gc-type", "qsgd", "--num-batches", "20", *TINY],
                        seconds=120)
        with open(self.path("telegrad-out", "metrics.jsonl")) as file:
            last = [json.loads(line) for line in file][-1]
        tensors = {one["tensor"]: one for one in last["tensors"]}
        weight = tensors["fc1.weight"]
        self.assertIsNone(weight["residual_ratio"])
        self.assertIsNone(weight["saturated_share"])
        self.assertGreater(weight["cosine"], 0.9)
        self.assertLess(0, weight["relative_error"])
        self.assertLess(weight["relative_error"], 0.5)

    def test_an_automatic_packing_on_one_host_is_plain_and_said(self):
        run = self.run_to_end(["--gc-type", "2bit", "--gc-packing", "auto",
                               "--num-batches", "10", *TINY], seconds=120)
        one, = self.summary()
        line, _ = one["decisions"]  # before the momentum
        self.assertRegex(line, "^packing plain: gradients stay on a machine")
        self.assertIn(line, run.stdout())

    def test_the_packing_of_an_emulated_link_is_said(self):
        run = self.run_to_end(["--gc-type", "2bit", "--gc-packing", "auto",
                               "--link", "100mbit", "--num-batches", "3",
                               *TINY], seconds=120)
        line, _ = self.summary()[0]["decisions"]
        self.assertRegex(line, "^packing radix: the emulated link of 0.1 Gb/s")
        self.assertIn(line, run.stdout())

    def test_a_warm_up_is_dense_and_the_guard_speaks(self):
        warm = self.run_to_end(
            ["--compare", "none,2bit+warmup-steps=20+momentum=off", "--num-batches", "20",
             *TINY], seconds=120)
        none, two_bit = self.summary()
        self.assertEqual(none["weights_sha256"], two_bit["weights_sha256"])
        self.assertNotIn("guard:", warm.stdout())
        harmed = self.run_to_end(
            ["--gc-type", "2bit:1e-9", "--num-batches", "90", *TINY],
            seconds=120)
        self.assertIn("guard: fc1.weight goes dense", harmed.stdout())


if __name__ == "__main__":
    unittest.main(verbosity=2)
