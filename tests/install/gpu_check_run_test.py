"""perf/gpu_check/run.sh with a compiler that is a script.

    gpu_check_run_test.py ROOT
"""

import glob
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv[1])
# Ends when as many run at once as there are JOBS, or in 20 s without; the program that
# it links says that there is no device.
COMPILER = """#!/bin/bash
while (($# > 0)); do
  if [[ $1 == -o ]]; then to=$2; shift; fi
  last=$1
  shift
done
if [[ $last == *.cu ]]; then
  echo "$last" >>"$FOLDER/compiled"
  for ((i = 0; i < 200; ++i)); do
    (($(wc -l <"$FOLDER/compiled") >= JOBS)) && break
    sleep 0.1
  done
  ((i < 200)) || touch "$FOLDER/alone"
  [[ $last != *"$FAILING" || -z $FAILING ]] || exit 1
  touch "$to"
else
  printf '#!/bin/bash\nexit 77\n' >"$to"
  chmod +x "$to"
fi
"""


class Run(unittest.TestCase):

    def run_script(self, failing=""):
        """(exit code, files that were compiled, whether any was so alone)."""
        with tempfile.TemporaryDirectory() as folder:
            nvcc = os.path.join(folder, "nvcc")
            with open(nvcc, "w", encoding="utf-8") as file:
                file.write(COMPILER)
            os.chmod(nvcc, 0o755)
            run = subprocess.run(
                [os.path.join(ROOT, "perf", "gpu_check", "run.sh"),
                 os.path.join(folder, "results")],
                env={**os.environ, "NVCC": nvcc, "FOLDER": folder, "JOBS": "4",
                     "FAILING": failing, "BUILD": os.path.join(folder, "build")},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            with open(os.path.join(folder, "compiled"), encoding="utf-8") as file:
                compiled = file.read().splitlines()
            return run.returncode, compiled, os.path.exists(
                os.path.join(folder, "alone"))

    def test_files_are_compiled_side_by_side(self):
        code, compiled, were_alone = self.run_script()
        self.assertEqual(code, 77)
        self.assertEqual(sorted(compiled), sorted(
            path for folder in ("perf/gpu_check", "kernels/cuda")
            for path in glob.glob(folder + "/*.cu", root_dir=ROOT)))
        self.assertFalse(were_alone)

    def test_a_file_that_does_not_compile_ends_it(self):
        self.assertEqual(self.run_script("kernels/cuda/sign.cu")[0], 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
