"""What a comparison prints and writes."""

import json
import os
import re
import unittest

from harness import HOSTS_FIRST, SHORT, SystemTest

FIELDS = {
    "setting": str, "seed": int, "workers": int, "servers": int,
    "accuracy": float, "loss": float, "steps": int, "seconds": float,
    "samples_per_s": float, "push_raw_bytes": int, "push_wire_bytes": int,
    "pull_raw_bytes": int, "pull_wire_bytes": int, "comm_wait_s": float,
    "weights_sha256": str}
LENET_BYTES = 4 * (20 * 25 + 20 + 50 * 20 * 25 + 50 + 500 * 800 + 500
                   + 10 * 500 + 10)
STEPS = 10


class Outcome(SystemTest):
    def compare(self, workers):
        run = self.run_to_end(
            ["-v", "--compare", "none,2bit", "--network", "lenet", "--data",
             "digits", "--num-epochs", "1", "--num-batches", str(STEPS),
             "--batch-size", "16", "--gc-min-bytes", "0",
             "--workers", str(workers)], seconds=240)
        return run, self.summary()

    def check_ratios(self, results, two_way):
        none, two_bit = results
        raw = LENET_BYTES * STEPS * (1 if HOSTS_FIRST else two_bit["workers"])
        for one in results:
            self.assertEqual(one["push_raw_bytes"], raw)
            self.assertEqual(one["pull_raw_bytes"], raw)
        # Headers are counted.
        self.assertGreater(none["push_wire_bytes"], raw)
        self.assertGreaterEqual(raw / two_bit["push_wire_bytes"], 15)
        self.assertLess(raw / two_bit["push_wire_bytes"], 16)
        self.assertGreaterEqual(
            2 * raw / (two_bit["push_wire_bytes"]
                       + two_bit["pull_wire_bytes"]), two_way)

    def test_comparison_of_two_workers(self):
        run, results = self.compare(workers=2)
        self.check_ratios(results, two_way=12)
        self.check_summary(results)
        self.check_metrics()
        self.check_report()
        self.check_plan(run, results)
        for word in ("setting", "accuracy %", "to none", "push, MB/step",
                     "pull, MB/step", "ratio", "step ms",
                     "wait %", "with headers", "fewer bytes", "connected: ",
                     "Report: telegrad-out/report.html"):
            self.assertIn(word, run.stdout())
        self.assertRegex(run.stdout(), r"Epoch\[0\] Batch \[\d+\] Speed: "
                         r"[\d.]+ samples/sec accuracy=[\d.]+")
        self.assertEqual(run.stderr(), "")

    def test_what_is_connected_is_not_cut_within_parentheses(self):
        run = self.run_to_end([*SHORT, "--transport", "tcp"])
        line, = re.findall("connected: (.*)", run.stdout())
        self.assertRegex(line, r"^tcp: [^()]*(\([^()]*\))?[^()]*$")

    def test_what_is_printed_fits_a_screen(self):
        run = self.run_to_end(
            ["--compare", "none,2bit", "--network", "mlp", "--batch-size",
             "128"], seconds=240)
        lines = run.stdout().splitlines()
        self.assertLessEqual(len(lines), 40, run.stdout())
        self.assertLessEqual(max(map(len, lines)), 100, run.stdout())
        self.assertNotIn("plan", run.stdout())
        self.assertIn("2 workers", lines[0])

    def test_ratios_of_four_workers(self):
        self.check_ratios(self.compare(workers=4)[1], two_way=10)

    def test_speeds_of_codecs_are_kept_for_the_next_run(self):
        def lines(args=(), env=None):
            self.run_to_end([*self.gradients(), "--gc-type", "auto", *args], env=env)
            return [line for line in self.summary()[0]["decisions"]
                    if line.startswith("calibration: ")]

        self.assertEqual(lines(), [])
        folder = self.path("cache", "telegrad")
        files = sorted(os.listdir(folder))
        self.assertEqual([name.split("-")[0] for name in files],
                         ["additions", "codec"])
        kept = lines()
        self.assertEqual(len(kept), 2)
        for line in kept:
            self.assertIn(f" from {folder}/", line)
        self.assertEqual(lines(["--recalibrate"]), [])
        self.assertEqual(sorted(os.listdir(folder)), files)
        for line in lines(env={"XDG_CACHE_HOME": "/dev/null"}):
            self.assertIn(" is not kept: /dev/null/telegrad", line)

    def check_plan(self, run, results):
        for result in results:
            self.check_plan_of(run, result)
        # Plans are of the runs' own codecs.
        none, two_bit = ([each for each in result["plan"]["decisions"]
                          if each["what"] == "compression"]
                         for result in results)
        self.assertEqual(none[0]["choice"], "off")
        self.assertRegex(two_bit[0]["choice"], r"^2bit for \d+ of \d+ tensors")
        self.assertIn("codec and its rules", two_bit[0]["why"])

    def check_plan_of(self, run, result):
        plan = result["plan"]
        self.assertRegex(plan["digest"], r"^[0-9a-f]{64}$")
        self.assertEqual([each["what"] for each in plan["decisions"]
                          if each["what"] not in ("advice", "warning")],
                         ["network", "cards", "memory", "aggregation", "link", "tier1",
                          "compression", "connections", "chunk", "priority"])
        for each in plan["decisions"]:
            self.assertIn(f"{result['setting']}  plan: {each['what']} "
                          f"{each['choice']}", run.stdout())
        with open(self.path("telegrad-out/report.html")) as file:
            self.assertIn(">first layers first</td>", file.read())

    def check_summary(self, results):
        self.assertEqual([one["setting"] for one in results], ["none", "2bit"])
        for one in results:
            for name, kind in FIELDS.items():
                self.assertIs(type(one.get(name)), kind, name)
            self.assertEqual((one["workers"], one["servers"], one["steps"]),
                             (2, 1, STEPS))
            self.assertTrue(0 < one["accuracy"] <= 1)
            self.assertRegex(one["weights_sha256"], r"^[0-9a-f]{64}$")
            self.assertGreater(one["comm_wait_s"], 0)

    def check_metrics(self):
        with open(self.path("telegrad-out", "metrics.jsonl")) as file:
            points = [json.loads(line) for line in file]
        self.assertEqual({point["setting"] for point in points},
                         {"none", "2bit"})
        self.assertEqual(points[-1]["step"], STEPS)

    def check_report(self):
        with open(self.path("telegrad-out", "report.html")) as file:
            page = file.read()
        self.assertIn("<svg", page)
        self.assertIn("</html>", page)
        loads = re.findall(r"(?:src|href)\s*=\s*[\"']?(?!#|data:)[^\"'> ]+",
                           page)
        self.assertEqual(loads, [])
        self.assertNotRegex(page, r"@import|url\(\s*[\"']?http")


if __name__ == "__main__":
    unittest.main(verbosity=2)
