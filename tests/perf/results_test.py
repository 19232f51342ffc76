#!/usr/bin/env python3
"""What results of measurements are called.

    results_test.py ROOT
"""
import argparse
import importlib.util
import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop())
sys.path.insert(0, os.path.join(ROOT, "perf", "side_by_side"))

import results  # noqa: E402
import table  # noqa: E402


def script(name):
    """perf/NAME as a module; it starts nothing."""
    folder = os.path.join(ROOT, "perf", name)
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__main__.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def side_by_side_name(**given):
    options = {"profile": "vgg16", "rate": "1gbit", "rails": 1, "paths": 1,
               "workers": 2, "per_host": 1, "servers": 0, **given}
    words = script("side_by_side").words_of(argparse.Namespace(**options))
    return "-".join(words)


class ResultsTest(unittest.TestCase):
    def test_say_what_was_measured(self):
        self.assertEqual(side_by_side_name(),
                         "side-by-side-vgg16-1gbit-2-workers")
        self.assertEqual(
            side_by_side_name(profile="perf/side_by_side/keys_1mib.csv",
                              rate="none", workers=4, servers=1),
            "side-by-side-keys-1mib-unshaped-4-workers-1-server")
        self.assertEqual(side_by_side_name(rails=2),
                         "side-by-side-vgg16-2-rails-of-1gbit-2-workers")
        self.assertEqual(side_by_side_name(rate="250mbit", paths=4),
                         "side-by-side-vgg16-4-paths-of-250mbit-2-workers")
        options = argparse.Namespace(points="small", nodes=None,
                                     rates="10gbit,none", profiles=None)
        self.assertEqual(
            "-".join(script("grid").words_of(options)),
            "grid-2-nodes-10gbit-unshaped-lenet-resnet50")

    def test_times_below_the_links_limit_are_left_out(self):
        # A hundred and one bytes less a burst of two, at ten a second.
        row = table.summary({"error": None, "seconds": [3.0, 9.9, 12.0, 11.0],
                             "sent_bytes": [202], "senders": 2}, 25, 10.0, 2.0)
        self.assertEqual(row["rejected"], 1)
        self.assertEqual((row["min_s"], row["median_s"]), (9.9, 11.0))
        self.assertAlmostEqual(row["link_s"], 9.9)
        self.assertEqual(table.burst_of("256kb"), 262144)
        self.assertEqual(table.burst_of("1500"), 1500)
        unshaped = table.summary({"error": None, "seconds": [3.0],
                                  "sent_bytes": [202], "senders": 2}, 25, None,
                                 2.0)
        self.assertEqual((unshaped["rejected"], unshaped["min_s"]), (0, 3.0))

    def test_contestants_that_cannot_take_part_are_told(self):
        options = argparse.Namespace(only="mxnet", mxnet_python=None)
        with self.assertRaisesRegex(SystemExit, "needs --mxnet-python"):
            script("side_by_side").chosen(options)

    def test_lie_in_the_project_and_say_when(self):
        out = results.default_out(["grid"])
        self.assertEqual(os.path.dirname(out),
                         os.path.join(ROOT, "perf", "results"))
        self.assertRegex(os.path.basename(out),
                         r"^grid-\d{4}-\d\d-\d\d-([0-9a-f]{7,}|unknown)")

    def test_do_not_replace_others(self):
        with tempfile.TemporaryDirectory() as folder:
            first = results.default_out(["grid"], folder)
            with open(first + ".jsonl", "w", encoding="utf-8"):
                pass
            second = results.default_out(["grid"], folder)
            self.assertEqual(second, first + "-2")

    def test_do_not_speak_of_the_place(self):
        options = argparse.Namespace(build="b", out="o", rate="1gbit")
        self.assertEqual(results.shown_options(options), {"rate": "1gbit"})


if __name__ == "__main__":
    unittest.main()
