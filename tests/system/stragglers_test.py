"""Who makes the others wait is named while a run goes on, and at its end."""

import json
import re
import unittest

from harness import SystemTest
from placed import PlacedTest

STEPS = ["--network", "mlp", "--benchmark", "1", "--num-epochs", "1",
         "--num-batches"]
LINE = r"straggler (\w+/\d+): (?:more than )?[\d.]+ times the median, (\w+): "


def named(text):
    """(who, cause) of each line."""
    return re.findall(LINE, text)


class Slowed(SystemTest):
    def test_a_worker_that_computes_longer_is_named(self):
        # Seven seconds of steps: warnings come after two looks, 2 s apart.
        run = self.run_to_end([*STEPS, "70", "--workers", "3", "--inject",
                               "slow:1:100", "--log-json"])
        events = [json.loads(line) for line in run.stdout().splitlines()]
        self.assertEqual(events[-1]["event"], "result")
        steps = [event["event"] for event in events]
        last_step = max(i for i, kind in enumerate(steps) if kind == "progress")
        warnings = [each for event in events[:last_step]
                    if event["event"] == "message"
                    for each in named(event["text"])]
        self.assertIn(("worker/1", "compute"), warnings, run.stdout())
        # Again after a minute, which such a run does not last.
        self.assertEqual(warnings.count(("worker/1", "compute")), 1)
        end = [each for line in events[-1]["stragglers"]
               for each in named(line)]
        self.assertIn(("worker/1", "compute"), end)
        self.assertEqual(events[-1]["stragglers"],
                         self.summary()[0]["stragglers"])

    def test_without_rounds_it_is_named_too(self):
        run = self.run_to_end([*STEPS, "45", "--workers", "3", "--inject",
                               "slow:2:100", "--kv-store", "dist_async",
                               "--update-on", "server"])
        self.assertIn(("worker/2", "compute"),
                      named(" ".join(self.summary()[0]["stragglers"])))
        self.assertIn(("worker/2", "compute"), named(run.stdout()))


class OnSlowLinks(PlacedTest):
    def stragglers(self, slow, **more):
        runs = self.start_dmlc([*STEPS, "25"], extra={
            slow: ["--inject-link", "20mbit"]}, **more)
        self.wait_all(runs.values())
        lines = self.summary("out-worker-0")[0]["stragglers"]
        for line in lines:
            self.assertIn(line, runs["worker 0"].stdout())
        return named(" ".join(lines))

    def test_a_worker_on_a_slow_link_is_named(self):
        self.assertIn(("worker/1", "network"),
                      self.stragglers("worker 1", workers=3, servers=1))

    def test_a_server_on_a_slow_link_is_named(self):
        # Of two the slower one; ranks are given in the order of arrival.
        found = self.stragglers("server 1", workers=2, servers=2)
        servers = [cause for who, cause in found if who.startswith("server/")]
        self.assertEqual(servers, ["server"], found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
