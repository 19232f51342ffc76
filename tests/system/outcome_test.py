"""What a comparison prints and writes."""

import json
import os
import re
import unittest

from harness import SHORT, SystemTest

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
            ["--compare", "none,2bit", "--network", "lenet", "--data",
             "digits", "--num-epochs", "1", "--num-batches", str(STEPS),
             "--batch-size", "16", "--gc-min-bytes", "0",
             "--workers", str(workers)], seconds=240)
        return run, self.summary()

    def check_ratios(self, results, two_way):
        none, two_bit = results
        raw = LENET_BYTES * STEPS * two_bit["workers"]
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
                     "pull, MB/step", "ratio", "step ms", "samples/s",
                     "wait %", "headers in"):
            self.assertIn(word, run.stdout())
        self.assertRegex(run.stdout(), r"Epoch\[0\] Batch \[\d+\] Speed: "
                         r"[\d.]+ samples/sec accuracy=[\d.]+")
        self.assertEqual(run.stderr(), "")

    def test_ratios_of_four_workers(self):
        self.check_ratios(self.compare(workers=4)[1], two_way=10)

    def test_speeds_of_codecs_are_kept_for_the_next_run(self):
        def lines(args=(), env=None):
            self.run_to_end([*SHORT, "--gc-type", "auto", *args], env=env)
            return [line for line in self.summary()[0]["decisions"]
                    if line.startswith("calibration: ")]

        self.assertEqual(lines(), [])
        folder = self.path("cache", "telegrad")
        files = sorted(os.listdir(folder))
        self.assertEqual([name.split("-")[0] for name in files],
                         ["additions", "codec", "link"])
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
        # Plans are of the runs' own codecs; they share machines and link.
        none, two_bit = ([line for line in result["plan"]["lines"]
                          if "compression" in line] for result in results)
        self.assertEqual(none[0], "plan: compression off: asked for")
        self.assertRegex(none[1], r"^plan: exchange predicted [\d.e+-]+ ms "
                         "without compression; by measured speeds of 2 ")
        self.assertRegex(two_bit[0], r"^plan: compression 2bit for \d+ of \d+ "
                         r"tensors \(break-even .*\): asked for; link ")
        self.assertRegex(" ".join(results[1]["plan"]["lines"]),
                         r"plan: exchange predicted [\d.e+-]+ ms with 2bit, "
                         r"[\d.e+-]+ ms without; ")
        self.assertRegex(run.stdout(), r"none  link: .* measured in [\d.]+ s")
        # What a look sees of a busy machine may differ.
        self.assertRegex(run.stdout(),
                         "2bit  link: .*(from the cache|, the cache had )")

    def test_the_plan_is_looked_at_once_steps_are_known(self):
        run = self.run_to_end(
            ["--compare", "none,2bit", "--network", "linear", "--data",
             "digits", "--num-epochs", "1", "--num-batches", "20",
             "--gc-min-bytes", "0", "--connections", "auto"])
        for result in self.summary():
            chosen = "connections 1: 127.0.0.1 is this host alone"
            self.assertEqual(result["decisions"].count(chosen), 1)
            self.assertIn(f"{result['setting']}  {chosen}", run.stdout())
            looks = [line for line in result["decisions"]
                     if line.startswith("plan, step 19: ")]
            self.assertEqual(len(looks), 1, result["decisions"])
            self.assertRegex(looks[0], r"steps take [\d.e+-]+ ms, .* exchange "
                             r"[\d.e+-]+ ms, [\d.e+-]+ ms predicted; ")
            self.assertIn(f"{result['setting']}  {looks[0]}", run.stdout())

    def check_plan_of(self, run, result):
        plan = result["plan"]
        self.assertRegex(plan["digest"], r"^[0-9a-f]{64}$")
        self.assertIn(f"plan {plan['digest'][:16]}: agreed by 2 workers on 1 "
                      "machine", plan["lines"][0])
        for what in ("network local:", "cards ", "memory ", "aggregation ",
                     "link ", "compression ", "exchange ", "chunk ",
                     "priority "):
            self.assertEqual(1, sum(line.startswith(f"plan: {what}")
                                    for line in plan["lines"]), plan)
        # One, as without the flag, is no choice.
        self.assertFalse([line for line in plan["lines"]
                          if line.startswith("plan: connections ")])
        for line in plan["lines"]:
            self.assertIn(f"{result['setting']}  {line}", run.stdout())
        with open(self.path("telegrad-out/report.html")) as file:
            self.assertIn(f"<li>{plan['lines'][0]}</li>", file.read())

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
