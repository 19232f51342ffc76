#!/usr/bin/env python3
"""What ./telegrad test says of tests that fail: a copy of the script runs with a
cmake that builds nothing and a ctest that prints what ctest prints. Where wheels go.

Usage: telegrad_test.py SOURCE_DIR
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))

CTEST = """#!/usr/bin/env bash
# Names in FAIL fail in the first run, those in FAIL_AGAIN in a second one, too.
log=build/release/Testing/Temporary/LastTestsFailed.log
names="${FAIL:-}"
case "$*" in *--rerun-failed*) names="${FAIL_AGAIN:-}" ;; esac
mkdir -p "${log%/*}"
echo "      Start   1: base/good"
echo "1/9 Test   #1: base/good ..............   Passed    0.02 sec"
echo "3/9 Test   #2: base/gpu ..............***Skipped    0.02 sec"
for name in $names; do
  echo "      Start   7: $name"
  echo "2/9 Test   #7: $name ..............***Failed    3.02 sec"
  echo "base/sum_test.cc:12: Failure"
  echo "Expected 3 of $name"
  seq 1 40
  echo "7:$name" >>"$log"
done
echo
[ -z "$names" ] && { echo "100% tests passed, 0 tests failed out of 9"; exit 0; }
echo "90% tests passed, 1 tests failed out of 9"
exit 8
"""


class TestCommand(unittest.TestCase):

    def run_tests(self, fail="", fail_again="", budget=None):
        """The exit code of ./telegrad test --quick and its summary; each step with
        so many minutes."""
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            shutil.copy(SOURCE / "telegrad", tree)
            if budget is not None:
                script = (tree / "telegrad").read_text()
                (tree / "telegrad").write_text(re.sub(r'(\["\w+ release"\]=)\d+',
                                                      rf"\g<1>{budget}", script))
            shutil.copy(SOURCE / "CMakePresets.json", tree)
            (tree / "build").mkdir()
            (tree / "build/.set-up").touch()  # all is there
            (tree / "bin").mkdir()
            for name, text in ("cmake", "#!/bin/sh\nmkdir -p build/release\n"), ("ctest", CTEST):
                (tree / "bin" / name).write_text(text)
                (tree / "bin" / name).chmod(0o755)
            path = f"{tree / 'bin'}:{os.environ['PATH']}"
            done = subprocess.run(
                [tree / "telegrad", "test", "--quick"], capture_output=True, text=True, timeout=60,
                env={**os.environ, "PATH": path, "FAIL": fail, "FAIL_AGAIN": fail_again})
            return done.returncode, done.stdout[done.stdout.rindex("build release"):]

    def test_all_pass(self):
        code, summary = self.run_tests()
        self.assertEqual(code, 0)
        self.assertRegex(summary, r"test release +passed, \d+ s: 100% tests passed")

    def test_one_that_fails_twice_is_named_with_its_assertion(self):
        code, summary = self.run_tests("base/bad", "base/bad")
        self.assertEqual(code, 1)
        self.assertRegex(summary, r"test release +FAILED, \d+ s: 90% tests passed")
        self.assertIn("  base/bad: Failed    3.02 sec\n", summary)
        self.assertNotIn("base/gpu", summary)
        self.assertIn("    | Expected 3 of base/bad\n", summary)

    def test_one_that_passes_alone_is_named(self):
        code, summary = self.run_tests("base/bad")
        self.assertEqual(code, 0)
        self.assertRegex(summary, r"test release +passed when run again, \d+ s: 90% tests passed")
        self.assertIn("    | Expected 3 of base/bad\n", summary)

    def test_a_step_that_takes_longer_than_it_may_is_told(self):
        warning = "  warning: more than the -1 min that docs/ci.md gives it\n"
        code, summary = self.run_tests(budget=-1)
        self.assertEqual(code, 0)
        self.assertEqual(summary.count(warning), 2, summary)
        self.assertNotIn("warning", self.run_tests()[1])

    def test_budgets_are_those_of_the_document(self):
        script = re.findall(r'\["(\w+ \w+)"\]=(\d+)', (SOURCE / "telegrad").read_text())
        document = re.findall(r"^\| (\w+ \w+) \| \d+ \| (\d+) \|$",
                              (SOURCE / "docs/ci.md").read_text(), re.M)
        self.assertEqual(len(script), 6)
        self.assertEqual(script, document)

    def test_four_are_not_run_again(self):
        code, summary = self.run_tests("base/a base/b base/c base/d")
        self.assertEqual(code, 1)
        self.assertRegex(summary, r"test release +FAILED")


# What the build was asked for is the name of the wheel.
PIP = """#!/usr/bin/env bash
to=${!#}
mkdir -p "$to"
touch "$to/${TELEGRAD_WITH_CUDA:-cuda}-${_PYTHON_HOST_PLATFORM:-here}-${SKBUILD_BUILD_DIR##*/}.whl"
"""
AUDITWHEEL = """#!/usr/bin/env bash
cp "$4" "$3"
"""


class Wheel(unittest.TestCase):
    def test_each_kind_has_a_folder_of_its_own_and_leaves_others(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            programs = tree / "build/python-tools/bin"
            programs.mkdir(parents=True)
            shutil.copy(SOURCE / "telegrad", tree)
            (tree / "build/.set-up").touch()  # all is there
            for name, text in ("pip", PIP), ("auditwheel", AUDITWHEEL):
                (programs / name).write_text(text)
                (programs / name).chmod(0o755)
            clean = {name: value for name, value in os.environ.items()
                     if name != "TELEGRAD_WITH_CUDA"}
            nvcc = tree / "nvcc"
            nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.86'\n")
            nvcc.chmod(0o755)
            kinds = [([], {}), (["--cpu"], {}), (["--cuda", "12"], {"CUDACXX": str(nvcc)})]
            if os.uname().machine == "x86_64":
                kinds.append((["--arch", "aarch64"], {}))
            for arguments, variables in kinds + [([], {"TELEGRAD_WITH_CUDA": "OFF"})]:
                done = subprocess.run([tree / "telegrad", "wheel", *arguments], check=True,
                                      timeout=60, env={**clean, **variables},
                                      capture_output=True, text=True)
                self.assertEqual(f"kernels by {nvcc}, for drivers from r525" in done.stderr,
                                 "--cuda" in arguments, done.stderr)
            found = {str(each.relative_to(tree / "build")) for each in tree.glob("build/*/*.whl")
                     if not each.parent.name.endswith("-raw")}
            wanted = ["python/cuda-here-python-cmake.whl",
                      "python-cpu/OFF-here-python-cpu-cmake.whl",
                      "python-cuda12/ON-here-python-cuda12-cmake.whl",
                      "python-aarch64/OFF-linux-aarch64-python-aarch64-cmake.whl"]
            self.assertEqual(found, set(wanted[:len(kinds)]))


# The build's arguments go into a file beside its folder.
CMAKE = """#!/usr/bin/env bash
echo "$*" >>cmake.log
case $1 in
  --preset) mkdir -p build/bundle && touch build/bundle/build.ninja ;;
  --install) mkdir -p "$6" && touch "$6/run-on-gpu" ;;
esac
"""


class Bundle(unittest.TestCase):
    def test_kernels_are_for_the_gpu_that_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            for name in ("build", "bin", "torch/lib"):
                (tree / name).mkdir(parents=True)
            shutil.copy(SOURCE / "telegrad", tree)
            shutil.copy(SOURCE / "CMakePresets.json", tree)
            (tree / "build/.set-up").touch()  # all is there
            (tree / "torch/version.py").write_text("__version__ = '2.11.0'\n")
            for name, text in ("cmake", CMAKE), ("ctest", "#!/bin/sh\n"):
                (tree / "bin" / name).write_text(text)
                (tree / "bin" / name).chmod(0o755)
            for arguments, flag, kernels in (
                    (["--arch", "H200"], "-DCMAKE_CUDA_ARCHITECTURES=90-real", "90-real"),
                    (["--arch", "12.0"], "-DCMAKE_CUDA_ARCHITECTURES=120-real", "120-real"),
                    (["--arch", "native"], "-DCMAKE_CUDA_ARCHITECTURES=native", "native"),
                    ([], "-UCMAKE_CUDA_ARCHITECTURES", "all")):
                subprocess.run(
                    [tree / "telegrad", "bundle", *arguments, tree / "made"], check=True,
                    timeout=60, capture_output=True,
                    env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}",
                         "TELEGRAD_TORCH_ROOT": str(tree / "torch")})
                configured = (tree / "cmake.log").read_text().splitlines()[-3]
                self.assertTrue(configured.startswith("--preset bundle " + flag), configured)
                made = json.loads((tree / "made/bundle.json").read_text())
                self.assertEqual(made["kernels"], kernels)


class Refused(unittest.TestCase):
    def test_what_cannot_work_is_said_before_anything_is_set_up(self):
        nowhere = "/nowhere"
        for arguments, variables, word in (
                (["demmo"], {}, "no command 'demmo'; there are demo, test,"),
                (["build", "fast"], {}, "no preset 'fast'; there are dev, release,"),
                (["setup", "--force"], {}, "no argument '--force'; setup takes --clusters, or none"),
                (["test", "--fast"], {}, "no argument '--fast'; test takes --quick"),
                (["wheel", "--chek"], {}, "no argument '--chek'; wheel takes --cpu, --cuda"),
                (["wheel", "--check", "cpu"], {}, "no argument 'cpu'; wheel takes --cpu,"),
                (["wheel", "--arch", "riscv64"], {}, "no --arch 'riscv64'; there is aarch64"),
                (["wheel", "--arch"], {}, "no --arch ''; there is aarch64"),
                (["wheel", "--cuda", "11"], {}, "no --cuda '11'; there are 12 and 13"),
                (["wheel", "--cuda", "12"], {"CUDACXX": nowhere, "PATH": "/usr/bin:/bin"},
                 "--cuda 12: no nvcc 12 in CUDACXX, PATH or /usr/local/cuda-12*; PyPI's"),
                (["pytorch", "a", "b"], {}, "no argument 'b'; pytorch takes one PYTHON"),
                (["package", "nowhere"], {}, "package: 'nowhere' is no build folder"),
                (["image", "torch"], {}, "no argument 'torch'; image takes runtime, trainer"),
                (["image", "--build", "nowhere"], {}, "--build 'nowhere' is no build folder"),
                (["bundle"], {}, "bundle needs DIR"),
                (["bundle", "--arch", "9.0"], {}, "bundle needs DIR"),
                (["bundle", "--fast", "a"], {}, "bundle needs DIR"),
                (["bundle", "--arch"], {}, "no --arch ''; there are h100"),
                (["bundle", "--arch", "h1", "a"], {}, "no --arch 'h1'; there are h100"),
                (["bundle", "--arch", "90", "a"], {}, "no --arch '90'; there are h100"),
                (["bundle", "/usr"], {}, "/usr is there and no bundle"),
                (["pytorch", nowhere], {}, "no program '/nowhere'"),
                (["pytorch"], {"TELEGRAD_TORCH_ROOT": nowhere}, "TELEGRAD_TORCH_ROOT=/nowhere"),
                (["build"], {"TELEGRAD_JOBS": "all"}, "TELEGRAD_JOBS=all"),
                (["demo", "--bogus=3"], {}, "no flag '--bogus'"),
                (["demo"], {"TELEGRAD_JOBS": "0"}, "TELEGRAD_JOBS=0")):
            with self.subTest(arguments), tempfile.TemporaryDirectory() as folder:
                shutil.copy(SOURCE / "telegrad", folder)
                done = subprocess.run([f"{folder}/telegrad", *arguments], capture_output=True,
                                      text=True, timeout=60, env={**os.environ, **variables})
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(word, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertEqual(os.listdir(folder), ["telegrad"])


if __name__ == "__main__":
    unittest.main()
