#!/usr/bin/env python3
"""`python -m telegrad.run` with scripts that know nothing of Telegrad: as two ranks, as
one process, and where a rank ends by itself."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import workers

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    workers.skip(f"python3-torch is not installed: {why}")

from torch.nn.parallel import DistributedDataParallel as DDP

RANK = int(os.environ.get("RANK", -1))
FILE = os.path.abspath(__file__)


# ---- what a rank does ----

def exits(_):
    """Rank 0 waits in backward for rank 1, which catches an error and ends."""
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(32, 64))
    try:
        if RANK == 1:
            raise ValueError("bad batch")
        model(torch.ones(8, 32)).sum().backward()
    except ValueError:
        sys.exit(3)


def alone(_):
    """Makes no DDP; ends as it should."""
    torch.optim.SGD(torch.nn.Linear(3, 4).parameters(), lr=1)
    sys.exit()


def adam(_):
    torch.optim.AdamW(torch.nn.Linear(3, 4).parameters())


# ---- the tests ----

class Run(unittest.TestCase):
    def ranks(self, function, gc_type="2bit", num=2):
        return workers.Ranks(FILE, function.__name__, num,
                             runner=("-m", "telegrad.run", "--gc-type", gc_type)).wait()

    def script(self, *words):
        """Two ranks of a script that knows nothing of Telegrad, with 2bit."""
        environment = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(workers.free_port()), OMP_NUM_THREADS="1")
        return workers.run_all(
            [["-m", "telegrad.run", "--gc-type", "2bit", *words]] * 2, environment)

    def test_the_example_trains(self):
        with tempfile.TemporaryDirectory() as folder:
            for part, count in (("train", 256), ("t10k", 32)):
                for name, size in ((f"{part}-images-idx3-ubyte", 16 + 784 * count),
                                   (f"{part}-labels-idx1-ubyte", 8 + count)):
                    with open(os.path.join(folder, name), "wb") as file:
                        file.write(bytes(i % 10 for i in range(size)))
            (_, out, err), _ = self.script(os.path.join(
                os.path.dirname(FILE), "..", "..", "examples", "ddp_mnist.py"), folder)
        self.assertRegex(out, r"test accuracy \d+\.\d\d %")
        self.assertRegex(err, r"in 4 steps: pushed .* \(15\.\d\dx\), pulled")

    def test_a_script_is_compressed_without_a_line(self):
        ended = self.script(os.path.join(os.path.dirname(FILE), "train_script.py"), "5")
        (loss, _), (other, _) = [re.search(r"weights (\S+)()", out).groups()
                                 for _, out, _ in ended]
        self.assertEqual(loss, other)
        self.assertRegex(ended[0][2], r"2bit for 1 tensor of 2,048 elements")
        self.assertRegex(ended[0][2], r"in 5 steps: pushed .* \(\d+\.\d\dx\), pulled")
        self.assertEqual(ended[1][2], "")

    def test_a_rank_that_exits_ends_the_others_with_what_it_caught(self):
        (code, _, err), (exited, _, _) = self.ranks(exits)
        self.assertIn("worker 1: ValueError: bad batch", err)
        self.assertEqual((code, exited), (70, 3), err)

    def test_one_process_is_told_that_nothing_was_compressed(self):
        (code, _, err), = self.ranks(alone, num=1)
        self.assertEqual(code, 0)
        self.assertRegex(err, "^telegrad: this process .*compressed nothing; .*torchrun\n$")

    def test_the_path_of_modules_is_the_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write("import sys\nprint(sys.path)\n")
            for safe in ("", "1"):
                environment = dict(os.environ, PYTHONSAFEPATH=safe)
                alone, compressed = [
                    subprocess.run([sys.executable, "-B", *runner, script], check=True,
                                   timeout=60, env=environment, capture_output=True,
                                   text=True).stdout
                    for runner in ((), ("-m", "telegrad.run"))]
                self.assertEqual(alone, compressed)

    def test_what_cannot_run_is_refused_in_one_line_with_the_way_out(self):
        for words, told in (
                (["--gc-typ", "int2", FILE], "no flag '--gc-typ'; did you mean --gc-type?"),
                (["--gctype=int2", FILE], "no flag '--gctype'; did you mean --gc-type?"),
                (["--gc-type", "2bits", FILE], "no codec '2bits'"),
                (["--gc-type", "topk:2", FILE], "density='2' is not a number from"),
                (["--gc-type", "auto", "nosuch.py"], "no script nosuch.py"),
                ([], "arguments are required: script (")):
            with self.subTest(words=words):
                ended = subprocess.run([sys.executable, "-B", "-m", "telegrad.run", *words],
                                       timeout=60, capture_output=True, text=True)
                self.assertEqual(ended.returncode, 2)
                self.assertIn(told, ended.stderr)
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)

    def test_rank_0_is_warned_of_adam_with_two_bits(self):
        (_, _, err), (_, _, other) = self.ranks(adam)
        self.assertIn("2bit with AdamW", err)
        self.assertEqual(other, "")
        (_, _, err), = self.ranks(adam, "int8", num=1)
        self.assertNotIn("AdamW", err)


if __name__ == "__main__":
    workers.main({function.__name__: function for function in (exits, alone, adam)})
