"""Members that die, stop or are interrupted: everyone learns it in time."""

import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import time
import unittest

from harness import BINARY, ENDLESS, SHORT, SystemTest, processes_in, wait_until

# Promised: seen within 10 s, by everyone.
KILL_SECONDS = 10
LAUNCH = os.path.join(os.path.dirname(__file__), "..", "..", "python", "telegrad-launch")
DEAD_TIMEOUT = 10  # --dead-timeout without the flag
MEMBERS = {"worker 0": "worker/0", "worker 1": "worker/1",
           "worker 2": "worker/2", "server 0": "server/0", "scheduler": "scheduler"}


class Plain(pickle.Unpickler):
    """Reads data alone: nothing may be imported or called."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


class Failure(SystemTest):
    def start_endless(self, *more, network=ENDLESS):
        run = self.start([*network, *more])
        self.wait_for_training(run)
        return run

    def check_fatal_line(self, run, victim, code):
        """One line of the launcher; nobody else says the same once more."""
        line, = run.fatal_lines()
        self.assertEqual(line["self"], "launcher", run.output())
        self.assertEqual(line["code"], code, line)
        self.assertIn(MEMBERS[victim], " ".join(line["dead"]), line)
        self.assertEqual(run.stderr().count(line["message"]), 1, run.output())
        return line

    def kill_member(self, victim, code, *flags, **more):
        run = self.start_endless(*flags, **more)
        pid = self.member(victim)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.wait(run, KILL_SECONDS), code, run.output())
        self.assert_all_gone(0.5)
        return self.check_fatal_line(run, victim, code), pid

    def test_killed_worker_is_named_once_and_gives_20(self):
        line, pid = self.kill_member("worker 1", 20)
        self.assertIn(str(pid), line["dead"][0], line)
        self.assertEqual(line["reason"], "peer_died")
        self.assertNotIn("--resume", line["message"])

    def flight(self, name):
        with open(self.path("telegrad-out", "flight", name), "rb") as file:
            return Plain(file).load()

    def test_who_waited_for_a_killed_worker_is_on_record(self):
        line, _ = self.kill_member("worker 2", 20, "--workers", "3")
        self.assertIn("; flight record", line["message"])
        waiting = self.flight("server_0")["waiting"]
        for one in waiting:  # others may have been about to push
            self.assertIn("worker/2", one["waits_for"])
        late = next(one for one in waiting
                    if one["has"] == ["worker/0", "worker/1"])
        for rank in (0, 1):
            mine = {(one["tensor"], one["step"]): one
                    for one in self.flight(f"worker_{rank}")["waiting"]}
            self.assertEqual(mine[late["tensor"], late["step"]]["waits_for"],
                             ["server/0"])
        self.assertEqual(self.flight("worker_2")["written_by"], "worker/0")
        self.check_analysis(late)

    def check_analysis(self, late):
        """PyTorch's own tool names the rank and the tensor."""
        python = os.environ.get("TELEGRAD_FR_TRACE_PYTHON", sys.executable)
        tool = [python, "-m", "torch.distributed.flight_recorder.fr_trace"]
        if subprocess.run([*tool, "-h"], capture_output=True).returncode != 0:
            self.skipTest(f"{python} has no PyTorch with fr_trace: "
                          "TELEGRAD_FR_TRACE_PYTHON names one that has it")
        said = subprocess.run(
            [*tool, self.path("telegrad-out", "flight"), "-p", "worker_"],
            capture_output=True, text=True, check=True)
        text = said.stdout + said.stderr
        self.assertIn("Not all ranks joining collective", text)
        self.assertIn("missing ranks: {2}", text)
        self.assertIn(f"push-pull of {late['tensor']} at step:{late['step']}",
                      text)

    def test_records_are_written_when_they_are_asked_for(self):
        run = self.start_endless()
        os.kill(run.pid, signal.SIGUSR2)
        folder = self.path("telegrad-out", "flight")
        self.assertTrue(wait_until(
            lambda: os.path.isdir(folder) and sorted(os.listdir(folder)) ==
            ["server_0", "worker_0", "worker_1"], 10), run.output())
        self.assertIsNone(run.process.poll())
        last = self.flight("worker_1")["entries"][-1]
        self.assertGreater(last["record_id"], 0)
        self.assertTrue(wait_until(lambda: "SIGUSR2" in run.stderr(), 5))
        os.kill(run.pid, signal.SIGTERM)
        self.wait(run, 3)

    def test_a_failure_says_that_resume_goes_on(self):
        saving = [*ENDLESS[:2], "--num-epochs", "1000", "--disp-batches", "10",
                  "--checkpoint", "saved", "--checkpoint-every", "5"]
        run = self.start(saving)
        self.wait_for_training(run)
        os.kill(self.member("server 0"), signal.SIGKILL)
        self.assertEqual(self.wait(run, KILL_SECONDS), 23, run.output())
        self.assertTrue(self.check_fatal_line(run, "server 0", 23)[
            "message"].endswith("; --resume goes on from saved"), run.output())

    def test_timelines_hold_the_last_steps(self):
        self.kill_member("worker 1", 20, "--gc-type", "2bit", "--timeline", "traces")
        names = ["server0", "worker0", "worker1"]
        self.assertEqual(sorted(os.listdir(self.path("traces"))),
                         [f"2bit-seed0-{name}.last" for name in names])
        merged = subprocess.run(
            [sys.executable, "-B", LAUNCH, "--merge-timelines", self.path("traces")],
            text=True, capture_output=True, check=False, timeout=60)
        self.assertEqual(merged.returncode, 0, merged.stderr)
        self.assertIn("clocks set back: none", merged.stdout)
        with open(self.path("traces", "2bit-seed0-all.json")) as file:
            events = json.load(file)
        ends = {}
        for event in events:
            if event["ph"] == "X":
                last = ends.setdefault(event["pid"], {})
                last[event["name"]] = event["ts"] + event["dur"]
        self.assertEqual(sorted(ends), [0, 1, 100000])
        self.assertLessEqual({"forward and backward", "encode", "send", "decode", "apply"},
                             set(ends[1]))
        # The step in which it died is there, of all.
        newest = max(max(each.values()) for each in ends.values())
        for member, last in ends.items():
            self.assertLess(newest - max(last.values()), 5e6, member)
        self.run_to_end([*SHORT, "--gc-type", "2bit", "--timeline", "traces"])
        self.assertEqual(sorted(os.listdir(self.path("traces"))),
                         ["2bit-seed0-all.json"] +
                         [f"2bit-seed0-{name}.json" for name in names])

    def test_killed_worker_of_allreduce_is_named(self):
        run = self.start_endless("--kv-store", "allreduce",
                                 network=self.endless_gradients())
        pid = self.member("worker 1")
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.wait(run, KILL_SECONDS), 20, run.output())
        self.assert_all_gone(0.5)
        for line in run.fatal_lines():
            self.assertIn("worker/1", " ".join(line["dead"]), line)
            self.assertIn(str(pid), " ".join(line["dead"]), line)

    def test_killed_worker_whose_host_sums_first_is_named(self):
        # The first one pushes for the other.
        for victim in ("worker 1", "worker 0"):
            with self.subTest(victim):
                self.kill_member(victim, 20, "--tier1", "on",
                                 network=self.endless_gradients())

    def test_each_other_one_that_is_killed_has_its_code(self):
        for victim, code in (("worker 0", 20), ("server 0", 23),
                             ("scheduler", 24)):
            with self.subTest(victim):
                self.kill_member(victim, code,
                                 network=self.endless_gradients())

    def wait_for_steps(self, count):
        """Until so many more steps have a checkpoint."""
        def newest():
            steps = [int(name[5:]) for name in os.listdir(self.path("ck"))
                     if name.startswith("step-") and name[5:].isdigit()]
            return max(steps, default=0)

        wait_until(lambda: os.path.isdir(self.path("ck")), 60)
        start = newest()
        self.assertTrue(wait_until(lambda: newest() >= start + count, 60))

    # More lines than a pipe holds, of steps that take little.
    TALKATIVE = ["--network", "mlp:8", "--batch-size", "1", *ENDLESS[2:-1], "1",
                 "--checkpoint", "ck", "--checkpoint-every", "500"]

    def test_a_stopped_launcher_holds_nobody_up(self):
        run = self.start(self.TALKATIVE)
        self.wait_for_training(run)
        os.kill(run.pid, signal.SIGSTOP)
        self.wait_for_steps(2000)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.assertTrue(wait_until(
            lambda: set(processes_in(self.folder)) == {run.pid}, KILL_SECONDS),
            processes_in(self.folder))
        os.kill(run.pid, signal.SIGCONT)
        self.assertEqual(self.wait(run, 5), 20, run.output())
        self.check_fatal_line(run, "worker 1", 20)

    def test_what_nobody_reads_holds_nobody_up(self):
        for after in ("read", "ended"):
            with self.subTest(after):
                shutil.rmtree(self.path("ck"), ignore_errors=True)
                run = subprocess.Popen(
                    [BINARY, *self.TALKATIVE], cwd=self.folder,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(run.communicate)
                self.addCleanup(run.kill)  # before that
                self.wait_for_steps(2000)
                os.kill(self.member("worker 1"), signal.SIGKILL)
                self.assertTrue(wait_until(
                    lambda: set(processes_in(self.folder)) == {run.pid},
                    KILL_SECONDS), processes_in(self.folder))
                if after == "ended":
                    wait_until(lambda: select.select(
                        [run.stderr], [], [], 0)[0], 5)
                    run.terminate()
                    self.assertEqual(run.wait(5), -signal.SIGTERM)
                out, err = run.communicate(timeout=20)
                self.assertIn(b'"code":20', err)
                if after == "read":
                    self.assertEqual(run.returncode, 20)
                    self.assertGreater(len(out.decode().splitlines()), 1000)

    def test_killed_launcher_takes_all_with_it(self):
        run = self.start_endless(network=self.endless_gradients())
        os.kill(run.pid, signal.SIGKILL)
        run.process.wait()
        self.assert_all_gone(KILL_SECONDS)

    def stop_member(self, victim, code, *flags, timeout=DEAD_TIMEOUT, **more):
        run = self.start_endless(*flags, **more)
        os.kill(self.member(victim), signal.SIGSTOP)
        start = time.monotonic()
        # The launching process kills the stopped one at the verdict.
        self.assertTrue(wait_until(run.fatal_lines, timeout + 2),
                        run.output())
        left = timeout + 3 - (time.monotonic() - start)
        self.assertEqual(self.wait(run, left), code, run.output())
        self.assert_all_gone(0.5)
        self.check_fatal_line(run, victim, code)

    def test_stopped_worker_is_seen_and_ended(self):
        self.stop_member("worker 1", 20)

    def test_stopped_server_and_scheduler_are_seen_and_ended(self):
        for victim, code in (("server 0", 23), ("scheduler", 24)):
            with self.subTest(victim):
                self.stop_member(victim, code, "--dead-timeout", "3", timeout=3,
                                 network=self.endless_gradients())

    def test_no_memory_gives_32(self):
        # Of one position with each other: 17 GB at once, where there are 8.
        gpt = ["--network", "gpt:layers=1,heads=1,width=8,context=65536",
               "--benchmark", "1", "--batch-size", "1", "--num-examples", "4",
               "--num-epochs", "1"]
        few = ["prlimit", f"--as={8 << 30}"]
        run = self.run_to_end(gpt, code=32, prefix=few)
        line, = run.fatal_lines()
        self.assertEqual((line["code"], line["reason"]),
                         (32, "resource_limit"), line)
        self.assertIn("no memory", line["message"])
        run = self.run_to_end([*gpt, "--explain"], code=32, prefix=few)
        self.assertIn("no memory", run.stderr())

    def test_a_limit_of_address_space_is_named(self):
        # OpenBLAS would try for ever to get its buffer.
        run = self.run_to_end(ENDLESS, code=32,
                              prefix=["prlimit", f"--as={1000 << 20}"])
        self.assertIn("more address space than the limit of 1000 MiB",
                      run.stderr())

    def test_two_seconds_of_standstill_are_survived(self):
        run = self.start(["--network", "mlp", "--benchmark", "1",
                          "--num-epochs", "1", "--disp-batches", "5",
                          "--link", "100mbit"])
        self.wait_for_training(run)
        pid = self.member("worker 1")
        os.kill(pid, signal.SIGSTOP)
        # The pause is what is tested.
        time.sleep(2)
        self.assertIsNone(run.process.poll(), "ended before it was tested")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.wait(run, 120), 0, run.output())
        self.assertEqual(run.fatal_lines(), [])

    def interrupt(self, number):
        run = self.start_endless()
        os.kill(run.pid, number)
        self.assertEqual(self.wait(run, 3), 128 + number, run.output())
        self.assert_all_gone(0.5)
        line, = run.fatal_lines()
        self.assertEqual((line["code"], line["reason"], line["message"]),
                         (128 + number, "cancelled",
                          f"ended by {signal.Signals(number).name}"))

    def test_sigint_stops_everything(self):
        self.interrupt(signal.SIGINT)

    def test_sigterm_stops_everything(self):
        self.interrupt(signal.SIGTERM)

    def test_sigint_while_starting_stops_everything(self):
        run = self.start(ENDLESS)
        self.assertTrue(wait_until(
            lambda: "telegrad-train: scheduler" in self.titles(), 60))
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(self.wait(run, 3), 130, run.output())
        self.assert_all_gone(0.5)

    def titles(self):
        return " ".join(processes_in(self.folder).values())


if __name__ == "__main__":
    unittest.main(verbosity=2)
