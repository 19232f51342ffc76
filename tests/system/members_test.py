"""Four workers, two servers and a scheduler, of which one dies, stops, or loses a connection.

The numbers are those of docs/scenarios.md.
"""

import os
import re
import signal
import subprocess
import time
import unittest

from harness import ENDLESS, wait_until
from placed import PlacedTest

SECONDS = 10  # promised, from a death to the end of all others
LOOKS = ["--disp-batches", "5"]
TRAINING = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
            "--num-batches", "40", "--gc-type", "2bit", "--mom", "0.9", *LOOKS]
SLOWLY = [*TRAINING, "--inject", "slow:0:50"]  # so that there is time for a death
SAVING = ["--checkpoint", "ck", "--checkpoint-every", "5", "--keep", "1000"]
CODES = {"worker 3": 20, "server 1": 23, "scheduler": 24}


class Members(PlacedTest):
    def ports(self):
        """Where our processes listen."""
        said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True,
                              check=True).stdout
        pids = {run.pid for run in self.runs}
        return [line for line in said.splitlines()
                if pids & set(map(int, re.findall(r"pid=(\d+)", line)))]

    def lose(self, victim, runs):
        """All others end with its code, name it, and leave nothing."""
        self.assertTrue(wait_until(lambda: len(self.steps()) >= 2, 60),
                        runs["worker 0"].output())
        self.assertTrue(self.ports())
        lost = runs.pop(victim)
        lost.process.kill()
        lost.process.wait()
        deadline = time.monotonic() + SECONDS
        for run in runs.values():
            code = self.wait(run, max(0, deadline - time.monotonic()))
            self.assertEqual(code, CODES[victim], run.output())
            line, = run.fatal_lines()
            self.assertIn(victim.replace(" ", "/"), line["dead"][0], line)
            if victim != "scheduler":  # whose process nobody is told
                self.assertIn(str(lost.pid), line["dead"][0], line)
        self.assertEqual(self.ports(), [])

    def test_whoever_is_killed_all_others_name_it_and_resume_has_the_bits(self):
        size = ["--workers", "4", "--servers", "2"]
        self.run_to_end([*TRAINING, *size])
        whole = self.result()
        for victim in CODES:
            with self.subTest(victim):
                subprocess.run(["rm", "-rf", self.path("ck")], check=True)
                self.lose(victim, self.start_dmlc(
                    [*SLOWLY, *SAVING], workers=4, servers=2))
                self.run_to_end([*TRAINING, *SAVING, *size, "--resume"])
                self.assertEqual(self.result(), whole)

    def test_one_that_wakes_after_its_verdict_is_fenced(self):
        for elastic in ([], ["--elastic", "2"]):
            with self.subTest(elastic):
                subprocess.run(["rm", "-rf", self.path("ck")], check=True)
                runs = self.start_dmlc(
                    [*SLOWLY, *SAVING, *elastic, "--dead-timeout", "2"],
                    workers=3, servers=1)
                wait_until(lambda: len(self.steps()) >= 2, 60)
                stopped = runs.pop("worker 2")
                os.kill(stopped.pid, signal.SIGSTOP)
                first = runs["worker 0"]
                self.assertTrue(wait_until(
                    lambda: "went on from step" in first.stdout() or
                    first.process.poll() is not None, 30), first.output())
                os.kill(stopped.pid, signal.SIGCONT)
                self.assertEqual(self.wait(stopped, 5), 22, stopped.output())
                line, = stopped.fatal_lines()
                self.assertEqual(line["reason"], "fenced")
                self.wait_all(runs.values(), code=0 if elastic else 20)
        step = int(re.search(r"went on from step (\d+)", first.stdout()).group(1))
        own = self.result("out-worker-0")
        for later in [each for each in self.steps() if each > step]:
            subprocess.run(["rm", "-r", self.path("ck", f"step-{later:012d}")],
                           check=True)
        self.run_to_end([*TRAINING, *SAVING, "--workers", "2", "--resume",
                         "--reshard-residuals", "sum"])
        self.assertEqual(self.result(), own)

    def test_who_stands_still_for_a_while_recovers_with_the_same_bits(self):
        size = ["--workers", "4", "--servers", "2"]
        self.run_to_end([*TRAINING, *size])
        whole = self.result()
        for member in ("worker 1", "server 1", "scheduler"):
            with self.subTest(member):
                run = self.start([*SLOWLY, *size])
                self.wait_for_training(run)
                pid = self.member(member)
                os.kill(pid, signal.SIGSTOP)
                time.sleep(5)  # the pause is what is tested
                os.kill(pid, signal.SIGCONT)
                self.assertEqual(self.wait(run, 120), 0, run.output())
                self.assertEqual(run.fatal_lines(), [])
                self.assertEqual(self.result(), whole)
                said = run.output()
                if member == "scheduler":
                    self.assertIn("the scheduler itself stood still for", said)
                    self.assertNotIn("suspect", said)
                else:
                    name = member.replace(" ", "/")
                    self.assertRegex(said, f"{name}.* suspect: silent for")
                    self.assertRegex(said, f"{name}.* recovered")

    def test_a_surplus_and_a_double_are_refused_and_disturb_nobody(self):
        self.run_to_end([*TRAINING, "--workers", "4", "--servers", "2"])
        whole = self.result()
        slowly = [*SLOWLY[:-1], "slow:0:250"]  # until the late one has come
        runs = self.start_dmlc(slowly, workers=4, servers=2, skip=["worker 3"])
        self.assertTrue(wait_until(lambda: re.search(
            "waiting .* for worker/3$", runs["scheduler"].stderr(), re.M), 60))
        env = {**runs["worker 2"].env}
        double = self.start([*slowly, "--out", "double"], env=env)
        self.assertEqual(self.wait(double, 30), 31, double.output())
        self.assertIn("worker/2", double.fatal_lines()[0]["message"])
        env["DMLC_WORKER_ID"] = "3"
        runs["worker 3"] = self.start([*slowly, "--out", "out-worker-3"], env=env)
        self.wait_for_training(runs["worker 0"])
        late = self.start([*slowly, "--out", "late", "--join-timeout", "3"],
                          env=env)
        self.assertEqual(self.wait(late, 30), 31, late.output())
        self.assertIn("one member too many: all of the job's 6 are there",
                      late.fatal_lines()[0]["message"])
        self.wait_all(runs.values())
        self.assertEqual(self.result("out-worker-0"), whole)

    def cut(self, pid, peers):
        """Resets this process' TCP connections with them."""
        said = subprocess.run(["ss", "-Htnp", "state", "established"],
                              capture_output=True, text=True, check=True).stdout
        pairs = {}  # (own end, other end) -> pid
        for line in said.splitlines():
            fields = line.split()
            for each in re.findall(r"pid=(\d+)", line):
                pairs[fields[2], fields[3]] = int(each)
        cut = 0
        for (own, other), owner in pairs.items():
            if owner == pid and pairs.get((other, own)) in peers:
                port, to = own.rpartition(":")[2], other.rpartition(":")[2]
                subprocess.run(["ss", "-K", "-t", "sport", "=", port, "dport",
                                "=", to], capture_output=True, check=True)
                cut += 1
        return cut

    @unittest.skipIf(os.geteuid() != 0, "only root resets others' connections")
    def test_a_connection_that_is_reset_ends_the_job_by_name_or_is_lived_without(self):
        flags = [*ENDLESS, *SAVING[:-2], "--transport", "tcp", "--tls", "tcp"]
        for elastic in ([], ["--elastic", "1"]):
            with self.subTest(elastic):
                subprocess.run(["rm", "-rf", self.path("ck")], check=True)
                runs = self.start_dmlc([*flags, *elastic], workers=3)
                wait_until(lambda: len(self.steps()) >= 2, 60)
                lost, first = runs.pop("worker 2"), runs["worker 0"]
                self.assertEqual(
                    self.cut(lost.pid, {runs["server 0"].pid}), 1)
                self.assertEqual(self.wait(lost, SECONDS), 22, lost.output())
                self.assertIn("cut off from server/0, which others reach",
                              lost.fatal_lines()[0]["message"])
                if elastic:
                    self.assertTrue(wait_until(
                        lambda: "2 workers went on" in first.stdout(), 30),
                        first.output())
                    first.process.terminate()
                    for run in runs.values():
                        self.wait(run, 20)
                    continue
                self.wait_all(runs.values(), code=20, seconds=SECONDS)
                for run in runs.values():
                    self.assertIn("worker/2", run.fatal_lines()[0]["dead"][0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
