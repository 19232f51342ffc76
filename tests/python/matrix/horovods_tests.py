#!/usr/bin/env python3
"""Runs Horovod's own tests with telegrad.horovod in Horovod's place, and names each that
does not pass with its reason; docs/ci.md. Needs NumPy, and PyTorch or MXNet 1.9.1.

    horovods_tests.py FOLDER [--mxnet] [--ranks N] [NAME...]

FOLDER has Horovod's sources, of which test/parallel/test_torch.py, or with --mxnet
test_mxnet1.py, and test/utils are read; nothing is fetched. Prints a table; ends with 1 where
a test failed, or hung.
"""
import argparse
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import workers  # noqa: E402

SILENCE_S = 90  # of a rank within a test


# ---- within a rank ----

def stand_in(name, **values):
    """A module of which the tests use no more, where it is not installed."""
    if name.partition(".")[0] == "horovod" or importlib.util.find_spec(name) is None:
        module = types.ModuleType(name)
        vars(module).update(values)
        sys.modules[name] = module


def put_in_place():
    """Horovod's names give our modules."""
    import pickle
    from telegrad.horovod import alias
    alias.install()
    stand_in("mock")
    stand_in("cloudpickle", dumps=pickle.dumps, loads=pickle.loads)
    stand_in("pytest", mark=types.SimpleNamespace(
        skip=lambda reason: unittest.skip(reason), skipif=unittest.skipIf))
    stand_in("packaging", version=types.SimpleNamespace(parse=Version))
    for name in ("horovod.runner", "horovod.runner.util"):
        stand_in(name, __path__=[])
    stand_in("horovod.runner.util.threads", in_thread=None)


class Version(tuple):
    """By whose parts versions are compared."""

    def __new__(cls, text):
        return super().__new__(cls, map(int, text.partition("+")[0].split(".")[:2]))

    major = property(lambda self: self[0])


class Result(unittest.TestResult):
    """Prints what comes of each test."""

    def stopTest(self, test):  # pylint: disable=invalid-name
        super().stopTest(test)
        bad = self.errors + self.failures
        text = bad[-1][1] if bad else self.skipped[-1][1] if self.skipped else ""
        print(json.dumps(["failed" if bad else "skipped" if self.skipped else "passed",
                          test.id().rpartition(".")[2], text]), flush=True)
        for found in (self.errors, self.failures, self.skipped):
            found.clear()


def load(path):
    put_in_place()
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path)[:-len(".py")]
    module = importlib.import_module(name)
    return unittest.defaultTestLoader.loadTestsFromTestCase(
        module.TorchTests if name == "test_torch" else module.MX1Tests)


def run_rank(path, names):
    suite = load(path)
    chosen = {test.id().rpartition(".")[2]: test for test in suite}
    result = Result()
    for name in names:
        chosen[name].run(result)


# ---- what starts them ----

class Ranks:
    """Of some tests, one behind the other; `lines` gets what they print."""

    def __init__(self, path, names, num, is_verbose):
        base = dict(os.environ, WORLD_SIZE=str(num), HOROVOD_SIZE=str(num),
                    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(workers.free_port()),
                    OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", LOCAL_WORLD_SIZE=str(num))
        self.lines = queue.Queue()
        self.processes = []
        for rank in range(num):
            self.processes.append(subprocess.Popen(
                [sys.executable, "-B", os.path.abspath(__file__), "--run", path, *names],
                env=dict(base, RANK=str(rank), HOROVOD_RANK=str(rank), LOCAL_RANK=str(rank)),
                stdout=subprocess.PIPE, text=True,
                stderr=None if is_verbose else subprocess.DEVNULL))
            threading.Thread(target=self.read, args=(rank,), daemon=True).start()

    def read(self, rank):
        for line in self.processes[rank].stdout:
            try:
                self.lines.put((rank, json.loads(line)))
            except ValueError:
                pass  # of a test's own
        self.lines.put((rank, None))

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def worst_of(found):
    """What came of a test on all ranks."""
    for outcome in ("failed", "skipped", "passed"):
        for rank, (what, _, text) in sorted(found.items()):
            if what == outcome:
                return outcome, f"rank {rank}: {text}" if what == "failed" else text
    return "failed", "hung, or a rank ended"


def run(path, names, num, is_verbose):
    """Gives (name, outcome, text) of each; ranks begin anew behind one that fails, on which
    they may no longer agree."""
    left = list(names)
    while left:
        ranks = Ranks(path, left, num, is_verbose)
        early = {}  # what a rank has printed before another is so far
        try:
            outcome = "passed"
            while left and outcome != "failed":
                name = left.pop(0)
                found = early.pop(name, {})
                while len(found) < num:
                    try:
                        rank, line = ranks.lines.get(timeout=SILENCE_S)
                    except queue.Empty:
                        break
                    if line is None:
                        break
                    place = found if line[1] == name else early.setdefault(line[1], {})
                    place[rank] = line
                outcome, text = worst_of(found)
                if len(found) < num and outcome != "failed":
                    outcome, text = "failed", f"hung, or ended, but for ranks {sorted(found)}"
                yield name, outcome, text
        finally:
            ranks.end()


def names_in(*paths):
    """Of the tests, in the order in which unittest runs them."""
    names = set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            names.update(line.split("def ")[1].partition("(")[0] for line in file
                         if line.startswith("    def test_"))
    return sorted(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*", help="of tests; without any all run")
    parser.add_argument("--mxnet", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_intermixed_args()
    folder = os.path.join(os.path.abspath(options.folder), "test", "parallel")
    files = [os.path.join(folder, name) for name in (
        ("test_mxnet1.py", "base_test_mxnet.py") if options.mxnet else ("test_torch.py",))]
    counts = {"passed": 0, "skipped": 0, "failed": 0}
    for name, outcome, text in run(files[0], options.names or names_in(*files),
                                   options.ranks, options.verbose):
        counts[outcome] += 1
        if outcome != "passed" or options.verbose:
            print(f"{outcome} {name}: {(text.strip().splitlines() or [''])[-1]}", flush=True)
    print(f"{options.ranks} ranks: " + ", ".join(f"{num} {what}" for what, num in
                                                 counts.items()))
    sys.exit(counts["failed"] > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_rank(sys.argv[2], sys.argv[3:])
    else:
        main()
