#!/usr/bin/env python3
"""Repeats the Python tests with each CPython that is found, with a PyTorch from pip and
with MXNet, in virtual environments, all with one libtelegrad.so; prints one table.

    matrix.py LIBRARY FOLDER [--torch PYTHON] [--mxnet PYTHON]

Environments are made in FOLDER, and used again. --torch and --mxnet name Pythons that
have these packages, in place of new ones. Ends with 1 where a test fails; what cannot be
had is listed as not run.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
ROOT = os.path.dirname(os.path.dirname(TESTS))
sys.path.insert(0, TESTS)
import check_wheel  # noqa: E402

PLAIN = ("codec_test.py", "arguments_test.py", "wrong_arguments_test.py",
         "two_ranks.py", "kvstore_test.py", "local_kvstore_test.py", "rows_test.py",
         "optimizer_test.py", "group_test.py", "numbers_test.py", "elastic_test.py")
TORCH = ("torch_test.py", "torch_choice_test.py", "horovod_test.py", "horovod_elastic_test.py", "run_test.py",
         "resume_test.py", "lifecycle_test.py", "interrupt_test.py", "c10d_test.py")
TORCH2 = ("matrix/hsdp_test.py", "matrix/hsdp_elastic_test.py", "matrix/c10d_torch2_test.py",
          "matrix/torch2_test.py", "matrix/trainers_test.py", "matrix/types_test.py")
# Tests that know codecs of hosts, whose ranks sum first.
HOSTS_FIRST = ("torch_test.py", "torch_choice_test.py", "resume_test.py", "interrupt_test.py", "matrix/hsdp_test.py")
MXNET = ("matrix/mxnet_test.py", "matrix/horovod_mxnet_test.py")
COLUMNS = PLAIN + TORCH + TORCH2 + MXNET
SKIPPED = 77
DEBIAN = "/usr/bin/python3"


class Row:
    """An environment: a Python, what it needs from pip, the tests that it runs; `tier1` of
    their jobs."""

    def __init__(self, name, python, packages, tests, folder=None, tier1="auto"):
        self.name, self.python, self.packages = name, python, packages
        self.tests, self.folder, self.tier1 = tests, folder, tier1
        self.results, self.note = {}, ""

    def prepare(self):
        """The virtual environment's Python; None where it cannot be had."""
        if self.folder is None:
            return self.python
        own = os.path.join(self.folder, "bin", "python")
        if os.path.exists(own + ".ready"):
            return own
        for command in ([self.python, "-m", "venv", self.folder],
                        [own, "-m", "pip", "install", "-q",
                         "--disable-pip-version-check", *self.packages]):
            made = subprocess.run(command, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            if made.returncode != 0:
                self.note = "not run: " + made.stdout.strip().splitlines()[-1]
                return None
        with open(own + ".ready", "w", encoding="utf-8"):
            return own

    def run(self, library):
        python = self.prepare()
        if python is None:
            return
        if "torch" in self.packages:
            self.name = f"torch {version_of(python, 'torch')} from pip" + (
                ", tier1=on" if self.tier1 == "on" else "")
        environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"),
                           TELEGRAD_LIBRARY=library, OMP_NUM_THREADS="1", CI="",
                           TELEGRAD_TIER1=self.tier1)
        for test in self.tests:
            start = time.monotonic()
            done = subprocess.run([python, "-B", os.path.join(TESTS, test)],
                                  env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, check=False)
            self.results[test] = {0: "ok", SKIPPED: "skipped"}.get(
                done.returncode, "FAILED")
            print(f"{self.name}: {test}: {self.results[test]}, "
                  f"{time.monotonic() - start:.0f} s", flush=True)
            if self.results[test] != "ok":
                print(done.stdout, flush=True)


def version_of(python, package):
    code = f"import {package}; print({package}.__version__)"
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() or "?"


def rows_of(options):
    folder = os.path.abspath(options.folder)
    rows = []
    found = check_wheel.interpreters()
    for version in check_wheel.WANTED:
        if version in found:
            rows.append(Row(f"CPython {version}", found[version], ["numpy"], PLAIN,
                            os.path.join(folder, f"cpython-{version}")))
        else:
            rows.append(Row(f"CPython {version}", None, [], ()))
            rows[-1].note = "not run: no such interpreter here"
    debian = version_of(DEBIAN, "torch")
    rows.append(Row(f"torch {debian}, Debian's", DEBIAN, [], PLAIN + TORCH))
    with_torch = Row("torch from pip", options.torch or DEBIAN, ["torch", "numpy", "mypy"],
                     PLAIN + TORCH + TORCH2,
                     None if options.torch else os.path.join(folder, "torch"))
    hosts_first = Row("torch from pip, tier1=on", with_torch.python, with_torch.packages,
                      HOSTS_FIRST, with_torch.folder, tier1="on")
    with_mxnet = Row("mxnet 1.9.1", options.mxnet or DEBIAN,
                     ["mxnet==1.9.1", "numpy==1.23.5"],
                     PLAIN + MXNET,
                     None if options.mxnet else os.path.join(folder, "mxnet"))
    return rows + [with_torch, hosts_first, with_mxnet]


def table(rows):
    heads = [re.sub(r"matrix/|_test|\.py", "", column) for column in COLUMNS]
    widths = [max(len(head), 7) for head in heads]
    first = max(len(row.name) for row in rows)
    lines = [" " * first + "  " + "  ".join(map(str.ljust, heads, widths))]
    for row in rows:
        cells = [row.results.get(column, "-") for column in COLUMNS]
        lines.append(row.name.ljust(first) + "  " + (
            row.note or "  ".join(map(str.ljust, cells, widths))))
    return "\n".join(line.rstrip() for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("shared_object", metavar="library")
    parser.add_argument("folder")
    parser.add_argument("--torch")
    parser.add_argument("--mxnet")
    options = parser.parse_args()
    # A shell's background commands ignore Ctrl-C, which tests send; a handler ends that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = rows_of(options)
    for row in rows:
        if not row.note:
            row.run(os.path.abspath(options.shared_object))
    print(table(rows))
    sys.exit(any(result == "FAILED" for row in rows for result in row.results.values()))


if __name__ == "__main__":
    main()
