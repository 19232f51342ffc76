"""Comparisons that go on where they were stopped, and runs side by side."""

import json
import os
import re
import signal
import unittest

from harness import (ENDLESS, SHORT, SystemTest, free_ports, processes_in,
                     wait_until)

# What is the same each time.
EQUAL = ["setting", "seed", "accuracy", "loss", "steps", "push_wire_bytes",
         "pull_wire_bytes", "push_raw_bytes", "weights_sha256", "tensors"]
RUNS = ["--compare", "none,2bit", "--seed", "0,1"]
NAMES = [("none", 0), ("none", 1), ("2bit", 0), ("2bit", 1)]


def equal_parts(runs):
    return [{name: run[name] for name in EQUAL} for run in runs]


def names_of(runs):
    return [(run["setting"], run["seed"]) for run in runs]


class Comparison(SystemTest):
    def finished(self, out="telegrad-out"):
        """The runs that are written so far."""
        if not os.path.exists(self.path(out, "summary.json")):
            return []
        return self.summary(out)

    def curves(self, out="telegrad-out"):
        with open(self.path(out, "metrics.jsonl")) as file:
            points = [json.loads(line) for line in file]
        return [(one["setting"], one["seed"], one["step"], one["train_loss"],
                 one["wire_bytes"]) for one in points]

    def change(self, name, edit):
        path = self.path("telegrad-out", name)
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(edit(text))

    def cannot_go_on(self, *flags, words, env=None):
        self.refused([*SHORT, "--continue", *flags], words, env=env)

    def test_settings_have_flags_of_their_own(self):
        alone = {}
        for setting, flags in {
                "none": [], "int8": ["--local-steps", "4", "--lr", "0.02"],
                "2bit": ["--kv-store", "allreduce"]}.items():
            self.run_to_end([*SHORT, *flags, "--compare", setting])
            run, = self.finished()
            alone[setting] = run["weights_sha256"], run["servers"]
        # Where a setting says nothing else, the flag counts.
        self.run_to_end([
            *SHORT, "--lr", "0.05", "--compare", "none,"
            "int8+lr=0.02+local-steps=4,2bit+kv-store=allreduce"])
        runs = self.finished()
        self.assertEqual([(run["weights_sha256"], run["servers"])
                          for run in runs], list(alone.values()))
        self.assertEqual(runs[1]["setting"], "int8+lr=0.02+local-steps=4")

    def test_what_was_finished_is_not_run_again(self):
        run = self.start([*SHORT, *RUNS])
        self.assertTrue(wait_until(self.finished, 60), run.output())
        os.kill(run.pid, signal.SIGKILL)
        run.process.wait()
        self.assert_all_gone(10)
        before = self.finished()
        self.assertLess(len(before), len(NAMES), "killed too late")
        # What a file is written to that is not whole yet.
        for name in ("report.html.1.part", "notes.part"):
            with open(self.path("telegrad-out", name), "w") as file:
                file.write("half")

        again = self.run_to_end([*SHORT, *RUNS, "--continue"])
        taken = re.findall(r"^(\w+), seed (\d)  taken from "
                           r"telegrad-out/summary.json$", again.stdout(), re.M)
        self.assertEqual([(one, int(seed)) for one, seed in taken],
                         names_of(before))
        runs = self.summary()
        self.assertEqual(names_of(runs), NAMES)
        # Times and all.
        self.assertEqual(runs[:len(before)], before)

        self.run_to_end([*SHORT, *RUNS, "--out", "whole"])
        self.assertEqual(equal_parts(runs), equal_parts(self.summary("whole")))
        self.assertEqual(self.curves(), self.curves("whole"))
        self.assertEqual(sorted(os.listdir(self.path("telegrad-out"))),
                         sorted(os.listdir(self.path("whole")) + ["notes.part"]))
        self.assertIn("means of 2 seeds", again.stdout())

    def test_nothing_is_run_where_all_is_there(self):
        self.run_to_end([*SHORT, "--continue"])
        before = self.summary()
        # What only shows, and numbers that are the same.
        run = self.run_to_end([*SHORT, "--continue", "--lr", "5e-2", "-v",
                               "--target", "0.05"])
        self.assertEqual(self.summary(), before)
        self.assertNotIn("connected", run.stdout())
        self.assertIn("test accuracy", run.stdout())
        self.run_to_end([*SHORT, "--continue", "--log-json"])
        events = [json.loads(line)["event"]
                  for line in self.runs[-1].stdout().splitlines()]
        self.assertEqual(events, ["message", "result"])

    def test_settings_can_be_added(self):
        short = self.gradients()
        self.run_to_end([*short, "--compare", "2bit"])
        two_bit = self.summary()
        run = self.run_to_end([*short, "--compare", "none", "--continue"])
        self.assertIn("2bit, seed 0  stays in telegrad-out/summary.json",
                      run.stdout())
        self.assertEqual(names_of(self.summary()), [("none", 0), ("2bit", 0)])
        self.assertEqual(self.summary()[1:], two_bit)
        # Without the flag it begins anew, as ever, and says what that costs.
        run = self.run_to_end([*short, "--compare", "none,int8"])
        self.assertIn("results of another command in telegrad-out were moved",
                      run.stderr())
        self.assertNotIn("to be replaced", run.stdout())
        self.assertEqual(names_of(self.summary()), [("none", 0), ("int8", 0)])
        run = self.run_to_end([*short, "--compare", "none,int8,fp16"])
        self.assertIn("telegrad-out has 2 of these 3 runs, to be replaced; "
                      "--continue takes them", run.stdout())
        run = self.run_to_end([*short, "--compare", "none,int8,fp16"])
        self.assertNotIn("to be replaced", run.stdout())

    def test_runs_of_other_flags_are_refused(self):
        self.run_to_end([*SHORT, "--lr", "0.1"])
        self.cannot_go_on(words=["none, seed 0", "--lr: 0.1 there, 0.05 here",
                                 "another --out"])
        self.cannot_go_on("--lr", "0.1", "--batch-size", "32", "--lr-step-epochs",
                          "0", "--benchmark", "0",
                          words=["--batch-size: 64 there, 32 here",
                                 "--lr-step-epochs: not given there, 0 here"])

    def test_runs_of_another_version_are_refused(self):
        self.run_to_end(SHORT)

        def older(text):
            runs = json.loads(text)
            for fact in runs[0]["identity"]:
                if fact["what"] == "telegrad":
                    fact["value"] = "0.0.9"
            return json.dumps(runs)

        def unknown(text):
            runs = json.loads(text)
            del runs[0]["identity"]
            return json.dumps(runs)

        self.change("summary.json", older)
        self.cannot_go_on(words=["telegrad: 0.0.9 there, 0."])
        self.change("summary.json", unknown)
        self.cannot_go_on(words=["does not say by which flags"])

    def test_harmed_results_are_named(self):
        self.run_to_end([*SHORT, "--disp-batches", "2"])
        flags = ["--disp-batches", "2"]
        for name, edit, words in [
                ("summary.json", lambda text: text[:-9], ["array"]),
                ("summary.json", lambda text: "", ["array"]),
                ("summary.json", lambda text: "[1]", ["run 1", "object"]),
                ("summary.json", lambda text: text.replace('"steps":10',
                                                           '"steps":"x"'),
                 ["run 1", "'steps'"]),
                ("summary.json", lambda text: text.replace('"workers":2',
                                                           '"workers":0'),
                 ["run 1", "'workers'"]),
                ("metrics.jsonl", lambda text: "{}\n" + text,
                 ["line 1", "'setting'"])]:
            with self.subTest(words):
                with open(self.path("telegrad-out", name)) as file:
                    whole = file.read()
                self.change(name, edit)
                self.cannot_go_on(*flags, words=[f"telegrad-out/{name}: ", *words])
                self.change(name, lambda text: whole)
        curves = self.curves()
        self.change("metrics.jsonl", lambda text: text[:-5])
        self.run_to_end([*SHORT, *flags, "--continue"])
        self.assertEqual(self.curves(), curves[:-1])
        os.remove(self.path("telegrad-out", "metrics.jsonl"))
        self.cannot_go_on(*flags, words=["telegrad-out/metrics.jsonl: "])

    def test_launchers_and_schedulers_do_not_go_on(self):
        env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        self.cannot_go_on(words=["--continue", "by itself"], env=env)
        self.cannot_go_on("--scheduler", "127.0.0.1:1",
                          words=["--continue", "--scheduler"])
        run = self.run_to_end([*SHORT, *RUNS, "--jobs", "2"], code=2, env=env)
        self.assertIn("--jobs", run.stderr())

    def test_runs_side_by_side_end_with_the_same_bits(self):
        self.run_to_end([*SHORT, *RUNS, "--out", "in-turn"])
        run = self.run_to_end([*SHORT, *RUNS, "--jobs", "2", "--disp-batches",
                               "5"])
        runs = self.summary()
        self.assertEqual(names_of(runs), NAMES)
        self.assertEqual(equal_parts(runs),
                         equal_parts(self.summary("in-turn")))
        # The last may begin when the others have ended.
        self.assertIn([one["jobs"] for one in runs], ([2] * 4, [2, 2, 2, 1]))
        self.assertEqual([one["jobs"] for one in self.summary("in-turn")],
                         [1] * 4)
        text = run.stdout()
        self.assertIn("2 runs at a time", text)
        self.assertIn("Up to 2 runs shared this machine", text)
        self.assertNotIn("as with none", text)
        lines = [line for line in text.splitlines() if "Batch [" in line]
        self.assertEqual(len(lines), 8, text)
        for line in lines:
            self.assertRegex(line, r"^(none|2bit), seed [01]  Epoch")
        self.run_to_end([*SHORT, *RUNS, "--disp-batches", "5", "--continue"])
        self.assertEqual(self.summary(), runs)

    def test_emulated_workers_are_side_by_side(self):
        flags = [*SHORT, *RUNS, "--emulate-workers", "2", "--jobs", "4"]
        self.run_to_end(flags)
        self.assertEqual([one["jobs"] for one in self.summary()], [4] * 4)

    def workers(self, setting):
        return [pid for pid, line in processes_in(self.folder).items()
                if line.startswith("telegrad-train: worker 1")
                and f" of {setting}, seed " in line]

    def longer(self):
        """Flags of runs that take a second or more each, and no processor."""
        return [*self.gradients(100000)[:-1], "60", "--link", "100mbit"]

    def start_two(self):
        run = self.start([*self.endless_gradients(), "--compare", "none,2bit",
                          "--jobs", "2"])
        self.assertTrue(wait_until(
            lambda: "none  Epoch" in run.stdout()
            and "2bit  Epoch" in run.stdout(), 60), run.output())
        return run

    def test_a_failure_stops_the_others(self):
        run = self.start_two()
        victim, = self.workers("2bit")
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(self.wait(run, 10), 20, run.output())
        self.assert_all_gone(0.5)
        self.assertIn("run 'none' is stopped, since run '2bit' failed",
                      run.stderr())
        self.assertEqual([line["self"] for line in run.fatal_lines()],
                         ["launcher"])

    def test_results_before_a_failure_are_kept(self):
        run = self.start([*self.longer(), "--compare", "none,2bit,int8", "--jobs",
                          "2"])
        self.assertTrue(wait_until(self.finished, 60), run.output())
        pids = wait_until(lambda: self.workers("int8"), 10)
        self.assertTrue(pids, run.output())
        os.kill(pids[0], signal.SIGKILL)
        self.assertEqual(self.wait(run, 20), 20, run.output())
        self.assert_all_gone(0.5)
        kept = self.summary()
        self.assertGreaterEqual(len(kept), 1)
        line, = run.fatal_lines()
        self.assertRegex(line["message"], r"; \d of 3 runs are done: "
                         "--continue does the others$")
        self.run_to_end([*self.longer(), "--compare", "none,2bit,int8", "--continue"])
        for one in kept:
            self.assertIn(one, self.summary())
        self.assertEqual(len(self.summary()), 3)

    def test_results_of_a_launcher_are_written_after_each_run(self):
        port = free_ports(3)
        runs = [self.start([*self.longer(), "--compare", "none,2bit,int8"], env={
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
            for rank in range(2)]
        self.assertTrue(wait_until(self.finished, 60), runs[0].output())
        for run in runs:
            os.kill(run.pid, signal.SIGKILL)
            run.process.wait()
        self.assertIn(names_of(self.summary()),
                      [NAMES[:1], [NAMES[0], NAMES[2]]])
        # Whose number of workers is not told by flags.
        run = self.run_to_end([*self.longer(), "--continue"], code=2)
        self.assertIn("under a launcher", run.stderr())

    def test_a_folder_has_one_writer(self):
        short = self.gradients()
        run = self.start(self.endless_gradients())
        self.wait_for_training(run)
        beside = self.run_to_end([*short, "--continue"], code=2, seconds=20)
        line, = beside.stderr().splitlines()
        for word in "--out telegrad-out", "another telegrad-train":
            self.assertIn(word, line)
        self.run_to_end([*short, "--out", "other"])
        os.kill(run.pid, signal.SIGKILL)
        run.process.wait()
        self.run_to_end(short)

    def test_sigint_stops_all(self):
        run = self.start_two()
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(self.wait(run, 3), 130, run.output())
        self.assert_all_gone(0.5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
