#!/usr/bin/env python3
"""Runs MXNet's own tests of its KVStore with the plug-in in place of its store, and counts
their assertions; docs/ci.md. Needs MXNet 1.9.1 with numpy 1.23 and nose.

    mxnets_tests.py FOLDER [--store mxnet] [--workers N] [--repeat N] [NAME...]

FOLDER has MXNet's sources of tag 1.9.1, of which tests/python/unittest and tests/nightly
are read; nothing is fetched. With --store mxnet they run on MXNet's own store, as the
control. Prints a table; ends with 1 where an assertion failed or a test was left early.
"""
import argparse
import ast
import functools
import json
import os
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import workers  # noqa: E402

UNIT = ("test_kvstore", "test_kvstore_custom", "test_gluon_trainer")
SYNC = ("gluon_step_cpu", "gluon_sparse_step_cpu", "invalid_cpu", "gluon_type_cpu",
        "default_cpu", "compressed_cpu")
ASYNC = "dist_async"
CHECKS = ("assert_almost_equal", "assertRaises", "assert_raises", "assert_exception")
TIMEOUT_S = 1800


# ---- within a process that runs a file of tests ----

class Count:
    """Of assertions, by what came of them; a failed one does not end its test."""

    def __init__(self):
        self.passed, self.failed, self.left = 0, [], []

    def holds(self, line, condition):
        """In place of `assert`."""
        if condition:
            self.passed += 1
        else:
            self.failed.append(f"line {line}: assertion failed")

    def check(self, line, function, *args, **kwargs):
        """In place of a call of one of CHECKS."""
        try:
            function(*args, **kwargs)
        except Exception as why:  # pylint: disable=broad-except
            text = (str(why).strip().splitlines() or [""])[0][:160]
            self.failed.append(f"line {line}: {type(why).__name__}: {text}")
        else:
            self.passed += 1

    def run(self, name, function):
        """A test, or a whole file: what it raises leaves it early."""
        try:
            function()
        except Exception as why:  # pylint: disable=broad-except
            lines = [frame.lineno for frame in traceback.extract_tb(why.__traceback__)
                     if "/tests/" in frame.filename and HERE not in frame.filename]
            text = (str(why).strip().splitlines() or [""])[0][:160]
            self.left.append(f"{name}, line {(lines or [0])[-1]}: {type(why).__name__}: "
                             f"{text}")


class Counted(ast.NodeTransformer):
    """A file's assertions become calls of `Count`."""

    def visit_Assert(self, node):  # pylint: disable=invalid-name
        self.generic_visit(node)
        call = ast.parse("_count.holds(0, 0)").body[0]
        call.value.args = [ast.Constant(node.lineno), node.test]
        return ast.copy_location(call, node)

    def visit_Call(self, node):  # pylint: disable=invalid-name
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "reshape":
            for part in ast.walk(node):  # which no float is for today's Pythons
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
                    part.op = ast.FloorDiv()
        if not (isinstance(node.func, ast.Name) and node.func.id in CHECKS):
            return node
        call = ast.parse("_count.check(0)").body[0].value
        call.args = [ast.Constant(node.lineno), node.func, *node.args]
        call.keywords = node.keywords
        return ast.copy_location(call, node)


def put_plug_in_place():
    """MXNet's names of stores make ours."""
    import telegrad.mxnet
    import mxnet as mx
    theirs = mx.kv.create

    def create(name="local"):
        if name.lower() in mx.kvstore.KVStoreBase.kv_registry:
            return theirs(name)
        os.environ["TELEGRAD_KVSTORE"] = name
        return telegrad.mxnet.Telegrad()

    mx.kv.create = mx.kvstore.create = create


def run_file(store, path, arguments):
    if store == "telegrad":
        put_plug_in_place()  # a server stays in there
    sys.path.insert(0, os.path.dirname(path))
    with open(path, encoding="utf-8") as file:
        tree = Counted().visit(ast.parse(file.read(), path))
    code = compile(ast.fix_missing_locations(tree), path, "exec")
    count = Count()
    is_unit = os.path.basename(os.path.dirname(path)) == "unittest"
    scope = {"__name__": "tests" if is_unit else "__main__", "__file__": path,
             "_count": count}
    sys.argv = [path, *arguments]
    count.run(os.path.basename(path), functools.partial(exec, code, scope))
    for name, function in list(scope.items()):
        if is_unit and name.startswith("test_") and callable(function):
            count.run(name, function)
    print("\n" + json.dumps(vars(count)), flush=True)


# ---- what starts them ----

def processes_of(options, path, arguments, num):
    """Roles and variables of the processes, of workers alone what they print is read."""
    base = dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1",
                TELEGRAD_JOIN_TIMEOUT="300")
    command = [sys.executable, "-B", os.path.abspath(__file__), "--run", options.store,
               path, *arguments]
    if num == 0:
        return [(command, base)]
    base.update(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(workers.free_port()),
                DMLC_NODE_HOST="127.0.0.1", DMLC_NUM_WORKER=str(num), DMLC_NUM_SERVER="1",
                TELEGRAD_KVSTORE="dist_async" if "async" in path else "dist_sync")
    return [(command, dict(base, DMLC_ROLE=role)) for role, count in
            (("scheduler", 1), ("server", 1), ("worker", num)) for _ in range(count)]


def run(options, path, arguments=(), num=0):
    """What workers counted, together."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for command, environment in processes_of(options, path, arguments, num):
            is_worker = environment.get("DMLC_ROLE", "worker") == "worker"
            started.append((is_worker, subprocess.Popen(
                command, env=environment, cwd=folder, text=True,
                stdout=subprocess.PIPE if is_worker else subprocess.DEVNULL,
                stderr=None if options.verbose else subprocess.DEVNULL)))
        try:
            texts = [process.communicate(timeout=TIMEOUT_S)[0]
                     for is_worker, process in started if is_worker]
        finally:
            for _, process in started:
                process.kill()
    total = Count()
    for text in texts:
        try:
            found = json.loads(text.strip().splitlines()[-1])
        except (ValueError, IndexError):
            found = {"passed": 0, "failed": [],
                     "left": ["a worker ended without a result; --verbose shows why"]}
        total.passed += found["passed"]
        total.failed += found["failed"]
        total.left += found["left"]
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*", help="of " + ", ".join((*UNIT, *SYNC, ASYNC)))
    parser.add_argument("--store", choices=("telegrad", "mxnet"), default="telegrad")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7, help="of default and compressed")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_intermixed_args()
    tests = os.path.join(os.path.abspath(options.folder), "tests")
    is_wrong = False
    for name in options.names or (*UNIT, *SYNC, ASYNC):
        num = 0 if name in UNIT else options.workers
        arguments = ["--type", name, "--nrepeat", str(options.repeat)] if name in SYNC else []
        path = (os.path.join(tests, "python", "unittest", name + ".py") if num == 0 else
                os.path.join(tests, "nightly", f"dist_{'a' * (name == ASYNC)}sync_kvstore.py"))
        total = run(options, path, arguments, num)
        is_wrong |= bool(total.failed or total.left)
        print(f"{name:24} n={num or 1}  {total.passed:5} passed  {len(total.failed):4} failed"
              f"  {len(total.left):3} left early", flush=True)
        for text in total.failed + total.left:
            print("    " + text, flush=True)
    sys.exit(is_wrong)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_file(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        main()
