"""run-on-gpu's order of work, with programs that are scripts.

    run_on_gpu_test.py ROOT
"""

import contextlib
import glob
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

ROOT = os.path.abspath(sys.argv[1])
SCRIPT = os.path.join(ROOT, "perf", "run_on_gpu", "run-on-gpu")
loader = SourceFileLoader("run_on_gpu", SCRIPT)
run_on_gpu = module_from_spec(spec_from_loader("run_on_gpu", loader))
sys.modules["run_on_gpu"] = run_on_gpu
sys.dont_write_bytecode = True
loader.exec_module(run_on_gpu)
Command = run_on_gpu.Command


class RunOnGpu(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.results = os.path.join(self.folder, "results")
        for name in ("bin", "torch", "results"):
            os.mkdir(os.path.join(self.folder, name))
        self.bundle = run_on_gpu.Bundle(self.folder, None)
        self.all_parts = dict(run_on_gpu.PARTS)
        self.addCleanup(self.restore)

    def restore(self):
        run_on_gpu.PARTS.clear()
        run_on_gpu.PARTS.update(self.all_parts)

    def program(self, name, script):
        path = os.path.join(self.folder, "bin", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)

    def run_parts(self, parts, total_s=100, archive=None):
        """(exit code, what was printed, the parts' results)."""
        run_on_gpu.PARTS.clear()
        run_on_gpu.PARTS.update(parts)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = run_on_gpu.run_all(self.bundle, list(parts), self.results, {},
                                      total_s, archive)
        reports = {}
        for part in parts:
            with open(os.path.join(self.results, part + ".json"),
                      encoding="utf-8") as file:
                reports[part] = json.load(file)
        return code, printed.getvalue(), reports

    def test_every_program_is_one_of_the_bundle_and_is_built(self):
        def text(*path):
            with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
                return file.read()
        listed = text("cmake", "TelegradBundle.cmake")
        bundled = listed.partition("foreach(program ")[2].partition(")")[0].split()
        self.assertGreater(len(bundled), 5)
        lists = "".join(
            text(path) for path in glob.glob("**/CMakeLists.txt", root_dir=ROOT,
                                             recursive=True)
            if not path.startswith("build"))
        for program in bundled:
            name = program.removeprefix("test_").replace("_", "/", 1)
            built = (r"add_executable\(%s\b|telegrad_test\(NAME (%s|%s)\s"
                     % (program, name, program.removeprefix("test_")))
            self.assertTrue(re.search(built, lists), program)
        for part, commands in self.all_parts.items():
            for command in commands:
                if os.path.isfile(os.path.join(os.path.dirname(SCRIPT), command.words[0])):
                    self.assertIn(f"run_on_gpu/{command.words[0]} ", listed)
                else:
                    self.assertIn(command.words[0], bundled, part)

    def test_every_filter_takes_tests(self):
        lines = []
        for path in glob.glob("tests/*/**/*_test.cc", root_dir=ROOT, recursive=True):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                lines += [line for line in file if line.startswith("TEST")]
        for commands in self.all_parts.values():
            for word in (word for each in commands for word in each.words):
                _, found, pattern = word.partition("--gtest_filter=*")
                # Tables of kernels give their tests' names.
                if not found or pattern == "cuda*":
                    continue
                self.assertTrue(any(pattern.strip("*") in line for line in lines),
                                word)

    def test_every_counted_kernel_is_one(self):
        kernels = set()
        for path in glob.glob("kernels/cuda/*.cu*", root_dir=ROOT):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                kernels.update(re.findall(r"__global__ void\s+(?:__launch_bounds__\([^()]*"
                                          r"\)\s+)?(\w+)\(", file.read()))
        counted = run_on_gpu.COUNTED.split("|")
        self.assertEqual([name for name in counted if name not in kernels], [])
        tool = self.all_parts["counters"][0].tool
        self.assertTrue(re.fullmatch(tool[-1].removeprefix("regex:"), counted[0]))

    def test_every_variable_is_one_that_tests_read(self):
        text = ""
        for path in glob.glob("tests/**/*.h", root_dir=ROOT, recursive=True):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                text += file.read()
        for commands in self.all_parts.values():
            for name in (name for each in commands for name in each.environment):
                self.assertIn(f'"{name}"', text)

    def test_libraries_are_torchs_and_the_drivers(self):
        for name in ("driver", "others"):
            os.mkdir(os.path.join(self.folder, name))
        driver = os.path.join(self.folder, "driver")
        open(os.path.join(driver, "libcuda.so.1"), "w").close()
        before = os.environ.get("LD_LIBRARY_PATH")
        self.addCleanup(lambda: os.environ.pop("LD_LIBRARY_PATH", None)
                        if before is None
                        else os.environ.update(LD_LIBRARY_PATH=before))
        os.environ["LD_LIBRARY_PATH"] = os.path.join(self.folder, "others")
        self.assertNotIn("LD_LIBRARY_PATH", self.bundle.environment())
        os.environ["LD_LIBRARY_PATH"] += ":" + driver
        self.assertEqual(self.bundle.environment()["LD_LIBRARY_PATH"], driver)
        self.bundle.torch = "/torch/lib"
        self.assertEqual(self.bundle.environment()["LD_LIBRARY_PATH"],
                         "/torch/lib:" + driver)

    def test_a_part_that_fails_stops_no_other_and_is_told(self):
        self.program("good", "echo $1 > $2; echo done")
        self.program("bad", "echo no such kernel; exit 3")
        code, printed, reports = self.run_parts({
            "bad": [Command(("bad",), 9), Command(("good",), 9)],
            "good": [Command(("good", "x", "{results}/rows"), 9)]})
        self.assertEqual(code, 1)
        self.assertEqual(reports["bad"]["outcome"], "failed")
        self.assertEqual(reports["bad"]["why"], "exit code 3: no such kernel")
        self.assertEqual(len(reports["bad"]["commands"]), 1)
        self.assertEqual(reports["good"]["outcome"], "passed")
        self.assertEqual(reports["good"]["commands"][0]["output"], "done\n")
        self.assertTrue(os.path.exists(os.path.join(self.results, "rows")))
        self.assertRegex(printed, r"bad +failed")

    def test_what_is_not_there_is_left_out_by_name(self):
        self.program("old", "echo flags: --size")
        code, _, reports = self.run_parts({
            "program": [Command(("none",), 9)],
            "flag": [Command(("old", "push", "--memory"), 9,
                             needs=("push", "--memory"))],
            "tool": [Command(("old",), 9, tool=("no-such-tool",))],
            "torch": [Command(("old",), 9, takes_torch=True)]})
        self.assertEqual(code, 0)
        self.assertEqual({part: (each["outcome"], each["commands"])
                          for part, each in reports.items()},
                         {part: ("left out", []) for part in reports})
        self.assertEqual(reports["program"]["why"], "the bundle has no none")
        self.assertEqual(reports["flag"]["why"], "old push has no --memory")
        self.assertEqual(reports["tool"]["why"], "no-such-tool is not installed")
        self.assertIn("--torch", reports["torch"]["why"])

    def test_a_network_that_the_trainer_has_not_is_left_out(self):
        open(os.path.join(self.folder, "torch", "libtorch_cpu.so"), "w").close()
        self.bundle.torch = run_on_gpu.find_torch(
            os.path.join(self.folder, "torch"))
        self.assertEqual(self.bundle.torch,
                         os.path.realpath(os.path.join(self.folder, "torch")))
        self.program("telegrad-train", """
echo "Networks:"
echo "  lenet    two convolutions"
echo "  vgg16    gradient profile"
echo "Data:"
echo "  resnet50 no network"
echo "libraries: $LD_LIBRARY_PATH"
""")
        code, _, reports = self.run_parts({
            name: [run_on_gpu.train("--network", name, limit_s=9)]
            for name in ("lenet", "vgg16", "resnet50")})
        self.assertEqual(code, 0)
        self.assertEqual([each["outcome"] for each in reports.values()],
                         ["passed", "left out", "left out"])
        ran = reports["lenet"]["commands"][0]
        self.assertIn("libraries: " + self.bundle.torch, ran["output"])
        self.assertEqual(ran["words"][-1], os.path.join(self.results, "lenet"))

    def test_another_pytorch_is_named(self):
        lib = os.path.join(self.folder, "torch", "lib")
        os.mkdir(lib)
        with open(os.path.join(self.folder, "bundle.json"), "w",
                  encoding="utf-8") as file:
            json.dump({"torch": "2.11.0+cu130"}, file)
        self.bundle = run_on_gpu.Bundle(self.folder, lib)
        self.program("trains", "exit 0")
        for version, outcome in (("2.11.1+cu130", "passed"), ("2.8.0", "left out")):
            with open(os.path.join(self.folder, "torch", "version.py"), "w",
                      encoding="utf-8") as file:
                file.write(f"__version__ = '{version}'\n")
            _, _, reports = self.run_parts(
                {"train": [Command(("trains",), 9, takes_torch=True)]})
            self.assertEqual(reports["train"]["outcome"], outcome)
        self.assertIn("PyTorch 2.8.0 in", reports["train"]["why"])
        self.assertIn("made with 2.11.0+cu130", reports["train"]["why"])

    def test_time_ends_a_part_and_the_whole(self):
        self.program("endless", "echo begun; sleep 1000 & sleep 1000")
        code, _, reports = self.run_parts({
            "endless": [Command(("endless",), 1)],
            "late": [Command(("endless",), 9)]}, total_s=5.5)
        self.assertEqual(code, 1)
        self.assertEqual(reports["endless"]["why"], "did not end in 1 s: begun")
        self.assertIsNone(reports["endless"]["commands"][0]["exit_code"])
        self.assertEqual(reports["late"]["why"], "its time is over (--seconds)")

    def test_each_family_is_a_process_and_a_line(self):
        self.program("tests", r"""
case "$*" in
*--gtest_list_tests*) printf 'A/Sign.\n  Works/cuda  # GetParam()\nA/Cast.\n  Does/cuda\n' ;;
*A/Sign*) echo "illegal address"; exit 1 ;;
*) echo "ran $*" ;;
esac""")
        code, printed, reports = self.run_parts({
            "few": [Command(("tests", "--gtest_filter=*cuda*"), 9, by_family=True)]})
        self.assertEqual(code, 1)
        self.assertEqual([each["words"][-1] for each in reports["few"]["commands"]],
                         ["--gtest_filter=A/Sign.*cuda*", "--gtest_filter=A/Cast.*cuda*"])
        self.assertEqual(reports["few"]["why"],
                         "--gtest_filter=A/Sign.*cuda* exit code 1: illegal address")
        self.assertIn("few A/Sign.*cuda* ...", printed)
        # Of a pattern for suites each one's tests are taken.
        self.assertEqual(run_on_gpu.filter_of("A/GpuCodecBatch.", "*GpuCodecBatch*"),
                         "A/GpuCodecBatch.*")
        self.assertIn("ran", reports["few"]["commands"][1]["output"])

    def test_a_long_output_keeps_head_tail_and_a_log(self):
        self.program("long", "echo first fault; seq 1 9000; echo last line")
        _, _, reports = self.run_parts({"long": [Command(("long",), 9)]})
        output = reports["long"]["commands"][0]["output"]
        self.assertTrue(output.startswith("first fault\n1\n"))
        self.assertTrue(output.endswith("9000\nlast line\n"))
        self.assertLess(len(output), 13000)
        with open(os.path.join(self.results, "long.log"), encoding="utf-8") as file:
            self.assertIn("\n5000\n", file.read())

    def test_the_archive_is_whole_after_each_part(self):
        path = os.path.join(self.folder, "all.tar.gz")
        seen = os.path.join(self.folder, "seen")
        self.program("first", "echo 1 > $1")
        self.program("second", f"cp {path} {seen}")
        self.run_parts({"one": [Command(("first", "{results}/rows"), 9)],
                        "two": [Command(("second",), 9)]}, archive=path)
        for archive, names in ((seen, ["one.json", "one.log", "rows"]),
                               (path, ["one.json", "one.log", "rows", "two.json",
                                       "two.log"])):
            with tarfile.open(archive) as whole:
                self.assertEqual(sorted(whole.getnames()), names)

    def test_what_does_not_end_when_it_is_killed_is_left_behind(self):
        # A process of another session keeps the pipe open, as one in the driver does.
        pid = os.path.join(self.folder, "pid")
        self.program("stuck", f"echo begun; setsid sh -c 'echo $$ > {pid}; exec sleep 1000'")
        before = run_on_gpu.STUCK_S
        run_on_gpu.STUCK_S = 1
        try:
            code, _, reports = self.run_parts({"stuck": [Command(("stuck",), 1)]})
        finally:
            run_on_gpu.STUCK_S = before
            with open(pid, encoding="utf-8") as file:
                os.kill(int(file.read()), signal.SIGKILL)
        self.assertEqual(code, 1)
        output = reports["stuck"]["commands"][0]["output"]
        self.assertTrue(output.startswith("begun\n"), output)
        self.assertIn("does not end although it was killed", output)

    def test_clocks_stay_and_counters_are_kept(self):
        for commands in self.all_parts.values():
            for tool in (each.tool for each in commands if each.tool[:1] == ("ncu",)):
                self.assertEqual(tool[tool.index("--clock-control") + 1], "none")
                self.assertIn("{results}/", tool[tool.index("--log-file") + 1])

    def test_few_sizes_come_first(self):
        first = self.all_parts[next(iter(self.all_parts))][0]
        self.assertEqual(first.environment["TELEGRAD_TEST_SIZES"], "few")
        self.assertTrue(first.by_family)

    def test_pytorchs_libraries_are_read_ahead(self):
        lib = os.path.join(self.folder, "packages", "torch", "lib")
        nvidia = os.path.join(self.folder, "packages", "nvidia", "cudnn", "lib")
        for folder in (lib, nvidia):
            os.makedirs(folder)
        os.mkfifo(os.path.join(lib, "libtorch_cpu.so"))
        os.mkfifo(os.path.join(nvidia, "libcudnn.so.9"))
        run_on_gpu.read_ahead(lib)
        for path in (os.path.join(lib, "libtorch_cpu.so"),
                     os.path.join(nvidia, "libcudnn.so.9")):
            with open(path, "wb") as file:  # returns when it is read
                file.write(b"read")

    def test_what_runs_ends_with_it(self):
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        self.program("endless", f"exec 3>{pipe}; echo begun >&3; sleep 1000")
        script = ("import sys\nimport run_on_gpu_test\n"
                  "tool, folder = run_on_gpu_test.run_on_gpu, sys.argv[2]\n"
                  "tool.HERE, tool.probe_gpus = folder, lambda: (['a GPU'], '12.0', '')\n"
                  "tool.PARTS.clear()\n"
                  "tool.PARTS['endless'] = [tool.Command(('endless',), 60)]\n"
                  "tool.main([folder + '/results'])\n")
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([sys.executable, "-B", "-c", script, ROOT, self.folder],
                                  cwd=os.path.dirname(os.path.abspath(__file__)),
                                  stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as process, \
                    open(pipe, encoding="utf-8") as file:
                self.assertEqual(file.readline(), "begun\n")
                process.send_signal(number)
                self.assertNotEqual(process.wait(30), 0)
                # Its end: all that could write to it have ended.
                self.assertTrue(select.select([file], [], [], 30)[0], number)

    def test_measures_before_sanitizers(self):
        parts = list(self.all_parts)
        slow = min(parts.index(each) for each in ("memcheck", "racecheck"))
        self.assertLess(max(parts.index(each) for each in parts if each.startswith(
            ("kernel", "copies", "store", "train", "timeline"))), slow)

    def test_wrong_usage_ends_with_2(self):
        for words in (["results", "--only", "nothing"], [],
                      ["results", "--torch", self.folder],
                      ["results", "--seconds", "1"]):
            with self.subTest(words), self.assertRaises(SystemExit) as end, \
                    contextlib.redirect_stderr(io.StringIO()):
                run_on_gpu.main(words)
            self.assertEqual(end.exception.code, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
