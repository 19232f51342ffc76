"""A run that goes on without workers that have died."""

import os
import re
import shutil
import signal
import time
import unittest

from harness import ENDLESS, free_ports, wait_until
from placed import PlacedTest
from proxies import LateProxy

def training(epochs="4", every="10"):
    return ["--network", "mlp", "--data", "digits", "--num-epochs", epochs,
            "--num-batches", "60", "--checkpoint", "ck", "--keep", "1000",
            "--checkpoint-every", every, "--gc-type", "2bit", "--mom", "0.9"]


WENT_ON = re.compile(r"(\d) workers? went on from step (\d+), ([\d.]+) s "
                     r"(?:between two steps|after it came in), and did (\d+) "
                     r"of them once more")


class Elastic(PlacedTest):
    def lose(self, victims, flags, after=3):
        """A run that loses each of the victims, a few checkpoints apart."""
        run = self.start([*flags, "--workers", "3"])
        for victim in victims:
            wanted = len(self.steps()) + after
            wait_until(lambda: len(self.steps()) >= wanted, 60)
            os.kill(self.member(victim), signal.SIGKILL)
            wait_until(lambda: len(WENT_ON.findall(run.stdout())) >
                       victims.index(victim), 20)
        self.assertEqual(self.wait(run, 120), 0, run.output())
        return run, WENT_ON.findall(run.stdout())

    def resumed(self, flags, workers, step):
        """What a new run of so many workers makes of the same checkpoint."""
        for later in [each for each in self.steps() if each > step]:
            name, = [name for name in os.listdir(os.path.join(
                self.folder, "ck")) if name == f"step-{later}" or
                re.fullmatch(f"step-0*{later}", name)]
            shutil.rmtree(os.path.join(self.folder, "ck", name))
        self.run_to_end([*flags, "--workers", str(workers), "--resume",
                         "--reshard-residuals", "sum"], seconds=120)
        return self.result()

    def check_same_as_resumed(self, victim, *more, left=2, first=(), then=()):
        flags = [*training(), *more]
        run, told = self.lose([victim], [*flags, *first, "--elastic", "1"])
        (workers, step, seconds, again), = told
        self.assertEqual(workers, str(left))
        self.assertLess(float(seconds), 5, run.output())
        self.assertLessEqual(int(again), 10, run.output())
        self.assertIn(victim.replace(" ", "/"), run.stdout())
        own = self.result()
        self.assertEqual(self.resumed([*flags, *then], left, int(step)), own)

    def test_the_others_go_on_with_the_bits_of_a_run_that_was_resumed(self):
        self.check_same_as_resumed("worker 1")

    def test_the_first_worker_may_die_and_servers_may_have_the_optimizer(self):
        self.check_same_as_resumed("worker 0", "--update-on", "server",
                                   "--servers", "2")

    def test_workers_that_sum_for_each_other_go_on(self):
        self.check_same_as_resumed("worker 2", "--kv-store", "allreduce")

    def test_one_of_several_servers_may_die(self):
        self.check_same_as_resumed("server 1", first=("--servers", "2"),
                                   then=("--servers", "1"), left=3)

    def test_the_only_server_ends_the_job_and_resume_goes_on(self):
        flags = [*training(epochs="1000"), "--workers", "2", "--servers", "1"]
        run = self.start([*flags, "--elastic", "1:2"])
        wait_until(lambda: len(self.steps()) >= 2, 60)
        os.kill(self.member("server 0"), signal.SIGKILL)
        self.assertEqual(self.wait(run, 20), 23, run.output())
        line, = run.fatal_lines()
        self.assertRegex(line["dead"][0], "server/0@")
        self.assertIn("--resume goes on", line["message"])
        step = self.steps()[-1]
        again = self.start([*flags, "--elastic", "1:2", "--resume"])
        self.assertTrue(wait_until(lambda: self.steps()[-1] > step, 60),
                        again.output())
        again.process.terminate()

    def test_a_killed_one_has_another_in_its_place(self):
        flags = training(epochs="8")
        run = self.start([*flags, "--workers", "3", "--elastic", "1:3"])
        wait_until(lambda: len(self.steps()) >= 3, 60)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.assertEqual(self.wait(run, 120), 0, run.output())
        told = WENT_ON.findall(run.stdout())
        workers, step, _, again = told[-1]
        self.assertEqual(workers, "3", run.output())
        if len(told) > 1:  # else it was there before the others went on
            self.assertEqual((told[0][0], again), ("2", "0"), run.output())
        own = self.result()
        self.assertEqual(self.resumed(flags, 3, int(step)), own)

    def test_before_the_first_checkpoint_all_begin_anew(self):
        run = self.start([*training(every="100epochs"), "--workers", "3",
                          "--elastic", "2"])
        self.wait_for_training(run)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.assertEqual(self.wait(run, 120), 0, run.output())
        (workers, step, _, _), = WENT_ON.findall(run.stdout())
        self.assertEqual((workers, step), ("2", "0"))

    def test_it_goes_on_where_servers_drop_the_slowest(self):
        run, told = self.lose(["worker 1"], [
            *training(), "--update-on", "server", "--drop-slowest", "1",
            "--elastic", "2"])
        (workers, *_), = told
        self.assertEqual(workers, "2", run.output())
        self.assertIn("worker/1: largest", run.stdout())

    def test_one_that_stands_still_is_left_behind(self):
        run = self.start([*training(), "--workers", "3", "--elastic", "1",
                          "--dead-timeout", "2"])
        wait_until(lambda: len(self.steps()) >= 2, 60)
        os.kill(self.member("worker 1"), signal.SIGSTOP)
        self.assertEqual(self.wait(run, 120), 0, run.output())
        (workers, *_), = WENT_ON.findall(run.stdout())
        self.assertEqual(workers, "2")

    def test_who_hears_late_of_anothers_death_goes_on(self):
        """As where its processor is taken: its connections of data are closed, and for a
        while it does not know why."""
        port = free_ports(4)
        proxy = LateProxy(port)
        self.addCleanup(proxy.listener.close)
        names = ("scheduler", "server 0", "worker 0", "worker 1", "worker 2")
        runs = self.start_dmlc(
            [*training(), "--elastic", "2", "--dead-timeout", "20"], workers=3,
            env={name: {"DMLC_PS_ROOT_PORT": str(proxy.port if name == "worker 1" else port)}
                 for name in names})
        wait_until(lambda: len(self.steps()) >= 2, 60)
        proxy.is_open.clear()
        lost = runs.pop("worker 2")
        lost.process.kill()
        time.sleep(7)  # that is what is tested: longer than a verdict takes
        self.assertIsNone(runs["worker 1"].process.poll(), runs["worker 1"].output())
        proxy.is_open.set()
        self.wait_all(runs.values())
        (workers, *_), = WENT_ON.findall(runs["worker 0"].stdout())
        self.assertEqual(workers, "2")

    def check_comes_in(self, first, flags, env, workers):
        """Another worker, without which no step is done twice."""
        before = len(WENT_ON.findall(first.stdout()))
        newcomer = self.start(flags, env=env)
        self.assertTrue(wait_until(
            lambda: len(WENT_ON.findall(first.stdout())) > before, 120),
            first.output() + newcomer.output())
        now, step, seconds, again = WENT_ON.findall(first.stdout())[-1]
        self.assertEqual((now, again), (str(workers), "0"))
        self.assertLess(float(seconds), 10)
        self.assertRegex(newcomer.stderr(), "the job is at step .* comes in")
        return newcomer, int(step)

    def test_others_come_into_a_job_and_wrong_ones_do_it_no_harm(self):
        flags = [*training(epochs="1000"), "--elastic", "1:3"]
        runs = self.start_dmlc(flags)
        wait_until(lambda: len(self.steps()) >= 2, 60)
        first, lost = runs["worker 0"], runs.pop("worker 1")
        lost.process.kill()
        self.assertTrue(wait_until(
            lambda: WENT_ON.findall(first.stdout()), 60), first.output())
        with open(os.open(self.path("secret"), os.O_CREAT | os.O_WRONLY, 0o600),
                  "w") as file:
            file.write("s" * 32)
        for flag, value, code, words in (
                ("--lr", "1", 31, "--lr: (worker|server)/0 has 0.05, worker/1 has 1"),
                ("--secret-file", "secret", 30, "secret")):
            others = [word for name, word in zip(["", *flags], flags)
                      if flag not in (name, word)]
            wrong = self.start([*others, flag, value], env=lost.env)
            self.assertEqual(self.wait(wrong, 120), code, wrong.output())
            self.assertRegex(wrong.stderr(), words)
        self.check_comes_in(first, flags, lost.env, workers=2)
        self.assertRegex(first.stdout(), "worker/1@.* has joined the job; 2 ")
        env = {**lost.env}
        del env["DMLC_WORKER_ID"]
        last, _ = self.check_comes_in(first, flags, env, workers=3)
        wrong = self.start(flags, env=env)
        self.assertEqual(self.wait(wrong, 120), 31, wrong.output())
        self.assertIn("one worker too many: the job takes 3", wrong.stderr())
        last.process.kill()
        self.assertTrue(wait_until(
            lambda: WENT_ON.findall(first.stdout())[-1][0] == "2", 60),
            first.output())
        runs["scheduler"].process.terminate()
        self.wait_all([first, runs["server 0"]], code=33)

    def test_one_more_gives_the_bits_of_a_run_that_was_resumed_with_it(self):
        # So many steps that the newcomer has loaded libtorch before the end.
        flags = [*training(epochs="24"), "--kv-store", "allreduce"]
        runs = self.start_dmlc([*flags, "--elastic", "2:3"], servers=0)
        wait_until(self.steps, 60)
        first = runs["worker 0"]
        env = {**first.env}
        del env["DMLC_WORKER_ID"]
        newcomer, step = self.check_comes_in(
            first, [*flags, "--elastic", "2:3", "--out", "other"], env, 3)
        self.wait_all([*runs.values(), newcomer])
        own = self.result("out-worker-0")
        self.assertEqual(self.resumed(flags, 3, step), own)

    def test_fewer_than_the_least_end_with_20_and_a_checkpoint(self):
        run = self.start([*training(epochs="1000"), "--workers", "3",
                          "--elastic", "2"])
        wait_until(lambda: len(self.steps()) >= 2, 60)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        wait_until(lambda: WENT_ON.findall(run.stdout()), 60)
        os.kill(self.member("worker 2"), signal.SIGKILL)
        self.assertEqual(self.wait(run, 20), 20, run.output())
        line, = run.fatal_lines()
        self.assertEqual(line["below_min_workers"], {"left": 1, "min": 2})
        self.assertIn("1 is left", line["message"])
        self.assertIn("--resume goes on", line["message"])
        self.assertEqual(line["epoch"], 2)

    def test_nobody_dies_and_the_bits_are_the_same(self):
        shas = []
        for more in ([], ["--elastic", "2"]):
            shutil.rmtree(os.path.join(self.folder, "ck"), ignore_errors=True)
            self.run_to_end([*training(), "--workers", "2", *more], seconds=120)
            shas.append(self.result())
        self.assertEqual(*shas)

    def test_what_cannot_be_asked_for(self):
        saving = [*ENDLESS, "--checkpoint", "ck"]
        for flags, words in (
                ([*saving, "--elastic", "0"], "--elastic"),
                ([*saving, "--elastic", "2:1"], "such as 2 or 2:4"),
                ([*saving, "--workers", "4", "--elastic", "2:3"], "4 or more"),
                ([*saving, "--workers", "2", "--elastic", "3"], "1 to 2"),
                ([*ENDLESS, "--elastic", "1"], "needs --checkpoint"),
                ([*saving, "--elastic", "1", "--kv-store", "local"],
                 "has one worker"),
                ([*saving, "--elastic", "1", "--tier1", "on"], "--tier1"),
                ([*saving, "--elastic", "1", "--local-steps", "3"],
                 "--checkpoint-every")):
            with self.subTest(words):
                run = self.start(flags)
                self.assertEqual(self.wait(run, 20), 2, run.output())
                self.assertIn(words, run.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
