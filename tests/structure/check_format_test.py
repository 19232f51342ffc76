#!/usr/bin/env python3
"""Plants a badly formatted file of each kind: each must be found."""
import os
import subprocess
import sys
import tempfile
import unittest
import shutil

import check_format
import needs_tool

HERE = os.path.dirname(os.path.abspath(__file__))
STYLE = os.path.join(HERE, "../../.clang-format")


def write_tree(root, path, text):
    os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)
    shutil.copy(STYLE, root)


class CheckFormat(unittest.TestCase):

    @unittest.skipIf(shutil.which("clang-format") is None, "no clang-format")
    def test_a_badly_formatted_file_is_found(self):
        for path in ("base/a.h", "base/a.cc", "kernels/cuda/a.cu"):
            with self.subTest(path), tempfile.TemporaryDirectory() as root:
                write_tree(root, path, "int  F( int x ){return x;}\n")
                self.assertIn(path, check_format.badly_formatted(root))
                write_tree(root, path, "int F(int x) { return x; }\n")
                self.assertEqual(check_format.badly_formatted(root), "")

    def test_an_empty_tree_is_an_error(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertIn("no sources", check_format.badly_formatted(root))

    def run_without_clang_format(self, **variables):
        return subprocess.run(
            [sys.executable, os.path.join(HERE, "check_format.py"), HERE],
            env={"PATH": "/nonexistent", **variables}, capture_output=True,
            check=False).returncode

    def test_no_clang_format_skips_but_fails_in_ci(self):
        self.assertEqual(self.run_without_clang_format(), needs_tool.SKIPPED)
        self.assertEqual(self.run_without_clang_format(CI="true"), 1)


if __name__ == "__main__":
    unittest.main()
