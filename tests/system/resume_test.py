"""A run that was interrupted and goes on ends with the bits of one that was not."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import unittest

from harness import (ENDLESS, HOSTS_FIRST, SHORT, SystemTest, processes_in,
                     wait_until)

# Buffers, draws, a schedule: all that a step depends on.
IMAGES = ["--network", "resnet20", "--benchmark", "1", "--image-shape", "3,8,8",
          "--batch-size", "4", "--num-examples", "160", "--num-epochs", "3",
          "--random-crop", "1", "--random-mirror", "1", "--lr-schedule",
          "cosine", "--warmup-epochs", "1", "--clip-norm", "1",
          "--grad-accumulation", "2", "--disp-batches", "1000"]
DIGITS = ["--network", "mlp", "--data", "digits", "--num-epochs", "2",
          "--num-batches", "12", "--lr-step-epochs", "1"]


class Resume(SystemTest):
    def checkpoints(self, name="ck"):
        path = os.path.join(self.folder, name)
        if not os.path.isdir(path):
            return []
        return sorted(entry for entry in os.listdir(path)
                      if entry.startswith("step-") and
                      not entry.endswith(".writing"))

    def final(self, flags):
        self.run_to_end(flags, seconds=120)
        return [(run["weights_sha256"], run["accuracy"], run["steps"],
                 run["push_wire_bytes"], run["pull_wire_bytes"])
                for run in self.summary()]

    def kill_after(self, flags, count):
        """Kills all processes at once when `count` more checkpoints came."""
        before = set(self.checkpoints())
        run = self.start(flags)
        wait_until(lambda: len(set(self.checkpoints()) - before) >= count or
                   run.process.poll() is not None, 60, pause=0.002)
        for pid in processes_in(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        run.process.wait()
        wait_until(lambda: not processes_in(self.folder), 5)

    def test_killed_at_any_moment_the_bits_stay(self):
        for flags in (IMAGES, DIGITS):
            with self.subTest(flags[1]):
                whole = self.final(flags)
                shutil.rmtree(os.path.join(self.folder, "ck"),
                              ignore_errors=True)
                saving = [*flags, "--checkpoint", "ck", "--checkpoint-every",
                          "3"]
                self.kill_after(saving, 1)
                self.assertTrue(self.checkpoints())
                self.kill_after([*saving, "--resume"], 2)
                self.assertEqual(self.final([*saving, "--resume"]), whole)
                # Once more, from the end: nothing is trained.
                self.assertEqual(self.final([*saving, "--resume"])[0][0],
                                 whole[0][0])

    def test_a_signal_asks_for_one_more(self):
        flags = [*ENDLESS, "--checkpoint", "ck", "--checkpoint-every",
                 "1000000epochs", "--keep", "9"]
        run = self.start(flags)
        self.wait_for_training(run)
        # To the launcher, then to a worker as another launcher has it.
        for count, pid in enumerate((run.pid, self.member("worker 1")), 1):
            os.kill(pid, signal.SIGUSR1)
            wait_until(lambda: len(self.checkpoints()) >= count, 60)
            lines = run.stdout().count("Batch [")
            wait_until(lambda: run.stdout().count("Batch [") > lines + 3, 60)
            self.assertEqual(len(self.checkpoints()), count, run.output())
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(run, 20), 143)
        step = int(self.checkpoints()[-1].split("-")[1])
        again = self.start([*flags, "--resume"])
        self.wait_for_training(again)
        self.assertIn(f"resumed from step {step}", again.stdout())
        again.process.send_signal(signal.SIGTERM)
        self.wait(again, 20)

    def test_a_signal_waits_for_no_line_of_progress(self):
        flags = [*ENDLESS[:-1], "1048576", "--checkpoint", "ck",
                 "--checkpoint-every", "1000000epochs"]
        run = self.start(flags)
        wait_until(lambda: len(processes_in(self.folder)) > 3, 60)

        def is_saved():
            os.kill(run.pid, signal.SIGUSR1)  # ignored before there are workers
            return self.checkpoints()

        self.assertTrue(wait_until(is_saved, 60, pause=0.2), run.output())
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(run, 20), 143)

    def test_the_signal_ends_no_run_without_checkpoints(self):
        run = self.start(ENDLESS)
        self.wait_for_training(run)
        for pid in processes_in(self.folder):
            os.kill(pid, signal.SIGUSR1)
        lines = run.stdout().count("Batch [")
        wait_until(lambda: run.stdout().count("Batch [") > lines + 3, 60)
        self.assertIsNone(run.process.poll(), run.output())
        self.assertGreater(run.stdout().count("Batch ["), lines + 3)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(run, 20), 143)

    def test_what_does_not_fit_is_refused_with_both_values(self):
        saving = ["--network", "mlp", "--num-epochs", "1", "--num-batches",
                  "6", "--checkpoint", "ck", "--checkpoint-every", "2"]
        self.run_to_end([*saving, "--resume"], code=40)
        self.run_to_end(saving)
        self.assertEqual(len(self.checkpoints()), 2)
        self.run_to_end(saving, code=2)  # begins anew in a used folder
        run = self.run_to_end([*saving, "--resume", "--batch-size", "32"],
                              code=31)
        self.assertIn("batch-size '64', this run '32'; give the same, or another", run.stderr())
        for flags, told in (
                (["--gc-type", "2bit"], "codec 'none', this run '2bit'"),
                (["--gc-type", "auto"], "codec 'none', this run 'auto'"),
                (["--dtype", "bfloat16"],
                 "dtype 'float32', this run 'bfloat16'"),
                (["--grad-accumulation", "2"],
                 "grad-accumulation '1', this run '2'"),
                (["--clip-norm", "0.1"], "clip-norm '0', this run '0.1'"),
                (["--label-smoothing", "0.1"], "label-smoothing '0', this"),
                (["--random-crop", "1"], "random-crop '0', this run '4'"),
                (["--mom", "0"], "mom '0.9', this run '0'"),
                (["--wd", "0.1"], "wd '0.0001', this run '0.1'"),
                (["--wd-mult", "bias=0"],
                 "wd-mult '', this run 'bias=0'"),
                (["--gc-guard", "off"], "guard 'on', this run 'off'"),
                (["--gc-threshold", "0.5"], None),
                (["--optimizer", "adam"], "optimizer 'sgd', this run 'adam'")):
            run = self.run_to_end([*saving, "--resume", *flags],
                                  code=2 if told is None else 31)
            self.assertIn(told or "", run.stderr())
            self.assertEqual(run.stdout(), "")  # nothing was started
            self.assertEqual(len(run.stderr().splitlines()), 1)
        run = self.run_to_end([*saving, "--resume", "--servers", "2"], code=31)
        self.assertIn("servers '1', this run '2'", run.stderr())
        for flags in (["--kv-store", "dist_async"], ["--seed", "1,2"],
                      ["--checkpoint-every", "often"]):
            self.run_to_end([*saving, "--resume", *flags], code=2)
        shown = self.run_to_end(["--show-checkpoint", "ck"]).stdout()
        for word in ("step 6 of 6, 0 of 1 epochs and 6 batches: whole", "network",
                     "mlp", "device0/weight/fc1.weight",
                     "step 4 of 6, 0 of 1 epochs and 4 batches: whole"):
            self.assertIn(word, shown)
        # A damaged one is passed over and named, without any the code is 40.
        for step, code in (("6", 0), ("4", 40)):
            part = os.path.join(self.folder, "ck", f"step-{int(step):012d}",
                                "worker-1.part")
            with open(part, "r+b") as file:
                file.seek(5000)
                file.write(b"damage")
            run = self.run_to_end([*saving, "--resume"], code=code)
            if code == 0:
                self.assertIn("passed over", run.stdout())
                with open(part, "r+b") as file:  # written again meanwhile
                    file.seek(5000)
                    file.write(b"damage")

    def two_checkpoints(self):
        """The flags of a run that has saved them, and their manifests."""
        saving = ["--network", "mlp", "--num-epochs", "1", "--num-batches",
                  "4", "--checkpoint", "ck", "--checkpoint-every", "2"]
        self.run_to_end(saving)
        return saving, [self.path("ck", f"step-{step:012d}", "MANIFEST")
                        for step in (2, 4)]

    def test_another_format_is_no_checkpoint(self):
        saving, manifests = self.two_checkpoints()
        for path in manifests:
            with open(path, encoding="utf-8") as file:
                line = file.readline().replace('"version":2', '"version":9')
            self.assertIn('"version":9', line)
            with open(path, "w", encoding="utf-8") as file:
                file.write(line)
                file.write(hashlib.sha256(line.encode()).hexdigest() + "\n")
        run = self.run_to_end([*saving, "--resume"], code=40)
        self.assertIn("format version 9, this program reads 2", run.stderr())
        self.assertEqual(run.stdout(), "")

    def test_a_pipe_in_place_of_a_file_holds_nothing_up(self):
        saving, manifests = self.two_checkpoints()
        for path in manifests:
            os.remove(path)
            os.mkfifo(path)
        run = self.run_to_end([*saving, "--resume"], code=40, seconds=30)
        self.assertIn("MANIFEST: is no regular file", run.stderr())
        run = self.run_to_end(["--show-checkpoint", "ck"], seconds=10)
        self.assertIn("MANIFEST: is no regular file", run.stdout())
        os.mkfifo(self.path("pipe"))
        for flags in (["--network", "mlp", "--plan", "pipe"],
                      ["--network", "mlp", "--data", "cifar10:pipe"],
                      ["--network", "profile:pipe", "--benchmark", "1"]):
            with self.subTest(flags[-1]):
                run = self.run_to_end(flags, code=2, seconds=20)
                self.assertIn("pipe", run.stderr())

    def change_manifest(self, step, change):
        """Of a checkpoint, with a hash that fits."""
        path = self.path("ck", f"step-{step:012d}", "MANIFEST")
        with open(path, encoding="utf-8") as file:
            manifest = json.loads(file.readline())
        change(manifest)
        line = json.dumps(manifest) + "\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(line + hashlib.sha256(line.encode()).hexdigest() + "\n")

    def test_a_place_that_the_run_does_not_have_is_refused(self):
        def training(epochs, batches, *flags):
            return ["--network", "mlp", "--num-epochs", str(epochs),
                    "--num-batches", str(batches), "--checkpoint", "ck",
                    "--checkpoint-every", "6", *flags]
        self.run_to_end(training(1, 6))
        run = self.run_to_end(training(1, 4, "--resume"), code=31)
        self.assertIn("num-batches '6', this run '4'", run.stderr())
        # As of a version without these facts.
        def forget(manifest):
            del manifest["facts"]["num-batches"]
            manifest["facts"]["network"] = "\x1b]0;mlp\x07"
        self.change_manifest(6, forget)
        run = self.run_to_end(training(1, 4, "--resume"), code=31)
        self.assertIn(r"network '\033]0;mlp\007', this run 'mlp'",
                      run.stderr())
        self.change_manifest(6, lambda manifest:
                             manifest["facts"].update(network="mlp"))
        run = self.run_to_end(training(1, 4, "--resume"), code=31)
        self.assertIn("behind batch 6 of an epoch, this run has 4 in one",
                      run.stderr())
        self.run_to_end(training(2, 6, "--resume"))
        run = self.run_to_end(training(1, 6, "--resume"), code=31)
        self.assertIn("has 1 whole epochs and 6 batches, this run --num-epochs "
                      "1", run.stderr())

    def test_emulated_members_are_named(self):
        def training(workers, servers, *flags):
            return ["--network", "mlp", "--data", "digits", "--num-epochs",
                    "1", "--num-batches", "4", "--gc-type", "2bit",
                    "--gc-min-bytes", "0", "--emulate-workers", str(workers),
                    "--servers", str(servers), "--checkpoint", "ck",
                    "--checkpoint-every", "2", *flags]
        self.run_to_end(training(2, 2))
        for workers, servers, told in (
                (4, 2, "emulate-workers '2', this run '4'"),
                (2, 3, "emulated-servers '2', this run '3'")):
            run = self.run_to_end(training(workers, servers, "--resume"),
                                  code=31)
            self.assertIn(told, run.stderr())
        run = self.run_to_end(training(4, 2, "--resume", "--reshard-residuals",
                                       "sum"), code=2)
        self.assertIn("--emulate-workers", run.stderr())
        # Of a version without these facts the codecs' states tell it, where
        # they are others.
        def forget(manifest):
            del manifest["facts"]["emulated-servers"]
        self.change_manifest(4, forget)
        run = self.run_to_end(training(2, 1, "--resume"), code=31)
        self.assertIn("does not fit this run: ", run.stderr())
        self.run_to_end(training(2, 2, "--resume"))

    def test_on_a_full_disk_training_goes_on_and_older_ones_stay(self):
        # A file system of its own, with room for one checkpoint; in the end the
        # run's exit code, behind what the folder holds.
        script = ("mount -t tmpfs -o size=1600k none ck && "
                  '{ "$@"; code=$?; "$1" --show-checkpoint ck; ls ck; '
                  "exit $code; }")
        prefix = ["unshare", "-m", "sh", "-c", script, "sh"]
        os.mkdir(self.path("ck"))
        if subprocess.run([*prefix, "true"], cwd=self.folder, check=False,
                          capture_output=True).returncode:
            self.skipTest("no file system can be mounted here")
        run = self.run_to_end(
            ["--network", "mlp", "--num-epochs", "1", "--num-batches", "10",
             "--workers", "1", "--checkpoint", "ck", "--checkpoint-every", "2"],
            code=41, prefix=prefix)
        self.assertEqual(run.stdout().count("no checkpoint of step"), 2)
        self.assertIn("No space left on device", run.stdout())
        self.assertIn("step 2 of 10, 0 of 1 epochs and 2 batches: whole",
                      run.stdout())
        self.assertIn("\nstep-000000000002\n", run.stdout())
        self.assertNotIn(".writing\n", run.stdout())  # the room is free again
        for line in run.fatal_lines():
            self.assertEqual(line["reason"], "checkpoint_failed")
            self.assertIn("3 checkpoints in a row failed", line["message"])

    def test_a_folder_has_one_run(self):
        flags = [*ENDLESS, "--checkpoint", "ck", "--checkpoint-every", "20"]
        run = self.start(flags)
        self.wait_for_training(run)
        wait_until(self.checkpoints, 60)
        # Two runs deleted each other's, or both ended with 41.
        again = [*flags, "--resume", "--out", "other"]
        second = self.run_to_end(again, code=2)
        for words in ("--checkpoint ck: another telegrad-train",
                      f"process {run.pid} on {socket.gethostname()}"):
            self.assertIn(words, second.stderr())
        self.assertEqual(second.stdout(), "")  # nothing was started
        self.assertIsNone(run.process.poll(), run.output())
        os.kill(run.pid, signal.SIGKILL)
        run.process.wait()
        third = self.start(again)
        self.wait_for_training(third)
        self.assertIn("resumed from step", third.stdout())
        third.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(third, 20), 143)
        self.assertNotIn(".checkpoint.lock", os.listdir(self.path("ck")))

    @unittest.skipUnless(shutil.which("strace"), "strace is not installed")
    def test_without_locks_it_says_so(self):
        flags = [*SHORT, "--checkpoint", "ck", "--checkpoint-every", "5"]
        run = self.start(flags, prefix=[
            "strace", "-qq", "-o", "trace", "-e", "trace=flock", "-e",
            "inject=flock:error=ENOLCK"])
        self.assertEqual(self.wait(run, 120), 0, run.output())
        self.assertIn("--checkpoint ck: this file system keeps no locks",
                      run.stderr())

    @unittest.skipIf(HOSTS_FIRST, "refused: what codecs keep is the host's")
    def test_other_numbers_of_members_need_a_flag(self):
        def training(workers, servers, *flags):
            return ["--network", "mlp", "--data", "digits", "--num-epochs",
                    "1", "--lr", "0.02", "--gc-type", "2bit", "--gc-min-bytes",
                    "0", "--gc-reply", "reencode", "--batch-size", "32",
                    "--workers", str(workers), "--servers", str(servers),
                    "--checkpoint", "ck", "--checkpoint-every", "50",
                    "--keep", "3", *flags]
        self.run_to_end(training(4, 2))
        whole = self.summary()[0]
        self.assertGreater(whole["accuracy"], 0.9)
        shutil.copytree(self.path("ck", "step-000000000050"),
                        self.path("saved", "step-000000000050"))
        for workers, servers, told in (
                (2, 1, "workers '4', this run '2'; --reshard-residuals"),
                (4, 3, "servers '2', this run '3'; --reshard-residuals sum or "
                       "drop")):
            run = self.run_to_end(training(workers, servers, "--resume"),
                                  code=31)
            self.assertIn(told, run.stderr())
        for flags in (["--reshard-residuals", "sum"],
                      ["--resume", "--reshard-residuals", "mean"],
                      ["--resume", "--reshard-residuals", "sum", "--chunk",
                       "auto"]):
            self.run_to_end(training(2, 1, *flags), code=2)
        for workers, servers, way in ((4, 2, "sum"), (2, 1, "sum"),
                                      (8, 3, "sum"), (2, 3, "drop")):
            with self.subTest((workers, servers, way)):
                shutil.rmtree(self.path("ck"))
                shutil.copytree(self.path("saved"), self.path("ck"))
                resuming = training(workers, servers, "--resume",
                                    "--reshard-residuals", way)
                told = self.run_to_end(resuming).stdout()
                self.assertIn("resumed from step 50", told)
                end = self.summary()[0]
                if workers == 4:  # nothing to do: the same bits
                    self.assertNotIn("reshard", told)
                    self.assertEqual(end["weights_sha256"],
                                     whole["weights_sha256"])
                    continue
                self.assertIn(f"--reshard-residuals {way}: ", told)
                if way == "drop":
                    self.assertRegex(told, r"4 workers and 2 server.* an L2 "
                                     r"norm of [0-9.e+]+; .* % of their norm; "
                                     r"most in fc\d")
                # As many samples of 20,000 are behind: with half the workers
                # after twice the batches.
                left = 20000 // 32 // workers - 50 * 4 // workers
                self.assertEqual(end["steps"], 50 + left)
                self.assertGreater(end["accuracy"], 0.85)  # 8: fewer steps
        # What it wrote is of the new numbers.
        again = self.run_to_end(resuming[:-2]).stdout()
        self.assertIn("resumed from step", again)

    def test_three_failed_writes_in_a_row_end_the_run(self):
        run = self.start([*ENDLESS, "--checkpoint", "ck",
                          "--checkpoint-every", "20"])
        self.wait_for_training(run)

        def is_no_folder():
            """Whether a file is in its place; a write may just make it anew."""
            shutil.rmtree(self.path("ck"), ignore_errors=True)
            try:
                with open(self.path("ck"), "x", encoding="utf-8"):
                    return True
            except OSError:
                return False

        self.assertTrue(wait_until(is_no_folder, 60))
        self.assertEqual(self.wait(run, 60), 41, run.output())
        self.assertIn("no checkpoint of step", run.stdout())


if __name__ == "__main__":
    unittest.main()
