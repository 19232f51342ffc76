"""Runs telegrad-train as a user would and checks that nothing is left behind.

Every started process has the test's own folder as its working directory. That
marks all descendants, also those whose parent is gone.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "scenarios"))
import seen  # noqa: E402

BINARY = os.environ["TELEGRAD_TRAIN"]
# Only what decides nothing: no launcher's or UCX's variable comes in by chance.
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH",
                  "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS",
                  "TELEGRAD_PREFETCH", "TELEGRAD_STREAMING")
START_SECONDS = 60
# Whether workers of a host have one codec, of their sum.
HOSTS_FIRST = os.environ.get("TELEGRAD_TIER1") == "on"
# Ends only when somebody ends it.
ENDLESS = ["--network", "mlp", "--benchmark", "1", "--num-epochs", "1000000",
           "--disp-batches", "10"]
SHORT = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
         "--num-batches", "10"]


def wait_until(condition, seconds, pause=0.02):
    """The condition's first true value, or its last when time is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(pause)


def processes_in(folder):
    """pid -> command line of all processes that work in `folder`."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{name}/cwd") != folder:
                continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        found[int(name)] = line
    return found


def shared_memory_of_nobody_else(before):
    """New files in /dev/shm that no living process has mapped; not libfabric's,
    PID:UID:N: no test here is over its shm, and a killed process leaves them."""
    new = {name for name in set(os.listdir("/dev/shm")) - before
           if ":" not in name}
    for name in os.listdir("/proc") if new else ():
        try:
            with open(f"/proc/{name}/maps") as file:
                text = file.read()
        except OSError:
            continue
        new = {file for file in new if f"/dev/shm/{file}" not in text}
    return new


def free_ports(count):
    """A port from which on `count` are free; below the ephemeral range, so
    that no outgoing connection takes one."""
    low = 10000 + os.getpid() * 16 % 20000
    for base in range(low, low + 2000, count):
        sockets = []
        try:
            for port in range(base, base + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise RuntimeError("no free ports")


class Run:
    """One started command."""

    def __init__(self, folder, index, command, env):
        self.out_path = os.path.join(folder, f"stdout.{index}")
        self.err_path = os.path.join(folder, f"stderr.{index}")
        self.folder = folder
        self.env = env
        variables = {name: os.environ[name] for name in KEPT_VARIABLES
                     if name in os.environ}
        variables["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        variables.update(env or {})
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err)
        self.pid = self.process.pid

    def stdout(self):
        with open(self.out_path, errors="replace") as file:
            return file.read()

    def stderr(self):
        with open(self.err_path, errors="replace") as file:
            return file.read()

    def fatal_lines(self):
        lines = []
        for text in self.stderr().splitlines():
            if text.startswith("{"):
                lines.append(json.loads(text))
        return [line for line in lines if line.get("event") == "fatal"]

    def output(self):
        return f"--- stdout\n{self.stdout()[-4000:]}\n" \
               f"--- stderr\n{self.stderr()[-4000:]}"


def flags_of_all(program, args):
    """Where hosts sum first, they do wherever they can."""
    cannot = {"dist_async", "local", "device", "nccl", "--emulate-workers",
              "--tier1"}
    if program != BINARY or not HOSTS_FIRST or cannot & set(args):
        return []
    return ["--tier1", "on"]


class SystemTest(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="telegrad-"))
        self.shm_before = set(os.listdir("/dev/shm"))
        self.runs = []

    def tearDown(self):
        left = {}
        if all(run.process.poll() is not None for run in self.runs):
            wait_until(lambda: not processes_in(self.folder), 3)
            left = processes_in(self.folder)
        ours = processes_in(self.folder)
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        for run in self.runs:
            if run.process.wait() == -signal.SIGKILL and run.pid in ours:
                continue  # not by the test
            seen.note(run.process.returncode, run.stderr())
        # A test beside this one may be about to map what it has just made.
        is_clean = wait_until(
            lambda: not shared_memory_of_nobody_else(self.shm_before), 3)
        segments = set() if is_clean else shared_memory_of_nobody_else(
            self.shm_before)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.assertEqual(left, {}, "processes left behind")
        self.assertEqual(segments, set(), "shared memory left behind")

    def start(self, args, env=None, prefix=(), program=BINARY):
        run = Run(self.folder, len(self.runs),
                  [*prefix, program, *args, *flags_of_all(program, args)], env)
        self.runs.append(run)
        return run

    def wait(self, run, seconds):
        """The exit code; negative for a signal."""
        try:
            return run.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"still running after {seconds} s: "
                      f"{processes_in(self.folder)}\n{run.output()}")

    def run_to_end(self, args, code=0, seconds=120, **more):
        run = self.start(args, **more)
        self.assertEqual(self.wait(run, seconds), code, run.output())
        return run

    def refused(self, args, words, code=2, **more):
        """Ends at once with one line that has the words, and starts nothing."""
        run = self.run_to_end(args, code=code, seconds=30, **more)
        lines = run.stderr().splitlines()
        self.assertEqual(len(lines), 1, run.output())
        self.assertLess(len(lines[0]), 400, lines[0])
        for word in words:
            self.assertIn(word, lines[0])
        self.assertNotIn("terminate called", lines[0])
        self.assertEqual(run.stdout(), "")
        self.assert_all_gone(1)
        return lines[0]

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def gradients(self, *elements):
        """A network that computes nothing, for which libtorch, most of what a
        run costs, is not loaded: tensors of so many elements, else mlp's."""
        elements = elements or (100352, 128, 8192, 64, 640, 10)
        name = f"gradients-{sum(elements)}.csv"
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("name,shape,elements\n" + "".join(
                f"{i},{count},{count}\n" for i, count in enumerate(elements)))
        return ["--benchmark", "1", "--network", f"profile:{name}",
                "--num-batches", "10"]

    def endless_gradients(self):
        return [*self.gradients(1000000, 1021)[:-1], "1000000"]

    def summary(self, out="telegrad-out"):
        with open(self.path(out, "summary.json")) as file:
            return json.load(file)

    def wait_for_training(self, run):
        """Until progress shows that steps are made."""
        if not wait_until(lambda: "Batch [" in run.stdout()
                          or run.process.poll() is not None, START_SECONDS) \
                or run.process.poll() is not None:
            self.fail(f"no progress\n{run.output()}")

    def member(self, title):
        """The pid of "worker 1", "server 0", "scheduler"."""
        pattern = re.compile(rf"telegrad-train: (.*, )?{title}(,| |$)")
        pids = [pid for pid, line in processes_in(self.folder).items()
                if pattern.match(line)]
        self.assertEqual(len(pids), 1,
                         f"{title}: {processes_in(self.folder)}")
        return pids[0]

    def assert_all_gone(self, seconds):
        wait_until(lambda: not processes_in(self.folder), seconds)
        self.assertEqual(processes_in(self.folder), {},
                         f"still there {seconds} s later")


def is_required(tool):
    return os.environ.get("CI") == "true" or tool in os.environ.get(
        "TELEGRAD_TEST_REQUIRE", "").split(",")


def need(tool):
    """Leaves the whole test program as skipped when `tool` is absent."""
    if shutil.which(tool):
        return
    if is_required(tool):
        sys.exit(f"{tool} is not installed, but required here")
    print(f"skipped: {tool} is not installed")
    sys.exit(77)
