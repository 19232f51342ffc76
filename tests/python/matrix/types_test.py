#!/usr/bin/env python3
"""Mypy, strict, on the package, and on a script that uses it wrongly: py.typed promises
annotations that hold."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.dirname(HERE))
import workers

try:
    import mypy  # noqa: F401
except ImportError as why:
    workers.skip(f"no mypy: {why}")

SCRIPT = """import telegrad
kv = telegrad.kvstore.create("local")
reveal_type(kv.rank)
kv.push("w", None, priority="first")
telegrad.Codec(2, "many")
reveal_type(telegrad.Codec("2bit", 8).encode(None))
import telegrad.torch
reveal_type(telegrad.torch.compress(None, guard=False, dead_timeout=3))
telegrad.torch.compress(None, treshold=3)
telegrad.torch.State(None, dead_timout=3)
reveal_type(telegrad.torch.compress(None, replicas=None or 3, rules=""))
telegrad.torch.compress(None, servers="all")
"""


class Types(unittest.TestCase):
    def mypy(self, *what):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, *what],
                env=dict(os.environ, MYPYPATH=os.path.join(ROOT, "python")),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def test_of_the_package(self):
        done = self.mypy(os.path.join(ROOT, "python", "telegrad"))
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_of_a_script(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(SCRIPT)
            script.flush()
            text = self.mypy(script.name).stdout
        for line, pattern in ((3, 'type is "int"'), (4, 'incompatible type "str"'),
                              (5, 'incompatible type "int"'), (5, 'incompatible type "str"'),
                              (6, r'tuple\[.*bytes, .*float\]'),
                              (8, r'type is "telegrad.torch._hook.State"'),
                              (9, "no overload|treshold"), (10, "dead_timout"),
                              (11, r'type is "telegrad.torch._replicas.Replicas"'),
                              (12, "no overload|servers")):
            self.assertRegex(text, rf"(?i):{line}: .*{pattern}")


if __name__ == "__main__":
    unittest.main()
