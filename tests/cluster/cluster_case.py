"""The trainer on two emulated hosts, under whatever launches it there."""

import contextlib
import functools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import hosts

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(f"{ROOT}/tests/scenarios")
import seen  # noqa: E402

ROWS = os.environ.get("TELEGRAD_CLUSTER_ROWS")  # of tests/cluster/run
# What continuous integration has no time for.
whole = unittest.skipUnless(ROWS, "tests/cluster/run has time for it")
LAUNCH = [sys.executable, "-B", f"{ROOT}/python/telegrad-launch"]
TRAIN = os.environ.get("TELEGRAD_TRAIN", f"{ROOT}/build/release/trainer/telegrad-train")
SERVER = os.environ.get("TELEGRAD_SERVER", f"{ROOT}/build/release/kvstore/telegrad-server")
# ssh does not hand on what chooses kernels of BLAS, by which gradients differ in their
# last bits.
for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
    del os.environ[name]
SHORT = ["--gc-type", "2bit", "--gc-min-bytes", "0", "--network", "mlp",
         "--data", "digits", "--num-epochs", "1", "--num-batches", "10"]
# Ends only when somebody ends it.
ENDLESS = ["--network", "mlp", "--benchmark", "1", "--num-epochs", "1000000",
           "--disp-batches", "10"]


def install():
    """The programs by their names, as users call them."""
    os.makedirs("/run/bin")
    for program in (TRAIN, SERVER):
        os.symlink(os.path.abspath(program), f"/run/bin/{os.path.basename(program)}")
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    with open("/run/bin/telegrad-launch", "w") as file:  # users here may have no other
        file.write(f'#!/bin/sh\nexec {python} -B {LAUNCH[-1]} "$@"\n')
    os.chmod("/run/bin/telegrad-launch", 0o755)
    os.environ["PATH"] = f"/run/bin:{os.environ['PATH']}"


install()


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


def add_row(**values):
    """For tests/cluster/run."""
    if ROWS:
        with open(ROWS, "a") as file:
            file.write(json.dumps(values) + "\n")


class Result(unittest.TextTestResult):
    """A row for each test."""

    def startTest(self, test):
        self._started, self._result = time.monotonic(), "ok"
        super().startTest(test)

    def addSkip(self, test, reason):
        self._result = f"skipped: {reason}"
        super().addSkip(test, reason)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._result = "FAILED"
        super().addSubTest(test, subtest, error)

    def addError(self, test, error):
        self._result = "FAILED"
        super().addError(test, error)

    def addFailure(self, test, error):
        self._result = "FAILED"
        super().addFailure(test, error)

    def stopTest(self, test):
        name = test.id().rpartition(".test_")[2] or test.id()
        add_row(by=type(test).__name__, check=name.replace("_", " "), result=self._result,
                seconds=time.monotonic() - self._started)
        super().stopTest(test)


def main():
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
    done = unittest.main(exit=False, testRunner=runner)
    add_row(namespaces=sorted(hosts.namespaces()))
    sys.exit(not done.result.wasSuccessful())


@functools.cache
def hash_on_one_host(servers):
    """Of SHORT's weights, started by the trainer itself."""
    folder = os.path.dirname(ROWS) if ROWS else hosts.private_folder()
    kept = f"{folder}/one_host_{servers}"  # that another cluster may have made meanwhile
    if not os.path.exists(kept):
        made = tempfile.mkdtemp(dir=folder)
        hosts.run(TRAIN, *SHORT, "--workers", "2", "--servers", str(servers), "--out", made,
                  stdout=subprocess.DEVNULL)
        with contextlib.suppress(OSError):  # it is there now
            os.rename(made, kept)
    return hash_in(kept)


def hash_in(folder):
    with open(f"{folder}/summary.json") as file:
        (one,) = json.load(file)
    if one["workers"] != 2:
        raise AssertionError(f"{one['workers']} workers")
    return one["weights_sha256"]


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
            else:
                seen.note(process.returncode, self.output(process))
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

    def assert_same_weights(self, out, servers=2):
        """As those of one host, where `servers` serve."""
        found = hash_in(f"{self.folder}/{out}")
        self.assertEqual(found, hash_on_one_host(servers))
        add_row(servers=servers, weights=found)

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

    def assert_all_gone(self, seconds=10):
        hosts.wait_until(lambda: not processes(), seconds, "all processes gone")

    def fatal_lines(self, text):
        return [json.loads(line[line.index('{"event":"fatal"'):])
                for line in text.splitlines() if '{"event":"fatal"' in line]
