#!/usr/bin/env python3
"""What GCC compiles and clang does not must be found."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_clang
import needs_tool

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = "#include <utility>\ninline int Header() { return 1; }\n"
# A function in a function is an extension of GCC alone.
GCCS = "int F() { int a = Header(); int G(int b) { return a + b; } return G(1); }\n"
EVERYBODYS = "int F() { return Header(); }\n"


def complaints(sources, header=HEADER):
    """Of a tree with these sources, and a header that is precompiled."""
    with tempfile.TemporaryDirectory() as root:
        build = os.path.join(root, "build")
        os.makedirs(build)
        entries = []
        pch = os.path.join(build, "cmake_pch.hxx")
        for name, text in {**sources, pch: header}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            if path != pch:
                entries.append({"file": path, "command":
                                f"ccache c++ -Werror -Winvalid-pch -include {pch} -o a.o -c {path}"})
        with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump(entries, file)
        return check_clang.unreadable(root, build)


class CheckClang(unittest.TestCase):

    @unittest.skipIf(shutil.which("clang++") is None, "no clang++")
    def test_what_clang_cannot_read_is_found(self):
        self.assertEqual(complaints({"base/a.cc": EVERYBODYS, "kvstore/x/b.cc": EVERYBODYS}), "")
        for path in ("base/a.cc", "kvstore/x/b.cc", "build/kvstore/unity.cxx"):
            self.assertIn(os.path.basename(path), complaints({path: GCCS, "base/c.cc": EVERYBODYS}))

    @unittest.skipIf(shutil.which("clang++") is None, "no clang++")
    def test_a_header_that_clang_cannot_read_is_found(self):
        self.assertIn("cmake_pch", complaints({"base/a.cc": EVERYBODYS}, GCCS))

    @unittest.skipIf(shutil.which("clang++") is None, "no clang++")
    def test_tests_and_cuda_are_not_read(self):
        self.assertEqual(complaints({"base/a.cc": EVERYBODYS, "tests/base/b.cc": GCCS,
                                     "kernels/cuda/c.cu": GCCS}), "")

    def test_nothing_to_read_is_an_error(self):
        self.assertIn("no sources", complaints({"tests/a.cc": EVERYBODYS}))

    def run_without_clang(self, **variables):
        return subprocess.run(
            [sys.executable, os.path.join(HERE, "check_clang.py"), HERE, HERE],
            env={"PATH": "/nonexistent", **variables}, capture_output=True, check=False).returncode

    def test_no_clang_skips_but_fails_in_ci(self):
        self.assertEqual(self.run_without_clang(), needs_tool.SKIPPED)
        self.assertEqual(self.run_without_clang(CI="true"), 1)


if __name__ == "__main__":
    unittest.main()
