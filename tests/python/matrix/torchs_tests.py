#!/usr/bin/env python3
"""Runs torch's own tests of torch.distributed on CPUs with the backend "telegrad", and
lists what passed; docs/ci.md. Needs PyTorch with its package `expecttest`.

    torchs_tests.py [--backend gloo] [--role NAME] [--ranks N] [--match REGEX] [--part I/N]

They come with PyTorch (torch.testing._internal.distributed.distributed_test); nothing is
fetched. With --role gloo the backend has that name (PyTorch 2), so that tests which torch
skips for all others run, too, without what they ask of a profiler; with --backend gloo they run on torch's own backend, as
the control. Prints a line for each test; ends with 1 where one failed.
"""
import argparse
import os
import re
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import workers  # noqa: E402

OPTIONS = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
OPTIONS.add_argument("--backend", default="telegrad", choices=("telegrad", "gloo"))
OPTIONS.add_argument("--role", choices=("gloo",), help="its name for torch's tests")
OPTIONS.add_argument("--ranks", type=int, default=3)
OPTIONS.add_argument("--match", default="test_", help="names of tests")
OPTIONS.add_argument("--part", default="0/1", help="I/N: each N-th test, from I on")
GIVEN = OPTIONS.parse_args()
os.environ.update(BACKEND=GIVEN.role or GIVEN.backend, WORLD_SIZE=str(GIVEN.ranks),
                  TEMP_DIR=tempfile.mkdtemp(), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(workers.free_port()))
try:
    import torch
    from torch.testing._internal.common_distributed import DistTestCases
    if GIVEN.backend == "telegrad":
        from telegrad.torch import _backend
        for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
            DistTestCases.backend_feature.get(feature, set()).add("telegrad")
        if GIVEN.role:
            torch.distributed.Backend.register_backend(
                GIVEN.role, _backend._create, extended_api=True, devices=["cpu"])
    from torch.testing._internal.distributed import distributed_test
    distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()
except ImportError as why:
    workers.skip(f"PyTorch's tests: {why}")


class Torchs(distributed_test.TestDistBackend,
             distributed_test.DistributedTest._DistTestBase):
    """Each test is run by as many processes as there are ranks; they have imported all
    that: a spawned one takes seconds."""

    def setUp(self):
        super().setUp()
        fork = torch.multiprocessing.get_context("fork").Process
        self._start_processes(fork)


class Lines(unittest.TestResult):
    """One for each test, as it ends."""

    def __init__(self):
        super().__init__()
        self.passed = 0

    def _say(self, what, test, why=""):
        print(f"{what} {test._testMethodName} {why}".rstrip(), flush=True)

    def addSuccess(self, test):  # noqa: N802
        self.passed += 1
        self._say("passed", test)

    def addSkip(self, test, reason):  # noqa: N802
        super().addSkip(test, reason)
        self._say("skipped", test, reason)

    def addFailure(self, test, err):  # noqa: N802
        super().addFailure(test, err)
        self._say("FAILED", test, str(err[1]).strip().rpartition("Error: ")[2])

    def addError(self, test, err):  # noqa: N802
        super().addError(test, err)
        self._say("FAILED", test, str(err[1]).strip().rpartition("Error: ")[2])


def main():
    first, step = map(int, GIVEN.part.split("/"))
    names = [name for name in unittest.TestLoader().getTestCaseNames(Torchs)
             if re.search(GIVEN.match, name)][first::step]
    lines = Lines()
    unittest.TestSuite(map(Torchs, names)).run(lines)
    failed = len(lines.failures) + len(lines.errors)
    print(f"{lines.passed} passed, {failed} failed, {len(lines.skipped)} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
