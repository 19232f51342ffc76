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
               "workers": 2, "servers": 0, **given}
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

    def test_lie_in_the_project_and_say_when(self):
        out = results.default_out(["grid"])
        self.assertEqual(os.path.dirname(out),
                         os.path.join(ROOT, "perf", "results"))
        self.assertRegex(os.path.basename(out),
                         r"^grid-\d{4}-\d\d-\d\d-([0-9a-f]{7,}|unknown)")

    def test_do_not_replace_others(self):
        with tempfile.TemporaryDirectory() as folder:
            first = results.default_out(["grid"], folder)
            with open(first + ".json", "w", encoding="utf-8"):
                pass
            second = results.default_out(["grid"], folder)
            self.assertEqual(second, first + "-2")

    def test_do_not_speak_of_the_place(self):
        options = argparse.Namespace(build="b", out="o", rate="1gbit")
        self.assertEqual(results.shown_options(options), {"rate": "1gbit"})


if __name__ == "__main__":
    unittest.main()
