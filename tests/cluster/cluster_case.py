"""The trainer on two emulated hosts, under whatever launches it there."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import unittest

import hosts

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCH = [sys.executable, "-B", f"{ROOT}/python/telegrad-launch"]
TRAIN = os.environ["TELEGRAD_TRAIN"]
SERVER = os.environ["TELEGRAD_SERVER"]
# ssh does not hand on what chooses kernels of BLAS, by which gradients differ in their
# last bits.
for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
    del os.environ[name]
SHORT = ["--gc-type", "2bit", "--gc-min-bytes", "0", "--network", "mlp",
         "--data", "digits", "--num-epochs", "1", "--num-batches", "10"]
# Ends only when somebody ends it.
ENDLESS = ["--network", "mlp", "--benchmark", "1", "--num-epochs", "1000000",
           "--disp-batches", "10"]


def processes():
    """pid -> command line of every program of ours in these namespaces.

    Without those that have ended and that nobody has waited for: they have no
    command line any more.
    """
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode().strip()
            with open(f"/proc/{name}/comm") as file:
                program = file.read().strip()
        except OSError:
            continue
        if line and (program in ("telegrad-train", "telegrad-server") or
                     line.startswith("telegrad-train:")):
            found[int(name)] = line
    return found


class ClusterCase(unittest.TestCase):
    def setUp(self):
        self.folder = hosts.private_folder()
        secret = f"{self.folder}/secret"
        with open(secret, "wb") as file:
            file.write(secrets.token_bytes(32))
        os.chmod(secret, 0o600)
        self.far = ["--bind", hosts.NETWORK, "--secret-file", secret]
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        left = processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, {}, "processes left behind")

    def start(self, command, **more):
        """A process whose output goes to a file, `output` reads it."""
        log = f"{self.folder}/log.{len(self.started)}"
        with open(log, "wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=file,
                                       cwd=self.folder, **more)
        process.log = log
        self.started.append(process)
        return process

    @staticmethod
    def output(process):
        with open(process.log, errors="replace") as file:
            return file.read()

    def end(self, process, code, seconds=100):
        try:
            ended = process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"still running: {processes()}\n{self.output(process)}")
        if code is not None:
            self.assertEqual(ended, code, self.output(process))
        return self.output(process)

    def hash_of(self, out):
        with open(f"{self.folder}/{out}/summary.json") as file:
            (one,) = json.load(file)
        self.assertEqual(one["workers"], 2)
        return one["weights_sha256"]

    def expected_hash(self, servers):
        """That of the same job on one host, started by the trainer itself."""
        self.end(self.start([TRAIN, *SHORT, "--workers", "2", "--servers",
                             str(servers), "--out", "embedded"]), 0)
        return self.hash_of("embedded")

    def wait_for_training(self, process):
        hosts.wait_until(lambda: "Batch [" in self.output(process)
                         or process.poll() is not None, 60,
                         "progress")
        self.assertIsNone(process.poll(), self.output(process))

    def member(self, title):
        pattern = re.compile(rf"telegrad-train: (.*, )?{title}(,| |$)")
        (pid,) = [pid for pid, line in processes().items()
                  if pattern.match(line)]
        return pid

    def assert_all_gone(self):
        hosts.wait_until(lambda: not processes(), 10, "all processes gone")

    def fatal_lines(self, text):
        return [json.loads(line[line.index('{"event":"fatal"'):])
                for line in text.splitlines() if '{"event":"fatal"' in line]
