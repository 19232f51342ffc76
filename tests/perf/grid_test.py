#!/usr/bin/env python3
"""What perf/grid makes of what it measures. Nothing is measured here.

    grid_test.py ROOT
"""
import argparse
import importlib.util
import os
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop())
for folder in ("side_by_side", "grid"):
    sys.path.insert(0, os.path.join(ROOT, "perf", folder))

import link  # noqa: E402
import memory  # noqa: E402
import planner  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402


def grid():
    spec = importlib.util.spec_from_file_location(
        "grid", os.path.join(ROOT, "perf", "grid", "__main__.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(frames, wire_bytes, io_cpu_s):
    return {"frames": frames, "wire_bytes": wire_bytes,
            "io_cpu_ns": 1e9 * io_cpu_s}


def calibration(speed, call_s, bits=2):
    return {"reduce": {"value": 10 * speed}, "handover_s": {"value": call_s},
            "codecs": [{"name": "2bit", "push_bits": bits,
                        "encode": {"value": speed},
                        "call_s": {"value": call_s}}], "links": []}


def point(rate, seconds, predictions, chosen):
    """`seconds` and `predictions` of each plan, by its name: lists."""
    return {"nodes": 2, "rate": rate, "profile": "/somewhere/lenet.csv",
            "choices": [{"name": name, "predicted_s": 1.0, "reason": "why"}
                        for name in chosen],
            "plans": {name: {"seconds": seconds.get(name, []),
                             "predictions": predictions.get(name, [1.0]),
                             "simulations": predictions.get(name, [1.0]),
                             "error": None} for name in planner.PLANS}}


class GridTest(unittest.TestCase):
    def test_frames_and_bytes_have_the_costs_that_both_rows_have(self):
        # Two hosts: half of the bytes cross the link, and half of those that
        # come stay on the host and are copied.
        # Each frame comes with a job, whose handing over is half the poster's.
        frame_s, byte_s = 3e-6, 2e-10
        core = {"copy_s": 1e-10, "handover_s": 2e-6}

        def costs(frames, wire):
            return row(frames, wire, frames * (frame_s + 1e-6)
                       + wire / 2 * byte_s + wire / 4 * 1e-10)

        found = link.frame_costs(costs(400, 1e6), costs(400, 2e8), 2, core)
        self.assertAlmostEqual(found[0], frame_s, delta=1e-12)
        self.assertAlmostEqual(found[1], byte_s, delta=1e-16)

    def test_noise_makes_no_cost_negative(self):
        self.assertEqual(
            link.frame_costs(row(400, 1e6, 2e-4), row(400, 2e8, 1e-4), 2,
                             {"copy_s": 1e-10, "handover_s": 2e-6}), (0, 1e-15))

    def test_each_figure_is_the_slowest_nodes(self):
        found = planner.slowest_calibration(
            [calibration(4e9, 2e-6), calibration(3e9, 1e-6)])
        self.assertEqual(found["reduce"]["value"], 3e10)
        self.assertEqual(found["handover_s"]["value"], 2e-6)
        codec, = found["codecs"]
        self.assertEqual(codec["encode"]["value"], 3e9)
        self.assertEqual(codec["call_s"]["value"], 2e-6)
        self.assertEqual((codec["name"], codec["push_bits"]), ("2bit", 2))

    def test_long_plans_run_once_and_short_ones_often(self):
        steps_of = grid().steps_of
        self.assertEqual(steps_of(44), (0, 1))
        self.assertEqual(steps_of(0.45), (1, 4))
        self.assertEqual(steps_of(3e-4), (21, 200))

    def test_touches_what_hosts_need_and_leaves_memory_to_others(self):
        self.assertEqual(memory.needed_bytes(2, 1 << 20, 1 << 40), 64 << 20)
        self.assertEqual(memory.needed_bytes(4, 1 << 30, 10 << 30), 6 << 30)
        self.assertGreater(memory.available_bytes(), 0)

    def test_judges_by_medians_of_rounds(self):
        judged = point("1gbit", {"raw": [2.0, 2.2, 9.0], "fp16": [2.0, 1.0, 1.0]},
                       {"raw": [1.1, 1.1, 5.0]}, ["raw", "fp16", "raw"])
        report.judge(judged)
        self.assertEqual((judged["best"], judged["chosen"]), ("fp16", "raw"))
        self.assertAlmostEqual(judged["regret"], 2.2)
        self.assertAlmostEqual(judged["plans"]["raw"]["predicted_ratio"], 0.5)
        self.assertAlmostEqual(judged["plans"]["raw"]["simulated_ratio"], 0.5)
        self.assertIsNone(judged["plans"]["onebit"]["predicted_ratio"])
        found = report.summary([judged])
        self.assertAlmostEqual(found["median_error"], 0.25)
        self.assertAlmostEqual(found["worst_error_simulated"], 0.5)

    def test_merges_points_of_several_runs(self):
        runs = [[point("1gbit", {"raw": [1.0]}, {}, ["raw"])],
                [point("1gbit", {"raw": [3.0, 2.0]}, {}, ["raw", "raw"]),
                 point("none", {"raw": [1.0]}, {}, ["raw"])]]
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number, points in enumerate(runs):
                out = os.path.join(folder, str(number))
                report.write(argparse.Namespace(out=out), points)
                files.append(out + ".jsonl")
            merged = report.merge(files)
            text = report.write(argparse.Namespace(
                out=os.path.join(folder, "all")), merged)
            about, points = results.read(os.path.join(folder, "all.jsonl"))
        self.assertEqual([each["rate"] for each in merged], ["1gbit", "none"])
        self.assertEqual(merged[0]["plans"]["raw"]["median_s"], 2.0)
        self.assertEqual(len(merged[0]["choices"]), 3)
        self.assertEqual((about["summary"]["points"], len(points)), (2, 2))
        self.assertIn("| 2 | 1gbit | lenet | raw | 2 | raw | 2 | 1 |", text)
        self.assertIn("| 2 | 1gbit | lenet | 2 (0.5) | failed |", text)


if __name__ == "__main__":
    unittest.main()
