#!/usr/bin/env python3
"""Takes tests away from scenarios: each must be found."""
import collections
import os
import tempfile
import unittest

import check_scenarios

Row = collections.namedtuple("Row", "number fault tests")
FILES = {
    "tests/system/CMakeLists.txt": "foreach(theme deaths)",
    "tests/system/deaths_test.py": "class Deaths:\n    def test_one(self):\n        pass\n",
    "tests/job/CMakeLists.txt": "telegrad_test(NAME job SOURCES end_test.cc ps/late_test.cc)",
    "tests/job/end_test.cc": "TEST(End, IsTold) {}\n",
    "tests/job/ps/late_test.cc": "TEST_P(Late, IsRefused) {}\n",
    "docs/scenarios.md": "| 1 | a death | named |\n",
}
TESTS = ("tests/system/deaths_test.py::Deaths", "tests/system/deaths_test.py::Deaths.test_one",
         "tests/job/end_test.cc::End.IsTold", "tests/job/ps/late_test.cc::Late")


def violations(judge=check_scenarios.missing, rows=(Row(1, "a death", TESTS),), **changed):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**FILES, **changed}.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return judge(root, rows)


class CheckScenarios(unittest.TestCase):
    def test_what_is_there_is_no_violation(self):
        self.assertEqual(violations(), [])
        self.assertEqual(violations(check_scenarios.unlike_page), [])

    def test_a_test_that_went_is_found(self):
        for path, text, lost in (
                ("tests/system/deaths_test.py", "class Deaths:\n    def test_two(self): ...\n", 1),
                ("tests/system/deaths_test.py", "class Others:\n    def test_one(self): ...\n", 2),
                ("tests/system/deaths_test.py", "class Deaths:\n    pass\n", 2),
                ("tests/job/end_test.cc", "TEST(End, IsTol) {}\n", 1),
                ("tests/job/ps/late_test.cc", "// TEST_P(Late, IsRefused)\n", 1),
                ("tests/system/CMakeLists.txt", "foreach(theme death)", 2),
                ("tests/job/CMakeLists.txt", "telegrad_test(NAME job SOURCES ps/late_test.cc)", 1)):
            self.assertEqual(len(violations(**{path: text})), lost, (path, text))

    def test_a_row_without_tests_is_found(self):
        self.assertEqual(len(violations(rows=(Row(1, "a death", ()),))), 1)

    def test_a_page_that_differs_is_found(self):
        for rows in ((Row(1, "a stop", TESTS),), (Row(2, "a death", TESTS),),
                     (Row(1, "a death", TESTS), Row(2, "a stop", TESTS))):
            self.assertNotEqual(violations(check_scenarios.unlike_page, rows), [])


if __name__ == "__main__":
    unittest.main()
