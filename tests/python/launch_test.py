"""telegrad-launch on one host: real jobs, and how they end."""
import base64
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCH = [sys.executable, "-B", os.path.join(ROOT, "python", "telegrad-launch")]
TRAIN, SERVER, PERF = (os.environ.get(f"TELEGRAD_{name}") for name in ("TRAIN", "SERVER", "PERF"))
SHORT = ["--network", "mlp", "--num-epochs", "1", "--num-batches", "10", "--gc-type", "2bit",
         "--gc-min-bytes", "0"]
ENDLESS = ["--network", "mlp", "--benchmark", "1", "--num-epochs", "1000000", "--disp-batches",
           "10"]
needs_trainer = unittest.skipUnless(TRAIN and os.path.exists(TRAIN), "no telegrad-train here")


class LaunchCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.environment = {**os.environ, "TMPDIR": self.folder}

    def start(self, *words, **more):
        log = open(os.path.join(self.folder, "log"), "wb")
        self.addCleanup(log.close)
        process = subprocess.Popen([*LAUNCH, *words], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, cwd=self.folder, env=self.environment, **more)
        self.addCleanup(self.kill, process)
        return process

    @staticmethod
    def kill(process):
        if process.poll() is None:
            process.kill()
            process.wait()

    def output(self):
        with open(os.path.join(self.folder, "log"), errors="replace") as file:
            return file.read()

    def run_to_end(self, *words, code=0, seconds=90):
        process = self.start(*words)
        try:
            ended = process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"still running:\n{self.output()}")
        self.assertEqual(ended, code, self.output())
        self.assertEqual(self.left(), {})
        return self.output()

    def left(self):
        """pid -> command line of what the test has started and that is still there."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if not os.readlink(f"/proc/{name}/cwd").startswith(self.folder):
                    continue
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    found[int(name)] = file.read().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
        return found

    def wait_until(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"not within {seconds} s: {what}\n{self.output()}")
            time.sleep(0.05)

    def wait_for_training(self, process):
        self.wait_until(lambda: "Batch [" in self.output() or process.poll() is not None,
                        "progress")
        self.assertIsNone(process.poll(), self.output())

    def assert_all_gone(self, seconds=5):
        self.wait_until(lambda: not self.left(), "all processes gone", seconds)
        self.assertEqual([name for name in os.listdir(self.folder)
                          if name.startswith("telegrad-launch-")], [])

    def script(self, text):
        path = os.path.join(self.folder, "script.py")
        with open(path, "w") as file:
            file.write(text)
        return [sys.executable, path]


class Local(LaunchCase):
    def test_processes_know_their_rank_both_ways(self):
        words = self.script("import os, json\nprint(json.dumps(dict(os.environ)))\n")
        text = self.run_to_end("-n", "2", "-s", "1", "--env", "A=1", "--env-worker", "B:2",
                               "--env-server", "C=3", "--", *words)
        found = {}
        for line in text.splitlines():
            title, variables = re.fullmatch(r"\[(.*?)\] (.*)", line).groups()
            found[title] = json.loads(variables)
        self.assertEqual(sorted(found), ["scheduler", "server 0", "worker 0", "worker 1"])
        for title, its in found.items():
            role = title.split()[0]
            self.assertEqual((its["DMLC_ROLE"], its["DMLC_NUM_WORKER"], its["DMLC_NUM_SERVER"]),
                             (role, "2", "1"))
            self.assertEqual(its["DMLC_PS_ROOT_URI"], "127.0.0.1")
            self.assertEqual((its["A"], its.get("B"), its.get("C")),
                             ("1", "2", None) if role == "worker" else ("1", None, "3"))
        for rank in (0, 1):
            its = found[f"worker {rank}"]
            self.assertEqual([its[name] for name in (
                "DMLC_WORKER_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")],
                [str(rank)] * 3 + ["2", "2"])
            self.assertNotEqual(its["MASTER_PORT"], its["DMLC_PS_ROOT_PORT"])

    def test_the_exit_code_is_the_programs(self):
        words = self.script("import os, sys\nsys.exit(7 if os.environ['RANK'] == '1' else 0)\n")
        text = self.run_to_end("-n", "3", "--", *words, code=7)
        self.assertIn("telegrad-launch: the job ended with 7: worker 1 ended with 7", text)

    def test_a_line_of_the_job_is_left(self):
        path = os.path.join(self.folder, "jobs.jsonl")
        result = json.dumps({"event": "result", "steps": 7, "tensors": [1]})
        for words, code in ((f"echo $TELEGRAD_LOG_JSON; echo '{result}'; echo '{{\"event\"'", 0),
                            ("exit 20", 20)):
            self.run_to_end("-n", "2", "-s", "1", "--account", path, "--", "sh", "-c",
                            f"[ $DMLC_ROLE = worker ] || exit 0; {words}", code=code)
        self.run_to_end("-n", "1", "--account", path, "--", "/none/such", code=2)
        with open(path, encoding="utf-8") as file:
            good, bad, refused = map(json.loads, file)
        self.assertEqual((refused["code"], refused["reason"], refused["program"]),
                         (2, "usage", ["/none/such"]))
        self.assertEqual(good["results"], [{"steps": 7}] * 2)
        self.assertEqual((good["event"], good["cluster"], good["workers"], good["servers"],
                          good["starts"], good["code"], good["reason"]),
                         ("job", "local", 2, 1, 1, 0, ""))
        self.assertEqual((bad["code"], bad["reason"], bad["results"]), (20, "peer_died", []))
        self.assertIn("worker", bad["message"])
        said = self.run_to_end("-n", "1", "--account", self.folder, "--", "true", code=2)
        self.assertIn("--account", said)

    def test_who_waits_for_ever_is_ended_once_another_has_failed(self):
        words = self.script(
            "import os, sys, time, subprocess\n"
            "if os.environ['RANK'] == '1': sys.exit(9)\n"
            "subprocess.Popen(['sleep', '1000'])\ntime.sleep(1000)\n")
        self.run_to_end("-n", "2", "--", *words, code=9, seconds=20)
        self.assert_all_gone()

    def test_lines_are_whole_and_the_last_needs_no_end(self):
        words = self.script(
            "import os, sys\nfor i in range(300): os.write(1, b'x' * 999 + b'\\n')\n"
            "os.write(1, b'a\\rb'); os.write(2, b'\\xff\\n')\n")
        lines = self.run_to_end("-n", "2", "--", *words).splitlines()
        whole = re.compile(r"\[worker [01]\] (x{999}|b|\ufffd)")
        self.assertEqual([line for line in lines if not whole.fullmatch(line)], [])
        self.assertEqual(len(lines), 604)

    def test_long_lines_are_whole_and_those_beyond_are_cut_aloud(self):
        words = self.script("print('x' * 1000000)\nprint('y' * 2500000)\nprint('z')\n")
        lines = self.run_to_end("--", *words).splitlines()
        self.assertEqual(lines[0], "[worker 0] " + "x" * 1000000)
        self.assertEqual(lines[-1], "[worker 0] z")
        for line in lines[1:-2]:
            self.assertTrue(line.endswith("y [this line goes on]"), line[-40:])
        self.assertEqual(sum(line.count("y") for line in lines[1:-1]), 2500000)
        self.assertEqual(len(lines), 5)

    def test_what_cannot_be_started_is_named_before_anything_runs(self):
        for words, code, text in (
                (["--", "no-such-program"], 2, "the program no-such-program is not there"),
                (["--", sys.executable, "nothing.py"], 2, "the file nothing.py is not there"),
                (["--workdir", "/nowhere", "--", "true"], 2, "the folder /nowhere is not there"),
                (["-H", "/nowhere", "--", "true"], 2, "-H /nowhere: No such file"),
                (["--env", "NOT_SET_HERE", "--", "true"], 2, "NOT_SET_HERE: it is not set"),
                (["--cluster", "ssh", "--", "true"], 2, "needs hosts: give -H"),
                (["-n", "0", "--", "true"], 2, "'0' is no number"),
                (["-n", "2"], 2, "no PROGRAM")):
            with self.subTest(" ".join(words)):
                self.assertIn(text, self.run_to_end(*words, code=code, seconds=20))

    def test_the_secret_of_an_agent_that_was_killed_goes_with_the_next_start(self):
        def folders():
            return [os.path.join(self.folder, name) for name in os.listdir(self.folder)
                    if name.startswith("telegrad-launch-")]

        process = self.start("--", "/usr/bin/sleep", "1000")
        self.wait_until(lambda: "/usr/bin/sleep 1000" in self.left().values(), "its process")
        kept, = folders()
        os.utime(kept, (0, 0))
        self.start("--", "true").wait(60)
        self.assertEqual(folders(), [kept])  # whoever lives keeps it
        agent, = [pid for pid, line in self.left().items() if " -IS -c exec(" in line]
        os.kill(agent, signal.SIGKILL)
        process.wait(60)
        self.assertEqual(os.listdir(kept), ["secret"])
        os.utime(kept, (0, 0))
        self.start("--", "true").wait(60)
        self.assert_all_gone()

    def test_kubectl_gets_job_and_secret_on_its_standard_input(self):
        program = os.path.join(self.folder, "kubectl")
        with open(program, "w") as file:
            file.write("#!/bin/sh\necho \"$@\" > arguments\ncat > input\nexit 3\n")
        os.chmod(program, 0o755)
        self.environment["PATH"] = f"{self.folder}:{os.environ['PATH']}"
        self.run_to_end("--cluster", "kubernetes", "--image", "x:1", "-n", "2", "--", "true",
                        code=3)
        with open(os.path.join(self.folder, "arguments")) as file:
            self.assertEqual(file.read(), "apply -f -\n")
        with open(os.path.join(self.folder, "input")) as file:
            *parts, job, secret = file.read().split("---\n")
        for kind in ("Service", "NetworkPolicy"):
            self.assertIn(f"kind: {kind}\n", "".join(parts))
        self.assertIn("completions: 2", job)
        secret = json.loads(secret)
        self.assertEqual((secret["kind"], secret["metadata"]["name"]), ("Secret", "telegrad"))
        self.assertEqual(len(base64.b64decode(secret["data"]["secret"])), 32)

    def test_it_needs_nothing_else_of_telegrad(self):
        program = ("import runpy, sys\nsys.argv[1:] = ['--dry-run', '--', 'true']\n"
                   f"try: runpy.run_path({LAUNCH[-1]!r}, run_name='__main__')\n"
                   "except SystemExit: pass\n"
                   "print(sorted(n for n in sys.modules if n.startswith(('telegrad.', 'torch',"
                   " 'numpy')) or n == 'telegrad'))\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(done.stdout.splitlines()[-1], "[]", done.stderr)

    def test_as_a_module_it_runs_where_the_library_is_not(self):
        done = subprocess.run([sys.executable, "-m", "telegrad.launch", "--", "echo", "here"],
                              capture_output=True, text=True,
                              env={**os.environ, "TELEGRAD_LIBRARY": "/nowhere",
                                   "PYTHONPATH": os.path.join(ROOT, "python")})
        self.assertEqual((done.returncode, done.stdout), (0, "[worker 0] here\n"), done.stderr)


@unittest.skipUnless(os.environ.get("TELEGRAD_LIBRARY") and importlib.util.find_spec("numpy"),
                     "no libtelegrad.so or no NumPy here")
class KVStore(LaunchCase):
    SCRIPT = ("import numpy, os, telegrad.kvstore\n"
              "store = telegrad.kvstore.create('dist_sync')\n"
              "x = numpy.full(4, 1 + store.rank, 'float32')\n"
              "store.init('x', numpy.zeros_like(x))\nstore.pushpull('x', x, out=x)\n"
              "print('sum', x[0], 'of', store.num_workers)\n")

    def test_workers_serve_or_servers_do(self):
        for servers in ("0", "1"):
            text = self.run_to_end("-n", "2", "-s", servers, "--", *self.script(self.SCRIPT))
            self.assertEqual(sorted(text.splitlines()),
                             ["[worker 0] sum 3.0 of 2", "[worker 1] sum 3.0 of 2"])

    def test_a_store_that_nobody_closes_leaves_its_line(self):
        path = os.path.join(self.folder, "jobs.jsonl")
        for more, code, reason in (("", 0, ""), ("raise SystemExit(9)\n", 9, "")):
            self.run_to_end("-n", "2", "--account", path, "--",
                            *self.script(self.SCRIPT + more), code=code)
            with open(path, encoding="utf-8") as file:
                job = json.loads(file.readlines()[-1])
            self.assertEqual((job["code"], job["reason"]), (code, reason))
            (result,) = job["results"]
            self.assertEqual((result["rank"], result["workers"], result["steps"], result["code"]),
                             (0, 2, 1, 0))
            self.assertEqual(result["push_raw_bytes"], 16)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch here")
    def test_a_script_of_ddp_is_compressed(self):
        script = os.path.join(ROOT, "tests", "python", "train_script.py")
        text = self.run_to_end("-n", "2", "--", sys.executable, "-m", "telegrad.run", "--gc-type",
                               "2bit", script, "3")
        losses = re.findall(r"\[worker [01]\] loss .* weights (.*)", text)
        self.assertEqual(len(losses), 2)
        self.assertEqual(*losses)

    def test_a_secret_that_others_can_read_is_refused(self):
        open(os.path.join(self.folder, "open"), "w").close()
        text = self.run_to_end("--env", "TELEGRAD_SECRET_FILE=open", "--",
                               *self.script(self.SCRIPT), code=30)
        self.assertIn("TELEGRAD_SECRET_FILE=open: another user can read it", text)


@needs_trainer
class Training(LaunchCase):
    def hash_of(self, out):
        with open(os.path.join(self.folder, out, "summary.json")) as file:
            (one,) = json.load(file)
        return one["workers"], one["servers"], one["weights_sha256"]

    def test_it_gives_what_the_trainer_gives_by_itself(self):
        self.run_to_end("-n", "2", "--", TRAIN, *SHORT, "--out", "beside")
        self.run_to_end("-n", "2", "-s", "2", "--server-program", SERVER, "--", TRAIN, *SHORT,
                        "--out", "own")
        subprocess.run([TRAIN, *SHORT, "--workers", "2", "--servers", "2", "--out", "alone"],
                       cwd=self.folder, check=True, capture_output=True)
        self.assertEqual(self.hash_of("beside"), self.hash_of("alone"))
        self.assertEqual(self.hash_of("own"), self.hash_of("alone"))

    def test_commands_of_the_page_are_those_that_work(self):
        with open(os.path.join(ROOT, "docs", "launch.md")) as file:
            section = file.read().partition("## On this host")[2].partition("\n## ")[0]
        commands = re.findall(r"^    telegrad-launch (.*)$", section, re.MULTILINE)
        self.assertEqual(len(commands), 4)
        self.environment["PATH"] = ":".join([*(os.path.dirname(each) for each in (
            TRAIN, SERVER, PERF)), os.environ["PATH"]])
        with open(os.path.join(self.folder, "train.py"), "w") as file:
            file.write("print('trained')\n")
        for command in commands:
            with self.subTest(command):
                self.assertIn("[worker 0] ", self.run_to_end(*shlex.split(command)))

    def test_ranks_of_telegrad_perf_are_measured(self):
        text = self.run_to_end("-n", "2", "-s", "1", "--", PERF, "pushpull", "--size", "64K",
                               "--iterations", "5", "--check")
        self.assertIn("2 workers, 1 server, 3 ranks", text)

    def member(self, title):
        (pid,) = [pid for pid, line in self.left().items()
                  if re.match(rf"telegrad-train: (.*, )?{title}(,| |$)", line)]
        return pid

    def test_a_killed_worker_is_named_and_decides_nothing_alone(self):
        process = self.start("-n", "3", "-s", "1", "--", TRAIN, *ENDLESS)
        self.wait_for_training(process)
        os.kill(self.member("worker 2"), signal.SIGKILL)
        self.assertEqual(process.wait(20), 20, self.output())
        self.assertIn("the job ended with 20 (peer_died): worker 2 was killed by 137 (SIGKILL)",
                      self.output())
        self.assert_all_gone()

    def test_signals_end_all(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                process = self.start("-n", "2", "-s", "1", "--", TRAIN, *ENDLESS)
                self.wait_for_training(process)
                process.send_signal(number)
                self.assertEqual(process.wait(10), 128 + number, self.output())
                self.assertIn(f"telegrad-launch: ended by {number.name}", self.output())
                self.assert_all_gone()

    def test_nothing_outlives_a_killed_launcher(self):
        process = self.start("-n", "2", "--", TRAIN, *ENDLESS)
        self.wait_for_training(process)
        process.kill()
        process.wait()
        self.assert_all_gone()

    def test_the_secret_is_in_no_argument_and_no_variable(self):
        process = self.start("-n", "2", "-s", "1", "--", TRAIN, *ENDLESS)
        self.wait_for_training(process)
        (folder,) = [name for name in os.listdir(self.folder)
                     if name.startswith("telegrad-launch-")]
        path = os.path.join(self.folder, folder, "secret")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, "rb") as file:
            secret = file.read()
        self.assertEqual(len(secret), 32)
        for pid in self.left():
            for what in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{what}", "rb") as file:
                    content = file.read()
                self.assertNotIn(secret, content)
                self.assertNotIn(secret.hex().encode(), content)
        process.terminate()
        process.wait(10)

    def test_what_may_help_is_tried_again_from_the_checkpoint(self):
        process = self.start("-n", "2", "--restart", "1", "--", TRAIN, "--network", "lenet",
                             "--num-epochs", "1", "--num-batches", "40",
                             "--disp-batches", "50", "--checkpoint", "saved",
                             "--checkpoint-every", "5", "--out", "again")
        self.wait_until(lambda: "checkpoint of step 5" in self.output(), "a checkpoint")
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.wait_until(lambda: "start 1 of 1 again" in self.output(), "a second start")
        self.assertEqual(process.wait(100), 0, self.output())
        self.assertRegex(self.output(), r"(?i)resum|go(es|ing) on from")

    def test_another_one_comes_in_place_of_a_killed_worker(self):
        process = self.start("-n", "3", "-s", "1", "--", TRAIN, *ENDLESS, "--checkpoint", "saved",
                             "--checkpoint-every", "10", "--elastic", "1:3")
        self.wait_until(lambda: "checkpoint of step 20" in self.output(), "a checkpoint")
        os.kill(self.member("worker 2"), signal.SIGKILL)
        self.wait_until(lambda: "3 workers went on" in self.output(), "all three again")
        self.assertIn("worker 2 was killed by 137 (SIGKILL); another one starts in its place",
                      self.output())
        process.terminate()
        self.assertEqual(process.wait(20), 143, self.output())
        self.assert_all_gone()

    def test_what_cannot_help_is_not_tried_again(self):
        text = self.run_to_end("-n", "2", "--restart", "5", "--", TRAIN, "--network", "none",
                               code=2)
        self.assertNotIn("again", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
