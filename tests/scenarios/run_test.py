#!/usr/bin/env python3
"""Rows whose tests fail, are left out, or see other codes: none of them counts as exact."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE)
LOADER = importlib.machinery.SourceFileLoader("run", os.path.join(HERE, "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", LOADER))
LOADER.exec_module(run)

FILE = f'''
import sys, unittest
sys.path.append({HERE!r})
import seen

class Fault(unittest.TestCase):
    def test_seen(self):
        seen.note(20, '{{"event":"fatal","dead":["worker/1@here:7"]}}')

    def test_wrong(self):
        self.fail("not as expected")

    @unittest.skip("no tool")
    def test_skipped(self):
        pass

class Empty(unittest.TestCase):
    pass

unittest.main(verbosity=2)
'''


class Run(unittest.TestCase):
    def results(self, *tests, codes=None):
        """What becomes of a row with these tests, and what is printed."""
        with tempfile.TemporaryDirectory() as root, open(f"{root}/x_test.py", "w",
                                                         encoding="utf-8") as file:
            file.write(FILE)
            file.flush()
            run.ROOT, run.PROGRAMS, printed = root, {}, io.StringIO()
            with unittest.mock.patch.object(run, "absent", lambda *_: []), \
                    contextlib.redirect_stdout(printed):
                results = run.run_all([run.table.row(1, "a fault", "its end", *(
                    f"x_test.py::{test}" for test in tests), codes=codes)])
        return results[1], printed.getvalue()

    def test_what_is_as_expected_is_exact(self):
        result, said = self.results("Fault.test_seen", codes=(20,))
        self.assertEqual(result, "exact")
        self.assertIn("codes 20; dead worker/1", " ".join(said.split()))
        self.assertIn("1 of 1 exact, 0 wrong, 0 not run", said)

    def test_what_is_not_is_wrong(self):
        for tests, codes in ((["Fault.test_seen"], (20, 23)), (["Fault.test_seen"], (0,)),
                             (["Fault.test_wrong"], None), (["Empty"], None),
                             (["Fault.test_absent"], None), (["Fault.test_seen", "Fault"], None)):
            result, said = self.results(*tests, codes=codes)
            self.assertEqual(result, "WRONG", (tests, codes, said))

    def test_what_is_left_out_is_not_run(self):
        result, said = self.results("Fault.test_seen", "Fault.test_skipped")
        self.assertEqual(result, "not run", said)
        self.assertIn("no tool", said)

    def test_files_of_googletest_have_programs(self):
        run.ROOT = os.path.dirname(os.path.dirname(HERE))
        for row in run.table.ROWS:
            for test in row.tests:
                if ".cc::" in test:
                    self.assertRegex(run.program_of(test.split("::")[0]), "/test_")


if __name__ == "__main__":
    unittest.main()
