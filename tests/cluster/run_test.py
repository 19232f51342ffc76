"""tests/cluster/run turns red: of a check that failed, other weights, and what is left."""

import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run")
LOADER = importlib.machinery.SourceFileLoader("cluster_run", PATH)
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("cluster_run", LOADER))
LOADER.exec_module(run)


def code_of(*rows, is_dirty=False):
    table = run.Table()
    for cluster, values in rows:
        table.take(cluster, json.dumps(values))
    return table.code(is_dirty)


def check(result):
    return "slurm", {"by": "Srun", "check": "a job trains", "seconds": 1.5, "result": result}


class Run(unittest.TestCase):
    def test_it_ends_with_what_the_checks_have_found(self):
        good = [check("ok"), ("slurm", {"weights": "12"}), ("mpi", {"weights": "12"})]
        self.assertEqual(code_of(*good), 0)
        self.assertEqual(code_of(*good, check("FAILED")), 1)
        self.assertEqual(code_of(*good, ("ssh", {"weights": "13"})), 1)
        self.assertEqual(code_of(*good, is_dirty=True), 1)
        self.assertEqual(code_of(check("skipped: no srun")), 77)

    def test_what_is_left_is_found(self):
        with tempfile.TemporaryDirectory(prefix="telegrad-cluster-run-") as name:
            before = run.state(name)
            with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="telegrad-") as shared:
                with subprocess.Popen(["sleep", "100"], env={"ROWS": f"{name}/rows"}) as process:
                    try:
                        after = run.state(name)
                    finally:
                        process.kill()
        self.assertEqual(after["processes"] - before["processes"], {str(process.pid)})
        self.assertIn(os.path.basename(shared.name),
                      after["shared memory"] - before["shared memory"])

    def test_every_section_of_a_page_that_has_commands_is_typed(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(PATH)))
        for page, theme in (("slurm", "slurm"), ("mpi", "mpi"), ("ssh", "launch"),
                            ("gridengine", "gridengine")):
            with open(f"{root}/docs/deploy/{page}.md") as file:
                sections = re.split("^## ", file.read(), flags=re.MULTILINE)[1:]
            with open(f"{root}/tests/cluster/{theme}_test.py") as file:
                source = file.read()
            for section in sections:
                heading = section.splitlines()[0]
                if "\n\n    " in section and heading != "Limits":  # what Slurm prints
                    self.assertIn(f'"{heading}"', source, page)

    def test_without_a_cluster_it_says_which_there_are(self):
        for words in ([], ["yarn"]):
            done = subprocess.run([sys.executable, "-B", PATH, *words], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("slurm | mpi | ssh | gridengine", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
