"""Workers with different flags end with 31 and both values before a step."""

import os
import re
import unittest

from placed import PlacedTest

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                     "trainer", "flags", "identity.cc")

BASE = ["--network", "mlp", "--num-epochs", "2", "--num-batches", "3"]
# Flags of both workers; of worker 1 those that differ; else "no value" or the
# default of --help.
JOBS = [
    (BASE, {
        "--batch-size": "32", "--seed": "1", "--clip-norm": "1",
        "--dtype": "bfloat16", "--label-smoothing": "0.1", "--lr": "0.1",
        "--mom": "0.5", "--wd": "0.01", "--wd-1d": "0", "--lr-factor": "0.5",
        "--lr-step-epochs": "1", "--lr-scaling": "linear",
        "--warmup-epochs": "1", "--num-epochs": "3", "--num-batches": "4",
        "--grad-accumulation": "2", "--eval-every": "2", "--random-crop": "1",
        "--pad-size": "2", "--random-mirror": "1", "--lr-mult": "bias=2",
        "--wd-mult": "bias=0", "--chunk-elems": "65536",
        "--devices": "2", "--work-load-list": "3,1",
        "--checkpoint": "saved", "--checkpoint-every": "2",
        "--elastic": "1", "--tier1": "off"}),
    (BASE, {
        "--gc-type": "2bit", "--gc-threshold": "0.5", "--gc-rule": "fc=none",
        "--gc-warmup-steps": "3", "--gc-guard": "off", "--gc-dense-1d": None,
        "--gc-min-bytes": "0", "--gc-reply": "reencode",
        "--gc-packing": "radix", "--gc-nonfinite": "zero",
        "--gc-momentum": "off", "--gc-normalize": "off",
        "--optimizer": "nag"}),
    (BASE, {"--compare": "none,2bit", "--lr-schedule": "cosine",
            "--network": "lenet", "--data": "digits:rgb32",
            "--local-steps": "2", "--local-fragments": "2",
            "--outer-lr": "0.7", "--outer-mom": "0.9"}),
    ([*BASE, "--optimizer", "adam"],
     {"--beta1": "0.8", "--beta2": "0.99", "--epsilon": "0.5",
      "--adam-freeze-after": "1"}),
    ([*BASE, "--dtype", "float16"], {"--loss-scale": "8"}),
    ([*BASE, "--gc-type", "auto"], {"--gc-allow": "fp16"}),
    ([*BASE, "--kv-store", "dist_async", "--update-on", "server"],
     {"--max-staleness": "4"}),
    ([*BASE, "--update-on", "server"], {"--kv-store": "dist_async"}),
    ([*BASE, "--update-on", "server"], {"--drop-slowest": "1"}),
    (BASE, {"--kv-store": "allreduce"}),
    (BASE, {"--update-on": "server"}),
    ([*BASE, "--gpus", "emulated"], {"--tf32": None}),
    (["--network", "resnet", "--num-layers", "18", "--benchmark", "1",
      "--image-shape", "3,32,32"],
     {"--num-layers": "34", "--image-shape": "3,64,64", "--num-classes": "7",
      "--num-examples": "1280", "--bn-stats": "rank0"}),
    (BASE, {"--benchmark": "1"}),
    ([*BASE, "--variable-update", "horovod"],
     {"--variable-update": "distributed-all-reduce",
      "--all-reduce-spec": "pscpu"}),
    ([*BASE, "--variable-update", "parameter-server"],
     {"--local-parameter-device": "gpu"}),
]
PATH = {  # which members compare by themselves, by these names
    "--connections": ("connections", None, "2"),
    "--transport": ("transport", "tcp", "ucx"),
    "--link": ("emulated link", None, "1gbit"),
    "--resend": ("resend", None, ""),
    "--encryption": ("encryption", None, "off"),
    "--tls": ("tls", "tcp", "shm"),
}
# Refused by the rank itself, or it says which members there are.
ALONE = {"--emulate-workers", "--resume", "--reshard-residuals", "--workers"}
# A test of their own.
PARTS = {"--servers", "--workers-serve"}
# They need hardware; tests/kvstore has them.
HARDWARE = {"--plan", "--gdr", "--rails"}


def groups():
    """group -> flags, of the program's table."""
    with open(TABLE, encoding="utf-8") as file:
        table = re.search(r"kGroups\[\] = \{(.*?)\}\};", file.read(), re.S)[1]
    return {name: set(re.findall(r"--[\w-]+", flags))
            for name, flags in re.findall(r"\{(k\w+),([^}]*)", table)}


class Alike(PlacedTest):
    def refused(self, flags, extra):
        """The message that both workers end with."""
        runs, _ = self.start_torchrun(flags, extra=extra)
        self.wait_all(runs, code=31)
        messages = set()
        for run in runs:
            self.assertNotIn("Batch [", run.stdout())
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            messages.add(lines[0]["message"])
        self.assertEqual(len(messages), 1, messages)
        return messages.pop()

    def test_each_flag_has_a_group(self):
        help_text = self.run_to_end(["--help"]).stdout()
        flags = re.findall(r"^ +(?:-\w,\s*)?(--[\w-]+)", help_text, re.M)
        self.assertGreater(len(flags), 90)
        table = groups()
        self.assertCountEqual(flags, [flag for names in table.values()
                                      for flag in names])
        compared = {flag for _, differing in JOBS for flag in differing}
        self.assertEqual(
            (table["kRuns"] | table["kResults"] | table["kSteps"]) - ALONE,
            compared | PARTS)
        self.assertEqual(table["kPath"], {*PATH, *HARDWARE})

    def test_each_flag_that_decides_results_or_steps(self):
        for common, differing in JOBS:
            mine = []
            for flag, value in differing.items():
                mine += [flag] if value is None else [flag, value]
            # What worker 1 has anew does not stand twice on its line.
            own = [word for i, word in enumerate(common)
                   if word not in differing
                   and (i == 0 or common[i - 1] not in differing)]
            with self.subTest(list(differing)):
                message = self.refused(
                    [], {0: common, 1: [*own, *mine]})
                for flag, value in differing.items():
                    self.assertRegex(
                        message, rf"{flag}: worker/0 has [^;]+, worker/1 has "
                                 rf"{re.escape(value or 'true')}(;|$)")
                self.assertIn("; give all the same", message)

    def test_flags_that_decide_who_takes_part(self):
        for common, differing in (([], ["--servers", "1"]),
                                  (["--servers", "1"], ["--workers-serve"])):
            with self.subTest(differing):
                runs, _ = self.start_torchrun([*self.gradients(), *common],
                                              extra={1: differing})
                # Also where rank 0's own server, beside the scheduler, is refused.
                self.wait_all(runs, code=31)
                self.assertRegex(
                    runs[0].fatal_lines()[0]["message"],
                    rf"{differing[0]}: \S+ has \S+( value)?, \S+ has \S+")

    def test_each_flag_of_the_network(self):
        for flag, (fact, first, second) in PATH.items():
            with self.subTest(flag):
                message = self.refused(self.gradients(), {
                    0: [flag, first] if first else [],
                    1: [flag, second] if second else [flag]})
                self.assertRegex(message, rf"{fact}: worker/0 .*, worker/1 ")


if __name__ == "__main__":
    unittest.main()
