"""The power fails at any moment of a run that saves: the newest whole checkpoint loads."""

import os
import re
import shutil
import unittest

import power_cut
from harness import SystemTest

FLAGS = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
         "--num-batches", "9", "--gc-type", "2bit"]
SAVING = [*FLAGS, "--checkpoint", "disk/new/ck", "--checkpoint-every", "3"]
STATES = 400


@unittest.skipUnless(shutil.which("strace"), "strace is not installed")
class Power(SystemTest):
    def whole_steps(self, folder):
        """What the product says of it."""
        if not os.path.isdir(folder):
            return []
        said = self.run_to_end(["--show-checkpoint", folder], code=None).stdout()
        self.runs.pop()
        return [int(step) for step in re.findall(r"^step (\d+) .*: whole$", said, re.M)]

    def run_to_end(self, args, code=0, seconds=120, **more):
        run = self.start(args, **more)
        ended = self.wait(run, seconds)
        if code is not None:
            self.assertEqual(ended, code, run.output())
        return run

    def certain_after(self, operation, certain):
        """The steps that a cut may not take, behind this operation as well."""
        what, path, *more = operation
        step = re.search(r"ck/step-(\d+)$", more[0] if what == "rename" else path)
        if what == "rename" and step:
            self.renamed = int(step.group(1))
        elif what == "sync" and path.endswith("/ck") and self.renamed:
            certain = certain | {self.renamed}
        elif what == "remove" and "/ck/step-" in path:
            certain = certain - {int(re.search(r"step-(\d+)", path).group(1))}
        return certain

    def test_the_newest_whole_checkpoint_loads_whatever_was_lost(self):
        self.run_to_end(FLAGS)
        whole = self.summary()[0]["weights_sha256"]
        os.mkdir(self.path("disk"))
        self.run_to_end(SAVING, prefix=[*power_cut.STRACE, "-o", self.path("trace")])
        operations = list(power_cut.operations(self.path("trace"), self.folder,
                                               self.path("disk")))
        disk, cut = power_cut.Disk(self.path("disk")), self.path("cut")
        certain, self.renamed = frozenset(), 0
        judged, states, resumed = {}, 0, set()
        for i, operation in enumerate(operations):
            disk.do(*operation)
            certain = self.certain_after(operation, certain)
            for keeps in power_cut.fates(i):
                state = disk.after_a_cut(keeps)
                states += 1
                key = hash(frozenset(state.items()))
                if key not in judged:
                    power_cut.write(state, cut)
                    judged[key] = self.whole_steps(os.path.join(cut, "new/ck"))
                self.assertGreaterEqual(max(judged[key], default=0), max(certain, default=0),
                                        f"after {i + 1} operations, the last {operation[:2]}")
                if max(certain, default=0) not in resumed | {0}:
                    resumed.add(max(certain))
                    power_cut.write(state, cut)
                    self.run_to_end([*FLAGS, "--checkpoint", os.path.join(cut, "new/ck"),
                                     "--checkpoint-every", "3", "--resume"])
                    self.assertEqual(self.summary()[0]["weights_sha256"], whole)
        self.assertGreaterEqual(states, STATES)
        self.assertEqual(resumed, {3, 6, 9})
        print(f"{states} states, {len(judged)} different ones, behind {len(operations)} operations")


if __name__ == "__main__":
    unittest.main(verbosity=2)
