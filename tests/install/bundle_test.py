"""The bundle of this build: what is in it, and that it runs in another place.

    bundle_test.py BUILD CMAKE FOLDER_OF_TORCH
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, CMAKE, TORCH = sys.argv[1:4]
MOST_MIB = 60
NO_GPU = 77
# Of libc, of torch, of CUDA and its driver: never in a bundle.
OUTSIDE = re.compile(
    r"ld-linux|lib(c|m|dl|rt|pthread|util|resolv)\.so|lib(c10|torch|shm|gomp)|"
    r"lib(cuda|cudart|cudnn|cublas|cupti|nvidia|nvrtc|nccl)")


def output_of(*words, **more):
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **more).stdout


def entries(path, tag):
    """The values of one kind in the dynamic section."""
    return re.findall(rf"\({tag}\).*\[(.*)\]", output_of("readelf", "-dW", path))


class Bundle(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="telegrad-bundle-")
        made = os.path.join(cls.scratch, "made")
        subprocess.run([CMAKE, "--install", BUILD, "--component", "bundle",
                        "--prefix", made, "--strip"],
                       check=True, stdout=subprocess.DEVNULL)
        # Elsewhere than where it was made.
        cls.folder = os.path.join(cls.scratch, "a place")
        os.rename(made, cls.folder)
        cls.programs = cls.files("bin")
        cls.libraries = cls.files("lib")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    @classmethod
    def files(cls, name):
        folder = os.path.join(cls.folder, name)
        return sorted(os.path.join(folder, each) for each in os.listdir(folder))

    def run_in_bundle(self, *words, **environment):
        """Where a machine has nothing of ours; torch is in TORCH."""
        return subprocess.run(
            words, cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env={"LD_LIBRARY_PATH": TORCH, "PATH": "/usr/bin:/bin",
                 "HOME": self.scratch, **environment})

    def test_is_small(self):
        size = sum(os.lstat(path).st_size
                   for path in self.programs + self.libraries)
        self.assertLess(size, MOST_MIB << 20)

    def test_needs_only_what_it_has_and_the_machine(self):
        names = {os.path.basename(path) for path in self.libraries}
        self.assertEqual([name for name in names if OUTSIDE.match(name)], [])
        for path in self.programs + self.libraries:
            for needed in entries(path, "NEEDED"):
                self.assertTrue(needed in names or OUTSIDE.match(needed),
                                f"{path} needs {needed}")

    def test_programs_look_beside_themselves(self):
        for path in self.programs:
            self.assertEqual(entries(path, "RPATH"), ["$ORIGIN/../lib"], path)
            self.assertEqual(entries(path, "RUNPATH"), [], path)

    def test_loads_nothing_else_of_the_machine(self):
        for path in self.programs:
            loaded = self.run_in_bundle(path, LD_TRACE_LOADED_OBJECTS="1").stdout
            self.assertNotIn("not found", loaded, path)
            # What torch brings is torch's own affair.
            if "libtorch" in loaded:
                continue
            for name, where in re.findall(r"(\S+) => (/.*) \(0x", loaded):
                self.assertTrue(
                    where.startswith(self.folder) or OUTSIDE.match(name),
                    f"{path} loads {where}")

    def test_programs_start(self):
        for path in self.programs:
            name = os.path.basename(path)
            words = {"telegrad-copy-check": ["--verify-only"],
                     "telegrad-gpu-check": ["--runs", "1"]}
            run = self.run_in_bundle(path, *words.get(name, ["--help"]),
                                     CUDA_VISIBLE_DEVICES="")
            self.assertIn(run.returncode, (0, NO_GPU), (name, run.stdout))

    def test_trains(self):
        program = os.path.join(self.folder, "bin", "telegrad-train")
        if program not in self.programs:
            self.skipTest("this build has no trainer")
        run = self.run_in_bundle(program, "--network", "mlp", "--num-epochs", "1",
                                 "--num-batches", "3", "--gc-type", "2bit", "--out",
                                 os.path.join(self.scratch, "out"))
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_says_that_there_is_no_gpu(self):
        results = os.path.join(self.scratch, "results")
        run = self.run_in_bundle(os.path.join(self.folder, "run-on-gpu"), results,
                                 CUDA_VISIBLE_DEVICES="")
        self.assertEqual(run.returncode, NO_GPU, run.stdout)
        self.assertIn("no GPU: the driver", run.stdout)
        self.assertFalse(os.path.exists(results))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
